"""Queues of deltas between the reflector and the store. ``DeltaQueue`` preserves the order of arrival over all objects.

``DeltaQueue`` is modelled on client-go's RealFIFO in its atomic mode. A queue neither changes the store nor runs a task.
"""

# Behaviours D44-D53.

from __future__ import annotations

from collections import deque
from typing import Protocol

from msgspec import Struct

from kubeloop.cache.blobs.head import Head


class Upserted(Struct, frozen=True, gc=False):
    """An object was added or modified; the store decides which.

    ``ordered``: deltas arrive in order, so a store that has applied this one contains every change up to its version.
    """

    head: Head
    ordered: bool = True


class Removed(Struct, frozen=True, gc=False):
    """An object was deleted. ``head`` is its final state, or the last known state if ``tombstone``. ``ordered``: see ``Upserted``."""

    head: Head
    tombstone: bool = False
    ordered: bool = True


class Replaced(Struct, frozen=True):
    """A complete list of all objects, or of the namespace ``scope``."""

    heads: tuple[Head, ...]
    version: str
    scope: str | None = None


class Resync(Struct, frozen=True):
    """A request to send every object to one handler again. ``handler`` identifies the handler for the informer."""

    handler: object


class Sync(Struct, frozen=True):
    """The resync of one object, used by queues that group deltas by object."""

    head: Head
    handler: object


class VersionBookmark(Struct, frozen=True, gc=False):
    """A bookmark: there are no further changes up to ``version``."""

    version: str


Delta = Upserted | Removed | Replaced | Resync | Sync | VersionBookmark


class Known(Protocol):
    """The part of the store that a queue reads."""

    def get(self, namespace: str, name: str) -> Head | None:
        """Return the stored state of an object, or None."""

    def heads(self, namespace: str | None = None) -> list[Head]:
        """Return all objects, or those of a namespace."""


class InformerQueue(Protocol):
    """Protocol of a queue of deltas between the reflector and the store of an informer.

    Guarantees of every implementation
        The deltas of one object are popped in the order in which they were pushed. Once all deltas are applied, the store has the same
        objects and version as if each delta had been applied when it was pushed.
    """

    def push(self, delta: Delta, /) -> None:
        """Append a delta behind all others of its object."""

    def pop(self) -> Delta:
        """Remove the next delta and return it. Raises IndexError if there is none."""

    def __len__(self) -> int:
        """Return the number of waiting deltas."""


class DeltaQueue:
    """First-in, first-out queue of deltas over all objects. It is the default of informers.

    Guarantees
        Every delta is popped exactly once, in arrival order. A list, a resync and a bookmark are one delta each.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod, queue=DeltaQueue)
        ...     await pods.wait_synced()
    """

    __slots__ = ("_waiting",)

    def __init__(self, _known: Known | None = None) -> None:
        self._waiting: deque[Delta] = deque()

    def push(self, delta: Delta, /) -> None:
        """Append a delta at the end of the queue."""
        self._waiting.append(delta)

    def pop(self) -> Delta:
        """Remove the oldest delta and return it. Raises IndexError if there is none."""
        return self._waiting.popleft()

    def __len__(self) -> int:
        return len(self._waiting)


# DeltaFifo groups deltas by object: the object that has waited longest comes first, with all its deltas.
#
# After client-go's older queue of this name (behaviour D57). ``DeltaQueue`` is the default and the better one: it keeps the order over all
# objects and replaces lists as a whole. This one is for handlers that rely on the grouping.


_Key = tuple[str, str]
_Part = Upserted | Removed | Sync


class DeltaFifo:
    """First-in, first-out queue by object, like client-go's DeltaFIFO. Choose it with ``informers.for_kind(..., queue=DeltaFifo)``.

    Guarantees
        All waiting deltas of an object are popped together and in their order. They are not merged, except that two deletions in a row
        become one: the observed deletion rather than a tombstone.
        A deletion of an object that neither the store nor the queue knows is dropped. A list becomes a deletion (tombstone) of each
        object that it lacks, in the store or only in the queue, and then a change of each object that it has. A resync leaves out objects
        that have waiting deltas.
        The version of the newest delta is popped last, as a bookmark, because until then an object in the store may be older than it.

    Not guaranteed
        Order between objects. Atomic replacement for other threads: a list is applied object by object.

    Cost
        A delta and an entry for each object of a list; ``DeltaQueue`` needs one delta for the whole list.

    Args:
        store: The store to which the deltas are applied.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod, queue=DeltaFifo)
        ...     await pods.wait_synced()
    """

    def __init__(self, store: Known) -> None:
        self._store = store
        self._waiting: dict[_Key, list[_Part]] = {}
        self._order: deque[_Key] = deque()
        #: The rest of the deltas of the object that ``pop`` has begun to return.
        self._coming: deque[_Part] = deque()
        self._version = ""
        self._count = 0

    def push(self, delta: Delta) -> None:
        """Append a delta behind all others of its object."""
        match delta:
            case Upserted(head):
                self._add(head, Upserted(head, ordered=False))
                self._version = head.resource_version or self._version
            case Removed(head, tombstone):
                self._remove(head, tombstone)
                if not tombstone:
                    self._version = head.resource_version or self._version
            case Sync(head):
                self._add(head, delta)
            case Replaced():
                self._replace(delta)
            case Resync(handler):
                for head in self._store.heads():
                    if self._last((head.namespace, head.name)) is None:
                        self._add(head, Sync(head, handler))
            case VersionBookmark(version):
                self._version = version or self._version

    def pop(self) -> Delta:
        """Remove and return the next delta of the object that has waited longest. Raises IndexError if there is none."""
        if not self._coming and self._order:
            self._coming.extend(self._waiting.pop(self._order.popleft()))
        if self._coming:
            self._count -= 1
            return self._coming.popleft()
        if not self._version:
            raise IndexError("no delta is queued")
        version, self._version = self._version, ""
        return VersionBookmark(version)

    def waiting(self, namespace: str, name: str) -> tuple[Delta, ...]:
        """Return the waiting deltas of an object, oldest first."""
        return tuple(self._waiting.get((namespace, name), ()))

    def __len__(self) -> int:
        return self._count + bool(self._version)

    def _add(self, head: Head, delta: _Part) -> None:
        key = (head.namespace, head.name)
        waiting = self._waiting.get(key)
        if waiting is None:
            self._waiting[key] = [delta]
            self._order.append(key)
        else:
            waiting.append(delta)
        self._count += 1

    def _remove(self, head: Head, tombstone: bool) -> None:
        key = (head.namespace, head.name)
        last = self._last(key)
        if last is None and self._store.get(*key) is None:
            return
        if not isinstance(last, Removed):
            self._add(head, Removed(head, tombstone, ordered=False))
        elif last.tombstone and not tombstone and key in self._waiting:
            self._waiting[key][-1] = Removed(head, ordered=False)

    def _last(self, key: _Key) -> _Part | None:
        """Return the newest delta of an object, including deltas that ``pop`` has begun to return, which the store does not show yet."""
        waiting = self._waiting.get(key)
        if waiting is not None:
            return waiting[-1]
        coming = self._coming[-1] if self._coming else None
        return coming if coming is not None and (coming.head.namespace, coming.head.name) == key else None

    def _replace(self, delta: Replaced) -> None:
        scope = delta.scope
        heads = [head for head in delta.heads if scope is None or head.namespace == scope]
        present = {(head.namespace, head.name) for head in heads}
        # Behaviour D46: an object that is only in the queue must be deleted as well, or it would be popped later and stay for ever.
        newest = {(head.namespace, head.name): head for head in self._store.heads(scope)}
        newest.update(((each.head.namespace, each.head.name), each.head) for each in self._coming)
        newest.update((key, parts[-1].head) for key, parts in self._waiting.items())
        for key, head in newest.items():
            if key not in present and scope in (None, key[0]):
                self._remove(head, tombstone=True)
        for head in heads:
            self._add(head, Upserted(head, ordered=False))
        self._version = delta.version or self._version
