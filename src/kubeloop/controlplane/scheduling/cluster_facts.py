"""The scheduler's in-memory model of the cluster: nodes with their pods, and indexes of the pods, updated incrementally. No I/O.

Pods with equal labels form a group, and so do equal affinity terms, so that no decision has to iterate over all pods.
Source: Kubernetes pkg/scheduler/backend/cache (cache.go, snapshot.go, node_tree.go).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Generic, NamedTuple, TypeVar

from kubeloop.controlplane.scheduling.facts import ClaimFacts, ClassFacts, NodeFacts, PodFacts, VolumeFacts
from kubeloop.controlplane.scheduling.requirements import AffinityTerm
from kubeloop.meta import Selector, selector_from_labels
from kubeloop.types import JSONObject

K = TypeVar("K")

_ZONE, _REGION = "topology.kubernetes.io/zone", "topology.kubernetes.io/region"

#: Numbers of pods by name of their node.
NodeCounts = Mapping[str, int]


class Budget(NamedTuple):
    """A PodDisruptionBudget: how many of its pods may be disrupted now. ``disrupted`` names pods whose disruption is already counted."""

    namespace: str
    selector: Selector
    allowed: int
    disrupted: frozenset[str] = frozenset()


class NodeCountsByKey(Generic[K]):
    """Maps each key, such as an affinity term, to a count per node, such as the number of pods with the term.

    A count that reaches 0 is removed, and so is a key without counts. Iteration yields each key with its counts by node name.
    """

    def __init__(self) -> None:
        self._counts: dict[K, Counter[str]] = {}

    def __iter__(self) -> Iterator[tuple[K, Counter[str]]]:
        return iter(self._counts.items())

    def __len__(self) -> int:
        return len(self._counts)

    def add(self, key: K, node: str, change: int) -> None:
        """Add ``change``, a positive or negative number, to the count of a key on a node."""
        counts = self._counts.setdefault(key, Counter())
        counts[node] += change
        if not counts[node]:
            del counts[node]
            if not counts:
                del self._counts[key]


class _PodGroup:
    """The key of a group of pods with equal labels, which are either all terminating or all not terminating."""

    __slots__ = ("_key", "labels", "terminating")

    def __init__(self, pod: PodFacts) -> None:
        self.labels = pod.labels
        self.terminating = pod.terminating
        self._key = (pod.label_set, pod.terminating)

    def __hash__(self) -> int:
        return hash(self._key)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _PodGroup) and self._key == other._key


class ClusterFacts:
    """All nodes with their pods, and the other objects that scheduling decisions need.

    The caller changes the mappings that it passes to the constructor when objects change; this class only reads them. ``claim_users``
    counts pods with a node by the claims that they use, and ``image_nodes`` counts nodes by image. ``nominated`` has, by node, the pods for
    which preemption makes room on the node.

    Args:
        nodes: The nodes with their pods.
        namespaces: Labels of the namespaces, by name.
        claims: Volume claims by namespace and name.
        volumes: Volumes by name.
        classes: Storage classes by name.
        budgets: PodDisruptionBudgets by namespace and name.
        limits: Volume limits of each node, by CSI driver.
        attachments: Attacher and volume of each VolumeAttachment, by node and name.
        services: Selectors of the Services of each namespace, by name.
        owner_selectors: Selector of the pods of a ReplicaSet, StatefulSet or ReplicationController: by kind, namespace and name.
    """

    def __init__(
        self,
        nodes: Iterable[NodeFacts] = (),
        *,
        namespaces: Mapping[str, Mapping[str, str]] | None = None,
        claims: Mapping[tuple[str, str], ClaimFacts] | None = None,
        volumes: Mapping[str, VolumeFacts] | None = None,
        classes: Mapping[str, ClassFacts] | None = None,
        budgets: Mapping[tuple[str, str], Budget] | None = None,
        limits: Mapping[str, Mapping[str, int]] | None = None,
        attachments: Mapping[str, Mapping[str, tuple[str, str]]] | None = None,
        services: Mapping[str, Mapping[str, Mapping[str, str]]] | None = None,
        owner_selectors: Mapping[tuple[str, str, str], Selector] | None = None,
    ) -> None:
        self.namespaces = namespaces if namespaces is not None else {}
        self.claims = claims if claims is not None else {}
        self.volumes = volumes if volumes is not None else {}
        self.classes = classes if classes is not None else {}
        self.budgets = budgets if budgets is not None else {}
        self.limits = limits if limits is not None else {}
        self.attachments = attachments if attachments is not None else {}
        self.services = services if services is not None else {}
        self.owner_selectors = owner_selectors if owner_selectors is not None else {}
        self.by_name: dict[str, NodeFacts] = {}
        self.tainted: set[str] = set()
        self.cordoned: set[str] = set()
        self.image_nodes: Counter[str] = Counter()
        self.claim_users: Counter[tuple[str, str]] = Counter()
        self.nominated: dict[str, dict[str, PodFacts]] = {}
        self.anti_affinity = NodeCountsByKey[AffinityTerm]()
        self.affinity = NodeCountsByKey[AffinityTerm]()
        self.preferences = NodeCountsByKey[AffinityTerm]()
        self._groups: dict[str, NodeCountsByKey[_PodGroup]] = {}
        self._orphans: dict[str, dict[str, PodFacts]] = {}
        self._order: list[NodeFacts] | None = None
        for node in nodes:
            pods, node.pods = list(node.pods), ()
            self.set_node(node)
            for pod in pods:
                self.add_pod(pod, node.name)

    @property
    def nodes(self) -> list[NodeFacts]:
        """All nodes, alternating between zones, so that the first nodes cover all zones."""
        if self._order is None:
            zones: dict[tuple[str, str], list[NodeFacts]] = {}
            for node in self.by_name.values():
                zones.setdefault((node.labels.get(_REGION, ""), node.labels.get(_ZONE, "")), []).append(node)
            self._order = [node for node in chain.from_iterable(zip_longest(*zones.values())) if node is not None]
        return self._order

    def set_node(self, node: NodeFacts) -> None:
        """Add a node, or replace it and keep its pods."""
        before = self.by_name.get(node.name)
        node.pods = before.pods if before is not None else ()
        if before is not None:
            self._count_images(before, -1)
        self.by_name[node.name] = node
        self._count_images(node, 1)
        self._order = None
        (self.tainted.add if node.blocking_taints else self.tainted.discard)(node.name)
        (self.cordoned.add if node.unschedulable else self.cordoned.discard)(node.name)
        for pod in self._orphans.pop(node.name, {}).values():
            self.add_pod(pod, node.name)

    def remove_node(self, name: str) -> None:
        """Remove a node. Its pods are kept, and count again when a node of that name is added."""
        node = self.by_name.pop(name, None)
        if node is None:
            return
        self._count_images(node, -1)
        self._order = None
        self.tainted.discard(name)
        self.cordoned.discard(name)
        for pod in list(node.pods):
            self._count(pod, name, -1)
            self._orphans.setdefault(name, {})[pod.key] = pod

    def add_pod(self, pod: PodFacts, name: str) -> None:
        """Add a pod to the node ``name``. If the node does not exist, the pod counts when the node is added."""
        node = self.by_name.get(name)
        if node is None:
            self._orphans.setdefault(name, {})[pod.key] = pod
            return
        node.add(pod)
        self._count(pod, name, 1)

    def remove_pod(self, pod: PodFacts, name: str) -> None:
        """Remove a pod from its node; ``pod`` must have the facts with which it was added."""
        node = self.by_name.get(name)
        if node is None:
            self._orphans.get(name, {}).pop(pod.key, None)
            return
        node.remove(pod)
        self._count(pod, name, -1)

    def nominate(self, pod: PodFacts, name: str) -> None:
        """Record the node on which preemption makes room for a pod; "" removes the nomination."""
        for node, pods in list(self.nominated.items()):
            if pods.pop(pod.key, None) is not None and not pods:
                del self.nominated[node]
        if name:
            self.nominated.setdefault(name, {})[pod.key] = pod

    def is_delayed(self, claim: ClaimFacts) -> bool:
        """Return whether a claim is bound only when a pod that uses it gets a node (WaitForFirstConsumer)."""
        result = self.classes.get(claim.class_name) if claim.class_name else None
        return result is not None and result.delayed

    def count_pods(self, namespace: str, selector: Selector) -> NodeCounts:
        """Return by node how many pods of a namespace match a selector, without terminating pods; nodes without such pods are left out."""
        groups = self._groups.get(namespace)
        if groups is None or selector.nothing:
            return {}
        return _merged([counts for group, counts in groups if not group.terminating and selector.matches(group.labels)])

    def count_affine_pods(self, terms: Sequence[AffinityTerm]) -> NodeCounts:
        """Return by node how many pods match all of the affinity terms; nodes without such pods are left out."""
        result = []
        for namespace, groups in self._groups.items():
            labels = self.namespaces.get(namespace, {})
            near = [one for one in terms if namespace in one.namespaces or one.namespace_selector.matches(labels)]
            if len(near) == len(terms):
                result += [counts for group, counts in groups if all(one.selector.matches(group.labels) for one in near)]
        return _merged(result)

    def default_selector(self, pod: PodFacts) -> Selector:
        """Return the selector of the pods that belong together with a pod: the selectors of its Services and its controller, combined.

        Source: pkg/scheduler/framework/plugins/helper/spread.go.
        """
        matching = [one for one in self.services.get(pod.namespace, {}).values() if one.items() <= pod.labels.items()]
        merged = {key: value for one in matching for key, value in one.items()}
        selector = selector_from_labels(merged)
        owner = controller_of(pod.document)
        found = self.owner_selectors.get((owner["kind"], pod.namespace, owner["name"])) if owner is not None else None
        if found is None or found.nothing:
            return selector
        return Selector((*selector.requirements, *found.requirements))

    def _count_images(self, node: NodeFacts, change: int) -> None:
        for image in node.images:
            self.image_nodes[image] += change

    def _count(self, pod: PodFacts, node: str, change: int) -> None:
        groups = self._groups.setdefault(pod.namespace, NodeCountsByKey())
        groups.add(_PodGroup(pod), node, change)
        if not groups:
            del self._groups[pod.namespace]
        for index, terms in (
            (self.anti_affinity, pod.anti_affinity_terms),
            (self.affinity, pod.affinity_terms),
            (self.preferences, pod.preferred_terms),
        ):
            for term in terms:
                index.add(term, node, change)
        for name, ephemeral in pod.claims:
            if not ephemeral:
                self.claim_users[pod.namespace, name] += change


def controller_of(document: JSONObject) -> JSONObject | None:
    """Return the owner reference of an object's controller, or None."""
    return next((one for one in document["metadata"].get("ownerReferences") or () if one.get("controller")), None)


def _merged(counts: list[Counter[str]]) -> NodeCounts:
    """Return the sum of counts. The caller must not change the result, because a single element of ``counts`` is returned itself."""
    if len(counts) == 1:
        return counts[0]
    result: Counter[str] = Counter()
    for one in counts:
        for node, count in one.items():
            result[node] += count
    return result
