"""Preemption: which pods of lower priority to delete so that a pod fits on a node. No I/O; the functions leave the cluster unchanged.

Source: Kubernetes pkg/scheduler/framework/preemption/preemption.go, plugins/defaultpreemption/default_preemption.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kubeloop.controlplane.scheduling.cluster_facts import Budget, ClusterFacts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import (
    Diagnosis,
    NodeRefusal,
    PreemptionLimits,
    Profile,
    counted,
    find_refusal_with_nominated,
    unschedulable_text,
)

#: Messages of upstream's plugin DynamicResources, which runs before preemption: about a pod without claims, and about a pod that another
#: plugin refused earlier.
_NO_CLAIMS, _NO_STATE = "no new claims to deallocate", "not found"
_NO_VICTIMS = NodeRefusal(("No preemption victims found for incoming pod",), resolvable=False)


@dataclass(frozen=True)
class Candidate:
    """A node that could run a pod if ``victims`` were deleted; the most important victim is first.

    ``violations`` is the number of victims whose deletion violates a PodDisruptionBudget.
    """

    node: str
    victims: tuple[PodFacts, ...]
    violations: int


@dataclass(frozen=True)
class PreemptionResult:
    """The chosen node with its victims, or None and the ``message`` that upstream appends to the reasons of the nodes.

    ``keeps_nomination`` says that the pod still waits for the node to which it is nominated.
    """

    candidate: Candidate | None = None
    message: str = ""
    keeps_nomination: bool = False


def preempt(profile: Profile, pod: PodFacts, cluster: ClusterFacts, diagnosis: Diagnosis, *, offset: int = 0) -> PreemptionResult:
    """Choose the node on which a pod that fits on no node preempts other pods.

    Args:
        profile: The profile with the plugins.
        pod: The pod.
        cluster: The cluster.
        diagnosis: Why the pod fits on no node.
        offset: Index of the first node to consider, so that not all attempts consider the same nodes.

    Returns:
        The node with its victims, or why there is none.
    """
    claims = profile.plugin("DynamicResources") is not None
    if not diagnosis.total:
        return PreemptionResult()
    if claims and diagnosis.refusal is not None:
        return PreemptionResult(message="" if diagnosis.refusal.plugin == "DynamicResources" else _NO_STATE, keeps_nomination=True)
    prefix = f"{_NO_CLAIMS}, " if claims else ""
    if profile.preemption is None:
        return PreemptionResult(message=_NO_CLAIMS if claims else "")
    if pod.never_preempts:
        return PreemptionResult(message=f"{prefix}preemption: not eligible due to preemptionPolicy=Never.")
    if _awaits_victims(pod, cluster, diagnosis):
        message = f"{prefix}preemption: not eligible due to a terminating pod on the nominated node."
        return PreemptionResult(message=message, keeps_nomination=True)
    nodes = [cluster.by_name[name] for name, refusal in diagnosis.refusals.items() if refusal.resolvable]
    start = offset % len(nodes) if nodes else 0
    nodes = nodes[start:] + nodes[:start]
    candidates, refusals = find_candidates(profile, profile.preemption, pod, cluster, nodes)
    if candidates:
        return PreemptionResult(choose_candidate(candidates))
    reasons = Counter(reason for refusal in refusals for reason in refusal.reasons)
    if others := diagnosis.total - len(refusals):
        reasons["Preemption is not helpful for scheduling"] += others
    return PreemptionResult(message=f"{prefix}preemption: " + unschedulable_text(diagnosis.total, counted(reasons)))


def _awaits_victims(pod: PodFacts, cluster: ClusterFacts, diagnosis: Diagnosis) -> bool:
    """Return whether victims of an earlier preemption are still terminating on the node to which the pod is nominated."""
    node = cluster.by_name.get(pod.nominated_node)
    if node is None:
        return False
    refusal = diagnosis.refusals.get(node.name)
    if diagnosis.refusal is not None or refusal is None or not refusal.resolvable:
        return False
    return any(other.priority < pod.priority and other.preempted for other in node.pods)


def find_candidates(
    profile: Profile, limits: PreemptionLimits, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]
) -> tuple[list[Candidate], list[NodeRefusal]]:
    """Return nodes on which a pod can preempt other pods, and the refusals of nodes on which it cannot.

    The search ends when there are enough candidates, at least one of which violates no budget.

    Args:
        profile: The profile with the plugins.
        limits: How many candidates are enough.
        pod: The pod that needs room.
        cluster: The cluster.
        nodes: The nodes to consider, in this order.
    """
    enough = min(max(len(nodes) * limits.percentage // 100, limits.absolute), len(nodes))
    candidates: list[Candidate] = []
    refusals: list[NodeRefusal] = []
    for node in nodes:
        result = select_victims(profile, pod, node, cluster)
        if isinstance(result, NodeRefusal):
            refusals.append(result)
            continue
        candidates.append(result)
        if len(candidates) >= enough and any(not one.violations for one in candidates):
            break
    # Candidates without violations come first.
    return sorted(candidates, key=lambda candidate: bool(candidate.violations)), refusals


def select_victims(profile: Profile, pod: PodFacts, node: NodeFacts, cluster: ClusterFacts) -> Candidate | NodeRefusal:
    """Return the least important pods that must leave a node so that a pod fits, or why it does not fit even without them.

    Args:
        profile: The profile with the plugins.
        pod: The pod that needs room.
        node: The node.
        cluster: The cluster.
    """
    potential = sorted((one for one in node.pods if one.priority < pod.priority), key=importance)
    if not potential:
        return _NO_VICTIMS
    removed = {one.key: one for one in potential}
    for one in potential:
        cluster.remove_pod(one, node.name)
    try:
        refusal = find_refusal_with_nominated(profile, pod, node, cluster)
        if refusal is not None:
            return refusal
        violating, others = divide_by_budget(potential, cluster.budgets.values())
        violations = 0
        for victims in (violating, others):
            for one in victims:
                cluster.add_pod(removed.pop(one.key), node.name)
                if find_refusal_with_nominated(profile, pod, node, cluster) is not None:
                    cluster.remove_pod(one, node.name)
                    removed[one.key] = one
                    violations += victims is violating
        if not removed:
            return NodeRefusal((f'expected at least one victim pod on node "{node.name}"',), resolvable=False)
        return Candidate(node.name, tuple(sorted(removed.values(), key=importance)), violations)
    finally:
        for one in removed.values():
            cluster.add_pod(one, node.name)


def importance(pod: PodFacts) -> tuple[int, bool, str]:
    """Return a sort key: pods of higher priority come first, then pods that started earlier; pods without a start time come last."""
    return -pod.priority, not pod.start_time, pod.start_time


def divide_by_budget(pods: Sequence[PodFacts], budgets: Iterable[Budget]) -> tuple[list[PodFacts], list[PodFacts]]:
    """Return the pods whose disruption would violate a budget, and the other pods. Earlier pods use up the budgets first."""
    left = [(budget, [budget.allowed]) for budget in budgets]
    violating: list[PodFacts] = []
    others: list[PodFacts] = []
    for pod in pods:
        violated = False
        for budget, allowed in left:
            if not pod.labels or budget.namespace != pod.namespace or budget.selector.everything or not budget.selector.matches(pod.labels):
                continue
            if pod.name in budget.disrupted:
                continue
            allowed[0] -= 1
            violated = violated or allowed[0] < 0
        (violating if violated else others).append(pod)
    return violating, others


def choose_candidate(candidates: Sequence[Candidate]) -> Candidate:
    """Return the candidate that disrupts least.

    Candidates are compared by the number of budget violations, the priority of the most important victim, the sum of the victims'
    priorities, and the number of victims, each the lower the better; and last by the start of the most important victims, the later the
    better.
    """
    best = min(_cost(one) for one in candidates)
    equal = [one for one in candidates if _cost(one) == best]
    return max(equal, key=_earliest_start)


def _cost(candidate: Candidate) -> tuple[int, int, int, int]:
    victims = candidate.victims
    return candidate.violations, victims[0].priority, sum(one.priority + (1 << 31) for one in victims), len(victims)


def _earliest_start(candidate: Candidate) -> str:
    """Return the earliest start time among the victims with the highest priority; a pod that has not started sorts last."""
    most = candidate.victims[0].priority
    return min(one.start_time or "~" for one in candidate.victims if one.priority == most)
