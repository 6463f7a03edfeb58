"""Restores empty values in error messages: upstream distinguishes ``{}`` and ``[]`` from an absent field, a conformed tree does not."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from kubeloop.meta.field_error import FieldError
from kubeloop.meta.kinds import GroupKind
from kubeloop.schema.internal_values import UnlikeType, internal_types
from kubeloop.types import JSONObject

_STEP = re.compile(r"([^.\[\]]+)|\[(\d+)\]")


def with_explicit_empties(errors: Iterable[FieldError], sent: Any) -> list[FieldError]:
    """Return the errors with explicitly empty values in place of null. ``sent`` is the body before it was conformed to the schema."""
    return [_shown(error, sent) for error in errors]


@contextmanager
def as_sent(obj: JSONObject, sent: Any) -> Iterator[None]:
    """Replace stored nulls by the empty lists and maps that the client sent, for the duration of the block.

    This concerns only fields that are always written, and that the body ``sent`` contains as an empty list or map.

    A client that sends ``rules: []`` owns the rules; a client that omits them does not.
    """
    places: list[tuple[JSONObject, str, Any]] = []
    _find_sent_empty(obj, sent, places)
    for holder, name, empty in places:
        holder[name] = empty
    try:
        yield
    finally:
        for holder, name, _ in places:
            holder[name] = None


def _find_sent_empty(tree: Any, sent: Any, places: list[tuple[JSONObject, str, Any]]) -> None:
    """Append the places of ``tree`` with a null for which ``sent`` has an empty list or map: holder, name, empty value."""
    if isinstance(tree, dict):
        if isinstance(sent, dict):
            for name, value in tree.items():
                if value is None:
                    if sent.get(name) in ({}, []):
                        places.append((tree, name, sent[name]))
                elif isinstance(value, dict | list):
                    _find_sent_empty(value, sent.get(name), places)
    elif isinstance(sent, list):
        for one, other in zip(tree, sent, strict=False):
            if isinstance(one, dict | list):
                _find_sent_empty(one, other, places)


def _shown(error: FieldError, sent: Any) -> FieldError:
    # A whole spec is a struct and never null. A null in a message about the spec is one of its parts (an Ingress's rules).
    if error.value is not None or error.field == "spec":
        return error
    found = part_at(sent, error.field)
    return msgspec.structs.replace(error, value=found) if found in ({}, []) else error


def part_at(tree: Any, path: str) -> Any:
    """Return the part of a body at the path of a field error, or None if the body has no such part."""
    for name, index in _STEP.findall(path):
        if name:
            tree = tree.get(name) if isinstance(tree, dict) else None
        else:
            tree = tree[int(index)] if isinstance(tree, list) and int(index) < len(tree) else None
    return tree


def as_quoted(errors: Iterable[FieldError], kind: GroupKind, sent: Any) -> list[FieldError]:
    """Return the errors with values quoted as upstream's internal types show them.

    ``sent`` is the body before it was conformed to the schema. Values that do not have the type of their field stay unchanged.
    """
    found: dict[tuple[str, int], Any] = {}
    return [_quoted(error, kind, sent, found) for error in with_explicit_empties(errors, sent)]


def _quoted(error: FieldError, kind: GroupKind, sent: Any, converted: dict[tuple[str, int], Any]) -> FieldError:
    value = error.value
    if not isinstance(value, dict | list):
        return error
    key = error.field, id(value)
    if key not in converted:
        converted[key] = value
        types = internal_types()
        index = types.at(kind, error.field)
        if index is not None:
            with contextlib.suppress(UnlikeType):
                converted[key] = types.shown(index, value, part_at(sent, error.field))
    return msgspec.structs.replace(error, value=converted[key])
