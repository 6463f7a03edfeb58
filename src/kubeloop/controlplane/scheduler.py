"""Scheduler: assigns each pod without a node to one of the nodes that ``node_fit`` allows.

It chooses the fitting node with the fewest pods. Not done: preferences and scores, preemption, gangs, allocation of resource claims.
Source: Kubernetes documentation, "Kubernetes Scheduler"; pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

import msgspec

from kubeloop.api.core.v1 import Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodCondition
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.cache import EventType, Head
from kubeloop.controller import KeyController, Predicate, Result, Watch, labels_changed, path_changed, resource_version_changed
from kubeloop.controlplane.node_fit import judge
from kubeloop.controlplane.scheduling_facts import (
    SELECTED_NODE,
    ClusterFacts,
    FactsCache,
    PodFacts,
    VolumeFacts,
    claim_facts,
    class_facts,
    node_facts,
    volume_facts,
)
from kubeloop.controlplane.volume_matching import UNBOUND_CLAIMS, VolumePlan, plan_volumes, reserve_volume
from kubeloop.meta import Conflict, NotFound, ObjectKey, format_time

SCHEDULER = "default-scheduler"
#: Seconds that a pod with a node waits for its volumes to be bound (upstream's bindTimeoutSeconds).
_BIND_TIMEOUT = 600.0
#: Seconds after the first failure to bind volumes, and maximum, until a pod is scheduled again (upstream's podInitialBackoffSeconds and
#: podMaxBackoffSeconds).
_FIRST_DELAY, _LONGEST_DELAY = 1.0, 10.0

_unbound = Predicate(lambda event: not event.head.value("spec.nodeName"), ("spec.nodeName",))
#: Pods that stop using a node, and pods to which other pods may have affinity or anti-affinity.
_makes_room = (
    Predicate(lambda event: event.type is EventType.DELETED) | path_changed("spec") | path_changed("status.phase") | labels_changed
) & Predicate(lambda event: bool(event.head.value("spec.nodeName")), ("spec.nodeName",))
_node_changed = path_changed("spec") | path_changed("status.conditions") | path_changed("status.allocatable") | labels_changed
_claim_changed = (
    path_changed("spec") | path_changed("status.phase") | path_changed("metadata.annotations") | path_changed("metadata.deletionTimestamp")
)
_volume_changed = path_changed("spec") | path_changed("status.phase") | path_changed("metadata.annotations") | labels_changed


#: ``_RETRY_ALL`` retries every refused pod; ``_RETRY`` leaves out pods that wait for their claims, which no node can help. Each is one
#: key, however many pods and changes there are. Keys of pods have a namespace.
_RETRY_ALL = ObjectKey("", "", "all")
_RETRY = ObjectKey("", "", "bound")


def _all_refused(head: Head) -> list[ObjectKey]:  # noqa: ARG001  # any such change may make room for any pod
    return [_RETRY_ALL]


def _refused_with_bound_claims(head: Head) -> list[ObjectKey]:  # noqa: ARG001  # any such change may make room for any of them
    return [_RETRY]


class _Refusal(NamedTuple):
    """A pod that could not be scheduled. ``claims`` are the names of its claims; ``unbound`` says that only a change of them can help."""

    claims: frozenset[str]
    unbound: bool


@dataclass(frozen=True)
class _AwaitedVolumes:
    """A pod that has a node and waits there for its volumes to be bound; ``deadline`` is by the controller's clock.

    ``reserved`` and ``annotated``: names of the volumes and claims that carry the reservation, with the version from which on they do.
    """

    key: ObjectKey
    node: str
    deadline: float
    reserved: dict[str, int] = field(default_factory=dict)
    annotated: dict[str, int] = field(default_factory=dict)


@dataclass
class _BindingFailures:
    """Failures to bind the volumes of a pod. ``nodes`` has the last failure on each node; ``retry_at`` is by the controller's clock."""

    count: int = 0
    retry_at: float = 0.0
    nodes: dict[str, int] = field(default_factory=dict)

    def add(self, node: str, now: float) -> float:
        """Count a failure on a node, and return the seconds until the pod is scheduled again."""
        delay = min(_FIRST_DELAY * 2.0 ** min(self.count, 10), _LONGEST_DELAY)
        self.count += 1
        self.nodes[node] = self.count
        self.retry_at = now + delay
        return delay


class Scheduler(
    KeyController[Pod],
    predicates=[_unbound],
    watches=[
        Watch(Node, to=_all_refused, predicates=(_node_changed,)),
        Watch(Pod, to=_refused_with_bound_claims, predicates=(_makes_room,)),
        Watch(PersistentVolumeClaim, to="users_of_claim", predicates=(_claim_changed,)),
        Watch(PersistentVolume, to=_refused_with_bound_claims, predicates=(_volume_changed,)),
        Watch(StorageClass, to=_all_refused, predicates=(resource_version_changed,)),
        Watch(Namespace, to=_refused_with_bound_claims, predicates=(labels_changed,)),
    ],
    name=SCHEDULER,
):
    """Binds through ``pods/binding``. The condition PodScheduled of a pod that fits nowhere says why, and the pod is tried again when
    something changes that may help it.

    Volumes that wait for a pod are reserved for the claims of the first pod that gets a node; the pod waits on that node, which counts it
    already, until its claims are bound. When a provisioner refuses the node, or the time is over, the pod is scheduled again with back-off,
    and that node comes last.

    One worker: two at once would count the same free place twice. Pods bound lately count although the cache may not show them yet.
    """

    def __init__(self) -> None:
        self._forget()

    async def start(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._assumed: dict[str, str] = {}
        self._awaiting: dict[str, _AwaitedVolumes] = {}
        self._failures: dict[str, _BindingFailures] = {}
        self._refused: dict[ObjectKey, _Refusal] = {}
        self._facts = FactsCache[PodFacts](lambda head: PodFacts(msgspec.json.decode(head.document())))
        self._volumes = FactsCache[VolumeFacts](lambda head: volume_facts(self.lister(PersistentVolume).decoded(head)))

    def users_of_claim(self, claim: Head) -> list[ObjectKey]:
        """Return the keys of the refused pods that use a claim."""
        return [key for key, refusal in self._refused.items() if key.namespace == claim.namespace and claim.name in refusal.claims]

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if not key.namespace:
            for refused, refusal in self._refused.items():
                if key.name == _RETRY_ALL.name or not refusal.unbound:
                    self.enqueue(refused)
            return None
        self._refused.pop(key, None)
        pod = self.lister(Pod).by_key(key)
        if pod is None or not _is_mine(pod) or pod.metadata.uid in self._assumed:
            self._free_room(key)
            return None
        failures = self._failures.get(pod.metadata.uid, _BindingFailures())
        if (delay := failures.retry_at - self.clock.now()) > 0:
            return Result(requeue_after=delay)
        awaited = self._awaiting.get(pod.metadata.uid)
        if awaited is not None and (error := self._find_binding_fault(awaited)):
            return await self._fail_binding(pod, awaited, error)
        facts = self._facts_of(pod)
        cluster = self._cluster(facts)
        result = judge(facts, cluster)
        if not result.fitting:
            self._free_room(key)
            self._refused[key] = _Refusal(frozenset(name for name, _ in facts.claims), UNBOUND_CLAIMS in result.message)
            await self._refuse(pod, "Unschedulable", result.message)
            return None
        before = awaited.node if awaited is not None else ""
        node = min(
            result.fitting,
            key=lambda candidate: (candidate.name != before, failures.nodes.get(candidate.name, 0), len(candidate.pods), candidate.name),
        )
        plan = plan_volumes(facts, node, cluster)
        if plan.bindings or plan.provisions:
            return await self._await_volumes(key, pod, node.name, plan)
        await self._bind(pod, node.name)
        return None

    def _facts_of(self, pod: Pod) -> PodFacts:
        head = self.lister(Pod).head(pod.metadata.name, pod.metadata.namespace)
        return self._facts.of(head) if head is not None else PodFacts(msgspec.to_builtins(pod))

    def _cluster(self, desired: PodFacts) -> ClusterFacts:
        """Return the cached state, including recently bound pods. It has volumes and claims only if the pod has claims."""
        nodes = {node.metadata.name: node_facts(node) for node in self.lister(Node).each()}
        pods = self.lister(Pod).heads()
        for head in pods:
            facts = self._facts.of(head)
            if facts.node:
                self._assumed.pop(head.uid, None)
                self._awaiting.pop(head.uid, None)
                self._failures.pop(head.uid, None)
            awaited = self._awaiting.get(head.uid) if head.uid != desired.uid else None
            node = nodes.get(facts.node or self._assumed.get(head.uid) or (awaited.node if awaited is not None else ""))
            if node is not None and not facts.ended:
                node.pods.append(facts)
        self._facts.retain_only(pods)
        present = {head.uid for head in pods}
        for uid in self._assumed.keys() - present:
            del self._assumed[uid]
        for uid in self._failures.keys() - present:
            del self._failures[uid]
        namespaces = {head.name: head.labels for head in self.lister(Namespace).heads()}
        result = ClusterFacts(list(nodes.values()), namespaces)
        if desired.claims:
            claims = [self.lister(PersistentVolumeClaim).get(name, desired.namespace) for name, _ in desired.claims]
            volumes = self.lister(PersistentVolume).heads()
            result.claims = {(one.metadata.namespace, one.metadata.name): claim_facts(one) for one in claims if one is not None}
            result.volumes = {head.name: self._volumes.of(head) for head in volumes}
            result.classes = {one.metadata.name: class_facts(one) for one in self.lister(StorageClass).each()}
            self._volumes.retain_only(volumes)
        return result

    async def _await_volumes(self, key: ObjectKey, pod: Pod, node: str, plan: VolumePlan) -> Result | None:
        """Reserve the volumes of a plan for their claims, and request the volumes to provision; the binder does the rest.

        Objects that carry the reservation already are not written again, so the next reconcile continues after a crash or a conflict.
        """
        self._refused[key] = _Refusal(
            frozenset(one.name for one in (*plan.provisions, *(claim for claim, _ in plan.bindings))), unbound=False
        )
        now, awaited = self.clock.now(), self._awaiting.get(pod.metadata.uid)
        if awaited is None or awaited.node != node:
            awaited = self._awaiting[pod.metadata.uid] = _AwaitedVolumes(key, node, now + _BIND_TIMEOUT)
        elif now >= awaited.deadline:
            return await self._fail_binding(pod, awaited, "context deadline exceeded")
        # All changes are made before the first write: the versions that the plan was made of protect what others write meanwhile.
        changed: list[tuple[PersistentVolume | PersistentVolumeClaim, dict[str, int]]] = []
        for needed, chosen in plan.bindings:
            claim = self.lister(PersistentVolumeClaim).get(needed.name, needed.namespace)
            volume = self.lister(PersistentVolume).get(chosen.name)
            if claim is None or volume is None or chosen.name in awaited.reserved:
                continue
            if reserve_volume(volume, claim):
                changed.append((volume, awaited.reserved))
            else:
                awaited.reserved[chosen.name] = _version_of(volume)
        for needed in plan.provisions:
            claim = self.lister(PersistentVolumeClaim).get(needed.name, needed.namespace)
            if claim is None or needed.name in awaited.annotated:
                continue
            if claim.metadata.annotations.get(SELECTED_NODE) != node:
                claim.metadata.annotations[SELECTED_NODE] = node
                changed.append((claim, awaited.annotated))
            else:
                awaited.annotated[needed.name] = _version_of(claim)
        for one, versions in changed:
            await self._write(one, versions)
        return Result(requeue_after=awaited.deadline - now)

    def _find_binding_fault(self, awaited: _AwaitedVolumes) -> str:
        """Return why the volumes of a pod are not bound on its node, in upstream's words; "" while they may be.

        An external provisioner removes its node from a claim for which it can make no volume there. A cache that does not show yet what
        the scheduler wrote is no such removal.
        """
        for name, version in awaited.reserved.items():
            volume = self.lister(PersistentVolume).get(name)
            if volume is not None and _version_of(volume) >= version and not (volume.spec.claim_ref and volume.spec.claim_ref.uid):
                return f'ClaimRef got reset for pv "{name}"'
        for name, version in awaited.annotated.items():
            claim = self.lister(PersistentVolumeClaim).get(name, awaited.key.namespace)
            if claim is None or _version_of(claim) < version:
                continue
            if not claim.metadata.annotations:
                return f'selectedNode annotation reset for PVC "{name}"'
            if claim.metadata.annotations.get(SELECTED_NODE) != awaited.node:
                return f'provisioning failed for PVC "{name}"'
        return ""

    async def _fail_binding(self, pod: Pod, awaited: _AwaitedVolumes, error: str) -> Result:
        """Refuse a pod whose volumes are not bound on its node, and schedule it again later."""
        await self._refuse(pod, "SchedulerError", f'running PreBind plugin "VolumeBinding": binding volumes: {error}')
        self._refused.pop(awaited.key, None)
        self._free_room(awaited.key)
        failures = self._failures.setdefault(pod.metadata.uid, _BindingFailures())
        return Result(requeue_after=failures.add(awaited.node, self.clock.now()))

    def _free_room(self, key: ObjectKey) -> None:
        """Take back the room of a pod that no longer waits for volumes, and try the others again: they may fit now."""
        for uid in [uid for uid, awaited in self._awaiting.items() if awaited.key == key]:
            del self._awaiting[uid]
            self.enqueue(_RETRY)

    async def _write(self, changed: PersistentVolume | PersistentVolumeClaim, versions: dict[str, int]) -> None:
        """Write a volume or claim, and record its version; a missing object is no error, because its deletion leads to another try.

        Raises:
            Conflict: Another client changed the object; the next reconcile schedules the pod by the new state.
        """
        try:
            versions[changed.metadata.name] = _version_of(await self.client.update(changed))
        except NotFound:
            return

    async def _bind(self, pod: Pod, node: str) -> None:
        namespace, name = pod.metadata.namespace, pod.metadata.name
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = (await self.client.mapping(Pod)).path(namespace, name, "binding")
        try:
            await self.client.transport.request("POST", path, body=msgspec.json.encode(binding))
        except (NotFound, Conflict):
            return  # Deleted, or bound by somebody else: the cache will show it.
        self._assumed[pod.metadata.uid] = node
        self._awaiting.pop(pod.metadata.uid, None)
        self._failures.pop(pod.metadata.uid, None)
        self.events.normal(pod, "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")

    async def _refuse(self, pod: Pod, reason: str, message: str) -> None:
        before = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        if before is not None and (before.status, before.reason, before.message) == ("False", reason, message):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": reason,
            "message": message,
            "lastTransitionTime": format_time(_since(before) or self.clock.wall()),
            "observedGeneration": pod.metadata.generation or None,
        }
        change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        try:
            await self.client.patch(
                Pod, pod.metadata.name, change, type="strategic", namespace=pod.metadata.namespace, subresource="status"
            )
        except (NotFound, Conflict):
            return
        self.events.warning(pod, "FailedScheduling", message)


def _is_mine(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in (None, "", SCHEDULER)
        and not pod.spec.scheduling_gates
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def _version_of(obj: PersistentVolume | PersistentVolumeClaim) -> int:
    return int(obj.metadata.resource_version or 0)


def _since(condition: PodCondition | None) -> datetime | None:
    return condition.last_transition_time if condition is not None and condition.status == "False" else None
