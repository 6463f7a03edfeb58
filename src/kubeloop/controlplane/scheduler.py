"""Scheduler: gives each pod that has no node one of the nodes that ``node_fit`` lets it have.

It chooses the fitting node with the fewest pods. Not done: preferences and scores, preemption, gangs, allocation of resource claims.
Source: Kubernetes documentation, "Kubernetes Scheduler"; pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kubeloop.api.core.v1 import Namespace, Node, PersistentVolumeClaim, Pod, PodCondition
from kubeloop.cache import EventType, Head
from kubeloop.controller import KeyController, Predicate, Watch, labels_changed, path_changed
from kubeloop.controlplane.node_fit import judge
from kubeloop.controlplane.scheduling_facts import ClaimFacts, ClusterFacts, PodFacts, node_facts
from kubeloop.meta import Conflict, NotFound, ObjectKey, format_time

SCHEDULER = "default-scheduler"

_unbound = Predicate(lambda event: not event.head.value("spec.nodeName"), ("spec.nodeName",))
#: Pods that stop using a node, and pods on nodes that others may want to be near to, or far from.
_makes_room = (
    Predicate(lambda event: event.type is EventType.DELETED) | path_changed("spec") | path_changed("status.phase") | labels_changed
) & Predicate(lambda event: bool(event.head.value("spec.nodeName")), ("spec.nodeName",))
_node_changed = path_changed("spec") | path_changed("status.conditions") | path_changed("status.allocatable") | labels_changed
_claim_changed = path_changed("status.phase") | path_changed("metadata.deletionTimestamp")


def _all_waiting(head: Head) -> list[ObjectKey]:  # noqa: ARG001  # any such change may make room for any pod
    return [_RETRY]


#: Stands for "try every refused pod again": one key, however many pods and changes there are.
_RETRY = ObjectKey("", "", "")


class Scheduler(
    KeyController[Pod],
    predicates=[_unbound],
    watches=[
        Watch(Node, to=_all_waiting, predicates=(_node_changed,)),
        Watch(Pod, to=_all_waiting, predicates=(_makes_room,)),
        Watch(PersistentVolumeClaim, to=_all_waiting, predicates=(_claim_changed,)),
        Watch(Namespace, to=_all_waiting, predicates=(labels_changed,)),
    ],
    name=SCHEDULER,
):
    """Binds through ``pods/binding``. The condition PodScheduled of a pod that fits nowhere says why, and the pod is tried again when
    something changes that may help it.

    One worker: two at once would count the same free place twice. Pods bound lately count although the cache may not show them yet.
    """

    async def start(self) -> None:
        self._assumed: dict[str, str] = {}
        self._refused: set[ObjectKey] = set()
        self._facts: dict[str, tuple[str, PodFacts]] = {}

    async def reconcile(self, key: ObjectKey) -> None:
        if not key.name:
            for refused in list(self._refused):
                self.enqueue(refused)
            return
        self._refused.discard(key)
        pod = self.lister(Pod).by_key(key)
        if pod is None or not _is_mine(pod) or pod.metadata.uid in self._assumed:
            return
        facts = self._facts_of(pod)
        found = judge(facts, self._cluster(facts))
        if found.fitting:
            await self._bind(pod, min(found.fitting, key=lambda node: (len(node.pods), node.name)).name)
        else:
            self._refused.add(key)
            await self._refuse(pod, found.message)

    def _facts_of(self, pod: Pod) -> PodFacts:
        head = self.lister(Pod).head(pod.metadata.name, pod.metadata.namespace)
        return self._read(head) if head is not None else PodFacts(msgspec.to_builtins(pod))

    def _read(self, head: Head) -> PodFacts:
        """Return the facts of one state of a pod; they are read once."""
        version, facts = self._facts.get(head.uid, ("", None))
        if facts is None or version != head.resource_version:
            facts = PodFacts(msgspec.json.decode(head.document()))
            self._facts[head.uid] = (head.resource_version, facts)
        return facts

    def _cluster(self, wanted: PodFacts) -> ClusterFacts:
        """Return what the caches show, and the pods that were bound lately; of volume claims only those of the pod."""
        nodes = {node.metadata.name: node_facts(node) for node in self.lister(Node).each()}
        present = set()
        for head in self.lister(Pod).heads():
            present.add(head.uid)
            facts = self._read(head)
            if facts.node:
                self._assumed.pop(head.uid, None)
            node = nodes.get(facts.node or self._assumed.get(head.uid, ""))
            if node is not None and not facts.ended:
                node.pods.append(facts)
        for known in (self._facts, self._assumed):
            for uid in known.keys() - present:
                del known[uid]
        namespaces = {head.name: head.labels for head in self.lister(Namespace).heads()}
        claims = {}
        for name, _ in wanted.claims:
            found = self.lister(PersistentVolumeClaim).get(name, wanted.namespace)
            if found is not None:
                claims[wanted.namespace, name] = _claim(found)
        return ClusterFacts(list(nodes.values()), namespaces, claims)

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
        self.events.normal(pod, "Scheduled", f"Successfully assigned {namespace}/{name} to {node}")

    async def _refuse(self, pod: Pod, message: str) -> None:
        before = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        if before is not None and (before.status, before.reason, before.message) == ("False", "Unschedulable", message):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
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


def _claim(claim: PersistentVolumeClaim) -> ClaimFacts:
    lost = (claim.spec.volume_name or "") if claim.status.phase == "Lost" else None
    owner = next((one.uid for one in claim.metadata.owner_references if one.controller), "")
    return ClaimFacts(claim.metadata.deletion_timestamp is not None, lost, owner)


def _is_mine(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in (None, "", SCHEDULER)
        and not pod.spec.scheduling_gates
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def _since(condition: PodCondition | None) -> datetime | None:
    return condition.last_transition_time if condition is not None and condition.status == "False" else None
