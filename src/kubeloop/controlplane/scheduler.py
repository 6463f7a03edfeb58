"""Scheduler: gives each pod a node. It looks at readiness, cordons, taints, node selectors and how many pods a node has, nothing else.

Source: Kubernetes documentation, "Kubernetes Scheduler" and "Taints and Tolerations". Not done: resources, affinity, spreading, preemption.
"""

from __future__ import annotations

from datetime import datetime

import msgspec

from kubeloop.api.core.v1 import Node, Pod, PodCondition, Taint, Toleration
from kubeloop.cache import Head
from kubeloop.controller import KeyController, Predicate, Watch, path_changed
from kubeloop.meta import Conflict, NotFound, ObjectKey, format_time

SCHEDULER = "default-scheduler"
#: Pods that a node takes if it does not say (the kubelet's default).
_MOST = 110

_unbound = Predicate(lambda event: not event.head.value("spec.nodeName"), ("spec.nodeName",))


def _all_waiting(head: Head) -> list[ObjectKey]:  # noqa: ARG001  # any change of a node may make room for any pod
    return [_RETRY]


#: Stands for "look at every pod that waits": one key, however many pods and node changes there are.
_RETRY = ObjectKey("", "", "")


class Scheduler(
    KeyController[Pod],
    predicates=[_unbound],
    watches=[Watch(Node, to=_all_waiting, predicates=(path_changed("spec") | path_changed("status.conditions"),))],
    indexes={Pod: {"node": "spec.nodeName"}},
    name=SCHEDULER,
):
    """Binds through ``pods/binding``; a pod that fits nowhere is told so in its condition PodScheduled and tried again when a node changes.

    One worker: two at once would count the same free place twice. Pods bound lately count although the cache may not show them yet.
    """

    async def start(self) -> None:
        self._assumed: dict[str, str] = {}

    async def reconcile(self, key: ObjectKey) -> None:
        if not key.name:
            for head in self.lister(Pod).heads_by_index("node", ""):
                self.enqueue(ObjectKey(self.cluster, head.namespace, head.name))
            return
        pod = self.lister(Pod).by_key(key)
        if pod is None or not _is_mine(pod) or pod.metadata.uid in self._assumed:
            return
        chosen, refusals = self._choose(pod)
        if chosen is None:
            await self._refuse(pod, refusals)
        else:
            await self._bind(pod, chosen)

    def _choose(self, pod: Pod) -> tuple[str | None, dict[str, int]]:
        """The fitting node with the fewest pods; else why the nodes do not fit, and how many for each reason."""
        refusals: dict[str, int] = {}
        fitting: list[tuple[int, str]] = []
        for node in self.lister(Node).each():
            pods = self._pods_on(node.metadata.name)
            reason = refusal(pod, node, pods)
            if reason:
                refusals[reason] = refusals.get(reason, 0) + 1
            else:
                fitting.append((pods, node.metadata.name))
        return (min(fitting)[1] if fitting else None), refusals

    def _pods_on(self, node: str) -> int:
        heads = self.lister(Pod).heads_by_index("node", node)
        for head in heads:
            self._assumed.pop(head.uid, None)
        return len(heads) + sum(assumed == node for assumed in self._assumed.values())

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

    async def _refuse(self, pod: Pod, refusals: dict[str, int]) -> None:
        total = sum(refusals.values())
        why = ", ".join(f"{count} node(s) {reason}" for reason, count in sorted(refusals.items()))
        message = f"0/{total} nodes are available: {why}." if why else "no nodes available to schedule pods"
        before = next((one for one in pod.status.conditions if one.type == "PodScheduled"), None)
        if before is not None and before.status == "False" and before.message == message:
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


def refusal(pod: Pod, node: Node, pods: int) -> str:
    """Why ``node``, which has so many pods, cannot take ``pod``; "" if it can. Worded to follow "3 node(s)"."""
    if node.spec.unschedulable and not _tolerates(pod, Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")):
        return "were unschedulable"
    if not any(one.type == "Ready" and one.status == "True" for one in node.status.conditions):
        return "were not ready"
    for taint in node.spec.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerates(pod, taint):
            return f"had untolerated taint(s) {{{taint.key}: {taint.value or ''}}}"
    if not pod.spec.node_selector.items() <= node.metadata.labels.items():
        return "didn't match Pod's node affinity/selector"
    allowed = node.status.allocatable.get("pods")
    return "had too many pods" if pods >= (_MOST if allowed is None else allowed.value()) else ""


def _is_mine(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and pod.spec.scheduler_name in (None, "", SCHEDULER)
        and not pod.spec.scheduling_gates
        and pod.status.phase not in ("Succeeded", "Failed")
    )


def _tolerates(pod: Pod, taint: Taint) -> bool:
    return any(_matches(toleration, taint) for toleration in pod.spec.tolerations)


def _matches(toleration: Toleration, taint: Taint) -> bool:
    """Source: k8s.io/api core/v1 Toleration.ToleratesTaint. An empty key with Exists tolerates everything."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and (toleration.value or "") == (taint.value or "")


def _since(condition: PodCondition | None) -> datetime | None:
    return condition.last_transition_time if condition is not None and condition.status == "False" else None
