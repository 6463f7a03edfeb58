"""Simulated nodes: pods bound to them start and end without containers, as annotations and the rules of a simulation file say.

Clients can recognize the simulation: ``nodeInfo`` of a node names kubeloop, and container ids begin with ``kubeloop://``.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Iterable
from datetime import timedelta
from typing import Any

import msgspec

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap, Node, PersistentVolumeClaim, Pod, Secret
from kubeloop.cache import EventType, Head, InformerEvent
from kubeloop.client import DeleteOptions
from kubeloop.codec import decode, to_dict
from kubeloop.controller import KeyController, Predicate, Result, WatchedKind
from kubeloop.controlplane.scheduling.facts import BIND_COMPLETED, PodFacts, node_facts
from kubeloop.controlplane.scheduling.node_fit import find_admission_fault
from kubeloop.controlplane.simulation.annotations import Simulation, unknown_probes
from kubeloop.controlplane.simulation.containers import PodEvent, PodMemory
from kubeloop.controlplane.simulation.node_templates import (
    KUBELET,
    LEASES,
    NODE,
    NodeTemplate,
    address_of,
    conditions,
    lease,
    micro_time,
    renewal_plan,
)
from kubeloop.controlplane.simulation.pod_references import BOUND, MissingReferences, find_missing, references_of
from kubeloop.controlplane.simulation.pod_status import (
    NOTHING_MISSING,
    RESIZE_PENDING,
    PodAddresses,
    as_allocated,
    differs,
    is_resized,
    running,
    starting,
    stop_seconds,
    terminated,
    with_resize,
)
from kubeloop.controlplane.simulation.rules import SimulationRules
from kubeloop.meta import AlreadyExists, Conflict, Invalid, KubeloopError, NotFound, ObjectKey, Resource, format_time
from kubeloop.types import JSONObject

#: Returns for a pod the seconds from its binding until it runs.
Delay = Callable[[Pod], float]

_bound = Predicate(lambda event: bool(event.head.value("spec.nodeName")), ("spec.nodeName",))
_exists = Predicate(lambda event: event.type is not EventType.DELETED)
_KINDS: dict[str, type[Resource]] = {"ConfigMap": ConfigMap, "Secret": Secret, "PersistentVolumeClaim": PersistentVolumeClaim}
_ENDED = ("Succeeded", "Failed")
#: Longest delay in seconds between two attempts of upstream's kubelet to mount a volume.
_RETRY = 120.0
#: Seconds between two reports of an unchanged node status (the kubelet's nodeStatusReportFrequency).
_REPORT = 300.0
#: Seconds after which the not-ready taint of admission is removed from a ready node if no other controller has removed it.
_UNTAINT = 1.0
#: Maximum number of nodes that are registered concurrently.
_REGISTRATIONS = 32
_POD_NODE = "spec.nodeName"
_CONDITIONS = "status.conditions"
_KUBELET = f'metadata.annotations["{KUBELET}"]'
#: The key of the renewals of Leases. Keys of nodes have a name, and keys of pods also a namespace.
_RENEWALS = ObjectKey("", "", "")
#: The priority of renewals: thousands of pods that start at the same time must not delay them.
_FIRST = 100


def _kubelet_changed(event: InformerEvent[Any]) -> bool:
    """Return whether an event of a Node changes the annotation ``KUBELET`` or the status of the condition Ready."""
    before, after = event.old, event.head
    return before is None or before.value(_KUBELET) != after.value(_KUBELET) or _ready_of(before) != _ready_of(after)


def _ready_of(node: Head) -> str:
    return next((str(one.get("status")) for one in node.value(_CONDITIONS) or () if one.get("type") == "Ready"), "")


class SimulatedNodes(
    KeyController[Pod],
    predicates=[_bound],
    watches=[
        *[WatchedKind(kind, to="waiting_pods", predicates=(_exists,)) for kind in _KINDS.values()],
        WatchedKind(Node, to="node_and_its_pods", predicates=(_exists, Predicate(_kubelet_changed, (_KUBELET, _CONDITIONS)))),
    ],
    indexes={Pod: {_POD_NODE: "spec.nodeName"}},
    workers=10,
    needs_leader=False,  # Each process simulates its nodes, also when another replica leads.
    name="kubelet",
):
    """Simulates the kubelets of nodes: registers the Node objects, renews their Leases, and runs and ends their pods.

    A pod starts when the ConfigMaps and Secrets that it needs exist and its volume claims are bound. Pods have addresses in 10.244.0.0/16,
    each of one pod at a time, at which no program listens.

    Args:
        nodes: Names or templates of the nodes.
        delay: Seconds that a pod takes to start, or a function that returns them for a pod. Until then its containers are in the state
            ContainerCreating.
        rules: Rules for the behaviour of pods without annotations; None: the defaults.
    """

    def __init__(
        self, nodes: Iterable[str | NodeTemplate] = (NODE,), delay: Delay | float = 0.0, rules: SimulationRules | None = None
    ) -> None:
        templates = [NodeTemplate(one) if isinstance(one, str) else one for one in nodes]
        self.templates = {one.name: one for one in templates}
        self.nodes = {one.name: address_of(number) for number, one in enumerate(templates)}
        self.rules = rules or SimulationRules()
        self._delay: Delay = delay if callable(delay) else _always(delay)
        self._forget()

    def _forget(self) -> None:
        self._addresses: dict[str, str] = {}
        self._used: set[str] = set()
        self._waiting: dict[ObjectKey, MissingReferences] = {}
        self._memories: dict[str, PodMemory] = {}
        self._reported: dict[str, float] = {}
        self._next = 0

    async def start(self) -> None:
        self._forget()
        for head in self.lister(Pod).heads():
            pod = self.lister(Pod).decoded(head)
            if pod.status.pod_ip and pod.spec.node_name in self.nodes and not pod.spec.host_network:
                self._addresses[pod.metadata.uid] = pod.status.pod_ip
                self._used.add(pod.status.pod_ip)
        self._numbers = itertools.cycle(range(1, 254 * 254))
        self._begin = self._renewed = self.clock.now()
        names = list(self.nodes)
        for first in range(0, len(names), _REGISTRATIONS):
            await asyncio.gather(*(self._register(name) for name in names[first : first + _REGISTRATIONS]))
        self.enqueue(_RENEWALS, renewal_plan(len(self.nodes))[0], priority=_FIRST)

    def waiting_pods(self, obj: Head) -> list[ObjectKey]:
        """Return the keys of the pods in an object's namespace that wait for missing references."""
        for key in [key for key in self._waiting if self.lister(Pod).head(key.name, key.namespace) is None]:
            del self._waiting[key]
        return [key for key in self._waiting if key.namespace == obj.namespace]

    def node_and_its_pods(self, node: Head) -> list[ObjectKey]:
        """Return the keys of a simulated node and of its pods."""
        if node.name not in self.nodes:
            return []
        pods = self.lister(Pod).heads_by_index(_POD_NODE, node.name)
        return [ObjectKey(self.cluster, "", node.name), *(ObjectKey(self.cluster, one.namespace, one.name) for one in pods)]

    def pods_of(self, name: str) -> list[Pod]:
        """Return the pods of a node, from the cache."""
        return self.lister(Pod).by_index(_POD_NODE, name)

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if key.namespace:
            pod = self.lister(Pod).by_key(key)
            if pod is not None:
                return await self._reconcile_pod(pod)
            self._forget_pod(key)
            return None
        if key.name:
            return await self._report_node(key.name)
        return await self._renew()

    def _forget_pod(self, key: ObjectKey) -> None:
        """Forget a deleted pod. A key has no uid, so the memories of all deleted pods are removed when there are too many."""
        self._waiting.pop(key, None)
        if len(self._memories) > 2 * len(self.lister(Pod)) + 100 or len(self._addresses) > len(self.lister(Pod)) + 100:
            present = {head.uid for head in self.lister(Pod).heads()}
            for uid in {*self._memories, *self._addresses} - present:
                self._release(uid)

    def _release(self, uid: str) -> None:
        self._memories.pop(uid, None)
        self._used.discard(self._addresses.pop(uid, ""))

    # ------------------------------------------------------------------------------------------------------------------------ pods

    async def _reconcile_pod(self, pod: Pod) -> Result | None:
        host = self.nodes.get(pod.spec.node_name or "")
        if host is None or self.is_down(pod.spec.node_name or ""):
            return None
        tree = to_dict(pod)
        simulation = self.rules.simulation_of(tree)
        if pod.metadata.deletion_timestamp is not None:
            return await self._end(pod, tree, simulation, host)
        if pod.status.phase in _ENDED:
            self._release(pod.metadata.uid)
            return None
        now, missing = self.clock.wall(), NOTHING_MISSING
        if pod.status.phase != "Running":
            if await self._reject(pod, tree):
                return None
            stated = simulation.start_seconds()
            delay = self._delay(pod) if stated is None else stated
            waited = (now - pod.status.start_time).total_seconds() if pod.status.start_time else 0.0
            if waited < delay:
                await self._write(pod, tree, starting(tree, PodAddresses(host, ""), now).status)
                return Result(requeue_after=min(delay - waited, 1e6))
            missing = await self._find_missing(pod, tree)
            if missing.volumes:
                await self._write(pod, tree, starting(tree, PodAddresses(host, ""), now, missing).status)
                return Result(requeue_after=_RETRY)
        addresses = PodAddresses(host, host if pod.spec.host_network else self._address(pod))
        memory = self._memories.setdefault(pod.metadata.uid, PodMemory())
        deferred = self._find_resize_fault(pod, tree) if is_resized(tree) else ""
        observed = running(as_allocated(tree) if deferred else tree, simulation, addresses, now, missing, memory)
        if await self._write(pod, tree, with_resize(observed.status, tree, deferred, now)):
            self._report(pod, tree, simulation, observed.events)
            if deferred and not any(one.type == RESIZE_PENDING for one in pod.status.conditions):
                self.events.warning(pod, "ResizeDeferred", f"Pod resize Deferred: {deferred}")
        seconds = [one for one in (observed.seconds, _RETRY if missing or deferred else None) if one is not None]
        return Result(requeue_after=min(seconds)) if seconds else None

    def _find_admission_fault(self, pod: Pod, tree: JSONObject, node: Node) -> tuple[str, str] | None:
        """Return the reason and message with which a kubelet rejects a pod given the other pods of its node, or None if it fits."""
        facts = node_facts(node)
        for other in self.pods_of(node.metadata.name):
            if other.status.start_time and other.status.phase not in _ENDED and other.metadata.uid != pod.metadata.uid:
                facts.add(PodFacts(as_allocated(to_dict(other))))
        return find_admission_fault(PodFacts(tree), facts)

    def _find_resize_fault(self, pod: Pod, tree: JSONObject) -> str:
        """Return why a pod cannot be resized on its node now; "" if it can be."""
        node = self.lister(Node).get(pod.spec.node_name or "")
        error = self._find_admission_fault(pod, tree, node) if node is not None else None
        return error[1] if error is not None else ""

    async def _reject(self, pod: Pod, tree: JSONObject) -> bool:
        """Fail a pod that does not fit on its node, and return whether it was failed. Pods that a scheduler has bound are not checked."""
        node = self.lister(Node).get(pod.spec.node_name or "")
        if (
            node is None
            or pod.status.start_time
            or any(one.type == "PodScheduled" and one.status == "True" for one in pod.status.conditions)
        ):
            return False
        error = self._find_admission_fault(pod, tree, node)
        if error is None:
            return False
        reason, message = error
        self.events.warning(pod, reason, message)
        generation = pod.metadata.generation or None
        status = {"phase": "Failed", "reason": reason, "message": f"Pod was rejected: {message}", "observedGeneration": generation}
        await self._write(pod, tree, status)
        return True

    # ------------------------------------------------------------------------------------------------------- references of a pod

    async def _find_missing(self, pod: Pod, tree: JSONObject) -> MissingReferences:
        """Return the missing objects that prevent a pod from starting. When this result changes, record Events."""
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
        """Return the keys of an object's data (for a bound claim ``BOUND``), or None if the object does not exist.

        An object that the cache lacks is read from the server, because the cache may lag.
        """
        result: Any = self.lister(_KINDS[kind]).get(name, namespace)
        if result is None:
            try:
                result = await self.client.get(_KINDS[kind], name, namespace=namespace)
            except NotFound:
                return None
        if isinstance(result, PersistentVolumeClaim):
            # The phase is the last write of a binding: a pod may get here before it, and must not report an error then.
            bound = result.spec.volume_name and result.status.phase != "Lost" and BIND_COMPLETED in result.metadata.annotations
            return frozenset({BOUND} if bound or result.status.phase == "Bound" else ())
        binary = result.binary_data if isinstance(result, ConfigMap) else {}
        return frozenset({*result.data, *binary})

    def _report(self, pod: Pod, tree: JSONObject, simulation: Simulation, events: Iterable[PodEvent]) -> None:
        """Record Events of a pod; at the first start of its containers also warnings about pull secrets, annotations and probes."""
        first = False
        for kind, reason, message in events:
            self.events.event(pod, kind, reason, message)
            first = first or reason == "Started"
        if not first or any(one["restartCount"] for one in (tree.get("status") or {}).get("containerStatuses") or ()):
            return
        pull = [one.name for one in pod.spec.image_pull_secrets if self.lister(Secret).get(one.name or "", pod.metadata.namespace) is None]
        if pull:
            text = (
                f"Unable to retrieve some image pull secrets ({', '.join(map(str, pull))}); attempting to pull the image may not succeed."
            )
            self.events.warning(pod, "FailedToRetrieveImagePullSecret", text)
        for error in simulation.faults:
            self.events.warning(pod, "InvalidSimulation", error)
        if probes := unknown_probes(tree, simulation):
            text = f"The simulated node runs no probes. These count as successful: {', '.join(probes)}."
            self.events.normal(pod, "ProbesNotRun", f"{text} The annotations simulated.kubeloop.dev/PROBE=failure let them fail.")

    async def _end(self, pod: Pod, tree: JSONObject, simulation: Simulation, host: str) -> Result | None:
        """End a deleted pod as a kubelet does: wait until its containers end, write its last status, and delete it without grace period."""
        self._waiting.pop(pod.object_key(self.cluster), None)
        metadata, now = pod.metadata, self.clock.wall()
        grace = metadata.deletion_grace_period_seconds or 0
        if pod.status.phase not in _ENDED:
            begun = (metadata.deletion_timestamp or now) - timedelta(seconds=grace)
            desired = stop_seconds(tree, simulation) if pod.status.phase == "Running" else 0.0
            left = min(desired, grace) - (now - begun).total_seconds()
            if desired > 0 and left > 0:
                return Result(requeue_after=left)
            for container in pod.spec.containers if pod.status.phase == "Running" else ():
                self.events.normal(pod, "Killing", f"Stopping container {container.name}")
            addresses = PodAddresses(host, pod.status.pod_ip or "")
            await self._write(pod, tree, terminated(tree, addresses, now, killed=desired > grace))
        elif grace == 0:
            self._release(metadata.uid)
            return None  # The kubelet has already confirmed the deletion: finalizers keep the pod.
        self._release(metadata.uid)
        with contextlib.suppress(NotFound, Conflict):  # The pod is deleted or replaced.
            await self.client.delete(pod, grace_period_seconds=0, options=DeleteOptions(uid=metadata.uid))
        return None

    async def _write(self, pod: Pod, tree: JSONObject, status: JSONObject) -> bool:
        """Write a status unless the pod already has it; return whether it was written."""
        if not differs(tree, status):
            return False
        change = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        metadata = pod.metadata
        try:
            await self.client.patch(Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status")
        except NotFound:
            return False
        except (Conflict, Invalid):
            # The uid is a precondition: another pod of the same name may have replaced the pod, whose own event is handled separately.
            live = await self.client.get_metadata(Pod, metadata.name, namespace=metadata.namespace)
            if live.metadata.uid == metadata.uid:
                raise
            return False
        return True

    def _address(self, pod: Pod) -> str:
        address = self._addresses.get(pod.metadata.uid)
        if address is None:
            address = next(one for number in self._numbers if (one := f"10.244.{number // 254}.{number % 254 + 1}") not in self._used)
            self._addresses[pod.metadata.uid] = address
            self._used.add(address)
        return address

    # ----------------------------------------------------------------------------------------------------------------------- nodes

    def is_down(self, name: str) -> bool:
        """Return whether the kubelet of a node is stopped by the annotation ``KUBELET`` of the Node or by a failure of its template."""
        head = self.lister(Node).head(name)
        stopped = head is not None and head.value(_KUBELET) == "stopped"
        return stopped or self.templates[name].fails(self.clock.now() - self._begin)

    async def _register(self, name: str) -> None:
        """Create the Node and its Lease, or update the labels and status of an existing Node and renew its Lease."""
        now = self.clock.wall()
        document = self.templates[name].node(self.nodes[name], now)
        try:
            node = await self.client.create(decode(Node, msgspec.json.encode(document)))
        except AlreadyExists:
            node = await self.client.patch(Node, name, {"metadata": {"labels": document["metadata"]["labels"]}}, type="merge")
            change = {"status": {key: value for key, value in document["status"].items() if key != "conditions"}}
            change["status"]["conditions"] = conditions(now, to_dict(node).get("status", {}).get("conditions") or ())
            await self.client.patch(Node, name, change, type="strategic", subresource="status")
        self._reported[name] = self.clock.now()
        try:
            await self.client.create(decode(Lease, msgspec.json.encode(lease(name, node.metadata.uid, now))))
        except AlreadyExists:
            await self._renew_lease(name, node.metadata.uid)

    async def _renew(self) -> Result:
        """Renew the Leases of the next batch of nodes, and report their status when it is due."""
        begin = self.clock.now()
        interval, count = renewal_plan(len(self.nodes), begin - self._renewed)
        self._renewed = begin
        names = list(self.nodes)
        batch = [names[(self._next + number) % len(names)] for number in range(min(count, len(names)))]
        self._next = (self._next + len(batch)) % len(names)
        await asyncio.gather(*(self._heartbeat(name) for name in batch))
        return Result(requeue_after=max(interval - (self.clock.now() - begin), 0.05), priority=_FIRST)

    async def _heartbeat(self, name: str) -> None:
        """Renew the Lease of one node, and report its status when it is due. A failure is only logged, so that it does not delay others."""
        head = self.lister(Node).head(name)
        if head is None or self.is_down(name):
            return
        try:
            await self._renew_lease(name, head.uid)
            if _ready_of(head) != "True" or self.clock.now() - self._reported.get(name, 0.0) >= _REPORT:
                await self._report_node(name)
        except KubeloopError as error:
            self.log.warning("cannot report the node %s: %s", name, error)

    async def _renew_lease(self, name: str, uid: str) -> None:
        now = self.clock.wall()
        try:
            await self.client.patch_metadata(Lease, name, {"spec": {"renewTime": micro_time(now)}}, namespace=LEASES)
        except NotFound:
            with contextlib.suppress(AlreadyExists, NotFound):
                await self.client.create(decode(Lease, msgspec.json.encode(lease(name, uid, now))))

    async def _report_node(self, name: str) -> Result | None:
        """Write the conditions of a node whose kubelet is not stopped; its pods are reconciled when the change arrives."""
        node = self.lister(Node).get(name)
        if name not in self.nodes or node is None or self.is_down(name):
            return None
        now = self.clock.now()
        is_ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
        # Admission taints a new node until it is ready. The node lifecycle controller removes the taint; this code does if it does not run.
        if is_ready and _tainted(node):
            if now - self._begin < _UNTAINT:
                return Result(requeue_after=_UNTAINT)
            with contextlib.suppress(NotFound):
                await self.client.update_with_retry(Node, name, _remove_not_ready)
        if is_ready and now - self._reported.get(name, 0.0) < _REPORT:
            return None
        self._reported[name] = now
        before = to_dict(node).get("status", {}).get("conditions") or ()
        if is_ready:
            moment = format_time(self.clock.wall().replace(microsecond=0))
            change = [{"type": one["type"], "lastHeartbeatTime": moment} for one in before if one["type"] != "NetworkUnavailable"]
        else:
            change = conditions(self.clock.wall(), before)
        with contextlib.suppress(NotFound):
            await self.client.patch(Node, name, {"status": {"conditions": change}}, type="strategic", subresource="status")
            await self._renew_lease(name, node.metadata.uid)
        return None


_NOT_READY = "node.kubernetes.io/not-ready"


def _tainted(node: Node) -> bool:
    return any(taint.key == _NOT_READY and taint.effect == "NoSchedule" for taint in node.spec.taints)


def _remove_not_ready(node: Node) -> None:
    node.spec.taints = [taint for taint in node.spec.taints if taint.key != _NOT_READY or taint.effect != "NoSchedule"]


def _always(seconds: float) -> Delay:
    return lambda pod: seconds  # noqa: ARG005  # all pods have the same delay
