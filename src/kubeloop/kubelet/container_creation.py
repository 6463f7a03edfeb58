"""The creation of a container from its pod and the parts that the pods of a node share: environment, mounts, log and process.

Source: Kubernetes pkg/kubelet/kuberuntime/kuberuntime_container.go (startContainer), kuberuntime_logs.go (termination messages).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from kubeloop.client import Client
from kubeloop.controller.events import EventRecorder
from kubeloop.kubelet.addresses import AddressPool
from kubeloop.kubelet.container_spec import ContainerFolder, CreationError, process_environment, process_spec
from kubeloop.kubelet.containers import ContainerRun
from kubeloop.kubelet.environment import ConfigurationError, PodFields, container_environment, references
from kubeloop.kubelet.images import ImageEntry, ImagePuller
from kubeloop.kubelet.logs import LogWriter, last_output
from kubeloop.kubelet.resolver_config import ResolverConfig
from kubeloop.kubelet.running_container import RunningContainer
from kubeloop.kubelet.runtime import BindMount, Isolation, ProcessRuntime
from kubeloop.kubelet.volumes import ObjectReader, PodVolumes, VolumeError, VolumeManager, container_mounts
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Bytes of a termination message, and bytes and lines of a log that stands for it.
_MESSAGE, _LOG_MESSAGE, _LOG_LINES = 4096, 2048, 80


@dataclass
class NodeServices:
    """The parts that the workers of all pods of a node share.

    ``variables`` returns the environment variables of services in a namespace, ``hosts`` lines with their names for /etc/hosts,
    ``resolver`` the resolv.conf of a pod and warnings about it. ``sync_frequency`` is the number of seconds between updates of volumes.
    ``tasks`` counts the failures of all workers.
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


@dataclass(frozen=True)
class ContainerFacts:
    """The source of a container: its pod, its specification, the entry of its image, the pod's volumes and fields, its log."""

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


async def create_container(node: NodeServices, facts: ContainerFacts, run: ContainerRun, created: Callable[[], object]) -> RunningContainer:
    """Create a container and start its process.

    Args:
        node: The node.
        facts: What the container is created from.
        run: The record of this run.
        created: Called before the process starts.

    Returns:
        The container; its process runs.

    Raises:
        ConfigurationError: Its specification refers to nothing.
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
        if not pod["spec"].get("hostNetwork"):
            mounts.append(BindMount(node.volumes.pod_folder(facts.uid) / "etc-hosts", "/etc/hosts"))
        mounts.append(BindMount(node.volumes.pod_folder(facts.uid) / "resolv.conf", "/etc/resolv.conf"))
    environment = process_environment(pod, facts.entry, variables, facts.fields.pod_ip, None if isolated else folder.root)
    spec = process_spec(run.id, pod, container, facts.entry, environment, mounts, folder, isolation)
    try:
        log = LogWriter(facts.log_path, node.clock.wall)
    except OSError as error:
        raise CreationError(f"cannot write the log {facts.log_path}: {(error.strerror or str(error)).lower()}") from None
    created()
    try:
        process = await node.runtime.start(spec)
    except BaseException:
        log.close()
        raise
    return RunningContainer(container, run, process, spec, log)


def container_folder(node: NodeServices, uid: str, name: str) -> ContainerFolder:
    """Return the folder of a container on this machine.

    Args:
        node: The node.
        uid: The uid of its pod.
        name: Its name.
    """
    return ContainerFolder(node.volumes.pod_folder(uid) / "containers" / name)


def termination_message(node: NodeServices, uid: str, ended: RunningContainer) -> str:
    """Return what a container wrote to its termination log, or the end of its log where its policy says so.

    Args:
        node: The node.
        uid: The uid of its pod.
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
