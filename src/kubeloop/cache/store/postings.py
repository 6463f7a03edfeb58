"""Postings: which items have a value. The container of every index; grows with what it holds and not beyond."""

from __future__ import annotations

from typing import Generic, TypeVar, cast

T = TypeVar("T")

#: Up to so many items are a tuple, which takes 8 bytes an item; more are a dict, which takes 40 and finds in constant time.
#: A search touches every item of a tuple, and those of a large cache are in no processor's cache: of a million objects, an event
#: in sequences of 30 cost twice what it costs in dicts of 30.
FEW = 8


class Postings(Generic[T]):
    """Value to items, each once under a value.

    Guarantees
        A value without items takes no memory. A value with one item takes a dict entry and no container.
        Of items that the garbage collector need not look at (heads, texts) it looks at no container either: tuples and dicts of such
        are left out of its rounds, lists would not be.

    Not guaranteed
        Order. That an item is no ``tuple`` or ``dict`` is up to the caller.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, T | tuple[T, ...] | dict[T, None]] = {}

    def add(self, value: str, item: T) -> None:
        there = self._found.get(value)
        if there is None:
            self._found[value] = item
        elif type(there) is dict:
            there[item] = None
        elif type(there) is tuple:
            if item not in there:
                self._found[value] = (*there, item) if len(there) < FEW else dict.fromkeys((*there, item))
        elif there != item:
            self._found[value] = (cast("T", there), item)

    def discard(self, value: str, item: T) -> None:
        """It need not be there."""
        there = self._found.get(value)
        if type(there) is dict:
            there.pop(item, None)
            if len(there) <= FEW // 2:
                self._found[value] = tuple(there)
        elif type(there) is tuple:
            left = tuple([each for each in there if each != item])
            self._found[value] = left if len(left) > 1 else left[0]
        elif there == item:
            self._found.pop(value, None)

    def swap(self, value: str, old: T, new: T) -> None:
        """``new`` in place of ``old``; the same as discarding one and adding the other."""
        there = self._found.get(value)
        if type(there) is dict:
            there.pop(old, None)
            there[new] = None
        elif type(there) is tuple and old in there:
            place = there.index(old)
            self._found[value] = (*there[:place], new, *there[place + 1 :])
        elif there is old:
            self._found[value] = new
        else:
            self.add(value, new)

    def items(self, value: str) -> list[T]:
        there = self._found.get(value)
        if there is None:
            return []
        return list(cast("tuple[T, ...] | dict[T, None]", there)) if type(there) in (dict, tuple) else [cast("T", there)]

    def first(self, value: str) -> T | None:
        """Any one of the items."""
        there = self._found.get(value)
        if type(there) is dict:
            return next(iter(there))
        return there[0] if type(there) is tuple else cast("T | None", there)

    def values(self) -> list[str]:
        """Those that at least one item has."""
        return list(self._found)
