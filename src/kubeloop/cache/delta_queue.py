"""Delta queue: what happened, in the order in which it arrived, over all objects. Nothing is merged, nothing overtakes.

After client-go's RealFIFO in its atomic mode (behaviours D44-D53). It neither knows the store nor runs anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from msgspec import Struct

from kubeloop.cache.head import Head

#: Deltas applied before other tasks get their turn.
BATCH = 1000


class Changed(Struct, frozen=True, gc=False):
    """An object was added or modified; which of both, the store decides."""

    head: Head


class Removed(Struct, frozen=True, gc=False):
    """An object was deleted; ``head`` is its final state."""

    head: Head


class Replaced(Struct, frozen=True):
    """This list, and nothing else, is what there is."""

    heads: tuple[Head, ...]
    version: str


class Resync(Struct, frozen=True):
    """Tell one handler about every object once more. ``handler`` is whatever the informer knows it by."""

    handler: object


class Bookmark(Struct, frozen=True, gc=False):
    """Nothing changed up to ``version``."""

    version: str


Delta = Changed | Removed | Replaced | Resync | Bookmark


class DeltaQueue:
    """First in, first out.

    Guarantees
        Every delta is popped exactly once, in arrival order. A ``Replaced``, ``Resync`` or ``Bookmark`` is popped alone.
    """

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[Delta] = deque()

    def push(self, delta: Delta) -> None:
        self._waiting.append(delta)

    def extend(self, deltas: Iterable[Delta]) -> None:
        self._waiting.extend(deltas)

    def __len__(self) -> int:
        return len(self._waiting)

    def pop_batch(self, limit: int = BATCH) -> list[Delta]:
        """The oldest deltas, at most ``limit``; none if there are none."""
        batch: list[Delta] = []
        waiting = self._waiting
        while waiting and len(batch) < limit:
            alone = not isinstance(waiting[0], Changed | Removed)
            if alone and batch:
                break
            batch.append(waiting.popleft())
            if alone:
                break
        return batch
