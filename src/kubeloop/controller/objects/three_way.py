"""Merging a status that was computed from an older state into the newest: what only one side changed is kept.

Pure functions over JSON trees.
"""

from __future__ import annotations

from typing import Any

from kubeloop.merge.go_text import same

JSON = Any
JSONObject = dict[str, Any]


class BothChanged(Exception):
    """A list was changed on both sides, and nothing says which items are the same; ``str()`` is its path."""


def three_way(base: JSONObject, mine: JSONObject, theirs: JSONObject, path: str = "") -> JSONObject:
    """``theirs`` with what ``mine`` changed since ``base``. Of a scalar that both changed mine counts.

    Conditions (lists named so, whose items have a ``type``) are merged item by item; other lists only if one side left them alone.

    Raises:
        BothChanged: of a list that has no keys.
    """
    merged: JSONObject = {}
    for name in dict.fromkeys([*theirs, *mine]):
        here = f"{path}.{name}" if path else name
        value = _value(base.get(name), mine.get(name), theirs.get(name), here, name)
        if value is not None:
            merged[name] = value
    return merged


def _value(base: JSON, mine: JSON, theirs: JSON, path: str, name: str) -> JSON:
    if same(mine, base):
        return theirs
    if same(mine, theirs) or same(theirs, base):
        return mine
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return three_way(base if isinstance(base, dict) else {}, mine, theirs, path)
    if isinstance(mine, list) and isinstance(theirs, list):
        if name != "conditions" or not all(map(_typed, [*mine, *theirs, *(base or [])])):
            raise BothChanged(path)
        by_type = three_way(_by_type(base or []), _by_type(mine), _by_type(theirs), path)
        return list(by_type.values())
    return mine


def _typed(item: JSON) -> bool:
    return isinstance(item, dict) and isinstance(item.get("type"), str)


def _by_type(items: list[JSON]) -> JSONObject:
    return {item["type"]: item for item in items}
