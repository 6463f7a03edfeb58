"""Builds the specification of a container's process from its pod: command, user, environment, and mounted files.

Source: Kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go (generateContainerConfig), security_context.go; kubelet_pods.go.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeloop.kubelet.containers import pod_subject
from kubeloop.kubelet.environment import ConfigurationError, expand
from kubeloop.kubelet.images import ImageEntry
from kubeloop.kubelet.runtime import BindMount, Isolation, ProcessSpec
from kubeloop.types import JSONObject

# Linux only; the module can be imported everywhere, because test tools share parts of this package.
with contextlib.suppress(ImportError):
    import pwd

#: Variables of the kubelet's own environment that containers inherit, unless they have the root of an image.
_INHERITED = ("PATH", "LANG", "LC_ALL", "TZ")
#: The cluster's domain, in names of services and pods.
DOMAIN = "cluster.local"
_MACHINE_HOSTS = Path("/etc/hosts")
#: The pod's address, and the folder of a container's mount paths where there are no mount namespaces.
POD_IP, ROOT = "KUBELOOP_POD_IP", "KUBELOOP_ROOT"


class CreationError(Exception):
    """A container cannot be created; the reason of its state is CreateContainerError."""


@dataclass(frozen=True)
class ContainerFolder:
    """The folder of one container's files on this machine.

    ``scratch`` is the mount point of its file systems, ``root`` has links instead of mounts if there are no mount namespaces, and
    ``termination`` returns the file of a run's termination message.
    """

    path: Path

    @property
    def scratch(self) -> Path:
        return self.path / "scratch"

    @property
    def root(self) -> Path:
        return self.path / "root"

    def termination(self, run_id: str) -> Path:
        return self.path / f"termination-{run_id[-8:]}"


def pod_hostname(pod: JSONObject) -> str:
    """Return the host name of a pod's containers: ``spec.hostname`` or the pod's name, at most 63 characters."""
    return str(pod["spec"].get("hostname") or pod["metadata"]["name"])[:63].rstrip("-.")


def hosts_file(pod: JSONObject, pod_ip: str, services: Sequence[str] = ()) -> str:
    """Return the content of /etc/hosts of a pod's containers; with ``hostNetwork`` it begins with this machine's file, as upstream.

    Args:
        pod: The pod.
        pod_ip: The pod's address.
        services: Lines with names of services to append, unless the pod has ``hostNetwork``.
    """
    spec, name = pod["spec"], pod_hostname(pod)
    full = f"{name}.{spec['subdomain']}.{pod['metadata']['namespace']}.svc.{DOMAIN}\t" if spec.get("subdomain") else ""
    lines = [
        "# Kubernetes-managed hosts file.",
        "127.0.0.1\tlocalhost",
        "::1\tlocalhost ip6-localhost ip6-loopback",
        f"{pod_ip}\t{full}{name}",
    ]
    if spec.get("hostNetwork"):
        lines, services = ["# Kubernetes-managed hosts file (host network).", *_machine_hosts()], ()
    if aliases := spec.get("hostAliases"):
        lines += ["", "# Entries added by HostAliases."]
        lines += ["\t".join([one["ip"], *(one.get("hostnames") or ())]) for one in aliases]
    if services:
        lines += ["", "# Services of the cluster.", *services]
    return "\n".join(lines) + "\n"


def _machine_hosts() -> list[str]:
    try:
        return _MACHINE_HOSTS.read_text(errors="replace").splitlines()
    except OSError:
        return []


def process_command(container: JSONObject, entry: ImageEntry, environment: Mapping[str, str]) -> list[str]:
    """Return the command line of a container's process; a container's own command replaces command and args of the image.

    Args:
        container: The container.
        entry: The configured program of its image.
        environment: Variables to expand ``$(NAME)``.

    Raises:
        CreationError: Neither the container nor its image has a command.
    """
    command, args = container.get("command") or [], container.get("args") or []
    if not command:
        args = args or list(entry.args)
        command = list(entry.command)
    words = [expand(word, environment) for word in [*command, *args]]
    if not words:
        raise CreationError(f'no command specified: neither container "{container["name"]}" nor the image map\'s entry has one')
    return words


def process_environment(pod: JSONObject, entry: ImageEntry, variables: Mapping[str, str], pod_ip: str, root: Path | None) -> dict[str, str]:
    """Return the whole environment of a container's process.

    Args:
        pod: The pod.
        entry: The configured program of the container's image.
        variables: The container's variables, which take precedence.
        pod_ip: The pod's address.
        root: The folder below which mount paths are linked without mount namespaces; None with them.
    """
    result = {name: os.environ[name] for name in _INHERITED if name in os.environ and entry.root is None}
    result.setdefault("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    result |= {"HOSTNAME": pod_hostname(pod), "HOME": _home(), POD_IP: pod_ip}
    if root is not None:
        result[ROOT] = str(root)
    known = {**result, **variables}
    if entry.root is not None:
        result |= entry.environment  # the environment of an image is literal
    else:
        result |= {name: expand(value, known) for name, value in entry.environment.items()}
    return {**result, **variables}


def _home() -> str:
    try:
        return pwd.getpwuid(os.geteuid()).pw_dir
    except KeyError:
        return "/"


@dataclass(frozen=True)
class ProcessUser:
    """User, group and supplementary groups of a container's process; None stands for those of the kubelet."""

    uid: int | None = None
    gid: int | None = None
    groups: tuple[int, ...] | None = None


def process_user(pod: JSONObject, container: JSONObject, entry: ImageEntry, own_uid: int) -> ProcessUser:
    """Return user and groups of a container's process.

    Args:
        pod: The pod.
        container: The container, whose security context takes precedence.
        entry: The configured program of its image.
        own_uid: The user id of the kubelet.

    Raises:
        ConfigurationError: The container must not run as root and would, or the kubelet cannot become its user.
    """
    shared, own = pod["spec"].get("securityContext") or {}, container.get("securityContext") or {}
    uid = own.get("runAsUser", shared.get("runAsUser", entry.user))
    image_group = entry.group if uid is not None and uid == entry.user else None
    gid = own.get("runAsGroup", shared.get("runAsGroup", image_group))
    groups = sorted({*(shared.get("supplementalGroups") or ()), *([shared["fsGroup"]] if shared.get("fsGroup") is not None else [])})
    if own.get("runAsNonRoot", shared.get("runAsNonRoot")) and (uid if uid is not None else own_uid) == 0:
        subject = f'(pod: "{pod_subject(pod)}", container: {container["name"]})'
        said = "container's runAsUser breaks non-root policy" if uid == 0 else "container has runAsNonRoot and image will run as root"
        raise ConfigurationError(f"{said} {subject}")
    if own_uid != 0:
        if uid not in (None, own_uid):
            raise ConfigurationError(f"container's runAsUser is {uid}, and the kubelet, whose user is {own_uid}, cannot become another one")
        return ProcessUser()
    return ProcessUser(uid, gid if gid is not None or uid is None else 0, tuple(groups) if groups or uid is not None else None)


def process_spec(
    run_id: str,
    pod: JSONObject,
    container: JSONObject,
    entry: ImageEntry,
    environment: Mapping[str, str],
    mounts: list[BindMount],
    folder: ContainerFolder,
    isolation: Isolation,
) -> ProcessSpec:
    """Write the files of a container and return the specification of its process, which the runtime starts.

    Args:
        run_id: Id of the run.
        pod: The pod.
        container: The container.
        entry: The configured program of its image.
        environment: The whole environment of the process.
        mounts: The container's volumes and files; the files of ``entry`` and the termination message are appended.
        folder: The container's folder on this machine.
        isolation: Without namespaces the mounts become links below the folder's root.

    Raises:
        CreationError: A file cannot be written, there is no command, or an OCI layout is used without namespaces.
        ConfigurationError: The user is not allowed, or the kubelet cannot change to it.
    """
    if entry.root is not None and isolation is Isolation.NONE:
        raise CreationError(f"image {container.get('image')} is an OCI layout, whose files need mount namespaces; the isolation is none")
    user = process_user(pod, container, entry, os.geteuid())
    command = process_command(container, entry, environment)
    try:
        folder.path.mkdir(parents=True, exist_ok=True)
        for path, text in entry.files.items():
            source = folder.path / "files" / path.lstrip("/")
            source.parent.mkdir(parents=True, exist_ok=True)
            source.write_text(text)
            mounts.append(BindMount(source, path))
        termination = folder.termination(run_id)
        termination.touch(mode=0o666)
        termination.chmod(0o666)
        mounts.append(BindMount(termination, container.get("terminationMessagePath") or "/dev/termination-log"))
        directory = container.get("workingDir") or entry.working_directory or "/"
        if isolation is Isolation.NONE:
            directory = _link_mounts(folder.root, mounts, directory)
    except OSError as error:
        raise CreationError(f"{error.filename or folder.path}: {(error.strerror or str(error)).lower()}") from None
    context = container.get("securityContext") or {}
    return ProcessSpec(
        run_id,
        command,
        environment,
        folder.scratch,
        directory,
        pod_hostname(pod),
        mounts,
        bool(context.get("readOnlyRootFilesystem")),
        user.uid,
        user.gid,
        user.groups,
        bool(container.get("tty")),
        bool(container.get("stdin") or container.get("tty")),
        entry.root,
    )


def _link_mounts(root: Path, mounts: list[BindMount], directory: str) -> str:
    """Link each mount path below ``root`` to its source; return the working directory, which may be below a mount path."""
    root.mkdir(parents=True, exist_ok=True)
    for mount in sorted(mounts, key=lambda mount: mount.target):
        link = root / mount.target.lstrip("/")
        if any(parent.is_symlink() for parent in link.parents if parent.is_relative_to(root)):
            continue  # a mount inside another volume: its files would appear in that volume
        link.parent.mkdir(parents=True, exist_ok=True)
        if link.is_symlink():
            link.unlink()
        if not link.exists():
            link.symlink_to(mount.source)
    for mount in mounts:
        if directory == mount.target or directory.startswith(mount.target.rstrip("/") + "/"):
            return str(root) + directory
    return directory


#: Reason and message of a pod whose host ports are in use.
PORT_CONFLICT = ("NodePorts", "Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports")
_ANY = ("", "0.0.0.0", "::")  # noqa: S104 - not listened on


def has_port_conflict(pod: JSONObject, pods: Iterable[JSONObject]) -> bool:
    """Return whether a host port of a pod is one of another pod that has not ended: the same number, protocol and address.

    The scheduler places no such pod; a pod that is created with ``nodeName`` does not pass the scheduler. Source: Kubernetes
    pkg/kubelet/lifecycle/predicate.go; pkg/scheduler/framework/plugins/nodeports (Fits).

    Args:
        pod: The pod.
        pods: The other pods of the node.
    """
    ports = _host_ports(pod)
    running = [other for other in pods if (other.get("status") or {}).get("phase") not in ("Succeeded", "Failed")] if ports else []
    return any(_collide(port, taken) for other in running for taken in _host_ports(other) for port in ports)


def _host_ports(pod: JSONObject) -> list[tuple[int, str, str]]:
    spec = pod["spec"]
    sidecars = [one for one in spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
    return [
        (port["hostPort"], port.get("protocol") or "TCP", port.get("hostIP") or "")
        for container in (*sidecars, *spec["containers"])
        for port in container.get("ports") or ()
        if port.get("hostPort")
    ]


def _collide(first: tuple[int, str, str], second: tuple[int, str, str]) -> bool:
    return first[:2] == second[:2] and (first[2] == second[2] or first[2] in _ANY or second[2] in _ANY)
