"""Facts that scheduling decisions rest on: pods with their requests, ports and affinity, and nodes with their pods. No I/O.

Objects are handled as JSON trees. Source: Kubernetes pkg/scheduler/framework (types.go) and component-helpers scheduling/corev1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from kubeloop.api.core.v1 import Node
from kubeloop.meta import Selector, selector_from
from kubeloop.quota.pods import pod_requests

JSONObject = dict[str, Any]

#: Pods that a node takes if it does not say (the kubelet's default).
_MOST_PODS = 110
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  # compared, never listened on


class HostPort(NamedTuple):
    """A port of the node that a container asks for."""

    address: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        same = (self.protocol, self.port) == (other.protocol, other.port)
        return same and (self.address == other.address or _ALL_ADDRESSES in (self.address, other.address))


class AffinityTerm(NamedTuple):
    """One required term of pod affinity or anti-affinity."""

    topology_key: str
    namespaces: frozenset[str]
    namespace_selector: Selector
    selector: Selector

    def matches(self, pod: PodFacts, namespaces: Mapping[str, Mapping[str, str]]) -> bool:
        near = pod.namespace in self.namespaces or self.namespace_selector.matches(namespaces.get(pod.namespace, {}))
        return near and self.selector.matches(pod.labels)


class PodFacts:
    """A pod as the scheduler sees it; each fact is computed when it is first asked for."""

    def __init__(self, document: JSONObject) -> None:
        metadata = document["metadata"]
        self.document = document
        self.spec: JSONObject = document.get("spec") or {}
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.uid: str = metadata.get("uid", "")
        self.labels: dict[str, str] = metadata.get("labels") or {}
        self.terminating = metadata.get("deletionTimestamp") is not None
        self.ended = (document.get("status") or {}).get("phase") in ("Succeeded", "Failed")
        self.node: str = self.spec.get("nodeName") or ""
        self.priority: int = self.spec.get("priority") or 0
        self.tolerations: list[JSONObject] = self.spec.get("tolerations") or []

    @cached_property
    def requests(self) -> dict[str, int]:
        """Amounts by resource: thousandths of cpu, whole units of everything else."""
        amounts = pod_requests(self.document)
        return {name: amount.milli_value() if name == "cpu" else amount.value() for name, amount in amounts.items()}

    @cached_property
    def ports(self) -> list[HostPort]:
        sidecars = [one for one in self.spec.get("initContainers") or () if one.get("restartPolicy") == "Always"]
        return [
            HostPort(port.get("hostIP") or _ALL_ADDRESSES, port.get("protocol") or "TCP", port["hostPort"])
            for container in [*(self.spec.get("containers") or ()), *sidecars]
            for port in container.get("ports") or ()
            if port.get("hostPort")
        ]

    @cached_property
    def affinity_terms(self) -> list[AffinityTerm]:
        return self._terms("podAffinity")

    @cached_property
    def anti_affinity_terms(self) -> list[AffinityTerm]:
        return self._terms("podAntiAffinity")

    def _terms(self, kind: str) -> list[AffinityTerm]:
        affinity = (self.spec.get("affinity") or {}).get(kind) or {}
        found = []
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
            # A term that names no namespaces in either way means the pod's.
            namespaces = frozenset(named or ((self.namespace,) if chosen is None else ()))
            selector = selector_from(term.get("labelSelector"))
            found.append(AffinityTerm(term["topologyKey"], namespaces, selector_from(chosen), selector))
        return found

    @property
    def claims(self) -> list[tuple[str, bool]]:
        """Names of the volume claims that the pod uses, and whether each is made for an ephemeral volume."""
        found = []
        for volume in self.spec.get("volumes") or ():
            if claim := volume.get("persistentVolumeClaim"):
                found.append((claim["claimName"], False))
            elif volume.get("ephemeral") is not None:
                found.append((f"{self.name}-{volume['name']}", True))
        return found

    def tolerates(self, taint: JSONObject) -> bool:
        return any(_tolerates(toleration, taint) for toleration in self.tolerations)

    def matches_node(self, node: NodeFacts) -> bool:
        """Return whether the node has what nodeSelector and required node affinity ask for."""
        if not (self.spec.get("nodeSelector") or {}).items() <= node.labels.items():
            return False
        required = ((self.spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        return required is None or any(_meets_term(term, node) for term in required.get("nodeSelectorTerms") or ())


@dataclass
class NodeFacts:
    """A node, and the pods on it that have not ended."""

    name: str
    labels: dict[str, str]
    taints: list[JSONObject]
    unschedulable: bool
    allocatable: dict[str, int]
    pods: list[PodFacts] = field(default_factory=list)

    def used(self, resource: str) -> int:
        return sum(pod.requests.get(resource, 0) for pod in self.pods)

    def without(self, gone: Iterable[PodFacts]) -> NodeFacts:
        """Return the node as if some of its pods were gone."""
        uids = {pod.uid for pod in gone}
        kept = [pod for pod in self.pods if pod.uid not in uids]
        return NodeFacts(self.name, self.labels, self.taints, self.unschedulable, self.allocatable, kept)


def node_facts(node: Node) -> NodeFacts:
    """Return the facts of a node, as yet without pods."""
    taints: list[JSONObject] = [{"key": taint.key, "value": taint.value or "", "effect": taint.effect} for taint in node.spec.taints]
    amounts = {name: one.milli_value() if name == "cpu" else one.value() for name, one in node.status.allocatable.items()}
    return NodeFacts(node.metadata.name, dict(node.metadata.labels), taints, bool(node.spec.unschedulable), {"pods": _MOST_PODS} | amounts)


@dataclass
class ClaimFacts:
    """A volume claim as far as it decides about scheduling; ``owner`` is the uid of its controller."""

    deleting: bool
    lost_volume: str | None
    owner: str


@dataclass
class ClusterFacts:
    """All nodes with their pods, labels of namespaces, and volume claims by namespace and name."""

    nodes: list[NodeFacts]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[tuple[str, str], ClaimFacts] = field(default_factory=dict)


def _tolerates(toleration: JSONObject, taint: JSONObject) -> bool:
    """Source: k8s.io/api core/v1 Toleration.ToleratesTaint. An empty key with Exists tolerates everything."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("operator") or "Equal") == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def _meets_term(term: JSONObject, node: NodeFacts) -> bool:
    """Return whether a node meets one term; a term without requirements matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_meets(one, node.labels) for one in expressions) and all(_meets(one, {"metadata.name": node.name}) for one in fields)


def _meets(requirement: JSONObject, labels: Mapping[str, str]) -> bool:
    value, operator, values = labels.get(requirement["key"]), requirement["operator"], requirement.get("values") or []
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    try:
        number, bound = int(value or ""), int(values[0])
    except (ValueError, IndexError):
        return False
    return number > bound if operator == "Gt" else operator == "Lt" and number < bound
