"""Delta queue: what happened, in the order in which it arrived, over all objects. Nothing is merged, nothing overtakes.

After client-go's RealFIFO in its atomic mode (behaviours D44-D53). It neither knows the store nor runs anything.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from msgspec import Struct

from kubeloop.cache.head import Head


class Changed(Struct, frozen=True, gc=False):
    """An object was added or modified; which of both, the store decides."""

    head: Head


class Removed(Struct, frozen=True, gc=False):
    """An object was deleted; ``head`` is its final state."""

    head: Head


class Replaced(Struct, frozen=True):
    """This list, and nothing else, is what there is: of everything, or of the namespace ``scope``."""

    heads: tuple[Head, ...]
    version: str
    scope: str | None = None


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
        Every delta is popped exactly once, in arrival order. A list, a resync and a bookmark are one delta each.
    """

    __slots__ = ("_waiting", "pop", "push")

    def __init__(self) -> None:
        self._waiting: deque[Delta] = deque()
        #: Put a delta behind all others.
        self.push: Callable[[Delta], None] = self._waiting.append
        #: The oldest delta. Raises IndexError if there is none.
        self.pop: Callable[[], Delta] = self._waiting.popleft

    def __len__(self) -> int:
        return len(self._waiting)
