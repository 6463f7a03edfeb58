"""Lists and maps of limited size, checked item by item; one that is too large is not looked into.

Source: pkg/apis/resource/validation validateSlice, validateSet, validateMap.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from kubeloop.meta.field_error import Errors, FieldError, duplicate, too_many

Check = Callable[[str, Any], Iterable[FieldError]]


def items(path: str, found: list[Any] | None, most: int | None, check: Check) -> Errors:
    found = found or []
    if most is not None and len(found) > most:
        yield too_many(path, len(found), most)
        return
    for at, item in enumerate(found):
        yield from check(f"{path}[{at}]", item)


def unique(
    path: str,
    found: list[Any] | None,
    most: int | None,
    check: Check,
    key: Callable[[Any], Hashable],
    shown: Callable[[Hashable], Any] = lambda one: one,
) -> Errors:
    """Items of which no two have the same key; ``shown`` is how messages print a key."""
    found = found or []
    yield from items(path, found, most, check)
    if most is not None and len(found) > most:
        return
    known: set[Hashable] = set()
    for at, item in enumerate(found):
        this = key(item)
        if this in known:
            yield duplicate(f"{path}[{at}]", shown(this))
        known.add(this)


def mapping(path: str, found: Mapping[str, Any] | None, most: int | None, key_length: int, check_key: Check, check: Check) -> Errors:
    """A key that is longer than ``key_length`` bytes is shortened in paths."""
    found = found or {}
    if most is not None and len(found) > most:
        yield too_many(path, len(found), most)
        return
    for key, value in found.items():
        yield from check_key(path, key)
        yield from check(f"{path}[{_shortened(key, key_length)}]", value)


def nothing(_path: str, _value: Any) -> Errors:
    """Whatever the type allows."""
    return iter(())


def itself(value: Hashable) -> Hashable:
    return value


def named(value: dict[str, Any]) -> Hashable:
    name: str = value.get("name", "")
    return name


def _shortened(text: str, most: int) -> str:
    if len(text) <= most:
        return text
    left = most - len("...")
    return f"{text[: (left + 1) // 2]}...{text[len(text) - left // 2 :]}"
