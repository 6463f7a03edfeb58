"""Checks of the baseline level, which prevents known privilege escalations. Source: k8s.io/pod-security-admission policy/check_*.go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Results of checks, in upstream's words. Source: k8s.io/pod-security-admission policy/helpers.go.


class Violation(NamedTuple):
    """A violation of a Pod Security Standard; ``detail`` may be empty."""

    reason: str
    detail: str

    def __str__(self) -> str:
        return f"{self.reason} ({self.detail})" if self.detail else self.reason


class Pod(NamedTuple):
    """Metadata and spec of a pod or a pod template."""

    metadata: JSONObject
    spec: JSONObject


#: A check returns None for a pod that satisfies it.
Check = Callable[[Pod], Violation | None]


def containers(spec: JSONObject) -> Iterator[JSONObject]:
    """Yield all containers of a pod, in the order in which messages name them."""
    for kind in ("initContainers", "containers", "ephemeralContainers"):
        yield from spec.get(kind) or ()


def security(spec: JSONObject) -> JSONObject:
    """Return the security context of a container or a pod spec, or an empty object if there is none."""
    result: JSONObject = spec.get("securityContext") or {}
    return result


def quoted(names: Iterable[str]) -> str:
    """Return the names in double quotes, joined with commas."""
    return ", ".join(f'"{name}"' for name in names)


def plural(names: Iterable[Any], singular: str, many: str) -> str:
    """Return ``singular`` if there is one name, else the plural ``many``."""
    return singular if len(list(names)) == 1 else many


def named(names: list[str]) -> str:
    """Return containers as text for a message: ``container "a"`` or ``containers "a", "b"``."""
    return f"{plural(names, 'container', 'containers')} {quoted(names)}"


def setters(pod: bool, names: list[str]) -> str:
    """Return the subjects of a message: ``pod``, containers, both, or the empty string."""
    return " and ".join((["pod"] if pod else []) + ([named(names)] if names else []))


def in_user_namespace(spec: JSONObject) -> bool:
    """Return whether a pod runs in a user namespace, where its root user has no privileges on the node. Source: KEP-127."""
    return spec.get("hostUsers") is False


def is_windows(spec: JSONObject) -> bool:
    """Return whether a pod declares that it runs on Windows."""
    return (spec.get("os") or {}).get("name") == "windows"


_CAPABILITIES = frozenset(
    [
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    ]
)
_APP_ARMOR = "container.apparmor.security.beta.kubernetes.io/"
_SECCOMP_POD = "seccomp.security.alpha.kubernetes.io/pod"
_SECCOMP_CONTAINER = "container.seccomp.security.alpha.kubernetes.io/"
SECCOMP_PROFILES = frozenset({"RuntimeDefault", "Localhost"})

_SELINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t"})
_SYSCTLS = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.ping_group_range",
        "net.ipv4.ip_unprivileged_port_start",
    }
)
_SYSCTLS_27 = _SYSCTLS | {"net.ipv4.ip_local_reserved_ports"}
_SYSCTLS_29 = _SYSCTLS_27 | {f"net.ipv4.tcp_{name}" for name in ("keepalive_time", "fin_timeout", "keepalive_intvl", "keepalive_probes")}
_SYSCTLS_32 = _SYSCTLS_29 | {"net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"}


def app_armor(pod: Pod) -> Violation | None:
    """Check that AppArmor profiles are not disabled."""

    def faulty(spec: JSONObject) -> str | None:
        profile = security(spec).get("appArmorProfile")
        kind = None if profile is None else profile.get("type", "")
        return None if kind is None or kind in SECCOMP_PROFILES else kind

    bad = [one["name"] for one in containers(pod.spec) if faulty(one) is not None]
    values = sorted({kind for one in (pod.spec, *containers(pod.spec)) if (kind := faulty(one)) is not None})
    who = setters(faulty(pod.spec) is not None, bad)
    annotations = sorted(
        f"{key}={go_quoted(value)}"
        for key, value in (pod.metadata.get("annotations") or {}).items()
        if key.startswith(_APP_ARMOR) and value not in ("", "runtime/default") and not value.startswith("localhost/")
    )
    if annotations:
        values += annotations
        who = " and ".join(filter(None, (who, plural(annotations, "annotation", "annotations"))))
    if not who:
        return None
    reason = plural(values, "forbidden AppArmor profile", "forbidden AppArmor profiles")
    return Violation(reason, f"{who} must not set AppArmor profile type to {quoted(values)}")


def capabilities(pod: Pod) -> Violation | None:
    """Check that containers add no capability outside the default set."""
    bad, added = [], set()
    for one in containers(pod.spec):
        beyond = set((security(one).get("capabilities") or {}).get("add") or ()) - _CAPABILITIES
        if beyond:
            bad.append(one["name"])
            added |= beyond
    if not bad:
        return None
    return Violation(
        "non-default capabilities", f"{named(bad)} must not include {quoted(sorted(added))} in securityContext.capabilities.add"
    )


def host_namespaces(pod: Pod) -> Violation | None:
    """Check that a pod does not share network, PID or IPC namespace with its node."""
    value = [f"{name}=true" for name in ("hostNetwork", "hostPID", "hostIPC") if pod.spec.get(name)]
    return Violation("host namespaces", ", ".join(value)) if value else None


def host_paths(pod: Pod) -> Violation | None:
    """Check that a pod mounts no hostPath volume."""
    bad = [volume["name"] for volume in pod.spec.get("volumes") or () if volume.get("hostPath") is not None]
    return Violation("hostPath volumes", f"{plural(bad, 'volume', 'volumes')} {quoted(bad)}") if bad else None


def host_ports(pod: Pod) -> Violation | None:
    """Check that containers use no host port."""
    bad, ports = [], set()
    for one in containers(pod.spec):
        own = {str(port["hostPort"]) for port in one.get("ports") or () if port.get("hostPort")}
        if own:
            bad.append(one["name"])
            ports |= own
    if not bad:
        return None
    uses, word = plural(bad, "uses", "use"), plural(ports, "hostPort", "hostPorts")
    return Violation("hostPort", f"{named(bad)} {uses} {word} {', '.join(sorted(ports))}")


def probe_hosts(pod: Pod) -> Violation | None:
    """Check that probes and lifecycle hooks name no host."""
    bad, hosts = set(), set()
    for one in containers(pod.spec):
        lifecycle = one.get("lifecycle") or {}
        handlers = [one.get("livenessProbe"), one.get("readinessProbe"), one.get("startupProbe")]
        handlers += [lifecycle.get("postStart"), lifecycle.get("preStop")]
        own = set(_hosts(handlers))
        if own:
            bad.add(one["name"])
            hosts |= own
    if not bad:
        return None
    who, word = sorted(bad), plural(hosts, "probe or lifecycle host", "probe or lifecycle hosts")
    return Violation("probe or lifecycle host", f"{named(who)} {plural(who, 'uses', 'use')} {word} {quoted(sorted(hosts))}")


def _hosts(handlers: Iterable[JSONObject | None]) -> Iterable[str]:
    for handler in handlers:
        for kind in ("httpGet", "tcpSocket"):
            host = ((handler or {}).get(kind) or {}).get("host")
            if host:
                yield host


def privileged(pod: Pod) -> Violation | None:
    """Check that no container is privileged."""
    bad = [one["name"] for one in containers(pod.spec) if security(one).get("privileged")]
    return Violation("privileged", f"{named(bad)} must not set securityContext.privileged=true") if bad else None


def proc_mount(pod: Pod) -> Violation | None:
    """Check that containers keep the default /proc mount."""
    kinds = [(one["name"], security(one).get("procMount")) for one in containers(pod.spec)]
    bad = [(name, kind) for name, kind in kinds if kind is not None and kind != "Default"]
    if not bad:
        return None
    values = quoted(sorted({kind for _, kind in bad}))
    return Violation("procMount", f"{named([name for name, _ in bad])} must not set securityContext.procMount to {values}")


def proc_mount_35(pod: Pod) -> Violation | None:
    """Check the /proc mount by the rule of 1.35 and later, which allows every mount type in a user namespace."""
    return None if in_user_namespace(pod.spec) else proc_mount(pod)


def selinux(types: frozenset[str]) -> Check:
    """Return a check of SELinux options that allows these types."""

    def check(pod: Pod) -> Violation | None:
        def options(spec: JSONObject) -> JSONObject:
            result: JSONObject = security(spec).get("seLinuxOptions") or {}
            return result

        def faulty(spec: JSONObject) -> bool:
            own = options(spec)
            return own.get("type", "") not in types or bool(own.get("user")) or bool(own.get("role"))

        who = setters(faulty(pod.spec), [one["name"] for one in containers(pod.spec) if faulty(one)])
        if not who:
            return None
        everywhere = [options(one) for one in (pod.spec, *containers(pod.spec))]
        kinds = sorted({kind for own in everywhere if (kind := own.get("type", "")) not in types})
        data = [f"{plural(kinds, 'type', 'types')} {quoted(kinds)}"] if kinds else []
        data += [f"{name} may not be set" for name in ("user", "role") if any(own.get(name) for own in everywhere)]
        return Violation("seLinuxOptions", f"{who} set forbidden securityContext.seLinuxOptions: {'; '.join(data)}")

    return check


def seccomp_annotations(pod: Pod) -> Violation | None:
    """Check that the seccomp annotations of Kubernetes before 1.19 name the default profile or a local profile."""
    annotations = pod.metadata.get("annotations") or {}
    keys = [_SECCOMP_POD, *(_SECCOMP_CONTAINER + one["name"] for one in containers(pod.spec))]
    bad = sorted({f"{key}={go_quoted(annotations[key])}" for key in keys if key in annotations and not _seccomp_name(annotations[key])})
    return Violation("seccompProfile", f"forbidden {plural(bad, 'annotation', 'annotations')} {', '.join(bad)}") if bad else None


def _seccomp_name(value: str) -> bool:
    return value in ("runtime/default", "docker/default") or value.startswith("localhost/")


def seccomp_type(spec: JSONObject) -> str | None:
    """Return the type of the seccomp profile of a pod spec or a container, or None if there is none."""
    profile = security(spec).get("seccompProfile")
    return None if profile is None else profile.get("type", "")


def seccomp(pod: Pod) -> Violation | None:
    """Check that no seccomp profile is Unconfined."""

    def faulty(spec: JSONObject) -> bool:
        kind = seccomp_type(spec)
        return kind is not None and kind not in SECCOMP_PROFILES

    who = setters(faulty(pod.spec), [one["name"] for one in containers(pod.spec) if faulty(one)])
    if not who:
        return None
    values = quoted(sorted({seccomp_type(one) or "" for one in (pod.spec, *containers(pod.spec)) if faulty(one)}))
    return Violation("seccompProfile", f"{who} must not set securityContext.seccompProfile.type to {values}")


def sysctls(allowed: frozenset[str]) -> Check:
    """Return a check that allows these sysctls."""

    def check(pod: Pod) -> Violation | None:
        bad = [one["name"] for one in security(pod.spec).get("sysctls") or () if one["name"] not in allowed]
        return Violation("forbidden sysctls", ", ".join(bad)) if bad else None

    return check


def windows_host_process(pod: Pod) -> Violation | None:
    """Check that no Windows container is a host process."""

    def faulty(spec: JSONObject) -> bool:
        return bool((security(spec).get("windowsOptions") or {}).get("hostProcess"))

    who = setters(faulty(pod.spec), [one["name"] for one in containers(pod.spec) if faulty(one)])
    return Violation("hostProcess", f"{who} must not set securityContext.windowsOptions.hostProcess=true") if who else None


#: Name of a check -> its versions: the minor version of Kubernetes 1 from which on it applies, and the check.
BASELINE: dict[str, tuple[tuple[int, Check], ...]] = {
    "appArmorProfile": ((0, app_armor),),
    "capabilities_baseline": ((0, capabilities),),
    "hostNamespaces": ((0, host_namespaces),),
    "hostPathVolumes": ((0, host_paths),),
    "hostPorts": ((0, host_ports),),
    "hostProbesAndHostLifecycle": ((34, probe_hosts),),
    "privileged": ((0, privileged),),
    "procMount": ((0, proc_mount), (35, proc_mount_35)),
    "seLinuxOptions": ((0, selinux(_SELINUX_TYPES)), (31, selinux(_SELINUX_TYPES | {"container_engine_t"}))),
    "seccompProfile_baseline": ((0, seccomp_annotations), (19, seccomp)),
    "sysctls": ((0, sysctls(_SYSCTLS)), (27, sysctls(_SYSCTLS_27)), (29, sysctls(_SYSCTLS_29)), (32, sysctls(_SYSCTLS_32))),
    "windowsHostProcess": ((0, windows_host_process),),
}
