"""A mapping that keeps what was used last: the bounded memory of all correlation of events."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most ``capacity`` entries; the one unused for longest is forgotten for a new one.

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
        """The entry, which counts as used."""
        entry = self._entries.get(key)
        if entry is not None:
            self._entries.move_to_end(key)
        return entry

    def put(self, key: K, entry: V) -> V | None:
        """Keep it; returns the entry that had to go for it."""
        self._entries[key] = entry
        self._entries.move_to_end(key)
        return self._entries.popitem(last=False)[1] if len(self._entries) > self._capacity else None

    def oldest(self) -> tuple[K, V] | None:
        """The one unused for longest; looking is no use."""
        key = next(iter(self._entries), None)
        return None if key is None else (key, self._entries[key])

    def pop(self, key: K) -> V | None:
        return self._entries.pop(key, None)

    def values(self) -> list[V]:
        """All, the one unused for longest first."""
        return list(self._entries.values())
