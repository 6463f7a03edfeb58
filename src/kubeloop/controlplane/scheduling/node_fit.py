"""Checks with the default profile which nodes can run a pod, and why other nodes cannot, with upstream's messages. No I/O.

Source: Kubernetes pkg/scheduler/schedule_one.go; pkg/kubelet/lifecycle/predicate.go.
"""

from __future__ import annotations

from dataclasses import dataclass

from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.configuration import default_profile
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import NodeFilter, NodeRefusal, PodRefusal, find_nodes
from kubeloop.controlplane.scheduling.node_plugins import NodeAffinity, NodePorts
from kubeloop.controlplane.scheduling.preemption import Candidate, preempt

_PROFILE = default_profile()
_ALONE = ClusterFacts()


@dataclass
class FitResult:
    """The nodes that can run a pod (``fitting``). If there are none, ``message`` is the message of upstream's scheduler.

    ``preemption`` is a node on which the pod could preempt other pods, with these pods; None if there is no such node.
    """

    fitting: list[NodeFacts]
    message: str = ""
    preemption: Candidate | None = None


def judge(pod: PodFacts, cluster: ClusterFacts) -> FitResult:
    """Return which nodes can run a pod that has no node yet."""
    diagnosis = find_nodes(_PROFILE, pod, cluster)
    if diagnosis.fitting:
        return FitResult(diagnosis.fitting)
    result = preempt(_PROFILE, pod, cluster, diagnosis)
    return FitResult([], diagnosis.message(result.message), result.candidate)


def find_refusals(pod: PodFacts, cluster: ClusterFacts) -> dict[str, NodeRefusal]:
    """Return, by name of each node that cannot run a pod, the refusal of the first filter that refuses the node."""
    diagnosis = find_nodes(_PROFILE, pod, cluster)
    if diagnosis.refusal is not None:
        refusal = NodeRefusal((diagnosis.refusal.reason,), False, diagnosis.refusal.plugin)
        return {node.name: refusal for node in cluster.nodes}
    fitting = {node.name for node in diagnosis.fitting}
    excluded = NodeRefusal((f"node(s) didn't satisfy plugin(s) [{' '.join(diagnosis.excluded)}]",), resolvable=False)
    return {node.name: diagnosis.refusals.get(node.name, excluded) for node in cluster.nodes if node.name not in fitting}


def find_admission_fault(pod: PodFacts, node: NodeFacts) -> tuple[str, str] | None:
    """Return the reason and message of the status with which a kubelet rejects a pod bound to its node, or None if it accepts the pod.

    Source: Kubernetes pkg/kubelet/lifecycle/predicate.go.
    """
    for name, desired, used in (("pods", 1, len(node.pods)), *((name, one, node.used(name)) for name, one in pod.requests.items())):
        capacity = node.allocatable.get(name)
        if capacity is None and "/" in name:
            continue  # An extended resource that the node does not have belongs to the cluster.
        if desired > 0 and desired > (capacity or 0) - used:
            text = f"Node didn't have enough resource: {name}, requested: {desired}, used: {used}, capacity: {capacity or 0}"
            return f"OutOf{name}", text
    for plugin in (NodeAffinity(), NodePorts()):
        check: NodeFilter | PodRefusal | None = plugin.make_filter(pod, _ALONE)
        refused = check(node) if callable(check) else None
        reason = check.reason if isinstance(check, PodRefusal) else refused.reasons[0] if refused is not None else ""
        if reason:
            return plugin.name, f"Predicate {plugin.name} failed: {reason}"
    if any(taint.get("effect") == "NoExecute" and not pod.tolerates(taint) for taint in node.taints):
        return "TaintToleration", "Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate"
    return None
