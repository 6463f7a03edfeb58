"""The plugin InterPodAffinity: required and preferred affinity and anti-affinity of a pod and of running pods. No I/O.

Source: Kubernetes pkg/scheduler/framework/plugins/interpodaffinity.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, Interests
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts, NodeCounts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import MAX_SCORE, NodeFilter, NodeRefusal, SchedulerPlugin
from kubeloop.controlplane.scheduling.requirements import AffinityTerm

#: Numbers of pods, or sums of weights, by topology key and value.
_Domains = Counter[tuple[str, str]]


class InterPodAffinity(SchedulerPlugin):
    """Refuses and scores nodes according to the pods in their topology domains.

    Args:
        hard_weight: Weight in scores of the required affinity of running pods to the pod.
        ignores_preferences: Whether the affinity of running pods is scored only for pods that have preferences themselves.
    """

    name = "InterPodAffinity"
    interests: ClassVar[Interests] = {
        "Node": Action.ADD | Action.NODE_LABEL,
        "Pod": Action.ADD | Action.DELETE | Action.POD_LABEL,
        "Namespace": Action.UPDATE,
    }

    def __init__(self, hard_weight: int = 1, *, ignores_preferences: bool = False) -> None:
        self._hard_weight = hard_weight
        self._ignores_preferences = ignores_preferences

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:
        repelled = _find_repelling(pod, cluster)
        desired, unwanted = pod.affinity_terms, pod.anti_affinity_terms
        if not repelled and not desired and not unwanted:
            return None
        near: _Domains = Counter()
        if desired:
            counts = cluster.count_affine_pods(desired)
            for term in desired:
                _add(near, counts, term.topology_key, cluster)
        avoided: _Domains = Counter()
        for term in unwanted:
            _add(avoided, cluster.count_affine_pods([term]), term.topology_key, cluster)
        # The first pod of a group with affinity to itself may run anywhere, because no pod of the group runs yet.
        first = not near and all(term.matches(pod, cluster.namespaces) for term in desired)
        desired_keys, unwanted_keys = [term.topology_key for term in desired], [term.topology_key for term in unwanted]
        far = NodeRefusal(("node(s) didn't match pod affinity rules",), False, self.name)
        refused = NodeRefusal(("node(s) didn't match pod anti-affinity rules",), True, self.name)
        existing = NodeRefusal(("node(s) didn't satisfy existing pods anti-affinity rules",), True, self.name)

        def check(node: NodeFacts) -> NodeRefusal | None:
            labels = node.labels
            for key in desired_keys:
                if key not in labels or (not first and not near[key, labels[key]]):
                    return far
            if avoided and any(key in labels and avoided[key, labels[key]] for key in unwanted_keys):
                return refused
            if repelled and any(repelled[domain] for domain in labels.items()):
                return existing
            return None

        return check

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:
        if self._ignores_preferences and not pod.preferred_terms:
            return None
        weights = self._weights(pod, cluster)
        if not weights:
            return None
        keys = {key for key, _ in weights}
        raw = [sum(weights[key, node.labels[key]] for key in keys if key in node.labels) for node in nodes]
        least, largest = min(raw), max(raw)
        if least == largest:
            return [0] * len(raw)
        return [int(MAX_SCORE * ((score - least) / (largest - least))) for score in raw]

    def _weights(self, pod: PodFacts, cluster: ClusterFacts) -> _Domains:
        """Return the sum of weights of each domain, from the pod's preferences and the affinity of running pods."""
        result: _Domains = Counter()
        for term in pod.preferred_terms:
            _add(result, cluster.count_affine_pods([term]), term.topology_key, cluster, term.weight)
        if self._hard_weight:
            for term, counts in cluster.affinity:
                if term.matches(pod, cluster.namespaces):
                    _add(result, counts, term.topology_key, cluster, self._hard_weight)
        for term, counts in cluster.preferences:
            if term.matches(pod, cluster.namespaces):
                _add(result, counts, term.topology_key, cluster, term.weight)
        return result

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:
        if event.kind == "Node":
            return _is_helpful_node(pod, event)
        if event.kind == "Namespace":
            return True
        return _is_helpful_pod(pod, event, cluster)


def _find_repelling(pod: PodFacts, cluster: ClusterFacts) -> _Domains:
    """Return the domains with running pods whose required anti-affinity matches the pod."""
    result: _Domains = Counter()
    for term, counts in cluster.anti_affinity:
        if term.matches(pod, cluster.namespaces):
            _add(result, counts, term.topology_key, cluster)
    return result


def _add(domains: _Domains, counts: NodeCounts, key: str, cluster: ClusterFacts, weight: int = 1) -> None:
    """Add the counts of nodes, multiplied by a weight, to the domains of the nodes for a topology key."""
    by_name = cluster.by_name
    for name, count in counts.items():
        value = by_name[name].labels.get(key)
        if value is not None:
            domains[key, value] += weight * count


def _matches_all(terms: Sequence[AffinityTerm], pod: PodFacts, cluster: ClusterFacts) -> bool:
    return bool(terms) and all(term.matches(pod, cluster.namespaces) for term in terms)


def _is_helpful_pod(pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:
    old, new = event.old, event.new
    if new is not None and new.key == pod.key:
        return True
    if any(one is not None and not (one.node or one.nominated_node) for one in (old, new)):
        return False
    desired, unwanted = pod.affinity_terms, pod.anti_affinity_terms
    if old is not None and new is not None:
        if not _matches_all(desired, old, cluster) and _matches_all(desired, new, cluster):
            return True
        return _matches_all(unwanted, old, cluster) and not _matches_all(unwanted, new, cluster)
    if new is not None:
        return _matches_all(desired, new, cluster)
    return _matches_all(unwanted, old, cluster) or _matches_all(old.anti_affinity_terms, pod, cluster)


def _is_helpful_node(pod: PodFacts, event: ClusterEvent) -> bool:
    old, new = event.old, event.new
    if old is None:
        return bool(pod.anti_affinity_terms) or any(term.topology_key in new.labels for term in pod.affinity_terms)
    keys = {term.topology_key for term in pod.affinity_terms}
    if any(key in new.labels and old.labels.get(key) != new.labels[key] for key in keys):
        return True
    keys = {term.topology_key for term in pod.anti_affinity_terms}
    return any(key in old.labels and old.labels[key] != new.labels.get(key) for key in keys)
