"""Taints of nodes that follow their conditions, so that pods are scheduled to nodes that are ready, and to no others.

Source: Kubernetes pkg/controller/nodelifecycle; documentation, "Taints and Tolerations" (taint based evictions, taints by condition).

Two parts of upstream's controller are missing. It does not set ``Ready`` to ``Unknown`` when heartbeats stay away: a node's status is what
was written last. And it taints at once, where upstream limits how many nodes of a zone are tainted ``NoExecute`` at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, Final, Literal

from kubeloop.api.core.v1 import Node, Taint
from kubeloop.codec import to_dict
from kubeloop.controller import Controller
from kubeloop.meta import NotFound

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

#: Type and status of a condition to the key of the taint that it causes.
_TAINTS = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
_EVICTING = frozenset({NOT_READY, UNREACHABLE})
#: Taints that this controller adds and removes; all others are left alone.
_MANAGED = frozenset(
    {(key, NO_SCHEDULE) for key in (*_TAINTS.values(), UNSCHEDULABLE)} | {(key, NO_EXECUTE) for key in _EVICTING},
)


class NodeLifecycleController(Controller[Node], name="node-lifecycle-controller"):
    """Adds and removes the taints of a node that its conditions and ``spec.unschedulable`` cause.

    Guarantees:
        A node that reports ``Ready: True`` loses ``not-ready`` and ``unreachable``, with which every new node begins.
        A node that reports ``Ready: False`` or ``Unknown`` gets one of them, with the effects NoSchedule and NoExecute.
        Taints with other keys or effects are never touched.

    Not guaranteed:
        The eviction of pods that do not tolerate a NoExecute taint.
    """

    async def reconcile(self, node: Node) -> None:
        taints = taints_of(node, self.clock.wall().replace(microsecond=0))
        if taints is None:
            return
        node.spec.taints = list(taints)
        change: dict[str, Any] = {
            # The version is a precondition, so that concurrent changes of the taints are not overwritten.
            "metadata": {"resourceVersion": node.metadata.resource_version},
            "spec": {"taints": to_dict(node).get("spec", {}).get("taints")},
        }
        try:
            await self.client.patch(Node, node.metadata.name, change, type="merge")
        except NotFound:
            return


def taints_of(node: Node, now: datetime) -> Sequence[Taint] | None:
    """Return the taints that a node must have.

    Args:
        node: Its conditions, ``spec.unschedulable`` and taints count.
        now: The ``timeAdded`` of new taints.

    Returns:
        All taints of the node, those of others included; None if it has them already.
    """
    ready = ""
    desired: set[tuple[str, Effect]] = set()
    for condition in node.status.conditions:
        if condition.type == "Ready":
            ready = condition.status
        key = _TAINTS.get((condition.type, condition.status))
        if key is not None:
            desired.add((key, NO_SCHEDULE))
            if key in _EVICTING:
                desired.add((key, NO_EXECUTE))
    if node.spec.unschedulable:
        desired.add((UNSCHEDULABLE, NO_SCHEDULE))
    stored = [taint for taint in node.spec.taints if _stays(taint, desired, ready)]
    present = {(taint.key, taint.effect) for taint in stored}
    added = [Taint(key=key, effect=effect, time_added=now) for key, effect in sorted(desired - present)]
    if not added and len(stored) == len(node.spec.taints):
        return None
    return [*stored, *added]


def _stays(taint: Taint, desired: set[tuple[str, Effect]], ready: str) -> bool:
    mark = taint.key, taint.effect
    if mark not in _MANAGED or mark in desired:
        return True
    # Admission taints a new node. Upstream removes that before the node reports Ready, and taints the node again after a minute without
    # heartbeats; without the heartbeats the taint has to stay, or pods would be scheduled to nodes that never come up.
    return not ready and taint.key in _EVICTING
