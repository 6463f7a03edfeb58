"""The creation of a container from its pod and the parts that the pods of a node share: environment, mounts, log and process.

Source: Kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go (startContainer), kuberuntime_logs.go (termination messages).
"""

from __future__ import annotations

import asyncio
import posixpath
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kubeloop.client import Client
from kubeloop.controller.events import EventRecorder
from kubeloop.kubelet.addresses import AddressPool
from kubeloop.kubelet.cgroups import CgroupLimits, Cgroups, ContainerCgroup
from kubeloop.kubelet.container_spec import ContainerFolder, CreationError, process_environment, process_spec
from kubeloop.kubelet.containers import ContainerRun
from kubeloop.kubelet.environment import ConfigurationError, PodFields, container_environment, references
from kubeloop.kubelet.images import ImageEntry, ImagePuller
from kubeloop.kubelet.logs import LogWriter, last_output
from kubeloop.kubelet.resolver_config import ResolverConfig
from kubeloop.kubelet.running_container import RunningContainer
from kubeloop.kubelet.runtime import BindMount, Isolation, ProcessRuntime
from kubeloop.kubelet.volumes import ObjectReader, PodVolumes, VolumeError, VolumeManager, container_mounts
from kubeloop.tasks import Supervisor, finish
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Maximum bytes of a termination message, and maximum bytes and lines of the end of a log that replaces it.
_MESSAGE, _LOG_MESSAGE, _LOG_LINES = 4096, 2048, 80


@dataclass
class NodeServices:
    """The objects that the workers of all pods of a node share.

    ``variables`` returns the environment variables of services for a namespace. ``hosts`` returns lines for /etc/hosts with the names of
    services, for a namespace. ``resolver`` returns the resolv.conf of a pod and warnings about it. ``sync_frequency`` is the number of
    seconds between updates of volumes. ``tasks`` counts the failures of all workers. ``cgroups`` None: the kubelet may not create any.
    """

    client: Client
    clock: Clock
    tasks: Supervisor
    events: EventRecorder
    runtime: ProcessRuntime
    puller: ImagePuller
    reader: ObjectReader
    volumes: VolumeManager
    addresses: AddressPool
    folder: Path
    prefix: str
    host_ip: str
    allocatable: Mapping[str, str]
    variables: Callable[[str], Mapping[str, str]]
    hosts: Callable[[str], Sequence[str]]
    resolver: Callable[[JSONObject], tuple[ResolverConfig, list[str]]]
    sync_frequency: float
    cgroups: Cgroups | None = None


@dataclass(frozen=True)
class ContainerInputs:
    """The inputs from which a container is created.

    ``pod`` and ``container`` are the pod and the container's specification, ``entry`` is the configured program of its image, ``volumes``
    are the pod's volumes, ``fields`` are values of the downward API, and ``log_path`` is the path of the container's log.
    """

    pod: JSONObject
    container: JSONObject
    entry: ImageEntry
    volumes: PodVolumes
    fields: PodFields
    log_path: Path

    @property
    def name(self) -> str:
        return str(self.container["name"])

    @property
    def uid(self) -> str:
        return str(self.pod["metadata"]["uid"])


async def create_container(
    node: NodeServices, facts: ContainerInputs, run: ContainerRun, created: Callable[[], object]
) -> RunningContainer:
    """Create a container and start its process.

    Args:
        node: The objects that all pods of the node share.
        facts: The inputs from which the container is created.
        run: The record of this run.
        created: Called when the files of the container are written, before its process starts.

    Returns:
        The container, whose process runs.

    Raises:
        ConfigurationError: The specification refers to an object or key that does not exist, or its user is not allowed.
        CreationError: A file cannot be written, or there is no command.
        StartError: The process cannot be started.
    """
    pod, container, namespace = facts.pod, facts.container, facts.pod["metadata"]["namespace"]
    try:
        sources = await node.reader.sources(namespace, references(container))
    except VolumeError as error:
        raise ConfigurationError(str(error)) from None
    variables = container_environment(pod, container, sources, facts.fields, node.variables(namespace))
    mounts = container_mounts(container, facts.volumes, variables)
    folder, isolation = container_folder(node, facts.uid, facts.name), node.runtime.isolation
    isolated = isolation is not Isolation.NONE
    if isolated:
        files = {"/etc/hosts": "etc-hosts", "/etc/resolv.conf": "resolv.conf"}
        # A volume that the container mounts at such a path takes precedence, as upstream.
        mounted = {posixpath.normpath(mount.target) for mount in mounts}
        mounts += [BindMount(node.volumes.pod_folder(facts.uid) / name, path) for path, name in files.items() if path not in mounted]
    environment = process_environment(pod, facts.entry, variables, facts.fields.pod_ip, None if isolated else folder.root)
    spec = process_spec(run.id, pod, container, facts.entry, environment, mounts, folder, isolation)
    try:
        log = LogWriter(facts.log_path, node.clock.wall)
    except OSError as error:
        raise CreationError(f"cannot write the log {facts.log_path}: {(error.strerror or str(error)).lower()}") from None
    cgroup: ContainerCgroup | None = None
    try:
        if node.cgroups is not None:
            cgroup = node.cgroups.create(run.id, CgroupLimits.from_container(container))
            spec = replace(spec, cgroups=cgroup.process_files)
        created()
        process = await node.runtime.start(spec)
    except BaseException as error:
        log.close()
        if cgroup is not None:
            await finish(asyncio.to_thread(cgroup.remove))
        if isinstance(error, OSError):
            text = f"{error.filename or 'cgroup'}: {(error.strerror or str(error)).lower()}"
            raise CreationError(f"cannot create the cgroup of the container: {text}") from None
        raise
    return RunningContainer(container, run, process, spec, log, cgroup)


def container_folder(node: NodeServices, uid: str, name: str) -> ContainerFolder:
    """Return the folder of a container on this machine.

    Args:
        node: The objects that all pods of the node share.
        uid: The uid of the container's pod.
        name: The name of the container.
    """
    return ContainerFolder(node.volumes.pod_folder(uid) / "containers" / name)


def termination_message(node: NodeServices, uid: str, ended: RunningContainer) -> str:
    """Return the termination message of an ended container and delete its file, which ``terminationMessagePath`` names.

    If the file is empty and a container with ``FallbackToLogsOnError`` failed, the message is the end of its log.

    Args:
        node: The objects that all pods of the node share.
        uid: The uid of the container's pod.
        ended: The container.
    """
    path = container_folder(node, uid, ended.container["name"]).termination(ended.run.id)
    try:
        with path.open("rb") as file:
            text = file.read(_MESSAGE).decode("utf-8", "replace")
        path.unlink()
    except OSError:
        text = ""
    if not text and ended.run.exit_code and ended.container.get("terminationMessagePolicy") == "FallbackToLogsOnError":
        return last_output(ended.log.path, _LOG_LINES, _LOG_MESSAGE)
    return text
