"""Plugins for resources: NodeResourcesFit refuses nodes without room and scores the others, NodeResourcesBalancedAllocation scores. No I/O.

Source: Kubernetes pkg/scheduler/framework/plugins/noderesources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar, NamedTuple

from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, Interests
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import MAX_SCORE, NodeFilter, NodeRefusal, SchedulerPlugin

_NATIVE = ("cpu", "memory", "ephemeral-storage")


class ResourceWeight(NamedTuple):
    """A resource that counts in a score, and its weight."""

    name: str
    weight: int = 1


DEFAULT_RESOURCES = (ResourceWeight("cpu"), ResourceWeight("memory"))

#: Returns the score of a node for one resource, from the requested amount including the pod's, and the capacity, which is not 0.
Shape = Callable[[int, int], int]


def least_allocated(requested: int, capacity: int) -> int:
    """Return a score that is higher the larger the free share of a resource is."""
    return 0 if requested > capacity else (capacity - requested) * MAX_SCORE // capacity


def most_allocated(requested: int, capacity: int) -> int:
    """Return a score that is higher the larger the requested share of a resource is."""
    return min(requested, capacity) * MAX_SCORE // capacity


def capacity_ratio(points: Sequence[tuple[int, int]]) -> Shape:
    """Return a function that scores a resource by its utilization, interpolating between points.

    Args:
        points: Pairs of utilization in percent and score from 0 to 10, by ascending utilization; straight lines connect them.
    """
    scaled = [(utilization, score * (MAX_SCORE // 10)) for utilization, score in points]

    def shape(requested: int, capacity: int) -> int:
        used = MAX_SCORE if requested > capacity else requested * MAX_SCORE // capacity
        for (low, start), (high, end) in pairwise(scaled):
            if used <= low:
                return start
            if used <= high:
                # Go divides integers towards zero.
                return start + int((end - start) * (used - low) / (high - low))
        return scaled[0][1] if used <= scaled[0][0] else scaled[-1][1]

    return shape


class NodeResourcesFit(SchedulerPlugin):
    """Refuses nodes that lack room for the pod's requests, and prefers the nodes to which ``shape`` gives a high score.

    Args:
        resources: The resources that count in the score.
        shape: The score of one resource.
        rounded: Whether the mean is rounded and ignores resources with score 0, as upstream's RequestedToCapacityRatio does.
        ignored: Names of extended resources that are not checked.
        ignored_groups: Groups of extended resources that are not checked: the part of the name before "/".
    """

    name = "NodeResourcesFit"
    interests: ClassVar[Interests] = {
        "Node": Action.ADD | Action.NODE_ALLOCATABLE,
        "Pod": Action.DELETE | Action.POD_SCALE_DOWN,
    }

    def __init__(
        self,
        resources: Sequence[ResourceWeight] = DEFAULT_RESOURCES,
        shape: Shape = least_allocated,
        *,
        rounded: bool = False,
        ignored: Sequence[str] = (),
        ignored_groups: Sequence[str] = (),
    ) -> None:
        self._resources = resources
        self._shape = shape
        self._rounded = rounded
        self._ignored = frozenset(ignored)
        self._ignored_groups = frozenset(ignored_groups)

    def _needs(self, pod: PodFacts) -> list[tuple[str, int]]:
        return [(name, amount) for name, amount in pod.requests.items() if amount > 0 and not self._ignores(name)]

    def _ignores(self, name: str) -> bool:
        return name not in _NATIVE and (name in self._ignored or name.partition("/")[0] in self._ignored_groups)

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:  # noqa: ARG002
        needs = self._needs(pod)

        def check(node: NodeFacts) -> NodeRefusal | None:
            allocatable, requested = node.allocatable, node.requested
            crowded = len(node.pods) >= allocatable["pods"]
            if not crowded:
                for name, amount in needs:
                    if amount > allocatable.get(name, 0) - requested.get(name, 0):
                        break
                else:
                    return None
            return self._refuse(node, needs)

        return check

    def _refuse(self, node: NodeFacts, needs: Sequence[tuple[str, int]]) -> NodeRefusal:
        reasons = ["Too many pods"] if len(node.pods) >= node.allocatable["pods"] else []
        resolvable = True
        for name, amount in needs:
            maximum = node.allocatable.get(name, 0)
            if amount > maximum - node.used(name):
                reasons.append(f"Insufficient {name}")
                resolvable = resolvable and amount <= maximum
        return NodeRefusal(tuple(reasons), resolvable, self.name)

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:  # noqa: ARG002
        if self._resources is DEFAULT_RESOURCES and self._shape is least_allocated:
            return _score_default(pod, nodes)
        return [self._score(pod, node) for node in nodes]

    def _score(self, pod: PodFacts, node: NodeFacts) -> int:
        total = weights = 0
        for name, weight in self._resources:
            capacity, requested = node.allocatable.get(name, 0), pod.scored_requests.get(name, 0)
            if not capacity or (not requested and name not in _NATIVE):
                continue
            used = node.scored_cpu if name == "cpu" else node.scored_memory if name == "memory" else node.used(name)
            score = self._shape(used + requested, capacity)
            if score > 0 or not self._rounded:
                total += score * weight
                weights += weight
        if not weights:
            return 0
        return math.floor(total / weights + 0.5) if self._rounded else total // weights

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind == "Node":
            return self._is_helpful_node(pod, event)
        if event.action is Action.DELETE:
            return bool(event.old.node or event.old.nominated_node)
        if event.new.key == pod.key:
            return True
        shrunk = {name for name, amount in event.old.requests.items() if amount > event.new.requests.get(name, 0)}
        return bool(event.new.node) and any(name in shrunk for name, _ in self._needs(pod))

    def _is_helpful_node(self, pod: PodFacts, event: ClusterEvent) -> bool:
        node, needs = event.new, self._needs(pod)
        if any(amount > node.allocatable.get(name, 0) for name, amount in needs) or not node.allocatable["pods"]:
            return False
        if event.old is None:
            return True
        before = event.old.allocatable
        return node.allocatable["pods"] > before["pods"] or any(node.allocatable.get(name, 0) > before.get(name, 0) for name, _ in needs)


def _score_default(pod: PodFacts, nodes: Sequence[NodeFacts]) -> list[int]:
    """Return the scores for ``least_allocated`` and cpu and memory with weight 1: the frequent case, without function calls."""
    cpu, memory = pod.scored_requests.get("cpu", 0), pod.scored_requests.get("memory", 0)
    result = []
    for node in nodes:
        allocatable = node.allocatable
        capacity, total, count = allocatable.get("cpu", 0), 0, 0
        if capacity:
            free = capacity - node.scored_cpu - cpu
            total, count = (free * MAX_SCORE // capacity if free > 0 else 0), 1
        capacity = allocatable.get("memory", 0)
        if capacity:
            free = capacity - node.scored_memory - memory
            total += free * MAX_SCORE // capacity if free > 0 else 0
            count += 1
        result.append(total // count if count else 0)
    return result


class NodeResourcesBalancedAllocation(SchedulerPlugin):
    """Prefers nodes on which the pod makes the requested shares of resources more equal.

    Args:
        resources: The resources to balance; their weights do not matter.
    """

    name = "NodeResourcesBalancedAllocation"

    def __init__(self, resources: Sequence[ResourceWeight] = DEFAULT_RESOURCES) -> None:
        self._names = [one.name for one in resources]

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:  # noqa: ARG002
        needs = [(name, pod.requests.get(name, 0)) for name in self._names]
        if not any(amount for _, amount in needs):
            return None
        if self._names == ["cpu", "memory"]:
            return _balance_default(needs[0][1], needs[1][1], nodes)
        counted = [(name, amount) for name, amount in needs if amount or name in _NATIVE]
        result = []
        for node in nodes:
            before, after = [], []
            for name, amount in counted:
                capacity = node.allocatable.get(name, 0)
                if capacity:
                    used = node.requested.get(name, 0)
                    before.append(min(used / capacity, 1.0))
                    after.append(min((used + amount) / capacity, 1.0))
            half = MAX_SCORE // 2
            # Go divides integers towards zero; the sum is never negative.
            result.append(half + (half + _balance(after) - _balance(before)) // 2)
        return result


def _balance_default(cpu: int, memory: int, nodes: Sequence[NodeFacts]) -> list[int]:
    """Return the scores of NodeResourcesBalancedAllocation for cpu and memory: the frequent case, without function calls."""
    result = []
    half = MAX_SCORE // 2
    for node in nodes:
        processors, bytes_ = node.allocatable.get("cpu", 0), node.allocatable.get("memory", 0)
        if not processors or not bytes_:
            result.append(half + half // 2)  # Fewer than two resources are always balanced.
            continue
        used_cpu, used_memory = node.requested.get("cpu", 0), node.requested.get("memory", 0)
        before = abs(min(used_cpu / processors, 1.0) - min(used_memory / bytes_, 1.0)) / 2
        after = abs(min((used_cpu + cpu) / processors, 1.0) - min((used_memory + memory) / bytes_, 1.0)) / 2
        result.append(half + (half + int((1 - after) * MAX_SCORE) - int((1 - before) * MAX_SCORE)) // 2)
    return result


def _balance(shares: Sequence[float]) -> int:
    """Return ``MAX_SCORE`` for equal shares, and a lower score the more they deviate from their mean."""
    if len(shares) == 2:
        deviation = abs(shares[0] - shares[1]) / 2
    elif len(shares) > 2:
        mean = sum(shares) / len(shares)
        deviation = math.sqrt(sum((share - mean) ** 2 for share in shares) / len(shares))
    else:
        deviation = 0.0
    return int((1 - deviation) * MAX_SCORE)
