"""Correlation of core/v1 events: decides which occurrences are written, combined, counted or dropped. No I/O; time is the clock's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, NamedTuple, Protocol, TypeVar

from kubeloop.controller.events.occurrence import LONGEST_MESSAGE, Occurrence, cut, event_name
from kubeloop.timing import Clock, TokenBucket

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class LruDict(Generic[K, V]):
    """A dict of at most ``capacity`` entries. A new entry replaces the least recently used one.

    Raises:
        ValueError: a capacity below 1.
    """

    def __init__(self, capacity: int) -> None:
        if capacity < 1:
            raise ValueError(f"a memory of events needs room for at least 1, not {capacity}")
        self._capacity = capacity
        self._entries: OrderedDict[K, V] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """Return the entry, and mark it as used; None if there is none."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: K, entry: V) -> V | None:
        """Add an entry. Return the least recently used entry if it was removed, else None."""
        self._entries[key] = entry
        self._entries.move_to_end(key)
        return self._entries.popitem(last=False)[1] if len(self._entries) > self._capacity else None

    def oldest(self) -> tuple[K, V] | None:
        """Return the least recently used entry without marking it as used."""
        key = next(iter(self._entries), None)
        return None if key is None else (key, self._entries[key])

    def pop(self, key: K) -> V | None:
        return self._entries.pop(key, None)

    def values(self) -> list[V]:
        """Return all entries, the least recently used first."""
        return list(self._entries.values())


COMBINED = "(combined from similar events): "


@dataclass(frozen=True, slots=True)
class EventWrite:
    """An event to write. ``exists``: it was written before, so it is patched, and created only if it was deleted."""

    # Behaviour J135.

    namespace: str
    name: str
    occurrence: Occurrence
    count: int
    first: datetime
    last: datetime
    exists: bool


class CorrelationResult(NamedTuple):
    """The result of correlation. ``writes`` is empty if the occurrence was dropped (``spam`` is True) or only counted."""

    writes: tuple[EventWrite, ...] = ()
    spam: bool = False


class Correlator(Protocol):
    """Decides for one sink which occurrences are written, from the occurrences that it remembers. Only one task calls it."""

    def observe(self, occurrence: Occurrence) -> CorrelationResult:
        """Return the result of an occurrence, given the earlier ones."""

    def due(self) -> list[EventWrite]:
        """Return the writes that are due although no event was added."""

    def next_due(self) -> float | None:
        """Return the seconds until ``due`` may return writes; None if no event waits."""

    def rest(self) -> list[EventWrite]:
        """Return the counted but unwritten events, when the recorder ends."""


def by_object(occurrence: Occurrence) -> Hashable:
    """Return the group of the spam filter: events of one type about one object."""
    return (*occurrence.subject.identity, occurrence.type)


def by_reason(occurrence: Occurrence) -> Hashable:
    """Return the key of similar events: events about one object that differ only by their message."""
    return (*occurrence.subject.identity, occurrence.type, occurrence.reason)


def combined_message(occurrence: Occurrence) -> str:
    return COMBINED + occurrence.message


@dataclass(frozen=True, slots=True)
class EventLimits:
    """Limits of one recorder for events of core/v1; the defaults are client-go's.

    Args:
        burst: Number of events about one object that are written without delay.
        refill: Seconds after which one more event is allowed.
        similar: Number of different messages within ``interval`` from which on similar events are combined into one.
        interval: Seconds without a similar event after which the count of similar events starts over.
        capacity: Number of objects and events that are remembered.
        spam_key: Groups events for ``burst``. Default: by object.
        similar_key: Groups events for ``similar``. Default: by object and reason.
        message: Returns the text of a combined event.

    Raises:
        ValueError: a number is not above 0.

    Example:
        >>> EventLimits(burst=5, refill=60).similar
        10
    """

    burst: int = 25
    refill: float = 300.0
    similar: int = 10
    interval: float = 600.0
    capacity: int = 4096
    spam_key: Callable[[Occurrence], Hashable] = by_object
    similar_key: Callable[[Occurrence], Hashable] = by_reason
    message: Callable[[Occurrence], str] = combined_message

    def __post_init__(self) -> None:
        for name in ("burst", "refill", "similar", "interval", "capacity"):
            if getattr(self, name) <= 0:
                raise ValueError(f"Limits: {name} must be above 0, not {getattr(self, name)}")


class SpamFilter:
    """Limits the number of events about one object."""

    # Behaviour J133.

    def __init__(self, limits: EventLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._buckets: LruDict[Hashable, TokenBucket] = LruDict(limits.capacity)

    def passes(self, occurrence: Occurrence) -> bool:
        key = self._limits.spam_key(occurrence)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = TokenBucket(1.0 / self._limits.refill, self._limits.burst, self._clock)
            self._buckets.put(key, bucket)
        return bucket.try_take()


@dataclass(slots=True)
class _Similar:
    messages: set[int]
    seen: float


class SimilarEvents:
    """Finds events that differ only by their message, and combines them when there are too many."""

    # Behaviour J132.

    def __init__(self, limits: EventLimits, clock: Clock) -> None:
        self._limits, self._clock = limits, clock
        self._groups: LruDict[Hashable, _Similar] = LruDict(limits.capacity)

    def combine(self, occurrence: Occurrence) -> tuple[Occurrence, Hashable]:
        """Return the occurrence to write, combined if there are too many similar ones, and the key under which to count it."""
        limits, now = self._limits, self._clock.now()
        key = limits.similar_key(occurrence)
        group = self._groups.get(key)
        if group is None or now - group.seen > limits.interval:
            group = _Similar(set(), now)
            self._groups.put(key, group)
        group.messages.add(hash(occurrence.message))
        group.seen = now
        if len(group.messages) < limits.similar:
            return occurrence, ("one", _identity(occurrence))
        group.messages.pop()
        return occurrence._replace(message=cut(limits.message(occurrence), LONGEST_MESSAGE)), ("combined", key)


@dataclass(slots=True)
class _Counted:
    namespace: str
    name: str
    count: int
    first: datetime


class CoreCorrelator:
    """Correlates core/v1 events: combines similar events, then counts repeated events, then drops events beyond the limit of one object.

    Dropped events are counted: the next written event has the complete count.
    """

    # Behaviour J131.

    def __init__(self, limits: EventLimits, clock: Clock, name: Callable[[str], str] = event_name) -> None:
        self._similar = SimilarEvents(limits, clock)
        self._filter = SpamFilter(limits, clock)
        self._counted: LruDict[Hashable, _Counted] = LruDict(limits.capacity)
        self._name = name

    def observe(self, occurrence: Occurrence) -> CorrelationResult:
        told, identity = self._similar.combine(occurrence)
        counted = self._counted.get(identity)
        exists = counted is not None
        if counted is None:
            counted = _Counted(namespace_of(told), self._name(told.subject.name), 0, told.time)
            self._counted.put(identity, counted)
        counted.count += 1
        if not self._filter.passes(told):
            return CorrelationResult(spam=True)
        return CorrelationResult((EventWrite(counted.namespace, counted.name, told, counted.count, counted.first, told.time, exists),))

    def due(self) -> list[EventWrite]:
        return []

    def next_due(self) -> float | None:
        return None

    def rest(self) -> list[EventWrite]:
        return []


def namespace_of(occurrence: Occurrence) -> str:
    """Return the namespace of an event: the namespace of its object, or "default" for a cluster-scoped object."""
    # Behaviour J137.
    return occurrence.subject.namespace or "default"


def _identity(occurrence: Occurrence) -> Hashable:
    subject = occurrence.subject
    return (*subject.identity, subject.field_path, occurrence.type, occurrence.reason, occurrence.message)
