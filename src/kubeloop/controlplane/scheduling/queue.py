"""The queue of pods to schedule: active pods by priority, pods in back-off, and unschedulable pods that wait for an event. No I/O.

Source: Kubernetes pkg/scheduler/backend/queue (scheduling_queue.go, backoff_queue.go, unschedulable_pods.go).
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from kubeloop.controlplane.scheduling.cluster_events import ClusterEvent
from kubeloop.controlplane.scheduling.facts import PodFacts

#: Seconds after which an unschedulable pod is retried without an event (upstream's podMaxInUnschedulablePodsDuration).
LONGEST_WAIT = 300.0


class Place(StrEnum):
    """The part of the queue in which a pod is."""

    ACTIVE = "active"
    BACKOFF = "backoff"
    UNSCHEDULABLE = "unschedulable"
    #: The pod is being scheduled, or waits for its binding.
    IN_FLIGHT = "in flight"


@dataclass(eq=False)
class QueuedPod:
    """A pod in the queue, with the history of its attempts.

    Attributes:
        facts: The newest state of the pod.
        since: When the pod was added or its last attempt ended; seconds of the controller's clock.
        place: The part of the queue in which the pod is.
        gated: Whether the pod must not be scheduled yet, because of scheduling gates or because its preemption is in progress.
        refused: How many attempts found no node.
        errors: How many attempts in a row ended with an error.
        plugins: The plugins that refused the pod in the last attempt; empty after an error.
        backoff_end: When the back-off of the pod ends; seconds of the controller's clock.
    """

    facts: PodFacts
    since: float
    place: Place = Place.ACTIVE
    gated: bool = False
    refused: int = 0
    errors: int = 0
    plugins: frozenset[str] = frozenset()
    backoff_end: float = 0.0
    _number: int = 0


class Hints(Protocol):
    """Decides which pods an event may help."""

    def is_interested(self, plugins: frozenset[str], event: ClusterEvent) -> bool:
        """Return whether one of the plugins has an interest in the event. The queue calls this once for all pods that they refused."""

    def may_help(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        """Return whether the event may help a queued pod, according to the plugins that refused it."""


class SchedulingQueue:
    """The pods that have no node yet: active ones by priority, ones in back-off, and unschedulable ones that wait for an event.

    Args:
        hints: Decides which pods an event may help.
        is_gated: Returns whether a pod must not be scheduled yet.
        initial_backoff: Seconds of the first back-off; each further one is twice as long.
        max_backoff: Seconds of the longest back-off.
    """

    def __init__(
        self, hints: Hints, is_gated: Callable[[PodFacts], bool], *, initial_backoff: float = 1.0, max_backoff: float = 10.0
    ) -> None:
        self._hints = hints
        self._is_gated = is_gated
        self._initial_backoff = initial_backoff
        self._max_backoff = max_backoff
        self._pods: dict[str, QueuedPod] = {}
        self._active: list[tuple[int, float, int, QueuedPod]] = []
        #: Back-off after refusals, and after errors. Only the former may be cut short when no pod is active.
        self._refused: list[tuple[float, int, QueuedPod]] = []
        self._failed: list[tuple[float, int, QueuedPod]] = []
        #: Refused pods by the plugins that refused them, the oldest first; and pods that must not be scheduled yet.
        self._unschedulable: dict[frozenset[str], dict[str, QueuedPod]] = {}
        self._gated: dict[str, QueuedPod] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._pods)

    def __contains__(self, uid: str) -> bool:
        return uid in self._pods

    def get(self, uid: str) -> QueuedPod | None:
        """Return the pod with a uid in the queue, or None."""
        return self._pods.get(uid)

    def add(self, pod: PodFacts, now: float) -> None:
        """Add a pod, which is active at once unless it is gated."""
        self._pods[pod.key] = queued = QueuedPod(pod, now)
        self._activate(queued)

    def update(self, pod: PodFacts, events: Iterable[ClusterEvent], now: float) -> None:
        """Replace the state of a pod.

        Args:
            pod: The new state.
            events: The changes since the last state.
            now: The time of the change.
        """
        queued = self._pods[pod.key]
        queued.facts = pod
        if queued.place is Place.ACTIVE:
            self._activate(queued)  # Its priority may have changed.
        elif queued.place is Place.UNSCHEDULABLE:
            if queued.gated:
                if not self._is_gated(pod):
                    self._requeue(queued, now)
            elif any(self._may_help(queued, event) for event in events):
                self._requeue(queued, now)

    def remove(self, uid: str) -> QueuedPod | None:
        """Remove the pod with a uid and return it, or None."""
        queued = self._pods.pop(uid, None)
        if queued is not None:
            self._move(queued, Place.IN_FLIGHT)
        return queued

    def pop(self, now: float) -> QueuedPod | None:
        """Return the next pod to schedule, or None. The pod is in flight until ``refuse``, ``fail`` or ``remove`` is called for it.

        If no pod is active, a pod that is in back-off after a refusal is returned.
        """
        self.flush(now)
        while self._active:
            *_, number, queued = heapq.heappop(self._active)
            if queued.place is Place.ACTIVE and queued._number == number:
                return self._take(queued)
        while self._refused:
            _, number, queued = heapq.heappop(self._refused)
            if queued.place is Place.BACKOFF and queued._number == number:
                if self._is_gated(queued.facts):
                    self._wait(queued, gated=True)
                    continue
                return self._take(queued)
        return None

    def refuse(self, queued: QueuedPod, plugins: frozenset[str], now: float) -> None:
        """Return a pod that fits on no node to the queue, where it waits for an event."""
        self._move(queued, Place.IN_FLIGHT)
        queued.refused += 1
        queued.errors = 0
        queued.plugins = plugins
        queued.since = now
        self._wait(queued)

    def fail(self, queued: QueuedPod, now: float) -> None:
        """Return a pod whose attempt ended with an error to the queue; it is retried after its back-off."""
        self._move(queued, Place.IN_FLIGHT)
        queued.errors += 1
        queued.plugins = frozenset()
        queued.since = now
        self._requeue(queued, now)

    def retry(self, queued: QueuedPod, now: float) -> None:
        """Retry a refused pod without an event, after its back-off."""
        self._move(queued, Place.IN_FLIGHT)
        queued.plugins = frozenset()
        queued.since = now
        self._requeue(queued, now)

    def move(self, event: ClusterEvent, now: float) -> int:
        """Make the unschedulable pods that an event may help active, if necessary after their back-off, and return their number."""
        helped = [
            queued
            for plugins, group in self._unschedulable.items()
            if self._hints.is_interested(plugins, event)
            for queued in group.values()
            if self._hints.may_help(queued, event)
        ]
        for queued in helped:
            self._requeue(queued, now)
        return len(helped)

    def activate(self, uid: str) -> None:
        """Make a waiting pod active at once, unless it is gated."""
        queued = self._pods.get(uid)
        if queued is not None and queued.place in (Place.BACKOFF, Place.UNSCHEDULABLE):
            self._activate(queued)

    def flush(self, now: float) -> None:
        """Make pods active whose back-off is over, or that have waited for an event for LONGEST_WAIT seconds."""
        for heap in (self._refused, self._failed):
            while heap and heap[0][0] <= now:
                _, number, queued = heapq.heappop(heap)
                if queued.place is Place.BACKOFF and queued._number == number:
                    self._activate(queued)
        for group in list(self._unschedulable.values()):
            while (first := next(iter(group.values()), None)) is not None and now - first.since >= LONGEST_WAIT:
                self._requeue(first, now)

    def next_wake(self) -> float | None:
        """Return the time of the next ``flush`` that has an effect; None if there is none."""
        times = [heap[0][0] for heap in (self._refused, self._failed) if heap]
        times += [next(iter(group.values())).since + LONGEST_WAIT for group in self._unschedulable.values()]
        return min(times, default=None)

    def backoff(self, queued: QueuedPod) -> float:
        """Return the seconds of back-off of a pod after its last attempt."""
        count = queued.errors or queued.refused
        return min(self._initial_backoff * 2.0 ** min(count - 1, 30), self._max_backoff) if count else 0.0

    def _requeue(self, queued: QueuedPod, now: float) -> None:
        """Make a pod active, or put it into back-off if that is not over."""
        end = queued.since + self.backoff(queued)
        if end <= now:
            self._activate(queued)
            return
        queued.backoff_end = end
        self._move(queued, Place.BACKOFF)
        heapq.heappush(self._refused if queued.plugins else self._failed, (end, queued._number, queued))

    def _activate(self, queued: QueuedPod) -> None:
        if self._is_gated(queued.facts):
            self._wait(queued, gated=True)
            return
        self._move(queued, Place.ACTIVE)
        queued.gated = False
        heapq.heappush(self._active, (-queued.facts.priority, queued.since, queued._number, queued))

    def _wait(self, queued: QueuedPod, *, gated: bool = False) -> None:
        queued.gated = gated
        self._move(queued, Place.UNSCHEDULABLE)
        (self._gated if gated else self._unschedulable.setdefault(queued.plugins, {}))[queued.facts.key] = queued

    def _may_help(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        return self._hints.is_interested(queued.plugins, event) and self._hints.may_help(queued, event)

    def _take(self, queued: QueuedPod) -> QueuedPod:
        self._move(queued, Place.IN_FLIGHT)
        return queued

    def _move(self, queued: QueuedPod, place: Place) -> None:
        """Change the place of a pod, which invalidates its earlier entries in heaps."""
        key = queued.facts.key
        self._gated.pop(key, None)
        group = self._unschedulable.get(queued.plugins)
        if group is not None and group.pop(key, None) is not None and not group:
            del self._unschedulable[queued.plugins]
        queued.place = place
        self._next += 1
        queued._number = self._next
