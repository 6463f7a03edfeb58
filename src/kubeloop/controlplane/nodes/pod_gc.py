"""Pod garbage collector: deletes pods that no kubelet will ever delete, and ended pods beyond a limit.

Source: Kubernetes pkg/controller/podgc/gc_controller.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Any

from kubeloop.api.core.v1 import Node, Pod
from kubeloop.client import DeleteOptions
from kubeloop.controller import KeyController, Predicate, Result
from kubeloop.meta import Conflict, Invalid, KubeloopError, NotFound, ObjectKey, format_time

#: Seconds between two sweeps.
PERIOD = 20.0
#: Seconds for which a node must be missing before its pods are deleted.
QUARANTINE = 40.0
#: Number of finished pods in the whole cluster that are not deleted.
THRESHOLD = 12500
OUT_OF_SERVICE = "node.kubernetes.io/out-of-service"
_ENDED = frozenset({"Succeeded", "Failed"})
_BEGINNING = datetime.min.replace(tzinfo=UTC)
#: The only key: each sweep checks all pods.
_SWEEP = ObjectKey("", "", "")

_NODE, _PHASE = "spec.nodeName", "status.phase"
_never = Predicate(lambda event: False, (_NODE, _PHASE))  # noqa: ARG005  # sweeps are triggered by time, not by changes


class PodGarbageCollector(KeyController[Pod], predicates=[_never], reads=[Node], name="pod-garbage-collector"):
    """Deletes orphaned and surplus pods, with a grace period of zero.

    It deletes pods that are bound to a missing node, terminating pods on nodes that are out of service, terminating pods without a node,
    and the oldest finished pods beyond a threshold.

    Guarantees:
        A pod becomes Failed before it is deleted, unless it has finished. A node counts as missing only if a read from the server, not only
        the cache, confirms it after the quarantine.

    Args:
        period: Seconds between two sweeps.
        quarantine: Seconds for which a node must be missing.
        threshold: The number of finished pods that are not deleted. 0: no finished pod is deleted.
    """

    def __init__(self, *, period: float = PERIOD, quarantine: float = QUARANTINE, threshold: int = THRESHOLD) -> None:
        self._period = period
        self._quarantine = quarantine
        self._threshold = threshold
        self._suspects: dict[str, float] = {}

    async def start(self) -> None:
        self._suspects.clear()
        self.enqueue(_SWEEP)

    async def reconcile(self, key: ObjectKey) -> Result:  # noqa: ARG002  # there is one key
        # Only the heads of pods are read, of which there may be thousands; only pods to delete are decoded.
        heads = self.lister(Pod).heads()
        missing = await self._missing_nodes({name for head in heads if (name := head.value(_NODE))})
        ended = [head for head in heads if head.value(_PHASE) in _ENDED]
        terminating = [self.lister(Pod).decoded(head) for head in heads if head.deleting]
        doomed: dict[str, tuple[Pod, str]] = {}
        if 0 < self._threshold < len(ended):
            for pod in surplus(map(self.lister(Pod).decoded, ended), self._threshold):
                doomed[pod.metadata.uid] = (pod, "")
        for pod in stranded(terminating, {node.metadata.name: node for node in self.lister(Node).each()}) if terminating else ():
            doomed[pod.metadata.uid] = (pod, "")
        for head in heads if missing else ():
            if head.value(_NODE) in missing:
                doomed.setdefault(head.uid, (self.lister(Pod).decoded(head), "PodGC: node no longer exists"))
        await asyncio.gather(*(self._fail_and_delete(pod, message) for pod, message in doomed.values()))
        return Result(requeue_after=self._period)

    async def _missing_nodes(self, names: set[str]) -> set[str]:
        """Return those of the nodes in ``names`` that have been missing for the quarantine and that the server does not have either."""
        now = self.clock.now()
        nodes = {head.name for head in self.lister(Node).heads()}
        for name in names - nodes:
            self._suspects.setdefault(name, now + self._quarantine)
        missing = set()
        for name in [name for name, due in self._suspects.items() if due <= now]:
            del self._suspects[name]
            if name in nodes:
                continue
            try:
                await self.client.get_metadata(Node, name)
            except NotFound:
                missing.add(name)
        return missing

    async def _fail_and_delete(self, pod: Pod, message: str) -> None:
        """Set one pod to Failed and delete it. A failure is logged and retried in the next sweep, so that it does not delay other pods."""
        try:
            await self._write_failed(pod, message)
            await self.client.delete(pod, grace_period_seconds=0, options=DeleteOptions(uid=pod.metadata.uid))
        except (NotFound, Conflict):
            return  # The pod is deleted, or another pod of the same name has replaced it.
        except KubeloopError as error:
            self.log.warning("cannot delete the pod %s/%s: %s", pod.metadata.namespace, pod.metadata.name, error)
        else:
            self.log.info("deleted the pod %s/%s by force", pod.metadata.namespace, pod.metadata.name)

    async def _write_failed(self, pod: Pod, message: str) -> None:
        if pod.status.phase in _ENDED:
            return
        generation = pod.metadata.generation or None
        status: dict[str, Any] = {"phase": "Failed", "observedGeneration": generation}
        if message:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "DeletionByPodGC", "message": message}
            moment = format_time(self.clock.wall().replace(microsecond=0))
            status["conditions"] = [condition | {"lastTransitionTime": moment, "observedGeneration": generation}]
        change = {"metadata": {"uid": pod.metadata.uid}, "status": status}
        metadata = pod.metadata
        try:
            await self.client.patch(Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status")
        except Invalid as error:
            # The uid is a precondition: another pod of the same name is not changed.
            raise Conflict(error.status, error.request) from error


def surplus(pods: Iterable[Pod], threshold: int) -> list[Pod]:
    """Return the finished pods to delete so that ``threshold`` remain: evicted pods first, then the oldest; none if it is 0."""
    ended = [pod for pod in pods if pod.status.phase in _ENDED]
    count = len(ended) - threshold
    if threshold <= 0 or count <= 0:
        return []
    return sorted(ended, key=_age)[:count]


def _age(pod: Pod) -> tuple[bool, datetime, str]:
    evicted = pod.status.phase == "Failed" and pod.status.reason == "Evicted"
    return not evicted, pod.metadata.creation_timestamp or _BEGINNING, pod.metadata.name


def stranded(pods: Iterable[Pod], nodes: dict[str, Node]) -> list[Pod]:
    """Return the terminating pods that have no node, or whose node is not ready and marked as out of service."""
    result = []
    for pod in pods:
        if pod.metadata.deletion_timestamp is None:
            continue
        node = nodes.get(pod.spec.node_name or "")
        if not pod.spec.node_name or (node is not None and _is_out_of_service(node)):
            result.append(pod)
    return result


def _is_out_of_service(node: Node) -> bool:
    ready = any(one.type == "Ready" and one.status == "True" for one in node.status.conditions)
    return not ready and any(taint.key == OUT_OF_SERVICE for taint in node.spec.taints)
