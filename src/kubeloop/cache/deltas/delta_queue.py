"""Delta queue: what happened, in the order in which it arrived, over all objects. Nothing is merged, nothing overtakes.

After client-go's RealFIFO in its atomic mode (behaviours D44-D53). It neither knows the store nor runs anything.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from msgspec import Struct

from kubeloop.cache.blobs.head import Head


class Upserted(Struct, frozen=True, gc=False):
    """An object was added or modified; which of both, the store decides.

    ``ordered``: deltas arrive in order, so that a store that has applied this one has everything up to its version.
    """

    head: Head
    ordered: bool = True


class Removed(Struct, frozen=True, gc=False):
    """An object was deleted; ``head`` is its final state, of a ``tombstone`` the last one known. ``ordered``: as of ``Upserted``."""

    head: Head
    tombstone: bool = False
    ordered: bool = True


class Replaced(Struct, frozen=True):
    """This list, and nothing else, is what there is: of everything, or of the namespace ``scope``."""

    heads: tuple[Head, ...]
    version: str
    scope: str | None = None


class Resync(Struct, frozen=True):
    """Tell one handler about every object once more. ``handler`` is whatever the informer knows it by."""

    handler: object


class Sync(Struct, frozen=True):
    """A resync's part of one object, where objects come one by one."""

    head: Head
    handler: object


class VersionBookmark(Struct, frozen=True, gc=False):
    """Nothing changed up to ``version``."""

    version: str


Delta = Upserted | Removed | Replaced | Resync | Sync | VersionBookmark


class Known(Protocol):
    """The store, as far as a queue may look at it."""

    def get(self, namespace: str, name: str) -> Head | None:
        """The state that is there."""

    def heads(self, namespace: str | None = None) -> list[Head]:
        """Everything, or everything in a namespace."""


class InformerQueue(Protocol):
    """What lies between list and watch and the store.

    Guarantees (of every implementation)
        The deltas of one object come out in the order in which they went in. Applied until nothing is left, they leave the same store,
        at the same version, as if each had been applied at once.
    """

    def push(self, delta: Delta, /) -> None:
        """Put a delta behind all others of its object."""

    def pop(self) -> Delta:
        """Remove the next delta and return it. Raises IndexError if there is none."""

    def __len__(self) -> int:
        """The number of deltas that wait."""


class DeltaQueue:
    """First in, first out.

    Guarantees
        Every delta is popped exactly once, in arrival order. A list, a resync and a bookmark are one delta each.
    """

    __slots__ = ("_waiting",)

    def __init__(self, _known: Known | None = None) -> None:
        self._waiting: deque[Delta] = deque()

    def push(self, delta: Delta, /) -> None:
        """Put a delta behind all others."""
        self._waiting.append(delta)

    def pop(self) -> Delta:
        """Remove the oldest delta and return it. Raises IndexError if there is none."""
        return self._waiting.popleft()

    def __len__(self) -> int:
        return len(self._waiting)
