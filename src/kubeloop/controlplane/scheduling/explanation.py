"""Explains a decision of the scheduler: why each node was refused, by plugin, and the scores of the others."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Event, Informers
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.cluster_watch import ClusterWatch
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import NodeRefusal, PodRefusal, Profile, find_nodes, score_nodes
from kubeloop.controlplane.scheduling.preemption import preempt
from kubeloop.types import JSONObject

#: Number of names that a list shows.
_SHOWN = 8


@dataclass(frozen=True)
class NodeExplanation:
    """A node: every plugin that refuses it, or its scores by plugin, weighted."""

    name: str
    refusals: tuple[NodeRefusal, ...] = ()
    scores: dict[str, int] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.scores.values())


@dataclass(frozen=True)
class PodExplanation:
    """A decision about one pod.

    Attributes:
        namespace: Its namespace.
        name: Its name.
        profile: The name of the profile.
        node: The node that it has; the decision is made as if it had none.
        message: What the scheduler says of a pod that fits nowhere.
        nodes: All nodes; the fitting nodes come first, by score.
        preemption: The node on which the pod can replace others.
        victims: These pods, as NAMESPACE/NAME.
    """

    namespace: str
    name: str
    profile: str
    node: str
    message: str
    nodes: tuple[NodeExplanation, ...]
    preemption: str = ""
    victims: tuple[str, ...] = ()

    def to_dict(self) -> JSONObject:
        """Return the explanation as a tree."""
        nodes = []
        for one in self.nodes:
            refusals = [{"plugin": each.plugin, "reasons": list(each.reasons), "resolvable": each.resolvable} for each in one.refusals]
            tree: JSONObject = {"name": one.name, "fits": not refusals}
            nodes.append({**tree, "refusals": refusals} if refusals else {**tree, "score": one.total, "scores": one.scores})
        result: JSONObject = {"namespace": self.namespace, "name": self.name, "profile": self.profile, "node": self.node}
        result |= {"message": self.message, "nodes": nodes}
        return {**result, "preemption": {"node": self.preemption, "victims": list(self.victims)}} if self.preemption else result

    def text(self, width: int = 80) -> str:
        """Return the explanation for people, in lines of at most ``width`` characters where words allow it."""
        fitting = [one for one in self.nodes if not one.refusals]
        state = f"is on node {self.node}" if self.node else "has no node"
        lines = _wrapped(
            f"Pod {self.namespace}/{self.name} {state}. Profile {self.profile}: {len(fitting)} of {len(self.nodes)} nodes fit.", width
        )
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
        """Return the names of the refused nodes by what refuses them, the most frequent reasons first."""
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
    """Explain the scheduler's decision about a pod. A node that the pod has already is ignored.

    Args:
        profile: The plugins.
        pod: The pod. If it has a node, the cluster counts it there.
        cluster: The cluster, the same afterwards as before.
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
    )


def _find_all_refusals(profile: Profile, pod: PodFacts, node: NodeFacts, cluster: ClusterFacts) -> tuple[NodeRefusal, ...]:
    """Return the refusal of each plugin that refuses a node."""
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

    def add_pod(event: Event[Pod]) -> None:
        pods[event.head.namespace, event.head.name] = PodFacts(msgspec.json.decode(event.head.document()))

    async with Informers(client) as informers:
        handlers: list[tuple[type[Any], Callable[[Event[Any]], None]]] = [*watch.handlers(), (Pod, add_pod)]
        registrations = [informers.of(kind, namespace=ALL_NAMESPACES).on_event(added=handle, name="explain") for kind, handle in handlers]
        for one in registrations:
            await one.wait_synced()
    cluster = watch.cluster
    for pod in pods.values():
        if pod.node and not pod.ended:
            cluster.add_pod(pod, pod.node)
        elif pod.nominated_node and not pod.ended:
            cluster.nominate(pod, pod.nominated_node)
    return cluster, pods
