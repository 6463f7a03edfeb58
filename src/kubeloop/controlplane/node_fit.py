"""Fit of a pod and the nodes: which nodes can take it, and in upstream's words why the others cannot. No I/O.

The filters of Kubernetes' default scheduler, in its order, without resource claims and limits of volumes.
Source: Kubernetes pkg/scheduler/framework/plugins and schedule_one.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple

from kubeloop.controlplane.scheduling_facts import ClusterFacts, NodeFacts, PodFacts
from kubeloop.controlplane.volume_matching import find_volume_fault, plan_volumes
from kubeloop.meta import Selector, selector_from
from kubeloop.types import JSONObject

_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_NO_PREEMPTION = "preemption: kubeloop's scheduler does not preempt pods."


class NodeRefusal(NamedTuple):
    """The reason why a node cannot run a pod. ``resolvable`` says that it could if other pods left the node."""

    reasons: tuple[str, ...]
    resolvable: bool


NodeFilter = Callable[[NodeFacts], NodeRefusal | None]


@dataclass
class FitResult:
    """The nodes that can run a pod (``fitting``). If there are none, ``message`` gives the reason in the words of upstream's scheduler."""

    fitting: list[NodeFacts]
    message: str = ""


def judge(pod: PodFacts, cluster: ClusterFacts) -> FitResult:
    """Decide which nodes can take a pod that has none."""
    total = len(cluster.nodes)
    if not total:
        return FitResult([], "no nodes available to schedule pods")
    if reason := _hopeless(pod, cluster):
        return FitResult([], _worded(total, [reason], _preemption(pod, cluster, [])))
    refusals = find_refusals(pod, cluster)
    fitting = [node for node in cluster.nodes if node.name not in refusals]
    if fitting:
        return FitResult(fitting)
    reasons = Counter(reason for refusal in refusals.values() for reason in refusal.reasons)
    candidates = [node for node in cluster.nodes if refusals[node.name].resolvable]
    return FitResult([], _worded(total, [", ".join(_counted(reasons))], _preemption(pod, cluster, candidates)))


def find_refusals(pod: PodFacts, cluster: ClusterFacts) -> dict[str, NodeRefusal]:
    """Return the refusal of each node that cannot take the pod: that of the first filter which the node fails."""
    named = _named_nodes(pod)
    filters = [
        _is_open(pod),
        _is_tolerated(pod),
        _is_chosen(pod),
        _has_ports(pod),
        _has_room(pod),
        _has_volumes(pod, cluster),
        *_spread(pod, cluster),
        _affinity(pod, cluster),
    ]
    result: dict[str, NodeRefusal] = {}
    for node in cluster.nodes:
        if named is not None and node.name not in named:
            result[node.name] = NodeRefusal(("node(s) didn't satisfy plugin(s) [NodeAffinity]",), resolvable=False)
            continue
        refusal = next((refused for one in filters if (refused := one(node)) is not None), None)
        if refusal is not None:
            result[node.name] = refusal
    return result


def find_admission_fault(pod: PodFacts, node: NodeFacts) -> tuple[str, str] | None:
    """Return the reason and message of the status with which a kubelet rejects a pod bound to its node, or None if it accepts the pod.

    Source: Kubernetes pkg/kubelet/lifecycle/predicate.go.
    """
    for name, desired, used in (("pods", 1, len(node.pods)), *((name, one, node.used(name)) for name, one in pod.requests.items())):
        capacity = node.allocatable.get(name)
        if capacity is None and "/" in name:
            continue  # An extended resource that the node does not know is the cluster's.
        if desired > 0 and desired > (capacity or 0) - used:
            text = f"Node didn't have enough resource: {name}, requested: {desired}, used: {used}, capacity: {capacity or 0}"
            return f"OutOf{name}", text
    for plugin, fits in (("NodeAffinity", _is_chosen(pod)), ("NodePorts", _has_ports(pod))):
        if refused := fits(node):
            return plugin, f"Predicate {plugin} failed: {refused.reasons[0]}"
    if any(taint.get("effect") == "NoExecute" and not pod.tolerates(taint) for taint in node.taints):
        return "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    return None


# ------------------------------------------------------------------------------------------------------- whatever the node


def _hopeless(pod: PodFacts, cluster: ClusterFacts) -> str:
    """Return why no node at all can take the pod, or "" if there is no such reason."""
    if _named_nodes(pod) == set():
        return "pod affinity terms conflict"
    for name, ephemeral in pod.claims:
        claim = cluster.claims.get((pod.namespace, name))
        if claim is None:
            waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return waiting if ephemeral else f'persistentvolumeclaim "{name}" not found'
        if claim.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume_name}"'
        if claim.deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if ephemeral and claim.owner != pod.uid:
            return f"PVC {pod.namespace}/{name} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
    if error := find_volume_fault(pod, cluster):
        return error
    if pod.spec.get("resourceClaims"):
        return "kubeloop's scheduler does not allocate resource claims"
    return ""


def _named_nodes(pod: PodFacts) -> set[str] | None:
    """Return the nodes that required affinity names by metadata.name; None if some term names none, and so allows any."""
    affinity = (pod.spec.get("affinity") or {}).get("nodeAffinity") or {}
    terms = (affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or {}).get("nodeSelectorTerms") or []
    allowed: set[str] = set()
    for term in terms:
        named = [
            set(one.get("values") or ())
            for one in term.get("matchFields") or ()
            if (one["key"], one["operator"]) == ("metadata.name", "In")
        ]
        if not named:
            return None
        allowed |= set.intersection(*named)
    return allowed if terms else None


# ---------------------------------------------------------------------------------------------------------- one node by itself


def _is_open(pod: PodFacts) -> NodeFilter:
    tolerated = pod.tolerates(_UNSCHEDULABLE_TAINT)
    refusal = NodeRefusal(("node(s) were unschedulable",), resolvable=False)
    return lambda node: refusal if node.unschedulable and not tolerated else None


def _is_tolerated(pod: PodFacts) -> NodeFilter:
    refusal = NodeRefusal(("node(s) had untolerated taint(s)",), resolvable=False)
    return lambda node: refusal if _untolerated(pod, node) else None


def _untolerated(pod: PodFacts, node: NodeFacts) -> bool:
    return any(taint.get("effect") in ("NoSchedule", "NoExecute") and not pod.tolerates(taint) for taint in node.taints)


def _is_chosen(pod: PodFacts) -> NodeFilter:
    refusal = NodeRefusal(("node(s) didn't match Pod's node affinity/selector",), resolvable=False)
    return lambda node: None if pod.matches_node(node) else refusal


def _has_ports(pod: PodFacts) -> NodeFilter:
    refusal = NodeRefusal(("node(s) didn't have free ports for the requested pod ports",), resolvable=True)

    def check(node: NodeFacts) -> NodeRefusal | None:
        if not pod.ports:
            return None
        used = [port for other in node.pods for port in other.ports]
        return refusal if any(desired.conflicts(port) for desired in pod.ports for port in used) else None

    return check


def _has_room(pod: PodFacts) -> NodeFilter:
    def check(node: NodeFacts) -> NodeRefusal | None:
        reasons = ["Too many pods"] if len(node.pods) + 1 > node.allocatable["pods"] else []
        resolvable = True
        for name, desired in pod.requests.items():
            maximum = node.allocatable.get(name, 0)
            if desired > 0 and desired > maximum - node.used(name):
                reasons.append(f"Insufficient {name}")
                resolvable = resolvable and desired <= maximum
        return NodeRefusal(tuple(reasons), resolvable) if reasons else None

    return check


def _has_volumes(pod: PodFacts, cluster: ClusterFacts) -> NodeFilter:
    def check(node: NodeFacts) -> NodeRefusal | None:
        reasons = plan_volumes(pod, node, cluster).reasons if pod.claims else ()
        return NodeRefusal(reasons, resolvable=False) if reasons else None

    return check


# ------------------------------------------------------------------------------------------------------- a node among the others


def _spread(pod: PodFacts, cluster: ClusterFacts) -> list[NodeFilter]:
    """Return a filter for each topology spread constraint that must hold."""
    chosen = [one for one in pod.spec.get("topologySpreadConstraints") or () if one.get("whenUnsatisfiable") == "DoNotSchedule"]
    keys = [one["topologyKey"] for one in chosen]
    # A node that lacks one of the keys counts for none of the constraints.
    nodes = [node for node in cluster.nodes if all(key in node.labels for key in keys)]
    return [_spread_by(pod, one, nodes) for one in chosen]


def _spread_by(pod: PodFacts, constraint: JSONObject, nodes: list[NodeFacts]) -> NodeFilter:
    key, selector = constraint["topologyKey"], _spread_selector(pod, constraint)
    counts: Counter[str] = Counter()
    for node in nodes:
        if (constraint.get("nodeAffinityPolicy") or "Honor") == "Honor" and not pod.matches_node(node):
            continue
        if constraint.get("nodeTaintsPolicy") == "Honor" and _untolerated(pod, node):
            continue
        near = (other for other in node.pods if not other.terminating and other.namespace == pod.namespace)
        counts[node.labels[key]] += 0 if selector.everything else sum(selector.matches(other.labels) for other in near)
    least = 0 if len(counts) < (constraint.get("minDomains") or 1) else min(counts.values())
    itself = int(selector.matches(pod.labels))

    def check(node: NodeFacts) -> NodeRefusal | None:
        reason = "node(s) didn't match pod topology spread constraints"
        if key not in node.labels:
            return NodeRefusal((f"{reason} (missing required label)",), resolvable=False)
        skew = counts.get(node.labels[key], 0) + itself - least
        return NodeRefusal((reason,), resolvable=True) if skew > constraint["maxSkew"] else None

    return check


def _spread_selector(pod: PodFacts, constraint: JSONObject) -> Selector:
    source, keys = constraint.get("labelSelector"), constraint.get("matchLabelKeys") or ()
    if source is None:
        return selector_from(None)
    added = [{"key": key, "operator": "In", "values": [pod.labels[key]]} for key in keys if key in pod.labels]
    return selector_from({**source, "matchExpressions": [*(source.get("matchExpressions") or ()), *added]})


def _affinity(pod: PodFacts, cluster: ClusterFacts) -> NodeFilter:
    """Return the filter for affinity and anti-affinity between pods: the pod's own terms, and the anti-affinity of running pods."""
    desired, unwanted, repelled = Counter[tuple[str, str]](), Counter[tuple[str, str]](), Counter[tuple[str, str]]()
    names = cluster.namespaces
    for node in cluster.nodes:
        for other in node.pods:
            if pod.affinity_terms and all(term.matches(other, names) for term in pod.affinity_terms):
                desired.update(_domains(node, (term.topology_key for term in pod.affinity_terms)))
            unwanted.update(_domains(node, (term.topology_key for term in pod.anti_affinity_terms if term.matches(other, names))))
            repelled.update(_domains(node, (term.topology_key for term in other.anti_affinity_terms if term.matches(pod, names))))
    # The first pod of a group that wants to be near each other has nothing to be near to.
    first = not desired and all(term.matches(pod, names) for term in pod.affinity_terms)

    def check(node: NodeFacts) -> NodeRefusal | None:
        for term in pod.affinity_terms:
            if term.topology_key not in node.labels or (not first and not desired[term.topology_key, node.labels[term.topology_key]]):
                return NodeRefusal(("node(s) didn't match pod affinity rules",), resolvable=False)
        if any(unwanted[domain] for domain in _domains(node, (term.topology_key for term in pod.anti_affinity_terms))):
            return NodeRefusal(("node(s) didn't match pod anti-affinity rules",), resolvable=True)
        if any(repelled[domain] for domain in node.labels.items()):
            return NodeRefusal(("node(s) didn't satisfy existing pods anti-affinity rules",), resolvable=True)
        return None

    return check


def _domains(node: NodeFacts, keys: Iterable[str]) -> list[tuple[str, str]]:
    return [(key, node.labels[key]) for key in keys if key in node.labels]


# --------------------------------------------------------------------------------------------------------------------- wording


def _preemption(pod: PodFacts, cluster: ClusterFacts, candidates: list[NodeFacts]) -> str:
    """Return what upstream says about preemption; where upstream would delete pods of lower priority, that this scheduler does not."""
    if pod.spec.get("preemptionPolicy") == "Never":
        return "preemption: not eligible due to preemptionPolicy=Never."
    reasons: Counter[str] = Counter()
    for node in candidates:
        victims = [other for other in node.pods if other.priority < pod.priority]
        if not victims:
            reasons["No preemption victims found for incoming pod"] += 1
            continue
        without = [node.without(victims) if one is node else one for one in cluster.nodes]
        refusal = find_refusals(pod, replace(cluster, nodes=without)).get(node.name)
        if refusal is None:
            return _NO_PREEMPTION
        reasons.update(refusal.reasons)
    if others := len(cluster.nodes) - len(candidates):
        reasons["Preemption is not helpful for scheduling"] += others
    return "preemption: " + _worded(len(cluster.nodes), [", ".join(_counted(reasons))], "")


def _counted(reasons: Counter[str]) -> list[str]:
    return sorted(f"{count} {reason}" for reason, count in reasons.items())


def _worded(total: int, reasons: list[str], more: str) -> str:
    return " ".join([f"0/{total} nodes are available:", *(f"{reason}." for reason in reasons), *([more] if more else [])])
