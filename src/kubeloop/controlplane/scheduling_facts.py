"""The facts for scheduling decisions: pods with their requests, ports and affinity, nodes with their pods, claims and volumes. No I/O.

Objects are handled as JSON trees. Source: Kubernetes pkg/scheduler/framework (types.go) and component-helpers scheduling/corev1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from kubeloop.api.core.v1 import Node, PersistentVolume, PersistentVolumeClaim
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.cache import Head
from kubeloop.codec import to_dict
from kubeloop.meta import Quantity, Selector, selector_from
from kubeloop.quota.pods import pod_requests
from kubeloop.types import JSONObject

F = TypeVar("F")

#: Maximum number of pods of a node that reports none (the kubelet's default).
_MOST_PODS = 110
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  # compared, never listened on


class HostPort(NamedTuple):
    """A port of the node that a container requests."""

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
    """A pod in the view of the scheduler; each fact is computed at its first use."""

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
        result = []
        for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
            # A term that names no namespaces in either way means the pod's.
            namespaces = frozenset(named or ((self.namespace,) if chosen is None else ()))
            selector = selector_from(term.get("labelSelector"))
            result.append(AffinityTerm(term["topologyKey"], namespaces, selector_from(chosen), selector))
        return result

    @property
    def claims(self) -> list[tuple[str, bool]]:
        """Names of the volume claims that the pod uses, and whether each is made for an ephemeral volume."""
        result = []
        for volume in self.spec.get("volumes") or ():
            if claim := volume.get("persistentVolumeClaim"):
                result.append((claim["claimName"], False))
            elif volume.get("ephemeral") is not None:
                result.append((f"{self.name}-{volume['name']}", True))
        return result

    def tolerates(self, taint: JSONObject) -> bool:
        return any(_tolerates(toleration, taint) for toleration in self.tolerations)

    def matches_node(self, node: NodeFacts) -> bool:
        """Return whether the node meets nodeSelector and required node affinity."""
        if not (self.spec.get("nodeSelector") or {}).items() <= node.labels.items():
            return False
        required = ((self.spec.get("affinity") or {}).get("nodeAffinity") or {}).get("requiredDuringSchedulingIgnoredDuringExecution")
        return required is None or any(_meets_term(term, node.labels, node.name) for term in required.get("nodeSelectorTerms") or ())


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
        stored = [pod for pod in self.pods if pod.uid not in uids]
        return NodeFacts(self.name, self.labels, self.taints, self.unschedulable, self.allocatable, stored)


def node_facts(node: Node) -> NodeFacts:
    """Return the facts of a node, as yet without pods."""
    taints: list[JSONObject] = [{"key": taint.key, "value": taint.value or "", "effect": taint.effect} for taint in node.spec.taints]
    amounts = {name: one.milli_value() if name == "cpu" else one.value() for name, one in node.status.allocatable.items()}
    return NodeFacts(node.metadata.name, dict(node.metadata.labels), taints, bool(node.spec.unschedulable), {"pods": _MOST_PODS} | amounts)


#: Annotations of claims and volumes. Source: Kubernetes component-helpers storage/volume/pv_helpers.go.
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class ClaimReference(NamedTuple):
    """The claim that a volume is reserved for, or bound to; without ``uid`` any claim of that name."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class ClaimFacts:
    """The properties of a volume claim that matter to scheduling: its requirements on a volume, and the state of its binding.

    ``owner`` is the uid of the claim's controller. ``volume_name`` is spec.volumeName, "" without one; ``selector`` is None if any volume
    will do. ``has_class`` is False for a claim that leaves the class open, which differs from the class "".
    """

    namespace: str
    name: str
    uid: str
    owner: str
    deleting: bool
    phase: str
    class_name: str
    has_class: bool
    size: Quantity
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    selector: Selector | None
    volume_name: str
    bind_completed: bool
    selected_node: str | None

    @property
    def bound(self) -> bool:
        return bool(self.volume_name) and self.bind_completed


@dataclass(frozen=True)
class VolumeFacts:
    """The properties of a persistent volume that matter to scheduling. ``node_terms`` is None if every node can use the volume."""

    name: str
    labels: Mapping[str, str]
    deleting: bool
    phase: str
    class_name: str
    size: Quantity
    access_modes: frozenset[str]
    volume_mode: str
    attributes_class: str
    claim: ClaimReference | None
    node_terms: list[JSONObject] | None

    def reaches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with these labels can use the volume."""
        return self.node_terms is None or any(_meets_term(term, labels, "") for term in self.node_terms)


@dataclass(frozen=True)
class ClassFacts:
    """A storage class. ``delayed``: its claims are bound when a pod that uses them gets a node."""

    delayed: bool
    provisioner: str
    topologies: list[JSONObject]

    def reaches(self, labels: Mapping[str, str]) -> bool:
        """Return whether volumes of the class can be made for a node with these labels."""
        return not self.topologies or any(_meets_topology(term, labels) for term in self.topologies)


def claim_facts(claim: PersistentVolumeClaim) -> ClaimFacts:
    """Return the facts of a claim."""
    metadata, spec, annotations = claim.metadata, claim.spec, claim.metadata.annotations
    return ClaimFacts(
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        owner=next((one.uid for one in metadata.owner_references if one.controller), ""),
        deleting=metadata.deletion_timestamp is not None,
        phase=claim.status.phase or "",
        class_name=annotations.get(_BETA_CLASS, spec.storage_class_name or ""),
        has_class=_BETA_CLASS in annotations or spec.storage_class_name is not None,
        size=spec.resources.requests.get("storage", Quantity(0)),
        access_modes=frozenset(spec.access_modes),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        selector=None if spec.selector is None else selector_from(spec.selector),
        volume_name=spec.volume_name or "",
        bind_completed=BIND_COMPLETED in annotations,
        selected_node=annotations.get(SELECTED_NODE),
    )


def volume_facts(volume: PersistentVolume) -> VolumeFacts:
    """Return the facts of a persistent volume."""
    metadata, spec, result = volume.metadata, volume.spec, volume.spec.claim_ref
    affinity = to_dict(volume)["spec"]["nodeAffinity"] if spec.node_affinity is not None else {}
    return VolumeFacts(
        name=metadata.name,
        labels=dict(metadata.labels),
        deleting=metadata.deletion_timestamp is not None,
        phase=volume.status.phase or "",
        class_name=metadata.annotations.get(_BETA_CLASS, spec.storage_class_name or ""),
        size=spec.capacity.get("storage", Quantity(0)),
        access_modes=frozenset(spec.access_modes),
        volume_mode=spec.volume_mode or "Filesystem",
        attributes_class=spec.volume_attributes_class_name or "",
        claim=None if result is None else ClaimReference(result.namespace or "", result.name or "", result.uid or ""),
        node_terms=affinity["required"].get("nodeSelectorTerms") or [] if affinity.get("required") is not None else None,
    )


def class_facts(storage_class: StorageClass) -> ClassFacts:
    """Return the facts of a storage class."""
    delayed = storage_class.volume_binding_mode == "WaitForFirstConsumer"
    topologies = to_dict(storage_class)["allowedTopologies"] if storage_class.allowed_topologies else []
    return ClassFacts(delayed, storage_class.provisioner, topologies)


@dataclass
class ClusterFacts:
    """All nodes with their pods, labels of namespaces, volume claims by namespace and name, volumes and storage classes by name."""

    nodes: list[NodeFacts]
    namespaces: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    claims: Mapping[tuple[str, str], ClaimFacts] = field(default_factory=dict)
    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict)
    classes: Mapping[str, ClassFacts] = field(default_factory=dict)

    def is_delayed(self, claim: ClaimFacts) -> bool:
        """Return whether an unbound claim is bound only when a pod that uses it gets a node."""
        result = self.classes.get(claim.class_name) if claim.class_name else None
        return result is not None and result.delayed


class FactsCache(Generic[F]):
    """Cache of facts; an entry is computed again when the object's uid or resourceVersion changes."""

    def __init__(self, read: Callable[[Head], F]) -> None:
        self._read = read
        self._known: dict[tuple[str, str], tuple[str, str, F]] = {}

    def of(self, head: Head) -> F:
        uid, version, facts = self._known.get((head.namespace, head.name), ("", "", None))
        if facts is None or (uid, version) != (head.uid, head.resource_version):
            facts = self._read(head)
            self._known[head.namespace, head.name] = head.uid, head.resource_version, facts
        return facts

    def forget(self, name: str, namespace: str = "") -> None:
        """Remove the facts of an object that is gone."""
        self._known.pop((namespace, name), None)

    def retain_only(self, present: Iterable[Head]) -> None:
        """Remove the facts of all other objects."""
        for key in self._known.keys() - {(head.namespace, head.name) for head in present}:
            del self._known[key]


def _tolerates(toleration: JSONObject, taint: JSONObject) -> bool:
    """Source: k8s.io/api core/v1 Toleration.ToleratesTaint. An empty key with Exists tolerates everything."""
    if toleration.get("effect") and toleration["effect"] != taint.get("effect"):
        return False
    if toleration.get("key") and toleration["key"] != taint["key"]:
        return False
    if toleration.get("operator") == "Exists":
        return True
    return (toleration.get("operator") or "Equal") == "Equal" and (toleration.get("value") or "") == (taint.get("value") or "")


def _meets_term(term: JSONObject, labels: Mapping[str, str], name: str) -> bool:
    """Return whether a node of that name meets one term; a term without requirements matches no node."""
    expressions, fields = term.get("matchExpressions") or (), term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return all(_meets(one, labels) for one in expressions) and all(_meets(one, {"metadata.name": name}) for one in fields)


def _meets_topology(term: JSONObject, labels: Mapping[str, str]) -> bool:
    """Return whether a node meets one term of a storage class; a term without requirements matches no node."""
    expressions = term.get("matchLabelExpressions") or ()
    return bool(expressions) and all(labels.get(one["key"]) in one["values"] for one in expressions)


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
