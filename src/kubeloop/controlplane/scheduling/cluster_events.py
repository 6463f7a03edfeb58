"""Changes in the cluster that may make a pod schedulable, classified so that each plugin can name the changes that matter to it. No I/O.

Source: Kubernetes pkg/scheduler/framework/events.go, pkg/scheduler/eventhandlers.go.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntFlag
from typing import Any, NamedTuple

from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts


class Action(IntFlag):
    """Flags for changes of an object, which can be combined."""

    ADD = 1
    DELETE = 2
    UPDATE = 4
    NODE_ALLOCATABLE = 8
    NODE_LABEL = 16
    NODE_TAINT = 32
    POD_LABEL = 64
    POD_SCALE_DOWN = 128
    POD_TOLERATION = 256
    POD_GATES_ELIMINATED = 512


#: The changes that may help a pod which a plugin refused, by kind of the changed object.
Interests = Mapping[str, Action]


class ClusterEvent(NamedTuple):
    """A change of one object. ``old`` is None for an addition, and ``new`` for a deletion; otherwise they are facts, such as PodFacts.

    ``kind`` is the kind of the object; for a pod it is ``Pod`` if the pod has a node, otherwise ``UnscheduledPod``.
    """

    kind: str
    action: Action
    old: Any = None
    new: Any = None

    def concerns(self, interests: Interests) -> bool:
        """Return whether ``interests`` include the change."""
        kind = "Pod" if self.kind == "UnscheduledPod" else self.kind
        return bool(interests.get(kind, 0) & self.action)

    @property
    def subject(self) -> Any:
        """The facts of the object: the new ones, or the last ones of a deleted object."""
        return self.new if self.new is not None else self.old


def node_events(old: NodeFacts | None, new: NodeFacts | None) -> Iterator[ClusterEvent]:
    """Yield the events for a change of a node; ``old`` is None for a new node, ``new`` for a deleted one."""
    if old is None or new is None:
        yield ClusterEvent("Node", Action.ADD if old is None else Action.DELETE, old, new)
        return
    if old.allocatable != new.allocatable:
        yield ClusterEvent("Node", Action.NODE_ALLOCATABLE, old, new)
    if old.labels != new.labels:
        yield ClusterEvent("Node", Action.NODE_LABEL, old, new)
    if old.taints != new.taints or (old.unschedulable and not new.unschedulable):
        yield ClusterEvent("Node", Action.NODE_TAINT, old, new)


def pod_events(old: PodFacts | None, new: PodFacts | None) -> Iterator[ClusterEvent]:
    """Yield the events for a change of a pod that has a node both before and after the change, or neither time.

    ``old`` is None for a new pod, ``new`` for a deleted one.
    """
    subject = new if new is not None else old
    kind = "Pod" if subject is not None and (subject.node or new is None) else "UnscheduledPod"
    if old is None or new is None:
        yield ClusterEvent(kind, Action.ADD if old is None else Action.DELETE, old, new)
        return
    if old.labels != new.labels:
        yield ClusterEvent(kind, Action.POD_LABEL, old, new)
    if any(amount > new.requests.get(name, 0) for name, amount in old.requests.items()):
        yield ClusterEvent(kind, Action.POD_SCALE_DOWN, old, new)
    if old.gates and not new.gates:
        yield ClusterEvent(kind, Action.POD_GATES_ELIMINATED, old, new)
    if len(old.tolerations) != len(new.tolerations):
        yield ClusterEvent(kind, Action.POD_TOLERATION, old, new)
