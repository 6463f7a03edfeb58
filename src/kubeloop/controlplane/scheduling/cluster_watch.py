"""Keeps the facts of a cluster, except pods, up to date from informer events, and reports changes that may help pods.

Source: Kubernetes pkg/scheduler/eventhandlers.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from kubeloop.api.apps.v1 import ReplicaSet, StatefulSet
from kubeloop.api.core.v1 import Namespace, Node, PersistentVolume, PersistentVolumeClaim, ReplicationController, Service
from kubeloop.api.policy.v1 import PodDisruptionBudget
from kubeloop.api.storage.v1 import CSINode, StorageClass, VolumeAttachment
from kubeloop.cache import EventType, Head, InformerEvent
from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, node_events
from kubeloop.controlplane.scheduling.cluster_facts import Budget, ClusterFacts
from kubeloop.controlplane.scheduling.facts import (
    ClaimFacts,
    ClassFacts,
    NodeFacts,
    VolumeFacts,
    claim_facts,
    class_facts,
    node_facts,
    volume_facts,
)
from kubeloop.meta import Resource, Selector, selector_from, selector_from_labels

#: The kinds that ``ClusterWatch`` handles.
KINDS: tuple[type[Resource], ...] = (
    Node,
    Namespace,
    PersistentVolumeClaim,
    PersistentVolume,
    StorageClass,
    CSINode,
    VolumeAttachment,
    Service,
    ReplicationController,
    ReplicaSet,
    StatefulSet,
    PodDisruptionBudget,
)


class ClusterWatch:
    """Updates ``cluster``, a ClusterFacts, from informer events of all ``KINDS``.

    Args:
        report: Called with each change that may help a pod, after it was applied.
    """

    def __init__(self, report: Callable[[ClusterEvent], None]) -> None:
        self._report = report
        self._namespaces: dict[str, dict[str, str]] = {}
        self._claims: dict[tuple[str, str], ClaimFacts] = {}
        self._volumes: dict[str, VolumeFacts] = {}
        self._classes: dict[str, ClassFacts] = {}
        self._budgets: dict[tuple[str, str], Budget] = {}
        self._limits: dict[str, dict[str, int]] = {}
        self._attachments: dict[str, dict[str, tuple[str, str]]] = {}
        self._services: dict[str, dict[str, dict[str, str]]] = {}
        self._selectors: dict[tuple[str, str, str], Selector] = {}
        self._generations: dict[tuple[str, str, str], tuple[str, int]] = {}
        self.cluster = ClusterFacts(
            namespaces=self._namespaces,
            claims=self._claims,
            volumes=self._volumes,
            classes=self._classes,
            budgets=self._budgets,
            limits=self._limits,
            attachments=self._attachments,
            services=self._services,
            owner_selectors=self._selectors,
        )

    def handlers(self) -> Iterator[tuple[type[Resource], Callable[[InformerEvent[Any]], None]]]:
        """Yield each kind with the function that handles its events."""
        own: dict[type[Resource], Callable[[InformerEvent[Any]], None]] = {
            Node: self._node,
            Namespace: self._namespace,
            PersistentVolumeClaim: self._claim,
            PersistentVolume: self._volume,
            StorageClass: self._class,
            CSINode: self._csi_node,
            VolumeAttachment: self._attachment,
            Service: self._service,
            PodDisruptionBudget: self._budget,
        }
        for kind in KINDS:
            yield kind, own.get(kind, self._owner)

    def reserve(self, volume: VolumeFacts) -> None:
        """Replace the facts of a volume by its future state, until its next event."""
        self._volumes[volume.name] = volume

    def restore(self, name: str, volume: VolumeFacts | None) -> None:
        """Replace the facts of a volume by its cached state, after its reservation failed; None removes them."""
        if volume is None:
            self._volumes.pop(name, None)
        else:
            self._volumes[name] = volume

    def _node(self, event: InformerEvent[Node]) -> None:
        name = event.head.name
        old = self.cluster.by_name.get(name)
        if event.type is EventType.DELETED:
            self.cluster.remove_node(name)
            if old is not None:
                self._send(node_events(old, None))
            return
        new = node_facts(event.object)
        if old is not None and _is_equal(old, new):
            return
        # The new facts take the pods of the old ones; plugins check only the node in these events.
        self.cluster.set_node(new)
        self._send(node_events(old, new))

    def _namespace(self, event: InformerEvent[Namespace]) -> None:
        name, labels = event.head.name, dict(event.head.labels)
        if event.type is EventType.DELETED:
            self._namespaces.pop(name, None)
        elif self._namespaces.get(name) != labels:
            self._namespaces[name] = labels
            self._report(ClusterEvent("Namespace", Action.UPDATE, None, name))

    def _claim(self, event: InformerEvent[PersistentVolumeClaim]) -> None:
        key = (event.head.namespace, event.head.name)
        self._change("PersistentVolumeClaim", self._claims, key, None if _is_gone(event) else claim_facts(event.object))

    def _volume(self, event: InformerEvent[PersistentVolume]) -> None:
        self._change("PersistentVolume", self._volumes, event.head.name, None if _is_gone(event) else volume_facts(event.object))

    def _class(self, event: InformerEvent[StorageClass]) -> None:
        self._change("StorageClass", self._classes, event.head.name, None if _is_gone(event) else class_facts(event.object))

    def _csi_node(self, event: InformerEvent[CSINode]) -> None:
        limits = None
        if not _is_gone(event):
            drivers = [(one.name, one.allocatable) for one in event.object.spec.drivers]
            limits = {name: room.count for name, room in drivers if room is not None and room.count is not None}
        self._change("CSINode", self._limits, event.head.name, limits)

    def _attachment(self, event: InformerEvent[VolumeAttachment]) -> None:
        spec, name = event.object.spec, event.head.name
        attached = self._attachments.setdefault(spec.node_name, {})
        if _is_gone(event):
            if attached.pop(name, None) is not None:
                self._report(ClusterEvent("VolumeAttachment", Action.DELETE, name, None))
        elif spec.source.persistent_volume_name:
            attached[name] = (spec.attacher, spec.source.persistent_volume_name)

    def _service(self, event: InformerEvent[Service]) -> None:
        services = self._services.setdefault(event.head.namespace, {})
        selector = None if _is_gone(event) else event.object.spec.selector
        if selector:
            services[event.head.name] = dict(selector)
        else:
            services.pop(event.head.name, None)

    def _owner(self, event: InformerEvent[Any]) -> None:
        head = event.head
        key = (event.view.kind.kind, head.namespace, head.name)
        version = (head.uid, head.generation)
        if _is_gone(event):
            self._selectors.pop(key, None)
            self._generations.pop(key, None)
        elif self._generations.get(key) != version:
            source = event.object.spec.selector
            self._selectors[key] = selector_from_labels(source) if isinstance(source, dict) else selector_from(source)
            self._generations[key] = version

    def _budget(self, event: InformerEvent[PodDisruptionBudget]) -> None:
        key = (event.head.namespace, event.head.name)
        if _is_gone(event):
            self._budgets.pop(key, None)
            return
        budget = event.object
        status = budget.status
        selector = selector_from(budget.spec.selector)
        self._budgets[key] = Budget(key[0], selector, status.disruptions_allowed, frozenset(status.disrupted_pods))

    def _change(self, kind: str, known: dict[Any, Any], key: object, new: Any) -> None:
        """Store the new facts of an object, or remove them if ``new`` is None, and report a change."""
        old = known.get(key)
        if new is None:
            known.pop(key, None)
        else:
            known[key] = new
        if old != new:
            action = Action.ADD if old is None else Action.DELETE if new is None else Action.UPDATE
            self._report(ClusterEvent(kind, action, old, new))

    def _send(self, events: Iterator[ClusterEvent]) -> None:
        for event in events:
            self._report(event)


def _is_gone(event: InformerEvent[Any]) -> bool:
    return event.type is EventType.DELETED


def _is_equal(old: NodeFacts, new: NodeFacts) -> bool:
    return all(getattr(old, name) == getattr(new, name) for name in ("labels", "taints", "unschedulable", "allocatable", "images"))


def version_of(head: Head | None) -> int:
    """Return the resource version of a cached object as a number; 0 without an object or version."""
    return int(head.resource_version or 0) if head is not None else 0
