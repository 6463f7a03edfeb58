"""The deletion order of the pods of a ReplicaSet that has too many.

Source: Kubernetes pkg/controller/controller_utils.go ActivePodsWithRanks; KEP-2255 (pod-deletion-cost).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import UTC, datetime

from kubeloop.api.core.v1 import Pod

DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_NEVER = datetime.max.replace(tzinfo=UTC)


def is_ready(pod: Pod) -> bool:
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def ready_since(pod: Pod) -> datetime | None:
    """Return when the pod last became ready; None if it is not ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return condition.last_transition_time
    return None


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Whether the pod has been ready for at least ``min_ready_seconds``."""
    since = ready_since(pod)
    if not is_ready(pod):
        return False
    return min_ready_seconds == 0 or (since is not None and (now - since).total_seconds() >= min_ready_seconds)


def is_active(pod: Pod) -> bool:
    """Whether the pod is neither finished nor being deleted."""
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def deletion_order(pods: Iterable[Pod], neighbours: dict[str, int], now: datetime) -> list[Pod]:
    """Sort pods, first to be deleted first: unassigned before assigned, pending before running, not ready before ready, cheap before
    expensive, on crowded nodes before others, recently ready before long ready, restarted before not, young before old.

    ``neighbours`` is the number of pods of the same Deployment, or else ReplicaSet, on each node. Ages are compared on a logarithmic
    scale, as upstream, so that the uid decides, as good as at random, among pods of similar age.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        node = pod.spec.node_name or ""
        restarts = max((container.restart_count for container in pod.status.container_statuses), default=0)
        return (
            bool(node),
            _PHASES.get(pod.status.phase or "", 0),
            is_ready(pod),
            _cost(pod),
            -neighbours.get(node, 0),
            _age(ready_since(pod), now) if is_ready(pod) else 0.0,
            -restarts,
            _age(pod.metadata.creation_timestamp, now),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _age(since: datetime | None, now: datetime) -> float:
    seconds = (now - (since or _NEVER)).total_seconds()
    return math.floor(math.log2(seconds)) if seconds >= 1 else -1.0
