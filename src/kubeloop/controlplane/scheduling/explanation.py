"""Explains a decision of the scheduler: why plugins refused nodes, and the scores of the nodes that fit."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.cluster_watch import ClusterWatch
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import NodeRefusal, PodRefusal, Profile, find_nodes, score_nodes
from kubeloop.controlplane.scheduling.preemption import preempt
from kubeloop.types import JSONObject

#: The message of the condition PodScheduled of a gated pod (pkg/registry/core/pod/strategy.go, applySchedulingGatedCondition).
_GATED = "Scheduling is blocked due to non-empty scheduling gates"
#: Number of names that a list shows.
_SHOWN = 8


@dataclass(frozen=True)
class NodeExplanation:
    """One node: the refusals of all plugins that refuse it, or its weighted scores by plugin."""

    name: str
    refusals: tuple[NodeRefusal, ...] = ()
    scores: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.scores.values())


@dataclass(frozen=True)
class PodExplanation:
    """The explanation of the scheduler's decision about one pod.

    Attributes:
        namespace: Namespace of the pod.
        name: Name of the pod.
        profile: The name of the profile.
        node: The node that the pod already has, which the decision ignores; "" for none.
        message: The scheduler's message if the pod fits on no node; else "".
        nodes: All nodes; the nodes that fit come first, by score.
        preemption: The node on which the pod can preempt other pods; "" for none.
        victims: The pods that it would preempt, as NAMESPACE/NAME.
        gates: Names of the scheduling gates that keep the pod from being scheduled.
        nominated: The node in the pod's ``status.nominatedNodeName`` while the pod has no node; else "".
        selected_nodes: Name of each unbound claim of a pod without a node -> the node for which the claim's volume is provisioned.
    """

    namespace: str
    name: str
    profile: str
    node: str
    message: str
    nodes: tuple[NodeExplanation, ...]
    preemption: str = ""
    victims: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()
    nominated: str = ""
    selected_nodes: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> JSONObject:
        """Return the explanation as a tree of JSON values."""
        nodes = []
        for one in self.nodes:
            refusals = [{"plugin": each.plugin, "reasons": list(each.reasons), "resolvable": each.resolvable} for each in one.refusals]
            tree: JSONObject = {"name": one.name, "fits": not refusals}
            nodes.append({**tree, "refusals": refusals} if refusals else {**tree, "score": one.total, "scores": one.scores})
        result: JSONObject = {"namespace": self.namespace, "name": self.name, "profile": self.profile, "node": self.node}
        result |= {"message": self.message, "nodes": nodes}
        if self.gates:
            result["schedulingGates"] = list(self.gates)
        if self.nominated:
            result["nominatedNode"] = self.nominated
        if self.selected_nodes:
            result["selectedNodes"] = [{"claim": claim, "node": node} for claim, node in self.selected_nodes.items()]
        return {**result, "preemption": {"node": self.preemption, "victims": list(self.victims)}} if self.preemption else result

    def text(self, width: int = 80) -> str:
        """Return the explanation as readable text with lines of at most ``width`` characters, except for longer words."""
        fitting = [one for one in self.nodes if not one.refusals]
        state = f"is on node {self.node}" if self.node else "has no node"
        lines: list[str] = []
        if self.gates:
            lines += [*_wrapped(f"{_GATED}: {', '.join(self.gates)}. Without them:", width), ""]
        lines += _wrapped(
            f"Pod {self.namespace}/{self.name} {state}. Profile {self.profile}: {len(fitting)} of {len(self.nodes)} nodes fit.", width
        )
        if self.nominated:
            lines += ["", *_wrapped(f"The pod is nominated to node {self.nominated} (status.nominatedNodeName).", width)]
        for claim, selected in self.selected_nodes.items():
            lines += ["", *_wrapped(f"The pod waits for the volume of the claim {claim}, whose selected node is {selected}.", width)]
        if fitting:
            lines += ["", "Scores of the nodes that fit, the best first:"]
            for one in fitting:
                # A plugin and its score stay in one line.
                parts = " + ".join(f"{plugin}\N{NO-BREAK SPACE}{score}" for plugin, score in one.scores.items())
                mark = "  (its node)" if one.name == self.node else ""
                lines += [f"  {one.name}  {one.total}{mark}", *(_wrapped(parts, width, "    ") if parts else [])]
        for reason, names in self._by_reason().items():
            count = "1 node is" if len(names) == 1 else f"{len(names)} nodes are"
            lines += ["", *_wrapped(f"{count} refused. {reason}", width)]
            more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
            lines += _wrapped(", ".join(names[:_SHOWN]) + more, width, "  ")
        if self.preemption:
            victims = ", ".join(self.victims)
            lines += ["", *_wrapped(f"On node {self.preemption} it can replace pods of lower priority: {victims}", width)]
        if self.message:
            lines += ["", *_wrapped(self.message, width)]
        return "\n".join(lines)

    def _by_reason(self) -> dict[str, list[str]]:
        """Return the names of the refused nodes by the plugins and reasons that refuse them, the most frequent first."""
        result: dict[str, list[str]] = {}
        for one in self.nodes:
            if one.refusals:
                reason = "; ".join(f"{each.plugin}: {', '.join(each.reasons)}" for each in one.refusals)
                result.setdefault(reason, []).append(one.name)
        return dict(sorted(result.items(), key=lambda item: -len(item[1])))


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    lines = textwrap.wrap(text, width, initial_indent=indent, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)
    return [line.replace("\N{NO-BREAK SPACE}", " ") for line in lines]


def explain_pod(profile: Profile, pod: PodFacts, cluster: ClusterFacts) -> PodExplanation:
    """Explain the scheduler's decision about a pod. A node that the pod already has is ignored.

    Args:
        profile: The profile with the plugins.
        pod: The pod. If it has a node, ``cluster`` must count it there.
        cluster: The cluster, which is unchanged when the function returns.
    """
    node = pod.node
    if node:
        cluster.remove_pod(pod, node)
    free = PodFacts({**pod.document, "spec": {**pod.spec, "nodeName": ""}}) if node else pod
    try:
        return _explain(profile, free, cluster, node)
    finally:
        if node:
            cluster.add_pod(pod, node)


def _explain(profile: Profile, pod: PodFacts, cluster: ClusterFacts, node: str) -> PodExplanation:
    diagnosis = find_nodes(profile, pod, cluster)
    scores = score_nodes(profile, pod, cluster, diagnosis.fitting)
    fitting = [
        NodeExplanation(one.name, (), {plugin: each[number] for plugin, each in scores.items()})
        for number, one in enumerate(diagnosis.fitting)
    ]
    fitting.sort(key=lambda node: (-node.total, len(cluster.by_name[node.name].pods), node.name))
    names = {one.name for one in fitting}
    refused = [
        NodeExplanation(node.name, _find_all_refusals(profile, pod, node, cluster)) for node in cluster.nodes if node.name not in names
    ]
    message, candidate = "", None
    if not fitting:
        result = preempt(profile, pod, cluster, diagnosis)
        message, candidate = diagnosis.message(result.message), result.candidate
    return PodExplanation(
        pod.namespace,
        pod.name,
        profile.name,
        node,
        message,
        (*fitting, *refused),
        candidate.node if candidate is not None else "",
        tuple(f"{one.namespace}/{one.name}" for one in candidate.victims) if candidate is not None else (),
        tuple(one["name"] for one in pod.gates) if profile.respects_gates and not node else (),
        pod.nominated_node if not node else "",
        _selected_nodes(pod, cluster) if not node else {},
    )


def _selected_nodes(pod: PodFacts, cluster: ClusterFacts) -> dict[str, str]:
    claims = ((name, cluster.claims.get((pod.namespace, name))) for name, _ in pod.claims)
    return {name: claim.selected_node for name, claim in claims if claim is not None and claim.selected_node and not claim.bound}


def _find_all_refusals(profile: Profile, pod: PodFacts, node: NodeFacts, cluster: ClusterFacts) -> tuple[NodeRefusal, ...]:
    """Return the refusals of all plugins that refuse a node, or the refusal on behalf of nominated pods."""
    result = []
    for plugin in profile.filters:
        made = plugin.make_filter(pod, cluster)
        if isinstance(made, PodRefusal):
            result.append(NodeRefusal((made.reason,), False, plugin.name))
        elif made is not None and (refusal := made(node)) is not None:
            result.append(refusal)
    if not result:
        result.append(NodeRefusal(("pods that are nominated to the node need its room",), resolvable=False, plugin="DefaultPreemption"))
    return tuple(result)


async def read_cluster(client: Client) -> tuple[ClusterFacts, dict[tuple[str, str], PodFacts]]:
    """Return the facts of a whole cluster, and all pods by namespace and name.

    Raises:
        KubeloopError: A kind cannot be listed.
    """
    watch = ClusterWatch(lambda event: None)  # noqa: ARG005  # nothing waits for changes
    pods: dict[tuple[str, str], PodFacts] = {}

    def add_pod(event: InformerEvent[Pod]) -> None:
        pods[event.head.namespace, event.head.name] = PodFacts(msgspec.json.decode(event.head.document()))

    async with InformerFactory(client) as informers:
        handlers: list[tuple[type[Any], Callable[[InformerEvent[Any]], None]]] = [*watch.handlers(), (Pod, add_pod)]
        registrations = [
            informers.for_kind(kind, namespace=ALL_NAMESPACES).on_event(added=handle, name="explain") for kind, handle in handlers
        ]
        for one in registrations:
            await one.wait_synced()
    cluster = watch.cluster
    for pod in pods.values():
        if pod.node and not pod.ended:
            cluster.add_pod(pod, pod.node)
        elif pod.nominated_node and not pod.ended:
            cluster.nominate(pod, pod.nominated_node)
    return cluster, pods
