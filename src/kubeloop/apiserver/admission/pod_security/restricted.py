"""Checks of the restricted level, which requires hardened pods. Source: k8s.io/pod-security-admission policy/check_*.go."""

from __future__ import annotations

from typing import NamedTuple

from kubeloop.apiserver.admission.pod_security.baseline import (
    SECCOMP_PROFILES,
    Check,
    Pod,
    Violation,
    containers,
    in_user_namespace,
    is_windows,
    named,
    plural,
    proc_mount,
    quoted,
    seccomp_type,
    security,
    setters,
)

_VOLUMES = frozenset(["configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "image", "persistentVolumeClaim", "projected", "secret"])
_OTHER_VOLUMES = [
    "hostPath",
    "gcePersistentDisk",
    "awsElasticBlockStore",
    "gitRepo",
    "nfs",
    "iscsi",
    "glusterfs",
    "rbd",
    "flexVolume",
    "cinder",
    "cephfs",
    "flocker",
    "fc",
    "azureFile",
    "vsphereVolume",
    "quobyte",
    "azureDisk",
    "photonPersistentDisk",
    "portworxVolume",
    "scaleIO",
    "storageos",
]


def privilege_escalation(pod: Pod) -> Violation | None:
    """Check that containers set allowPrivilegeEscalation to false."""
    bad = [one["name"] for one in containers(pod.spec) if security(one).get("allowPrivilegeEscalation") is not False]
    if not bad:
        return None
    return Violation("allowPrivilegeEscalation != false", f"{named(bad)} must set securityContext.allowPrivilegeEscalation=false")


def capabilities(pod: Pod) -> Violation | None:
    """Check that containers drop all capabilities and add only NET_BIND_SERVICE."""
    keeping, adding, added = [], [], set()
    for one in containers(pod.spec):
        own = security(one).get("capabilities") or {}
        if "ALL" not in (own.get("drop") or ()):
            keeping.append(one["name"])
        beyond = set(own.get("add") or ()) - {"NET_BIND_SERVICE"}
        if beyond:
            adding.append(one["name"])
            added |= beyond
    details = [f'{named(keeping)} must set securityContext.capabilities.drop=["ALL"]'] if keeping else []
    if adding:
        details.append(f"{named(adding)} must not include {quoted(sorted(added))} in securityContext.capabilities.add")
    return Violation("unrestricted capabilities", "; ".join(details)) if details else None


def volumes(pod: Pod) -> Violation | None:
    """Check that a pod uses only volumes of allowed types."""
    bad, kinds = [], set()
    for volume in pod.spec.get("volumes") or ():
        if not any(volume.get(kind) is not None for kind in _VOLUMES):
            bad.append(volume["name"])
            kinds.add(next((kind for kind in _OTHER_VOLUMES if volume.get(kind) is not None), "unknown"))
    if not bad:
        return None
    who = f"{plural(bad, 'volume', 'volumes')} {quoted(bad)} {plural(bad, 'uses', 'use')}"
    word = plural(kinds, "restricted volume type", "restricted volume types")
    return Violation("restricted volume types", f"{who} {word} {quoted(sorted(kinds))}")


def non_root(pod: Pod) -> Violation | None:
    """Check that containers set runAsNonRoot to true."""
    own = security(pod.spec).get("runAsNonRoot")
    settings = [(one["name"], security(one).get("runAsNonRoot")) for one in containers(pod.spec)]
    who = setters(own is False, [name for name, value in settings if value is False])
    if who:
        return Violation("runAsNonRoot != true", f"{who} must not set securityContext.runAsNonRoot=false")
    silent = [] if own else [name for name, value in settings if value is None]
    return Violation("runAsNonRoot != true", f"pod or {named(silent)} must set securityContext.runAsNonRoot=true") if silent else None


def user(pod: Pod) -> Violation | None:
    """Check that neither the pod nor a container sets runAsUser to 0."""
    who = setters(
        security(pod.spec).get("runAsUser") == 0, [one["name"] for one in containers(pod.spec) if security(one).get("runAsUser") == 0]
    )
    return Violation("runAsUser=0", f"{who} must not set runAsUser=0") if who else None


def seccomp(pod: Pod) -> Violation | None:
    """Check that pod or containers set a seccomp profile other than Unconfined."""
    own = seccomp_type(pod.spec)
    kinds = [(one["name"], seccomp_type(one)) for one in containers(pod.spec)]
    bad = [(name, kind) for name, kind in kinds if kind is not None and kind not in SECCOMP_PROFILES]
    pod_is_bad = own is not None and own not in SECCOMP_PROFILES
    who = setters(pod_is_bad, [name for name, _ in bad])
    if who:
        values = {kind for _, kind in bad} | ({own} if pod_is_bad and own is not None else set())
        return Violation("seccompProfile", f"{who} must not set securityContext.seccompProfile.type to {quoted(sorted(values))}")
    silent = [] if own in SECCOMP_PROFILES else [name for name, kind in kinds if kind is None]
    if not silent:
        return None
    ways = 'securityContext.seccompProfile.type to "RuntimeDefault" or "Localhost"'
    return Violation("seccompProfile", f"pod or {named(silent)} must set {ways}")


def _not_on_windows(check: Check) -> Check:
    """Return a check that accepts all Windows pods, which lack the feature, and applies ``check`` to the other pods."""
    return lambda pod: None if is_windows(pod.spec) else check(pod)


def _not_in_user_namespace(check: Check) -> Check:
    return lambda pod: None if in_user_namespace(pod.spec) else check(pod)


class Restricted(NamedTuple):
    """A check of the restricted level. ``versions`` is as in ``BASELINE``; ``instead_of`` names the baseline check that it replaces."""

    versions: tuple[tuple[int, Check], ...]
    instead_of: str = ""


RESTRICTED: dict[str, Restricted] = {
    "allowPrivilegeEscalation": Restricted(((8, privilege_escalation), (25, _not_on_windows(privilege_escalation)))),
    "capabilities_restricted": Restricted(((22, capabilities), (25, _not_on_windows(capabilities))), "capabilities_baseline"),
    "procMount_restricted": Restricted(((35, proc_mount),), "procMount"),
    "restrictedVolumes": Restricted(((0, volumes),), "hostPathVolumes"),
    "runAsNonRoot": Restricted(((0, non_root), (35, _not_in_user_namespace(non_root)))),
    "runAsUser": Restricted(((23, user), (35, _not_in_user_namespace(user)))),
    "seccompProfile_restricted": Restricted(((19, seccomp), (25, _not_on_windows(seccomp))), "seccompProfile_baseline"),
}
