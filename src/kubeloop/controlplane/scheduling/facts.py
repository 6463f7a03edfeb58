"""The facts for scheduling decisions: pods with their requests, ports and affinity, nodes with their pods, claims and volumes. No I/O.

Pods are handled as JSON trees. Source: Kubernetes pkg/scheduler/framework (types.go) and component-helpers scheduling/corev1.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Generic, NamedTuple, TypeVar

from kubeloop.api.core.v1 import Node, PersistentVolume, PersistentVolumeClaim
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.cache import Head
from kubeloop.codec import to_dict
from kubeloop.controlplane.scheduling.requirements import BLOCKING_EFFECTS, AffinityTerm, meets_any_term, meets_topology, tolerates
from kubeloop.meta import Quantity, Selector, selector_from
from kubeloop.quota.pods import pod_requests
from kubeloop.types import JSONObject

F = TypeVar("F")

#: Requests that count for scores if a container has none.
_LITTLE = {"cpu": "100m", "memory": str(200 << 20)}
#: Types of volumes of a pod with a node that matter when other pods are scheduled.
_SCHEDULED_VOLUMES = frozenset({"persistentVolumeClaim", "ephemeral", "gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd"})
_ALL_ADDRESSES = "0.0.0.0"  # noqa: S104  # compared, never listened on


class HostPort(NamedTuple):
    """A host port that a container requests on its node."""

    address: str
    protocol: str
    port: int

    def conflicts(self, other: HostPort) -> bool:
        same = (self.protocol, self.port) == (other.protocol, other.port)
        return same and (self.address == other.address or _ALL_ADDRESSES in (self.address, other.address))


class PodFacts:
    """A pod with the properties that matter to scheduling, which are computed from its JSON document at their first use."""

    def __init__(self, document: JSONObject) -> None:
        metadata = document["metadata"]
        self.document = document
        self.spec: JSONObject = document.get("spec") or {}
        self.status: JSONObject = document.get("status") or {}
        self.name: str = metadata["name"]
        self.namespace: str = metadata.get("namespace", "")
        self.uid: str = metadata.get("uid", "")
        self.generation: int = metadata.get("generation") or 0
        self.labels: dict[str, str] = metadata.get("labels") or {}
        self.terminating = metadata.get("deletionTimestamp") is not None
        self.ended = self.status.get("phase") in ("Succeeded", "Failed")
        self.node: str = self.spec.get("nodeName") or ""
        self.priority: int = self.spec.get("priority") or 0
        self.tolerations: list[JSONObject] = self.spec.get("tolerations") or []

    @cached_property
    def key(self) -> str:
        """The pod's uid, or its namespace and name if it has no uid."""
        return self.uid or f"{self.namespace}/{self.name}"

    @cached_property
    def label_set(self) -> frozenset[tuple[str, str]]:
        return frozenset(self.labels.items())

    def compact(self) -> None:
        """Release the parts of the document that do not matter once the pod has a node, to save most of its memory."""
        for name in ("requests", "scored_requests", "ports", "label_set", "affinity_terms", "anti_affinity_terms", "preferred_terms"):
            getattr(self, name)
        metadata, spec, status = self.document["metadata"], self.spec, self.status
        self.labels = dict(self.label_set)
        self.spec = {name: spec[name] for name in ("nodeName", "schedulerName", "priority") if name in spec}
        if volumes := [one for one in spec.get("volumes") or () if not one.keys().isdisjoint(_SCHEDULED_VOLUMES)]:
            self.spec["volumes"] = volumes
        self.status = {name: status[name] for name in ("startTime", "nominatedNodeName") if name in status}
        if (disruption := self.condition_of(status, "DisruptionTarget")) is not None:
            self.status["conditions"] = [disruption]
        named = {name: metadata[name] for name in ("name", "namespace", "uid", "resourceVersion") if name in metadata}
        self.document = {"metadata": named, "spec": self.spec, "status": self.status}
        self.tolerations = []

    @property
    def scheduler(self) -> str:
        """Name of the profile that schedules the pod."""
        return self.spec.get("schedulerName") or "default-scheduler"

    @property
    def gates(self) -> list[JSONObject]:
        return self.spec.get("schedulingGates") or []

    @property
    def nominated_node(self) -> str:
        return self.status.get("nominatedNodeName") or ""

    @property
    def never_preempts(self) -> bool:
        return self.spec.get("preemptionPolicy") == "Never"

    @property
    def start_time(self) -> str:
        """The time at which the kubelet started the pod, in the API's format, which sorts chronologically; "" before the start."""
        return self.status.get("startTime") or ""

    @property
    def preempted(self) -> bool:
        """Whether the pod is being deleted because the scheduler preempted it."""
        condition = self.condition("DisruptionTarget") if self.terminating else None
        return condition is not None and (condition.get("status"), condition.get("reason")) == ("True", "PreemptionByScheduler")

    def condition(self, kind: str) -> JSONObject | None:
        """Return the condition with the type ``kind`` of the pod's status, or None."""
        return self.condition_of(self.status, kind)

    @staticmethod
    def condition_of(status: JSONObject, kind: str) -> JSONObject | None:
        """Return the condition with the type ``kind`` of a pod status, or None."""
        return next((one for one in status.get("conditions") or () if one.get("type") == kind), None)

    @cached_property
    def requests(self) -> dict[str, int]:
        """The pod's resource requests by resource name: in thousandths for cpu, in whole units for other resources."""
        return _integers(pod_requests(self.document))

    @cached_property
    def scored_requests(self) -> dict[str, int]:
        """``requests`` for scores: a container without a request for cpu or memory counts with 100m or 200 MiB."""
        containers = [*(self.spec.get("containers") or ()), *(self.spec.get("initContainers") or ())]
        complete = [one for one in containers if _LITTLE.keys() <= ((one.get("resources") or {}).get("requests") or {}).keys()]
        if len(complete) == len(containers):
            return self.requests
        filled = {name: [_filled(one) for one in self.spec.get(name) or ()] for name in ("containers", "initContainers")}
        return _integers(pod_requests({**self.document, "spec": {**self.spec, **filled}}))

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
    def images(self) -> list[str]:
        """The images of containers and image volumes, with the tag ``latest`` if they have none."""
        containers = [*(self.spec.get("initContainers") or ()), *(self.spec.get("containers") or ())]
        names = [one.get("image") or "" for one in containers]
        names += [one["image"].get("reference") or "" for one in self.spec.get("volumes") or () if one.get("image")]
        return [name if name.rfind(":") > name.rfind("/") else f"{name}:latest" for name in names]

    @cached_property
    def affinity_terms(self) -> list[AffinityTerm]:
        return self._required("podAffinity")

    @cached_property
    def anti_affinity_terms(self) -> list[AffinityTerm]:
        return self._required("podAntiAffinity")

    @cached_property
    def preferred_terms(self) -> list[AffinityTerm]:
        """Preferred terms of pod affinity, and of pod anti-affinity with negative weights."""
        result = []
        for kind, sign in (("podAffinity", 1), ("podAntiAffinity", -1)):
            affinity = (self.spec.get("affinity") or {}).get(kind) or {}
            preferred = affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ()
            result += [self._term(one["podAffinityTerm"], sign * one["weight"]) for one in preferred]
        return result

    def _required(self, kind: str) -> list[AffinityTerm]:
        affinity = (self.spec.get("affinity") or {}).get(kind) or {}
        return [self._term(term) for term in affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()]

    def _term(self, term: JSONObject, weight: int = 0) -> AffinityTerm:
        named, chosen = term.get("namespaces") or (), term.get("namespaceSelector")
        # A term without namespaces and without a namespace selector means the pod's namespace.
        namespaces = frozenset(named or ((self.namespace,) if chosen is None else ()))
        return AffinityTerm(term["topologyKey"], namespaces, selector_from(chosen), selector_from(term.get("labelSelector")), weight)

    @property
    def required_node_terms(self) -> list[JSONObject] | None:
        """Terms of required node affinity; None if the pod has no required node affinity."""
        affinity = (self.spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return None if required is None else required.get("nodeSelectorTerms") or []

    @property
    def preferred_node_terms(self) -> list[JSONObject]:
        """Preferred terms of node affinity, each an object with ``weight`` and ``preference``."""
        affinity = (self.spec.get("affinity") or {}).get("nodeAffinity") or {}
        return affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or []

    @property
    def claims(self) -> list[tuple[str, bool]]:
        """Names of the volume claims that the pod uses, each with whether it belongs to an ephemeral volume."""
        result = []
        for volume in self.spec.get("volumes") or ():
            if claim := volume.get("persistentVolumeClaim"):
                result.append((claim["claimName"], False))
            elif volume.get("ephemeral") is not None:
                result.append((f"{self.name}-{volume['name']}", True))
        return result

    def tolerates(self, taint: JSONObject) -> bool:
        return tolerates(self.tolerations, taint)

    def matches_node(self, node: NodeFacts) -> bool:
        """Return whether a node meets the pod's nodeSelector and required node affinity."""
        if not (self.spec.get("nodeSelector") or {}).items() <= node.labels.items():
            return False
        required = self.required_node_terms
        return required is None or meets_any_term(required, node.labels, node.name)


def _integers(amounts: Mapping[str, Quantity]) -> dict[str, int]:
    return {name: amount.milli_value() if name == "cpu" else amount.value() for name, amount in amounts.items()}


def _filled(container: JSONObject) -> JSONObject:
    """Return a container with the default requests in ``_LITTLE`` for cpu and memory if it has none."""
    resources = container.get("resources") or {}
    return {**container, "resources": {**resources, "requests": {**_LITTLE, **(resources.get("requests") or {})}}}


class NodeFacts:
    """A node with the properties that matter to scheduling, its pods that have not finished, and the sums of the pods' requests.

    Args:
        name: The node's name.
        labels: The node's labels.
        taints: The node's taints, with ``key``, ``value`` and ``effect``.
        unschedulable: Whether the node is cordoned.
        allocatable: Amounts by resource, in the units of ``PodFacts.requests``.
        pods: The pods on the node.
        images: Sizes in bytes of the images on the node, by name.
    """

    def __init__(
        self,
        name: str,
        labels: dict[str, str],
        taints: list[JSONObject],
        unschedulable: bool,
        allocatable: dict[str, int],
        pods: Iterable[PodFacts] = (),
        images: Mapping[str, int] | None = None,
    ) -> None:
        self.name = name
        self.labels = labels
        self.taints = taints
        self.unschedulable = unschedulable
        self.allocatable = allocatable
        self.images = images or {}
        self.blocking_taints = [taint for taint in taints if taint.get("effect") in BLOCKING_EFFECTS]
        self.soft_taints = [taint for taint in taints if taint.get("effect") == "PreferNoSchedule"]
        self.pods = pods

    @property
    def pods(self) -> Collection[PodFacts]:
        return self._pods.values()

    @pods.setter
    def pods(self, pods: Iterable[PodFacts]) -> None:
        self._pods: dict[str, PodFacts] = {}
        self.requested: dict[str, int] = {}
        #: Requests for scores: see ``PodFacts.scored_requests``.
        self.scored_cpu = self.scored_memory = 0
        self.ports: Counter[HostPort] = Counter()
        for pod in pods:
            self.add(pod)

    def add(self, pod: PodFacts) -> None:
        """Add a pod to the node, and count its requests and ports. The node must not have the pod yet."""
        self._pods[pod.key] = pod
        self._count(pod, 1)

    def remove(self, pod: PodFacts) -> None:
        """Remove a pod from the node, with its requests and ports."""
        self._count(self._pods.pop(pod.key), -1)

    def _count(self, pod: PodFacts, sign: int) -> None:
        requested = self.requested
        for name, amount in pod.requests.items():
            requested[name] = requested.get(name, 0) + sign * amount
        scored = pod.scored_requests
        self.scored_cpu += sign * scored.get("cpu", 0)
        self.scored_memory += sign * scored.get("memory", 0)
        for port in pod.ports:
            self.ports[port] += sign

    def used(self, resource: str) -> int:
        """Return the sum of the pods' requests for a resource, in the units of ``PodFacts.requests``."""
        return self.requested.get(resource, 0)

    def has_port_of(self, ports: Iterable[HostPort]) -> bool:
        """Return whether a pod on the node uses a port that conflicts with one of ``ports``."""
        return any(desired.conflicts(port) for desired in ports for port, count in self.ports.items() if count)


def node_facts(node: Node) -> NodeFacts:
    """Return the facts of a node, without pods."""
    taints: list[JSONObject] = [{"key": taint.key, "value": taint.value or "", "effect": taint.effect} for taint in node.spec.taints]
    images = {name: image.size_bytes or 0 for image in node.status.images for name in image.names}
    # A node that reports no number of pods takes none: upstream's NodeInfo has 0 then (fit.go, fitsRequest).
    labels, amounts = dict(node.metadata.labels), {"pods": 0} | _integers(node.status.allocatable)
    return NodeFacts(node.metadata.name, labels, taints, bool(node.spec.unschedulable), amounts, images=images)


#: Annotations of claims and volumes. Source: Kubernetes component-helpers storage/volume/pv_helpers.go.
BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
SELECTED_NODE = "volume.kubernetes.io/selected-node"
_BETA_CLASS = "volume.beta.kubernetes.io/storage-class"


class ClaimReference(NamedTuple):
    """The claim for which a volume is reserved, or to which it is bound; with an empty ``uid`` any claim of that name."""

    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class ClaimFacts:
    """The properties of a volume claim that matter to scheduling: its requirements on a volume, and the state of its binding.

    ``owner`` is the uid of the claim's controller. ``volume_name`` is spec.volumeName, "" without one; ``selector`` is None if the claim
    has none. ``has_class`` is False for a claim without a storage class, which differs from the class "".
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
    """The properties of a persistent volume that matter to scheduling.

    ``node_terms`` is None if every node can use the volume. ``driver`` and ``handle`` are the driver and handle of a CSI volume, else "".
    """

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
    driver: str = ""
    handle: str = ""

    def reaches(self, labels: Mapping[str, str]) -> bool:
        """Return whether a node with the labels ``labels`` can use the volume."""
        return self.node_terms is None or meets_any_term(self.node_terms, labels, "")


@dataclass(frozen=True)
class ClassFacts:
    """The properties of a storage class that matter to scheduling.

    ``delayed`` says that a claim is bound only when a pod that uses it gets a node (WaitForFirstConsumer).
    """

    delayed: bool
    provisioner: str
    topologies: list[JSONObject]

    def reaches(self, labels: Mapping[str, str]) -> bool:
        """Return whether volumes of the class can be provisioned for a node with the labels ``labels``."""
        return not self.topologies or any(meets_topology(term, labels) for term in self.topologies)


def claim_facts(claim: PersistentVolumeClaim) -> ClaimFacts:
    """Return the facts of a PersistentVolumeClaim."""
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
        driver=spec.csi.driver if spec.csi is not None else "",
        handle=spec.csi.volume_handle if spec.csi is not None else "",
    )


def class_facts(storage_class: StorageClass) -> ClassFacts:
    """Return the facts of a storage class."""
    delayed = storage_class.volume_binding_mode == "WaitForFirstConsumer"
    topologies = to_dict(storage_class)["allowedTopologies"] if storage_class.allowed_topologies else []
    return ClassFacts(delayed, storage_class.provisioner, topologies)


class FactsCache(Generic[F]):
    """A cache of facts that ``read`` computes from heads; an entry is recomputed when the object's uid or resourceVersion changes."""

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
        """Remove the facts of a deleted object."""
        self._known.pop((namespace, name), None)

    def retain_only(self, present: Iterable[Head]) -> None:
        """Remove the facts of all objects that are not in ``present``."""
        for key in self._known.keys() - {(head.namespace, head.name) for head in present}:
            del self._known[key]
