"""Postings: which items have a value. The container of every index; grows with what it holds and not beyond."""

from __future__ import annotations

from contextlib import suppress
from typing import Generic, TypeVar, cast

T = TypeVar("T")

#: Up to so many items are a list, which takes 8 bytes an item; more are a dict, which takes 40 and finds in constant time.
#: A search touches every item of a list, and those of a large cache are in no processor's cache: of a million objects, an event
#: in lists of 30 cost twice what it costs in dicts of 30.
FEW = 8


class Postings(Generic[T]):
    """Value to items, each once under a value.

    Guarantees
        A value without items takes no memory. A value with one item takes a dict entry and no container.

    Not guaranteed
        Order. That an item is no ``list`` or ``dict`` is up to the caller.
    """

    __slots__ = ("_found",)

    def __init__(self) -> None:
        self._found: dict[str, T | list[T] | dict[T, None]] = {}

    def add(self, value: str, item: T) -> None:
        there = self._found.get(value)
        if there is None:
            self._found[value] = item
        elif type(there) is dict:
            there[item] = None
        elif type(there) is list:
            if item in there:
                return
            there.append(item)
            if len(there) > FEW:
                self._found[value] = dict.fromkeys(there)
        elif there != item:
            self._found[value] = [cast("T", there), item]

    def discard(self, value: str, item: T) -> None:
        """It need not be there."""
        there = self._found.get(value)
        if type(there) is dict:
            there.pop(item, None)
            if len(there) <= FEW // 2:
                self._found[value] = list(there)
        elif type(there) is list:
            with suppress(ValueError):
                there.remove(item)
            if len(there) == 1:
                self._found[value] = there[0]
        elif there == item:
            self._found.pop(value, None)

    def swap(self, value: str, old: T, new: T) -> None:
        """``new`` in place of ``old``; the same as discarding one and adding the other."""
        there = self._found.get(value)
        if type(there) is dict:
            there.pop(old, None)
            there[new] = None
        elif type(there) is list:
            try:
                there[there.index(old)] = new
            except ValueError:
                self.add(value, new)
        elif there is old:
            self._found[value] = new
        else:
            self.add(value, new)

    def items(self, value: str) -> list[T]:
        there = self._found.get(value)
        if there is None:
            return []
        return list(cast("list[T] | dict[T, None]", there)) if type(there) in (dict, list) else [cast("T", there)]

    def first(self, value: str) -> T | None:
        """Any one of the items."""
        there = self._found.get(value)
        if type(there) is dict:
            return next(iter(there))
        return there[0] if type(there) is list else cast("T | None", there)

    def count(self, value: str) -> int:
        there = self._found.get(value)
        if there is None:
            return 0
        return len(there) if type(there) in (dict, list) else 1  # type: ignore[arg-type]  # narrowed by type()

    def values(self) -> list[str]:
        """Those that at least one item has."""
        return list(self._found)
