"""Objects as a failed test shows them: YAML without what nobody compares, secrets hidden, and differences line by line."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

from kubeloop.codec import to_dict, write_yaml
from kubeloop.codec.redact_secrets import masked, plain
from kubeloop.meta import Resource

JSON = Any

#: Lines of a state or a difference that a message shows.
_LINES = 80


def tree(value: object) -> JSON:
    """JSON of an object, a list of them, or what is JSON already; a copy."""
    if isinstance(value, Resource):
        return to_dict(value)
    if isinstance(value, Mapping):
        return {key: tree(one) for key, one in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [tree(one) for one in value]
    return value


def text(state: object) -> str:
    """YAML of one state; several objects are several documents, none is a line that says so."""
    found = tree(state)
    if found is None or found == []:
        return "(nothing)\n"
    documents = found if isinstance(found, list) else [found]
    return write_yaml(*(_ordered(_tidy(one)) for one in documents))


def order(key: str) -> tuple[bool, str]:
    """Sorts keys: what it is and what it is called first, as people write it."""
    return key not in ("apiVersion", "kind", "metadata", "name"), key


def difference(before: str, after: str, before_name: str, after_name: str) -> str:
    """What differs between two texts, as a unified diff; "" if nothing does."""
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), before_name, after_name, lineterm="", n=2)
    return "\n".join(shortened(list(lines)))


def shortened(lines: list[str]) -> list[str]:
    """The first lines, and how many more there are."""
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
