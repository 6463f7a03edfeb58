"""Copy-on-write map: a dict in parts, which snapshots share instead of copying them."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Generic, TypeVar

V = TypeVar("V")

#: A part with more values is split. A dict of 1024 slots holds so many, and each half fills a dict of 512 slots.
PART = 682
_NONE: frozenset[int] = frozenset()


# Decision 101: reference counts.
class CowMap(Generic[V]):
    """A map of strings to values with cheap snapshots.

    Guarantees
        The result of ``snapshot`` never changes. A snapshot costs 8 bytes for every few hundred values. After a snapshot, the first change
        of each part copies that part (2 us; 30 us where the values are in no processor's cache), once for any number of snapshots taken
        before. Nothing is ever copied or rebuilt whole.
        The map records which parts it owns. It does not infer from reference counts whether a snapshot still exists: CPython 3.14 borrows
        references, so a count proves nothing.
        ``get`` may be called from any thread at any time; everything else needs one caller at a time.

    Not guaranteed
        Order, except that a map of at most 682 values has the order of insertion.

    Linear hashing (Litwin 1980): whichever part overflows, the next one in turn is split, so the number of parts alone says where a key is.
    """

    __slots__ = ("_own", "_parts")

    def __init__(self) -> None:
        self._parts: list[dict[str, V]] = [{}]
        #: Indexes of the parts made after the last snapshot; None if there was no snapshot, so that the map owns all parts.
        self._own: set[int] | frozenset[int] | None = None

    def get(self, key: str) -> V | None:
        # Read once: a split makes a new list and new parts, and does not change the parts of a reader.
        parts = self._parts
        count = len(parts)
        return parts[0].get(key) if count == 1 else parts[_place(key, count)].get(key)

    def put(self, key: str, value: V) -> V | None:
        """Add or replace a value. Return the previous value, or None."""
        parts = self._parts
        count = len(parts)
        place = 0 if count == 1 else _place(key, count)
        part = parts[place] if self._own is None or place in self._own else self._ours(place)
        old = part.get(key)
        part[key] = value
        if old is None and len(part) > PART:
            self._split()
        return old

    def pop(self, key: str) -> V | None:
        """Remove a value and return it; None if it is missing."""
        parts = self._parts
        place = _place(key, len(parts))
        if key not in parts[place]:
            return None
        part = parts[place] if self._own is None or place in self._own else self._ours(place)
        old = part.pop(key)
        if len(parts) > 1 and len(part) < PART // 8:
            self._join()
        return old

    def snapshot(self) -> tuple[dict[str, V], ...]:
        """Return the present parts, which must not be changed."""
        self._own = _NONE  # a shared constant: most small maps do not change before the next snapshot
        return tuple(self._parts)

    def values(self) -> Iterator[V]:
        return chain.from_iterable(map(dict.values, self._parts))

    def __len__(self) -> int:
        return sum(map(len, self._parts))

    def __bool__(self) -> bool:
        return any(self._parts)

    def _ours(self, place: int) -> dict[str, V]:
        """Replace a part that a snapshot may share with a copy, and return the copy."""
        part = self._parts[place] = self._parts[place].copy()
        self._claim(place)
        return part

    def _claim(self, *places: int) -> None:
        if self._own is not None:
            if not isinstance(self._own, set):
                self._own = set()
            self._own.update(places)

    def _split(self) -> None:
        count = len(self._parts)
        place = count - (1 << (count.bit_length() - 1))
        halves: tuple[dict[str, V], dict[str, V]] = ({}, {})
        for key, value in self._parts[place].items():
            halves[_place(key, count + 1) == count][key] = value
        parts = [*self._parts, halves[1]]
        parts[place] = halves[0]
        self._claim(place, count)
        self._parts = parts

    def _join(self) -> None:
        """Merge the last part with the part from which it was split."""
        last = len(self._parts) - 1
        place = last - (1 << (last.bit_length() - 1))
        if len(self._parts[place]) + len(self._parts[last]) > PART // 2:
            return
        parts = self._parts[:-1]
        parts[place] = self._parts[place] | self._parts[last]
        self._claim(place)
        if isinstance(self._own, set):
            self._own.discard(last)
        self._parts = parts


def _place(key: str, count: int) -> int:
    mask = (1 << count.bit_length()) - 1
    place = hash(key) & mask
    return place if place < count else place & (mask >> 1)
