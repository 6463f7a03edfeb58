"""Buffer: the events that wait for one handler. It is unbounded, since a cache must not wait for its readers; its size is measured."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Generic, TypeVar

import msgspec

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.handlers.event import EventType, InformerEvent
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.store.store import Snapshot
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)


def merge(first: InformerEvent[R], second: InformerEvent[R]) -> tuple[InformerEvent[R], ...]:
    """Merge two events of one object, neither of which the handler has seen, into none, one or both.

    Guarantees
        A handler that gets the result has seen every present object, a deletion of each known object, and no deletion of an unknown
        one. States in between are lost, which is the purpose. The merged event keeps the first event's place and age.

    The rules
        added + updated is added with the new state; added + deleted is nothing: the handler never knew of it.
        updated + updated is one, from the first's old state to the second's new one; updated + deleted is deleted.
        A resync after a waiting event is dropped; a resync before a later event is replaced by it.
        Events of two objects with one name (different uids) are not merged, nor is deleted + added.
    """
    before, after = first.type, second.type
    if after is EventType.RESYNC:
        return (first, second) if before is EventType.DELETED else (first,)
    if before is EventType.DELETED or after is EventType.ADDED or len({first.head.uid, second.head.uid, (first.old or first.head).uid}) > 1:
        return first, second
    if before is EventType.ADDED:
        if after is EventType.DELETED:
            return ()
        return (msgspec.structs.replace(first, head=second.head),)
    if before is EventType.RESYNC:
        return (msgspec.structs.replace(second, received=first.received),)
    return (msgspec.structs.replace(second, old=first.old, received=first.received),)


ADDED, RESYNC = EventType.ADDED, EventType.RESYNC


class Replay(Generic[R]):
    """All objects of a snapshot as events. Each event is made when it is handled, so a large replay is as cheap to begin as a small one.

    Object states of the snapshot that have since been replaced stay in memory until the replay ends.

    Args:
        kind: ADDED for the first events of a handler, RESYNC for repeated ones.
        heads: The objects.
        view: The cache, for the events.
        received: Time of the events on the informer's clock, in seconds.
    """

    __slots__ = ("_heads", "_left", "_view", "kind", "received")

    def __init__(self, kind: EventType, heads: Snapshot | Sequence[Head], view: CacheView[R], received: float) -> None:
        self._heads = iter(heads)
        self._left = len(heads)
        self._view = view
        self.kind = kind
        self.received = received

    def __len__(self) -> int:
        return self._left

    def next(self) -> InformerEvent[R]:
        head = next(self._heads)
        self._left -= 1
        if self.kind is RESYNC:
            return InformerEvent(RESYNC, head, head, self._view, received=self.received)
        return InformerEvent(ADDED, head, None, self._view, initial=True, received=self.received)


class _Place(Generic[R]):
    """The place of one event in a merging buffer. ``event`` is None if it was taken, or if merging left no event."""

    __slots__ = ("before", "event")

    def __init__(self, event: InformerEvent[R], before: _Place[R] | None) -> None:
        self.event: InformerEvent[R] | None = event
        #: The preceding place of the same object.
        self.before = before


class Buffer(Generic[R]):
    """First-in, first-out buffer of events, which can merge the events of one object.

    Guarantees
        Every event is taken once, in the order of arrival. The events of a replay come before all events that were put after the replay.
        With ``merging``, a change is merged with the waiting change of the same object (see ``merge``). At most two changes of an object
        wait then, unless it was recreated or a replay lies between them. The changes of one object stay in order, those of different
        objects may not.
    """

    def __init__(self, *, merging: bool = False) -> None:
        self._entries: deque[InformerEvent[R] | _Place[R] | Replay[R] | None] = deque()
        self._last: dict[tuple[str, str], _Place[R]] | None = {} if merging else None
        #: Number of events in replays, less one for each replay; number of empty places; number of marks.
        self._replaying = 0
        self._empty = 0
        self._marks = 0
        self._resyncs = 0
        #: Number of changes that were merged away.
        self.merged = 0

    def __len__(self) -> int:
        """Return the number of waiting events, including those of replays."""
        return len(self._entries) + self._replaying - self._empty - self._marks

    def __bool__(self) -> bool:
        """Return whether an event or a mark waits."""
        return len(self._entries) > self._empty

    @property
    def changes(self) -> int:
        """Number of waiting changes; a replay counts as one. A large number means a slow handler, since a new one has a long replay too."""
        return len(self._entries) - self._empty - self._marks

    @property
    def alone(self) -> bool:
        """Whether exactly one event waits, and neither a mark nor a replay."""
        return len(self._entries) == 1 and not self._marks and not isinstance(self._entries[0], Replay)

    @property
    def resyncing(self) -> bool:
        """Whether a resync waits or is being handled."""
        return self._resyncs > 0

    def oldest(self) -> float | None:
        """Return when the first waiting event was received; None if no event waits."""
        for entry in self._entries:
            event = entry.event if isinstance(entry, _Place) else entry
            if event is not None:
                return event.received
        return None

    def put(self, event: InformerEvent[R]) -> int:
        """Append an event or merge it. Return the number of waiting changes, where each replay and each mark counts as one."""
        if self._last is None:
            self._entries.append(event)
        else:
            self._merge(self._last, event)
        return len(self._entries) - self._empty

    def replay(self, replay: Replay[R]) -> None:
        """Append the events of a replay; they are not merged with earlier or later events."""
        if not replay:
            return
        self._entries.append(replay)
        self._replaying += len(replay) - 1
        self._resyncs += replay.kind is RESYNC
        if self._last:
            # If it were merged with a place before the replay, a newer state would be sent before the older one of the replay.
            self._last.clear()

    def put_marker(self) -> None:
        """Append a marker entry, for which ``take`` returns None. It shows when the events before it have been taken."""
        self._entries.append(None)
        self._marks += 1

    def take(self) -> InformerEvent[R] | None:
        """Remove and return the oldest event, or None if the oldest entry is a marker of ``put_marker``.

        Raises:
            IndexError: the buffer is empty.
        """
        entries = self._entries
        while True:
            entry = entries[0]
            if type(entry) is InformerEvent:
                entries.popleft()
                return entry
            if isinstance(entry, Replay):
                event = entry.next()
                if entry:
                    self._replaying -= 1
                else:
                    entries.popleft()
                    self._resyncs -= entry.kind is RESYNC
                return event
            entries.popleft()
            if entry is None:
                self._marks -= 1
                return None
            if not isinstance(entry, _Place):
                return entry
            taken, entry.event, entry.before = entry.event, None, None
            if taken is None:
                self._empty -= 1
                continue
            key = (taken.head.namespace, taken.head.name)
            if self._last is not None and self._last.get(key) is entry:
                del self._last[key]
            return taken

    def clear(self) -> None:
        self._entries.clear()
        self._replaying = self._empty = self._marks = self._resyncs = 0
        if self._last is not None:
            self._last.clear()

    def _merge(self, last: dict[tuple[str, str], _Place[R]], event: InformerEvent[R]) -> None:
        key = (event.head.namespace, event.head.name)
        place = last.get(key)
        merged = (event,) if place is None or place.event is None else merge(place.event, event)
        if len(merged) == 2 or place is None or place.event is None:
            last[key] = place = _Place(event, place)
            self._entries.append(place)
            return
        self.merged += 1
        if merged:
            place.event = merged[0]
            return
        self._empty += 1
        place.event = None
        if place.before is not None and place.before.event is not None:
            last[key] = place.before
        else:
            del last[key]
