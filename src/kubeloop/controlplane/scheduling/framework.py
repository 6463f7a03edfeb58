"""The scheduling framework: plugins with their stages, and profiles of plugins that filter and score the nodes for a pod. No I/O.

Source: Kubernetes pkg/scheduler/framework/runtime/framework.go, pkg/scheduler/schedule_one.go.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from kubeloop.controlplane.scheduling.cluster_events import ClusterEvent, Interests
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts

#: The highest score that one plugin can give a node.
MAX_SCORE = 100
#: The minimum number of fitting nodes that end a search, and the minimum percentage of all nodes.
_MIN_FITTING, _MIN_PERCENTAGE = 100, 5


class NodeRefusal(NamedTuple):
    """The reasons why a node cannot run a pod. ``resolvable`` says that it could run the pod if other pods left the node."""

    reasons: tuple[str, ...]
    resolvable: bool
    plugin: str = ""


class PodRefusal(NamedTuple):
    """The reason why a pod cannot run on any node."""

    reason: str
    plugin: str = ""


#: Returns why a node cannot run the pod for which the filter was made; None if the node can run it.
NodeFilter = Callable[[NodeFacts], NodeRefusal | None]


class SchedulerPlugin:
    """Base class of plugins, which filter and score nodes. ``interests`` are the events that may help a pod which the plugin refused."""

    name: ClassVar[str] = ""
    interests: ClassVar[Interests] = {}

    def restrict(self, pod: PodFacts) -> set[str] | None:  # noqa: ARG002  # most plugins allow all nodes
        """Return the names of the only nodes that can run a pod, or None for no such restriction."""
        return None

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | PodRefusal | None:  # noqa: ARG002  # not all filter
        """Return the filter of nodes for a pod; None if every node passes. The filter is valid until the cluster changes."""
        return None

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:  # noqa: ARG002  # not all score
        """Return the score of each node, from 0 to ``MAX_SCORE``; None if the plugin does not distinguish the nodes."""
        return None

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002  # by default each event may
        """Return whether an event among ``interests`` may help a pod that the plugin refused."""
        return True


def normalised(scores: list[int], *, reverse: bool = False) -> list[int]:
    """Scale scores so that the largest is ``MAX_SCORE``; with ``reverse`` the largest becomes 0.

    Source: pkg/scheduler/framework/plugins/helper/normalize_score.go.
    """
    largest = max(scores, default=0)
    if largest == 0:
        return [MAX_SCORE] * len(scores) if reverse else scores
    if reverse:
        return [MAX_SCORE - MAX_SCORE * score // largest for score in scores]
    return [MAX_SCORE * score // largest for score in scores]


@dataclass(frozen=True)
class PreemptionLimits:
    """How many candidates end the search of preemption: ``percentage`` of the nodes that it considers, and at least ``absolute``."""

    percentage: int = 10
    absolute: int = 100


@dataclass(frozen=True)
class Profile:
    """The plugins of one scheduler name.

    Attributes:
        name: The value of ``spec.schedulerName``.
        filters: Plugins that filter, in order.
        scorers: Plugins that score, with their weights.
        preemption: Limits of preemption; None: the profile does not preempt.
        node_percentage: Percentage of the nodes that must fit to end a search; 0: upstream's percentage, by the number of nodes.
        respects_gates: Whether pods with scheduling gates wait.
        bind_timeout: Seconds that volumes may take to be bound.
    """

    name: str
    filters: tuple[SchedulerPlugin, ...]
    scorers: tuple[tuple[SchedulerPlugin, int], ...]
    preemption: PreemptionLimits | None = field(default_factory=PreemptionLimits)
    node_percentage: int = 0
    respects_gates: bool = True
    bind_timeout: float = 600.0

    def plugin(self, name: str) -> SchedulerPlugin | None:
        """Return the filter plugin with a name, or None if the profile does not have it."""
        return next((one for one in self.filters if one.name == name), None)


@dataclass
class Diagnosis:
    """The result of filtering: the fitting nodes, and why other nodes do not fit.

    ``refusals`` has the checked nodes that do not fit. ``refusal`` is set if the pod fits on no node at all. ``excluded`` names the plugins
    that restricted the search to some nodes (``SchedulerPlugin.restrict``). ``evaluated`` is the number of checked nodes, and ``total`` the
    number of all nodes.
    """

    total: int
    fitting: list[NodeFacts] = field(default_factory=list)
    refusals: dict[str, NodeRefusal] = field(default_factory=dict)
    refusal: PodRefusal | None = None
    excluded: tuple[str, ...] = ()
    evaluated: int = 0

    @property
    def plugins(self) -> frozenset[str]:
        """Names of the plugins that refused the pod."""
        names = {refusal.plugin for refusal in self.refusals.values()} | set(self.excluded)
        if self.refusal is not None:
            names.add(self.refusal.plugin)
        return frozenset(names)

    def message(self, postscript: str = "") -> str:
        """Return upstream's message about a pod that fits on no node; ``postscript`` is the result of preemption."""
        if not self.total:
            return "no nodes available to schedule pods"
        if self.refusal is not None:
            return unschedulable_text(self.total, [self.refusal.reason], postscript)
        reasons = Counter(reason for refusal in self.refusals.values() for reason in refusal.reasons)
        absent = self.total - len(self.refusals)
        if absent and self.excluded:
            reasons[f"node(s) didn't satisfy plugin(s) [{' '.join(self.excluded)}]"] += absent
        return unschedulable_text(self.total, counted(reasons), postscript)


def counted(reasons: Mapping[str, int]) -> list[str]:
    """Return a list with one text of all counts and reasons in upstream's order; an empty list without reasons."""
    texts = sorted(f"{count} {reason}" for reason, count in reasons.items())
    return [", ".join(texts)] if texts else []


def unschedulable_text(total: int, reasons: list[str], postscript: str = "") -> str:
    """Return upstream's message ``0/TOTAL nodes are available: REASONS.`` followed by a postscript."""
    return " ".join([f"0/{total} nodes are available:", *(f"{one}." for one in reasons), *([postscript] if postscript else [])])


def make_filters(profile: Profile, pod: PodFacts, cluster: ClusterFacts) -> list[NodeFilter] | PodRefusal:
    """Return the filters of all plugins that have one for a pod, or the refusal of the first plugin that refuses it on all nodes."""
    result: list[NodeFilter] = []
    for plugin in profile.filters:
        made = plugin.make_filter(pod, cluster)
        if isinstance(made, PodRefusal):
            return made._replace(plugin=plugin.name)
        if made is not None:
            result.append(made)
    return result


def find_refusal(node: NodeFacts, filters: Sequence[NodeFilter]) -> NodeRefusal | None:
    """Return the refusal of the first filter that refuses a node, or None."""
    for one in filters:
        refusal = one(node)
        if refusal is not None:
            return refusal
    return None


def find_refusal_with_nominated(profile: Profile, pod: PodFacts, node: NodeFacts, cluster: ClusterFacts) -> NodeRefusal | None:
    """Return why a node cannot run a pod; None if it can run the pod both with and without the pods that are nominated to the node.

    Only nominated pods of the same or a higher priority count.

    Args:
        profile: The profile with the plugins.
        pod: The pod.
        node: The node.
        cluster: The cluster, which is unchanged when the function returns.
    """
    rivals = [one for one in cluster.nominated.get(node.name, {}).values() if one.priority >= pod.priority and one.key != pod.key]
    for added in (rivals, []) if rivals else ([],):
        for rival in added:
            cluster.add_pod(rival, node.name)
        try:
            filters = make_filters(profile, pod, cluster)
            refusal = (
                NodeRefusal((filters.reason,), False, filters.plugin) if isinstance(filters, PodRefusal) else find_refusal(node, filters)
            )
        finally:
            for rival in added:
                cluster.remove_pod(rival, node.name)
        if refusal is not None:
            return refusal
    return None


def enough_nodes(total: int, percentage: int = 0) -> int:
    """Return how many fitting nodes end a search among ``total`` nodes; ``percentage`` 0 stands for upstream's percentage."""
    if total < _MIN_FITTING:
        return total
    share = percentage or max(50 - total // 125, _MIN_PERCENTAGE)
    return max(total * share // 100, _MIN_FITTING)


def find_nodes(profile: Profile, pod: PodFacts, cluster: ClusterFacts, *, first: int = 0, limit: int | None = None) -> Diagnosis:
    """Find nodes that can run a pod.

    Args:
        profile: The profile with the plugins.
        pod: A pod without a node.
        cluster: The cluster.
        first: Index of the node with which the search begins.
        limit: Number of fitting nodes that end the search; None: all nodes are checked.

    Returns:
        The fitting nodes, and why other nodes do not fit.
    """
    nodes = cluster.nodes
    diagnosis = Diagnosis(len(nodes))
    if not nodes:
        return diagnosis
    allowed: set[str] | None = None
    for plugin in profile.filters:
        names = plugin.restrict(pod)
        if names is not None:
            diagnosis.excluded += (plugin.name,)
            allowed = names if allowed is None else allowed & names
    filters = make_filters(profile, pod, cluster)
    if isinstance(filters, PodRefusal):
        diagnosis.refusal, diagnosis.excluded = filters, ()
        return diagnosis
    nominated = cluster.by_name.get(pod.nominated_node)
    if nominated is not None and (allowed is None or nominated.name in allowed):
        refusal = find_refusal_with_nominated(profile, pod, nominated, cluster)
        if refusal is None:
            diagnosis.fitting.append(nominated)
            return diagnosis
    if allowed is not None:
        nodes = [node for name in sorted(allowed) if (node := cluster.by_name.get(name)) is not None]
        first = 0
    _filter_nodes(profile, pod, cluster, nodes[first:] + nodes[:first] if first else nodes, filters, diagnosis, limit)
    return diagnosis


def _filter_nodes(
    profile: Profile,
    pod: PodFacts,
    cluster: ClusterFacts,
    nodes: Sequence[NodeFacts],
    filters: list[NodeFilter],
    diagnosis: Diagnosis,
    limit: int | None,
) -> None:
    """Check nodes in order until ``limit`` nodes fit, and add the results to the diagnosis."""
    fitting, refusals, nominated = diagnosis.fitting, diagnosis.refusals, cluster.nominated
    for node in nodes:
        diagnosis.evaluated += 1
        for one in filters:
            refusal = one(node)
            if refusal is not None:
                break
        else:
            refusal = None
            if nominated and node.name in nominated:
                refusal = find_refusal_with_nominated(profile, pod, node, cluster)
        if refusal is not None:
            refusals[node.name] = refusal
            continue
        fitting.append(node)
        if limit is not None and len(fitting) >= limit:
            return


def score_nodes(profile: Profile, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> dict[str, list[int]]:
    """Return the weighted scores of nodes, by plugin; plugins that do not distinguish the nodes are left out.

    Args:
        profile: The profile with the plugins and their weights.
        pod: The pod.
        cluster: The cluster.
        nodes: The nodes that fit.
    """
    result: dict[str, list[int]] = {}
    for plugin, weight in profile.scorers if nodes else ():
        scores = plugin.score(pod, cluster, nodes)
        if scores is not None:
            result[plugin.name] = scores if weight == 1 else [weight * score for score in scores]
    return result


def total_scores(scores: Mapping[str, list[int]], nodes: Sequence[NodeFacts]) -> list[int]:
    """Return the total score of each node from the scores by plugin."""
    return [sum(one) for one in zip(*scores.values(), strict=True)] if scores else [0] * len(nodes)


def best_node(profile: Profile, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> NodeFacts:
    """Return the node with the highest score; among equal nodes the one with the fewest pods, then the first by name.

    Args:
        profile: The profile with the plugins and their weights.
        pod: The pod.
        cluster: The cluster.
        nodes: The nodes that fit, at least one.
    """
    if len(nodes) == 1:
        return nodes[0]
    totals = total_scores(score_nodes(profile, pod, cluster, nodes), nodes)
    best = max(totals)
    return min((node for node, total in zip(nodes, totals, strict=True) if total == best), key=lambda node: (len(node.pods), node.name))
