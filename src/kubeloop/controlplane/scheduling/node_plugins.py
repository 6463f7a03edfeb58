"""Plugins that check each node independently of other nodes: cordons, taints, node affinity, host ports, images. No I/O.

Source: Kubernetes pkg/scheduler/framework/plugins: nodeunschedulable, nodename, tainttoleration, nodeaffinity, nodeports, imagelocality.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, Interests
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import MAX_SCORE, NodeFilter, NodeRefusal, PodRefusal, SchedulerPlugin, normalised
from kubeloop.controlplane.scheduling.requirements import meets_any_term, meets_term, named_nodes, tolerates
from kubeloop.types import JSONObject

_UNSCHEDULABLE_TAINT = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
_MIB = 1 << 20


class NodeUnschedulable(SchedulerPlugin):
    """Refuses cordoned nodes, unless the pod tolerates the taint ``node.kubernetes.io/unschedulable``."""

    name = "NodeUnschedulable"
    interests: ClassVar[Interests] = {"Node": Action.ADD | Action.NODE_TAINT, "Pod": Action.POD_TOLERATION}

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:
        if not cluster.cordoned or pod.tolerates(_UNSCHEDULABLE_TAINT):
            return None
        refusal = NodeRefusal(("node(s) were unschedulable",), False, self.name)
        return lambda node: refusal if node.unschedulable else None

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind != "Node":
            return bool(event.new is not None and event.new.key == pod.key)
        return not event.new.unschedulable


class NodeName(SchedulerPlugin):
    """Refuses all nodes except the node in the pod's ``spec.nodeName``, if it has one."""

    name = "NodeName"
    interests: ClassVar[Interests] = {"Node": Action.ADD}

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:  # noqa: ARG002
        if not pod.node:
            return None
        refusal = NodeRefusal(("node(s) didn't match the requested node name",), False, self.name)
        return lambda node: None if node.name == pod.node else refusal


class TaintToleration(SchedulerPlugin):
    """Refuses nodes with a taint that the pod does not tolerate, and prefers nodes with few PreferNoSchedule taints."""

    name = "TaintToleration"
    interests: ClassVar[Interests] = {"Node": Action.ADD | Action.NODE_TAINT, "Pod": Action.POD_TOLERATION}

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:
        if not cluster.tainted:
            return None
        refusal = NodeRefusal(("node(s) had untolerated taint(s)",), False, self.name)
        return lambda node: refusal if node.blocking_taints and find_untolerated_taint(pod, node) is not None else None

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:  # noqa: ARG002
        if not any(node.soft_taints for node in nodes):
            return [MAX_SCORE] * len(nodes)
        soft = [one for one in pod.tolerations if one.get("effect") in (None, "", "PreferNoSchedule")]
        counts = [sum(not tolerates(soft, taint) for taint in node.soft_taints) for node in nodes]
        return normalised(counts, reverse=True)

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind != "Node":
            return bool(event.new is not None and event.new.key == pod.key)
        before = event.old is None or find_untolerated_taint(pod, event.old) is not None
        return before and find_untolerated_taint(pod, event.new) is None


def find_untolerated_taint(pod: PodFacts, node: NodeFacts) -> JSONObject | None:
    """Return the first NoSchedule or NoExecute taint of a node that a pod does not tolerate, or None."""
    return next((taint for taint in node.blocking_taints if not pod.tolerates(taint)), None)


class NodeAffinity(SchedulerPlugin):
    """Refuses nodes that do not match the pod's node selector or required node affinity, and prefers nodes that match preferred affinity.

    Args:
        added: Node affinity of all pods of the profile in addition to their own (``addedAffinity``), as a JSON object; None for none.
    """

    name = "NodeAffinity"
    interests: ClassVar[Interests] = {"Node": Action.ADD | Action.NODE_LABEL}

    def __init__(self, added: JSONObject | None = None) -> None:
        required = (added or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        self._added_terms: list[JSONObject] | None = None if required is None else required.get("nodeSelectorTerms") or []
        self._added_preferences: list[JSONObject] = (added or {}).get("preferredDuringSchedulingIgnoredDuringExecution") or []

    def restrict(self, pod: PodFacts) -> set[str] | None:
        return named_nodes(pod.required_node_terms or ())

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | PodRefusal | None:  # noqa: ARG002
        selective = pod.required_node_terms is not None or bool(pod.spec.get("nodeSelector"))
        if not selective and self._added_terms is None:
            return None
        if self.restrict(pod) == set():
            return PodRefusal("pod affinity terms conflict")
        enforced = NodeRefusal(("node(s) didn't match scheduler-enforced node affinity",), False, self.name)
        refusal = NodeRefusal(("node(s) didn't match Pod's node affinity/selector",), False, self.name)

        def check(node: NodeFacts) -> NodeRefusal | None:
            if not self._is_added(node):
                return enforced
            return None if pod.matches_node(node) else refusal

        return check

    def _is_added(self, node: NodeFacts) -> bool:
        return self._added_terms is None or meets_any_term(self._added_terms, node.labels, node.name)

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:  # noqa: ARG002
        preferences = [*self._added_preferences, *pod.preferred_node_terms]
        if not preferences:
            return None
        return normalised([_sum_weights(preferences, node) for node in nodes])

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if not self._is_added(event.new) or not pod.matches_node(event.new):
            return False
        return event.old is None or not pod.matches_node(event.old) or not self._is_added(event.old)


def _sum_weights(preferences: Sequence[JSONObject], node: NodeFacts) -> int:
    """Return the sum of the weights of the preferences that a node meets. A preference without requirements counts for no node."""
    result = 0
    for one in preferences:
        term = one.get("preference") or {}
        empty = not term.get("matchExpressions") and not term.get("matchFields")
        if one["weight"] and not empty and meets_term(term, node.labels, node.name):
            result += one["weight"]
    return result


class NodePorts(SchedulerPlugin):
    """Refuses nodes on which a host port of the pod is in use."""

    name = "NodePorts"
    interests: ClassVar[Interests] = {"Node": Action.ADD, "Pod": Action.DELETE}

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:  # noqa: ARG002
        if not pod.ports:
            return None
        refusal = NodeRefusal(("node(s) didn't have free ports for the requested pod ports",), True, self.name)
        return lambda node: refusal if node.has_port_of(pod.ports) else None

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind == "Node":
            return True
        gone = event.old
        return bool(gone.node or gone.nominated_node) and any(one.conflicts(port) for one in pod.ports for port in gone.ports)


class ImageLocality(SchedulerPlugin):
    """Prefers nodes that already have the images of the pod; large images, and images that many nodes have, count more."""

    name = "ImageLocality"

    def score(self, pod: PodFacts, cluster: ClusterFacts, nodes: Sequence[NodeFacts]) -> list[int] | None:
        shares = {image: cluster.image_nodes[image] / len(cluster.by_name) for image in pod.images if cluster.image_nodes[image]}
        if not shares:
            return None
        containers = len(pod.spec.get("containers") or ()) + len(pod.spec.get("initContainers") or ())
        least, most = 23 * _MIB, 1000 * _MIB * containers
        known = [image for image in pod.images if image in shares]
        result = []
        for node in nodes:
            size = sum(int(node.images[image] * shares[image]) for image in known if image in node.images)
            result.append(MAX_SCORE * (min(max(size, least), most) - least) // (most - least))
        return result
