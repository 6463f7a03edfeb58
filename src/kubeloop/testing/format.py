"""Objects in messages of failed tests: YAML without server-set fields, secrets hidden, and differences line by line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from kubeloop.codec import to_dict, write_yaml
from kubeloop.codec.redact_secrets import masked, plain
from kubeloop.meta import Resource

JSON = Any

#: Maximum number of lines of a state or a difference.
_LINES = 80


def tree(value: object) -> JSON:
    """Return a JSON copy of an object, a list of objects, or a JSON tree."""
    if isinstance(value, Resource):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: tree(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [tree(one) for one in value]
    return value


def text(state: object) -> str:
    """Return the YAML of one state; several objects are several documents, none is a line that says so."""
    found = tree(state)
    if found is None or found == []:
        return "(nothing)\n"
    documents = found if isinstance(found, list) else [found]
    return write_yaml(*(_ordered(_tidy(one)) for one in documents))


def order(key: str) -> tuple[bool, str]:
    """Return the sort key of a key: type and name first, as people write them."""
    return key not in ("apiVersion", "kind", "metadata", "name"), key


def difference(before: str, after: str, before_name: str, after_name: str) -> str:
    """Return the difference of two texts as a unified diff; "" if they are equal.

    Args:
        before: The first text.
        after: The second text.
        before_name: Its name in the header.
        after_name: Its name in the header.
    """
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="", n=2)
    return "\n".join(shortened(list(lines)))


def shortened(lines: list[str]) -> list[str]:
    """Return the first lines, and the number of omitted ones."""
    return lines if len(lines) <= _LINES else [*lines[:_LINES], f"... {len(lines) - _LINES} more lines"]


def indented(block: str) -> str:
    return "\n".join(f"    {line}".rstrip() for line in block.splitlines())


def _ordered(value: JSON) -> JSON:
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value, key=order)}
    return [_ordered(one) for one in value] if isinstance(value, list) else value


def _tidy(document: JSON) -> JSON:
    if not isinstance(document, dict):
        return document
    shown = plain(masked(document))
    metadata = shown.get("metadata")
    if isinstance(metadata, dict):
        shown = {**shown, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
    return shown
