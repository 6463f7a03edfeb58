"""Taint eviction controller: deletes the pods that do not tolerate a NoExecute taint of their node, or whose toleration has expired.

Source: Kubernetes pkg/controller/tainteviction/taint_eviction.go; component-helpers scheduling/corev1/helpers.go (GetMatchingTolerations).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from kubeloop.api.core.v1 import Node, Pod, Taint, Toleration
from kubeloop.cache import EventType, Head, InformerEvent
from kubeloop.client import DeleteOptions
from kubeloop.controller import KeyController, Predicate, Result, WatchedKind, path_changed
from kubeloop.controlplane.nodes.node_health import NO_EXECUTE
from kubeloop.controlplane.nodes.node_lifecycle import POD_NODE
from kubeloop.meta import Conflict, Invalid, NotFound, ObjectKey, ObjectMeta, format_time

REASON = "TaintManagerEviction"


def tolerated_seconds(taints: Sequence[Taint], tolerations: Sequence[Toleration]) -> float:
    """Return for how many seconds a pod may stay on a node: 0 if it does not tolerate a taint, infinity if it tolerates all forever.

    Args:
        taints: The NoExecute taints of the node.
        tolerations: The tolerations of the pod.
    """
    used: list[Toleration] = []
    for taint in taints:
        toleration = next((one for one in tolerations if _tolerates(one, taint)), None)
        if toleration is None:
            return 0.0
        used.append(toleration)
    limits = [one.toleration_seconds for one in used if one.toleration_seconds is not None]
    return max(float(min(limits)), 0.0) if limits else math.inf


def _tolerates(toleration: Toleration, taint: Taint) -> bool:
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return toleration.operator in (None, "", "Equal") and (toleration.value or "") == (taint.value or "")


def _evicting(taints: Iterable[dict[str, Any]] | None) -> list[dict[str, Any]]:
    return [one for one in taints or () if one.get("effect") == NO_EXECUTE]


def _taints_changed(event: InformerEvent[Any]) -> bool:
    after = [] if event.type is EventType.DELETED else _evicting(event.head.value("spec.taints"))
    return after != (_evicting(event.old.value("spec.taints")) if event.old is not None else [])


@dataclass(frozen=True, slots=True)
class _ScheduledEviction:
    """An eviction that waits until a toleration ends: the pod's uid, and the time of the controller's clock."""

    uid: str
    due: float


class TaintEvictionController(
    KeyController[Pod],
    predicates=[path_changed("spec.nodeName") | path_changed("spec.tolerations")],
    watches=[WatchedKind(Node, to="pods_of_node", predicates=(Predicate(_taints_changed, ("spec.taints",)),))],
    indexes={Pod: {POD_NODE: "spec.nodeName"}},
    workers=8,
    name="taint-eviction-controller",
):
    """Evicts pods from nodes with NoExecute taints: sets the condition DisruptionTarget, and deletes the pod with its grace period.

    Guarantees:
        The ``tolerationSeconds`` of a pod count from the moment at which the controller sees the taint.
        If the taint is removed earlier, the eviction is cancelled.

    Not guaranteed:
        Elapsed time across a restart: after a restart of the controller ``tolerationSeconds`` start again from zero, as upstream.
    """

    def __init__(self) -> None:
        self._scheduled: dict[ObjectKey, _ScheduledEviction] = {}

    async def start(self) -> None:
        self._scheduled.clear()

    def pods_of_node(self, node: Head) -> list[ObjectKey]:
        """Return the keys of the pods that are bound to a node."""
        return [ObjectKey(self.cluster, head.namespace, head.name) for head in self.lister(Pod).heads_by_index(POD_NODE, node.name)]

    async def reconcile(self, key: ObjectKey) -> Result | None:
        head = self.lister(Pod).head(key.name, key.namespace)
        scheduled = self._scheduled.get(key)
        if scheduled is not None and (head is None or head.uid != scheduled.uid):
            self._cancel(key)
            scheduled = None
        name = head.value("spec.nodeName") if head is not None else None
        node = self.lister(Node).head(name) if name else None
        taints = _evicting(node.value("spec.taints")) if node is not None else []
        if head is None or not taints or head.deleting:
            self._cancel(key)
            return None
        pod = self.lister(Pod).decoded(head)
        now = self.clock.now()
        seconds = tolerated_seconds([_taint(one) for one in taints], pod.spec.tolerations)
        if seconds == math.inf:
            self._cancel(key)
            return None
        if seconds == 0 or (scheduled is not None and scheduled.due <= now):
            if seconds == 0:
                self._cancel(key)
            self._scheduled.pop(key, None)
            await self._evict(pod)
            return None
        if scheduled is None:
            scheduled = self._scheduled[key] = _ScheduledEviction(head.uid, now + seconds)
        return Result(requeue_after=scheduled.due - now)

    def _cancel(self, key: ObjectKey) -> None:
        scheduled = self._scheduled.pop(key, None)
        if scheduled is not None:
            pod = Pod(metadata=ObjectMeta(name=key.name, namespace=key.namespace, uid=scheduled.uid))
            self.events.normal(pod, REASON, f"Cancelling deletion of Pod {key.namespace}/{key.name}")

    async def _evict(self, pod: Pod) -> None:
        metadata = pod.metadata
        self.events.normal(pod, REASON, f"Marking for deletion Pod {metadata.namespace}/{metadata.name}")
        condition = {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "DeletionByTaintManager",
            "message": "Taint manager: deleting due to NoExecute taint",
            "lastTransitionTime": format_time(self.clock.wall().replace(microsecond=0)),
            "observedGeneration": metadata.generation or None,
        }
        change = {"metadata": {"uid": metadata.uid}, "status": {"conditions": [condition]}}
        try:
            if not any(one.type == "DisruptionTarget" and one.reason == condition["reason"] for one in pod.status.conditions):
                await self.client.patch(Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status")
            await self.client.delete(pod, options=DeleteOptions(uid=metadata.uid))
        except (NotFound, Conflict, Invalid):
            return  # The pod is deleted or replaced: the uid is a precondition.


def _taint(document: dict[str, Any]) -> Taint:
    return Taint(key=document["key"], value=document.get("value"), effect=document["effect"])
