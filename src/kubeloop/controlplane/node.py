"""Simulated nodes: pods bound to them run and end without any container, as the annotations of ``simulation`` say.

They are honest about it: the node's ``nodeInfo`` names kubeloop, and container ids begin with ``kubeloop://``.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Any

from kubeloop.api.core.v1 import ConfigMap, Node, NodeAddress, NodeCondition, NodeSystemInfo, PersistentVolumeClaim, Pod, Secret
from kubeloop.cache import EventType, Head
from kubeloop.client import DeleteOptions
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, Predicate, Result, Watch
from kubeloop.controlplane.node_fit import find_admission_fault
from kubeloop.controlplane.pod_references import BOUND, MissingReferences, find_missing, references_of
from kubeloop.controlplane.pod_status import NOTHING_MISSING, PodAddresses, differs, running, starting, stop_seconds, terminated
from kubeloop.controlplane.scheduling_facts import BIND_COMPLETED, PodFacts, node_facts
from kubeloop.controlplane.simulation import Simulation, unknown_probes
from kubeloop.meta import AlreadyExists, Conflict, Invalid, NotFound, ObjectKey, ObjectMeta, Quantity, Resource
from kubeloop.types import JSONObject
from kubeloop.version import VERSION

#: Seconds that a pod takes from being bound to running, by pod.
Delay = Callable[[Pod], float]

_bound = Predicate(lambda event: bool(event.head.value("spec.nodeName")), ("spec.nodeName",))
_exists = Predicate(lambda event: event.type is not EventType.DELETED)
_KINDS: dict[str, type[Resource]] = {"ConfigMap": ConfigMap, "Secret": Secret, "PersistentVolumeClaim": PersistentVolumeClaim}
_ENDED = ("Succeeded", "Failed")
#: Seconds that each attempt of upstream's kubelet to mount a volume waits for the next at most.
_RETRY = 120.0


class SimulatedNodes(
    Controller[Pod],
    predicates=[_bound],
    watches=[Watch(kind, to="waiting_pods", predicates=(_exists,)) for kind in _KINDS.values()],
    reads=[Node],
    workers=10,
    name="kubelet",
):
    """Simulates the kubelet of each node in ``nodes``: creates the Node objects, and runs and ends their pods.

    A pod starts when the ConfigMaps and Secrets that it needs are there and its volume claims are bound. Pod addresses are of
    10.244.0.0/16, each used by one pod at a time; nothing listens there.

    Args:
        nodes: Names of the nodes.
        delay: Seconds that a pod takes to start, or a function that returns them for a pod. It is shown as ContainerCreating until then.
    """

    def __init__(self, nodes: Iterable[str] = ("kubeloop-node",), delay: Delay | float = 0.0) -> None:
        self.nodes = {name: f"10.0.0.{number + 10}" for number, name in enumerate(nodes)}
        self._delay: Delay = delay if callable(delay) else _always(delay)
        self._addresses: dict[str, str] = {}
        self._waiting: dict[ObjectKey, MissingReferences] = {}

    async def start(self) -> None:
        self._addresses.clear()
        self._waiting.clear()
        for pod in self.lister(Pod).each():
            if pod.status.pod_ip:
                self._addresses[pod.metadata.uid] = pod.status.pod_ip
        self._numbers = itertools.cycle(range(1, 254 * 254))
        for name, address in self.nodes.items():
            await self._register(name, address)

    def waiting_pods(self, obj: Head) -> list[ObjectKey]:
        """Return the keys of the pods in an object's namespace that wait for something to be created."""
        for key in [key for key in self._waiting if self.lister(Pod).by_key(key) is None]:
            del self._waiting[key]
        return [key for key in self._waiting if key.namespace == obj.namespace]

    async def reconcile(self, pod: Pod) -> Result | None:
        host = self.nodes.get(pod.spec.node_name or "")
        if host is None:
            return None
        if pod.metadata.deletion_timestamp is not None:
            return await self._end(pod, host)
        if pod.status.phase in _ENDED:
            return None
        tree, now = to_dict(pod), self.clock.wall()
        missing = NOTHING_MISSING
        if pod.status.phase != "Running":
            if await self._reject(pod, tree):
                return None
            delay = self._delay(pod)
            waited = (now - pod.status.start_time).total_seconds() if pod.status.start_time else 0.0
            if waited < delay:
                await self._write(pod, starting(tree, PodAddresses(host, ""), now).status)
                return Result(requeue_after=delay - waited)
            missing = await self._find_missing(pod, tree)
            if missing.volumes:
                await self._write(pod, starting(tree, PodAddresses(host, ""), now, missing).status)
                return Result(requeue_after=_RETRY)
        addresses = PodAddresses(host, host if pod.spec.host_network else self._address(pod))
        simulation = Simulation.of(tree)
        observed = running(tree, simulation, addresses, now, missing)
        if await self._write(pod, observed.status):
            self._report(pod, tree, simulation, observed.status)
        if missing:
            return Result(requeue_after=_RETRY)
        return None if observed.seconds is None else Result(requeue_after=observed.seconds)

    async def _reject(self, pod: Pod, tree: JSONObject) -> bool:
        """Fail a pod that does not fit its node; return whether it was failed. What a scheduler has bound was checked by it."""
        node = self.lister(Node).get(pod.spec.node_name or "")
        if (
            node is None
            or pod.status.start_time
            or any(one.type == "PodScheduled" and one.status == "True" for one in pod.status.conditions)
        ):
            return False
        facts = node_facts(node)
        for other in self.lister(Pod).each():
            if other.spec.node_name == facts.name and other.status.start_time and other.status.phase not in _ENDED:
                facts.pods.append(PodFacts(to_dict(other)))
        error = find_admission_fault(PodFacts(tree), facts)
        if error is None:
            return False
        reason, message = error
        self.events.warning(pod, reason, message)
        generation = pod.metadata.generation or None
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "observedGeneration": generation}
        await self._write(pod, status)
        return True

    # ------------------------------------------------------------------------------------------------------- what a pod refers to

    async def _find_missing(self, pod: Pod, tree: JSONObject) -> MissingReferences:
        """Return the missing objects that prevent the pod from starting. Changes of this result are reported as events."""
        key = pod.object_key(self.cluster)
        references = references_of(tree["spec"])
        keys = {one.target: await self._keys(one.kind, one.name, pod.metadata.namespace) for one in references}
        missing = find_missing(pod.metadata.namespace, references, keys)
        before = self._waiting.pop(key, NOTHING_MISSING)
        if missing:
            self._waiting[key] = missing
        if missing != before:
            for name, reason in missing.volumes.items():
                self.events.warning(pod, "FailedMount", f'MountVolume.SetUp failed for volume "{name}" : {reason}')
            for reason in () if missing.volumes else missing.containers.values():
                self.events.warning(pod, "Failed", f"Error: {reason}")
        return missing

    async def _keys(self, kind: str, name: str, namespace: str) -> frozenset[str] | None:
        """Return the keys of an object's data (for a claim: whether it is bound), or None if the object does not exist.

        What the cache lacks is read from the server, as the cache may be behind.
        """
        result: Any = self.lister(_KINDS[kind]).get(name, namespace)
        if result is None:
            try:
                result = await self.client.get(_KINDS[kind], name, namespace=namespace)
            except NotFound:
                return None
        if isinstance(result, PersistentVolumeClaim):
            # The phase is the last write of a binding: a pod may come here before it, and is not to report a fault then.
            bound = result.spec.volume_name and result.status.phase != "Lost" and BIND_COMPLETED in result.metadata.annotations
            return frozenset({BOUND} if bound or result.status.phase == "Bound" else ())
        binary = result.binary_data if isinstance(result, ConfigMap) else {}
        return frozenset({*result.data, *binary})

    def _report(self, pod: Pod, tree: JSONObject, simulation: Simulation, status: JSONObject) -> None:
        """Record the events of what has just begun."""
        statuses = (tree.get("status") or {}).get("containerStatuses") or ()
        known = {one["name"] for one in statuses if one["state"].get("running")}
        begun = [one["name"] for one in status["containerStatuses"] if one["state"].get("running") and one["name"] not in known]
        for name in begun:
            self.events.normal(pod, "Started", f"Started container {name}")
        if not begun or known:
            return
        pull = [one.name for one in pod.spec.image_pull_secrets if self.lister(Secret).get(one.name or "", pod.metadata.namespace) is None]
        if pull:
            text = (
                f"Unable to retrieve some image pull secrets ({', '.join(map(str, pull))}); attempting to pull the image may not succeed."
            )
            self.events.warning(pod, "FailedToRetrieveImagePullSecret", text)
        for error in simulation.faults:
            self.events.warning(pod, "InvalidSimulation", error)
        if probes := unknown_probes(tree):
            text = f"The simulated node runs no probes. These count as successful: {', '.join(probes)}."
            self.events.normal(pod, "ProbesNotRun", f"{text} The annotations simulated.kubeloop.dev/PROBE=failure let them fail.")

    # ----------------------------------------------------------------------------------------------------------------------- end

    async def _end(self, pod: Pod, host: str) -> Result | None:
        """End a pod as a kubelet does: its containers end within the grace period, its status says so, then the deletion is confirmed."""
        self._waiting.pop(pod.object_key(self.cluster), None)
        metadata, tree, now = pod.metadata, to_dict(pod), self.clock.wall()
        grace = metadata.deletion_grace_period_seconds or 0
        if pod.status.phase not in _ENDED:
            begun = (metadata.deletion_timestamp or now) - timedelta(seconds=grace)
            desired = stop_seconds(tree, Simulation.of(tree)) if pod.status.phase == "Running" else 0.0
            left = min(desired, grace) - (now - begun).total_seconds()
            if desired > 0 and left > 0:
                return Result(requeue_after=left)
            for container in pod.spec.containers if pod.status.phase == "Running" else ():
                self.events.normal(pod, "Killing", f"Stopping container {container.name}")
            addresses = PodAddresses(host, pod.status.pod_ip or "")
            await self._write(pod, terminated(tree, addresses, now, killed=desired > grace))
        elif grace == 0:
            self._addresses.pop(metadata.uid, None)
            return None  # Confirmed already: finalizers keep the pod.
        self._addresses.pop(metadata.uid, None)
        with contextlib.suppress(NotFound, Conflict):  # Gone, or a namesake has replaced it.
            await self.client.delete(pod, grace_period_seconds=0, options=DeleteOptions(uid=metadata.uid))
        return None

    async def _write(self, pod: Pod, status: JSONObject) -> bool:
        """Write a status unless the pod already has it. Return whether it was written."""
        if not differs(to_dict(pod), status):
            return False
        change = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        metadata = pod.metadata
        try:
            await self.client.patch(Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status")
        except NotFound:
            return False
        except (Conflict, Invalid):
            # The uid is a precondition: the pod is another one by now, which its own event brings here.
            live = await self.client.get_metadata(Pod, metadata.name, namespace=metadata.namespace)
            if live.metadata.uid == metadata.uid:
                raise
            return False
        return True

    def _address(self, pod: Pod) -> str:
        address = self._addresses.get(pod.metadata.uid)
        if address is None:
            used = set(self._addresses.values())
            address = next(one for number in self._numbers if (one := f"10.244.{number // 254}.{number % 254 + 1}") not in used)
            self._addresses[pod.metadata.uid] = address
        return address

    async def _register(self, name: str, address: str) -> None:
        now = self.clock.wall().replace(microsecond=0)
        labels = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64"}
        node = Node(metadata=ObjectMeta(name=name, labels=labels))
        try:
            node = await self.client.create(node)
        except AlreadyExists:
            node = await self.client.get(Node, name)
        room = {"cpu": Quantity("64"), "memory": Quantity("256Gi"), "pods": Quantity("10000"), "ephemeral-storage": Quantity("1Ti")}
        node.status.capacity = room
        node.status.allocatable = dict(room)
        node.status.addresses = [NodeAddress(type="InternalIP", address=address), NodeAddress(type="Hostname", address=name)]
        node.status.conditions = [_condition(kind, state, reason, message, now) for kind, state, reason, message in _CONDITIONS]
        node.status.node_info = NodeSystemInfo(
            architecture="amd64",
            boot_id="kubeloop",
            container_runtime_version=f"kubeloop://{VERSION}",
            kernel_version="simulated",
            kube_proxy_version="",
            kubelet_version=f"v1.36.0-kubeloop-{VERSION}",
            machine_id="kubeloop",
            operating_system="linux",
            os_image="kubeloop simulated node",
            system_uuid="kubeloop",
        )
        await self.client.update_status(node)
        # Admission taints a new node until it is ready. The node lifecycle controller removes that, too, where it runs.
        await self.client.update_with_retry(Node, name, _remove_not_ready)


_NOT_READY = "node.kubernetes.io/not-ready"
_CONDITIONS = (
    ("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
    ("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
    ("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
    ("Ready", "True", "KubeletReady", "simulated by kubeloop: pods run without containers"),
)


def _condition(kind: str, state: str, reason: str, message: str, now: datetime) -> NodeCondition:
    return NodeCondition(type=kind, status=state, reason=reason, message=message, last_heartbeat_time=now, last_transition_time=now)


def _remove_not_ready(node: Node) -> None:
    node.spec.taints = [taint for taint in node.spec.taints if taint.key != _NOT_READY]


def _ready(status: dict[str, Any]) -> str:
    return str(next(one["status"] for one in status["conditions"] if one["type"] == "Ready"))


def _always(seconds: float) -> Delay:
    return lambda pod: seconds  # noqa: ARG005  # the same for every pod
