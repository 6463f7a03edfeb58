"""The plugin PodTopologySpread: spreads pods over zones, hosts and other topology domains. No I/O.

Source: Kubernetes pkg/scheduler/framework/plugins/podtopologyspread.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, Interests
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import MAX_SCORE, NodeFilter, NodeRefusal, SchedulerPlugin
from kubeloop.controlplane.scheduling.node_plugins import find_untolerated_taint
from kubeloop.meta import Selector, selector_from
from kubeloop.types import JSONObject

_HOSTNAME = "kubernetes.io/hostname"
_REASON = "node(s) didn't match pod topology spread constraints"
#: The default constraints for scores of pods without constraints.
SYSTEM_DEFAULTS: tuple[JSONObject, ...] = (
    {"topologyKey": _HOSTNAME, "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 3},
    {"topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "ScheduleAnyway", "maxSkew": 5},
)


class _Constraint(NamedTuple):
    """One topology spread constraint of a pod. ``key`` is its topology key, and ``selector`` matches the pods that are counted."""

    key: str
    max_skew: int
    min_domains: int
    selector: Selector
    honors_affinity: bool
    honors_taints: bool

    def counts_node(self, pod: PodFacts, node: NodeFacts) -> bool:
        """Return whether the constraint counts the pods on a node when ``pod`` is scheduled."""
        if self.honors_affinity and not pod.matches_node(node):
            return False
        return not self.honors_taints or not node.blocking_taints or find_untolerated_taint(pod, node) is None


class PodTopologySpread(SchedulerPlugin):
    """Refuses nodes on which a pod would exceed the maximum skew of a constraint, and prefers nodes with few such pods in their domain.

    Args:
        defaults: Constraints for pods without constraints, as JSON objects; they count the pods of the same Services and controller.
        system: Whether ``defaults`` are the system defaults, which also score nodes that lack a topology label.
    """

    name = "PodTopologySpread"
    interests: ClassVar[Interests] = {
        "Node": Action.ADD | Action.DELETE | Action.NODE_LABEL | Action.NODE_TAINT,
        "Pod": Action.ADD | Action.DELETE | Action.POD_LABEL | Action.POD_TOLERATION,
    }

    def __init__(self, defaults: Sequence[JSONObject] = SYSTEM_DEFAULTS, *, system: bool = True) -> None:
        self._defaults = defaults
        self._system = system

    def _constraints(self, pod: PodFacts, cluster: ClusterFacts, action: str) -> list[_Constraint]:
        own = pod.spec.get("topologySpreadConstraints") or ()
        if own:
            return [_constraint(one, _selector(pod, one)) for one in own if one["whenUnsatisfiable"] == action]
        chosen = [one for one in self._defaults if one["whenUnsatisfiable"] == action]
        if not chosen:
            return []
        selector = cluster.default_selector(pod)
        return [] if selector.everything else [_constraint(one, selector) for one in chosen]

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:
        constraints = self._constraints(pod, cluster, "DoNotSchedule")
        if not constraints:
            return None
        nodes = cluster.nodes
        for key in {one.key for one in constraints}:
            nodes = [node for node in nodes if key in node.labels]
        checks = []
        for one in constraints:
            counts = _count_domains(pod, one, nodes, cluster.count_pods(pod.namespace, one.selector))
            least = 0 if len(counts) < one.min_domains else min(counts.values())
            itself = int(one.selector.matches(pod.labels))
            checks.append((one.key, counts, one.max_skew + least - itself))
        missing = NodeRefusal((f"{_REASON} (missing required label)",), False, self.name)
        uneven = NodeRefusal((_REASON,), True, self.name)

        def check(node: NodeFacts) -> NodeRefusal | None:
            labels = node.labels
            for key, counts, most in checks:
                domain = labels.get(key)
                if domain is None:
                    return missing
                if counts.get(domain, 0) > most:
                    return uneven
            return None

        return check

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:
        constraints = self._constraints(pod, cluster, "ScheduleAnyway")
        if not constraints:
            return None
        # Nodes that lack a topology label are ignored by all constraints, except by the system defaults.
        strict = bool(pod.spec.get("topologySpreadConstraints")) or not self._system
        keys = [one.key for one in constraints]

        def is_ignored(node: NodeFacts) -> bool:
            return strict and any(key not in node.labels for key in keys)

        scored = [None if is_ignored(node) else 0.0 for node in nodes]
        judged = [node for node, score in zip(nodes, scored, strict=True) if score is not None]
        for one in constraints:
            by_node = cluster.count_pods(pod.namespace, one.selector)
            if one.key == _HOSTNAME:
                counts: Mapping[str, int] = by_node
                weight = math.log(len(judged) + 2)
            else:
                domains = dict.fromkeys((node.labels.get(one.key, "") for node in judged), 0)
                weight = math.log(len(domains) + 2)
                for name, count in by_node.items():
                    other = cluster.by_name[name]
                    place = other.labels.get(one.key, "")
                    if place in domains and not is_ignored(other) and one.counts_node(pod, other):
                        domains[place] += count
                counts = domains
            extra, by_name = one.max_skew - 1, one.key == _HOSTNAME
            for number, node in enumerate(nodes):
                score = scored[number]
                domain = node.labels.get(one.key)
                if score is not None and domain is not None:
                    scored[number] = score + counts.get(node.name if by_name else domain, 0) * weight + extra
        return _normalised([None if score is None else math.floor(score + 0.5) for score in scored])

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:
        constraints = self._constraints(pod, cluster, "DoNotSchedule")
        return _is_helpful_node(event, constraints) if event.kind == "Node" else _is_helpful_pod(pod, event, constraints)


def _constraint(source: JSONObject, selector: Selector) -> _Constraint:
    return _Constraint(
        source["topologyKey"],
        source["maxSkew"],
        source.get("minDomains") or 1,
        selector,
        (source.get("nodeAffinityPolicy") or "Honor") == "Honor",
        source.get("nodeTaintsPolicy") == "Honor",
    )


def _selector(pod: PodFacts, constraint: JSONObject) -> Selector:
    source, keys = constraint.get("labelSelector"), constraint.get("matchLabelKeys") or ()
    if source is None or not keys:
        return selector_from(source)
    added = [{"key": key, "operator": "In", "values": [pod.labels[key]]} for key in keys if key in pod.labels]
    return selector_from({**source, "matchExpressions": [*(source.get("matchExpressions") or ()), *added]})


def _count_domains(pod: PodFacts, constraint: _Constraint, nodes: Sequence[NodeFacts], by_node: Mapping[str, int]) -> Mapping[str, int]:
    """Return the number of matching pods in each domain that has a counted node; it may be 0."""
    result: Counter[str] = Counter()
    # An empty selector, which matches every pod, counts none, as upstream.
    present = {} if constraint.selector.everything else by_node
    free = pod.required_node_terms is None and not pod.spec.get("nodeSelector") and not constraint.honors_taints
    key = constraint.key
    for node in nodes:
        if free or constraint.counts_node(pod, node):
            result[node.labels[key]] += present.get(node.name, 0)
    return result


def _normalised(scores: Sequence[int | None]) -> list[int]:
    """Return scores up to MAX_SCORE from raw scores, of which the lowest are the best; an ignored node (None) gets 0."""
    known = [score for score in scores if score is not None]
    least, largest = min(known, default=0), max(known, default=0)
    if not largest:
        return [0 if score is None else MAX_SCORE for score in scores]
    return [0 if score is None else MAX_SCORE * (largest + least - score) // largest for score in scores]


def _is_helpful_pod(pod: PodFacts, event: ClusterEvent, constraints: Sequence[_Constraint]) -> bool:
    old, new = event.old, event.new
    itself = event.subject.key == pod.key
    if not itself and (not (event.subject.node or event.subject.nominated_node) or event.subject.namespace != pod.namespace):
        return False
    if old is not None and new is not None:
        if itself and event.action is Action.POD_TOLERATION:
            return any(one.honors_taints for one in constraints)
        return any(one.selector.matches(old.labels) != one.selector.matches(new.labels) for one in constraints)
    return any(one.selector.matches(event.subject.labels) for one in constraints)


def _is_helpful_node(event: ClusterEvent, constraints: Sequence[_Constraint]) -> bool:
    def has_keys(node: NodeFacts | None) -> bool:
        return node is not None and all(one.key in node.labels for one in constraints)

    old, new = event.old, event.new
    if old is None or new is None or has_keys(old) != has_keys(new):
        return has_keys(old) or has_keys(new)
    moved = any(old.labels.get(one.key) != new.labels.get(one.key) for one in constraints)
    return has_keys(new) and (moved or old.taints != new.taints)
