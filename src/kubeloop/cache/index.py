"""Index: finds objects by a value, in constant time. A path costs nothing per event; a function decodes the object."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from operator import attrgetter
from typing import Any

from kubeloop.cache.head import Head

log = logging.getLogger("kubeloop.cache")

#: What a function that indexes may answer: no value, one, or several.
IndexValues = Iterable[str] | str | None


def index_key(value: Any) -> str:
    """A JSON scalar as indexes spell it: text as it is, ``true``/``false``, numbers in JSON's form, "" for what is absent."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)


def by_path(attribute: str) -> Callable[[Head], tuple[str, ...]]:
    """Values at a path that heads carry in ``attribute``.

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
    """Values that a function of the caller's gives.

    When it raises, or answers what is no such value, the object is in the store all the same, only not in this index; the error is
    logged with the object's key. (client-go takes the process down; behaviour X8.)
    """

    def values(head: Head) -> tuple[str, ...]:
        try:
            answer = function(head)
            if answer is None:
                return ()
            return (answer,) if isinstance(answer, str) else tuple(dict.fromkeys(map(str, answer)))
        except Exception:
            key = f"{head.namespace}/{head.name}" if head.namespace else head.name
            log.exception('index "%s" failed for %s; the object is not in this index', name, key, extra={"key": key})
            return ()

    return values


class Index:
    """Value to heads, in the order in which objects came to the value. A value that no object has takes no memory.

    ``remember``: keep the values of each head rather than ask for them again when it goes. For a function that is dear, or that may
    answer differently another time: an object is then still found under nothing but its last answer.
    """

    __slots__ = ("_found", "_known", "name", "source", "values")

    def __init__(self, name: str, source: object, values: Callable[[Head], tuple[str, ...]], *, remember: bool = False) -> None:
        self.name = name
        self.source = source
        self.values = values
        self._found: dict[str, dict[Head, None]] = {}
        self._known: dict[Head, tuple[str, ...]] | None = {} if remember else None

    def change(self, old: Head | None, new: Head | None) -> None:
        """An object has the state ``new`` in place of ``old``; None where there is none."""
        if old is new:
            return
        known, found = self._known, self._found
        after = self.values(new) if new is not None else ()
        if known is None:
            before = self.values(old) if old is not None else ()
        else:
            before = known.pop(old, ()) if old is not None else ()
            if new is not None:
                known[new] = after
        if old is not None:
            for value in before:
                heads = found[value]
                heads.pop(old, None)
                if not heads and value not in after:
                    del found[value]
        if new is not None:
            for value in after:
                if value in found:
                    found[value][new] = None
                else:
                    found[value] = {new: None}

    def heads(self, value: str) -> list[Head]:
        return list(self._found.get(value, ()))

    def all_values(self) -> list[str]:
        return list(self._found)
