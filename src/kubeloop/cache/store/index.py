"""Index: finds objects by a value, in constant time. A path costs nothing per event; a function decodes the object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any, Generic, Protocol, TypeVar, cast

from kubeloop.cache.blobs.head import Head

T = TypeVar("T")

#: Up to so many items are stored in a tuple (8 bytes per item), more in a dict (40 bytes, constant lookup time). A search reads every item
#: of a tuple, and in a large cache from main memory: with a million objects, an event took twice as long with tuples of 30 as with dicts.
FEW = 8


class Postings(Generic[T]):
    """Maps a value to its items, each once.

    Guarantees
        A value without items takes no memory. A value with one item takes a dict entry and no container.
        If the garbage collector does not track the items (heads, strings), it does not track the tuples and dicts that hold them either.

    Not guaranteed
        Order. The caller must not add items that are a ``tuple`` or a ``dict``.
    """

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: dict[str, T | tuple[T, ...] | dict[T, None]] = {}

    def add(self, value: str, item: T) -> None:
        items = self._items.get(value)
        if items is None:
            self._items[value] = item
        elif type(items) is dict:
            items[item] = None
        elif type(items) is tuple:
            if item not in items:
                self._items[value] = (*items, item) if len(items) < FEW else dict.fromkeys((*items, item))
        elif items != item:
            self._items[value] = (cast("T", items), item)

    def discard(self, value: str, item: T) -> None:
        """Remove an item from a value, if it is there."""
        items = self._items.get(value)
        if type(items) is dict:
            items.pop(item, None)
            if len(items) <= FEW // 2:
                self._items[value] = tuple(items)
        elif type(items) is tuple:
            left = tuple([each for each in items if each != item])
            self._items[value] = left if len(left) > 1 else left[0]
        elif items == item:
            self._items.pop(value, None)

    def swap(self, value: str, old: T, new: T) -> None:
        """Replace ``old`` with ``new``, which is the same as discarding one and adding the other."""
        items = self._items.get(value)
        if type(items) is dict:
            items.pop(old, None)
            items[new] = None
        elif type(items) is tuple and old in items:
            place = items.index(old)
            self._items[value] = (*items[:place], new, *items[place + 1 :])
        elif items is old:
            self._items[value] = new
        else:
            self.add(value, new)

    def items(self, value: str) -> list[T]:
        items = self._items.get(value)
        if items is None:
            return []
        return list(cast("tuple[T, ...] | dict[T, None]", items)) if type(items) in (dict, tuple) else [cast("T", items)]

    def first(self, value: str) -> T | None:
        """Return any item of the value; None if it has none."""
        items = self._items.get(value)
        if type(items) is dict:
            return next(iter(items))
        return items[0] if type(items) is tuple else cast("T | None", items)

    def values(self) -> list[str]:
        """Return the values that at least one item has."""
        return list(self._items)


_LOG = logging.getLogger("kubeloop.cache")

#: Result of an index function: no value, one, or several.
IndexValues = Iterable[str] | str | None


def index_key(value: Any) -> str:
    """Return a JSON scalar as a key: a string as it is, ``true``/``false``, numbers in JSON's form, "" for an absent value."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def by_path(attribute: str) -> Callable[[Head], tuple[str, ...]]:
    """Return a function that reads the index values at a path that heads carry in ``attribute``.

    A scalar that is absent is indexed as "" (unscheduled pods are ``by_index("node", "")``), a list by its items.
    """
    get = attrgetter(attribute)

    def values(head: Head) -> tuple[str, ...]:
        value = get(head)
        if type(value) is str:
            return (value,)
        if isinstance(value, tuple | list):
            return tuple(dict.fromkeys(map(index_key, value)))
        return (index_key(value),)

    return values


def by_function(name: str, function: Callable[[Head], IndexValues]) -> Callable[[Head], tuple[str, ...]]:
    """Return a function that computes the index values of a head with a user's function of the object.

    If the user's function raises or returns an invalid value, the object is still in the store, but not in this index; the error is logged
    with the object's key. (client-go ends the process.)
    """
    # Behaviour X8.
    failures = IndexFailureLog(name)

    def values(head: Head) -> tuple[str, ...]:
        try:
            answer = function(head)
            if answer is None:
                return ()
            return (answer,) if isinstance(answer, str) else tuple(dict.fromkeys(map(str, answer)))
        except Exception as error:  # noqa: BLE001 - a function of the caller's may raise anything
            failures.report(head, error)
            return ()

    return values


class IndexFailureLog:
    """Logs the errors of an index function: the first with its traceback, ten by object, then one at each power of ten.

    A function that fails for each of a million objects must not bury everything else, nor cost a traceback each.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0

    def report(self, head: Head, error: Exception) -> None:
        self._count += 1
        key = f"{head.namespace}/{head.name}" if head.namespace else head.name
        if self._count <= 10:
            trace = error if self._count == 1 else None
            text = 'index "%s" failed for %s: %s: %s; the object is not in this index'
            _LOG.error(text, self._name, key, type(error).__name__, error, exc_info=trace, extra={"key": key})
        elif str(self._count).strip("0") == "1":
            text = 'index "%s" has failed %d times, the last time for %s: %s: %s'
            _LOG.error(text, self._name, self._count, key, type(error).__name__, error, extra={"key": key})


def by_label(label: str) -> Callable[[Head], tuple[str, ...]]:
    """Return a function that reads the index values at one label: none without the label, so ``""`` finds objects with an empty label."""

    def values(head: Head) -> tuple[str, ...]:
        value = head.labels.get(label)
        return () if value is None else (value,)

    return values


class SecondaryIndex(Protocol):
    """Protocol of indexes that a store updates and queries."""

    @property
    def name(self) -> str:
        """Name of the index in queries."""

    @property
    def source(self) -> object:
        """Source of the index: two indexes of one name must have equal sources."""

    def values(self, head: Head, /) -> tuple[str, ...]:
        """Return the values of one object."""

    def change(self, old: Head | None, new: Head | None) -> None:
        """Replace the state ``old`` of an object with ``new``. ``old`` is None for a new object, ``new`` for a deleted one."""

    def heads(self, value: str) -> list[Head]:
        """Return the objects that have this value."""

    def all_values(self) -> list[str]:
        """Return the values that at least one object has."""


_Known = dict[Head, str | tuple[str, ...]]


class Index:
    """Maps a value to the heads that have it.

    A value without objects takes no memory; an object takes 10 to 50 bytes for each of its values.

    Args:
        name: Name of the index.
        source: Identifies the path or function; an index of the same name must have the same source.
        values: Returns the values of a head.
        remember: Store the values of each head instead of computing them again when it is removed. For functions that are expensive or may
            return other values later: the object is then found under its last values only. Costs about 50 bytes more per object.
    """

    __slots__ = ("_known", "_postings", "name", "source", "values")

    def __init__(self, name: str, source: object, values: Callable[[Head], tuple[str, ...]], *, remember: bool = False) -> None:
        self.name = name
        self.source = source
        self.values = values
        self._postings: Postings[Head] = Postings()
        #: A single value is stored without a tuple.
        self._known: _Known | None = {} if remember else None

    def change(self, old: Head | None, new: Head | None) -> None:
        """Replace the state ``old`` of an object with ``new``. ``old`` is None for a new object, ``new`` for a deleted one."""
        if old is new:
            return
        after = self.values(new) if new is not None else ()
        before = () if old is None else self.values(old) if self._known is None else self._forget(self._known, old)
        postings = self._postings
        if old is not None and new is not None and before == after:
            for value in after:
                postings.swap(value, old, new)
        else:
            if old is not None:
                for value in before:
                    postings.discard(value, old)
            if new is not None:
                for value in after:
                    postings.add(value, new)
        if self._known is not None and new is not None and after:
            self._known[new] = self._text(self._known, after[0]) if len(after) == 1 else after

    @staticmethod
    def _forget(remembered: _Known, old: Head) -> tuple[str, ...]:
        values = remembered.pop(old, ())
        return (values,) if isinstance(values, str) else values

    def _text(self, remembered: _Known, value: str) -> str:
        """Return the string that another head with an equal value has, so that equal strings are stored once."""
        sibling = self._postings.first(value)
        text = None if sibling is None else remembered.get(sibling)
        return text if isinstance(text, str) and text == value else value

    def heads(self, value: str) -> list[Head]:
        return self._postings.items(value)

    def all_values(self) -> list[str]:
        return self._postings.values()
