"""Computes the JSON patch from one JSON tree to another: the reverse of ``json_patch``."""

from __future__ import annotations

from typing import Any

from kubeloop.merge.go_text import copy_tree, same
from kubeloop.merge.json_patch import MAX_OPERATIONS

JSON = Any
Operation = dict[str, Any]


def json_diff(before: dict[str, JSON], after: dict[str, JSON]) -> list[Operation]:
    """Return a patch of ``add``, ``remove`` and ``replace`` (RFC 6902) with ``json_patch(before, patch) == after``; empty if they are the
    same.

    Guarantees
        The patch names only differing values, at the deepest possible place, so that others' changes beside them survive; 1, 1.0 and true
        are
        three values. Members are in the order of ``before``, then of ``after``. The patch shares nothing with the trees.

    Not guaranteed
        The patch may not be the shortest. Items of a list are paired from both its ends; an item that moved is rewritten. Where that would
        need
        more operations than an API server accepts (10,000), whole members of the root are replaced.
    """
    found: list[Operation] = []
    _members("", before, after, found)
    if len(found) <= MAX_OPERATIONS:
        return found
    coarse: list[Operation] = []
    for name in [*before, *(name for name in after if name not in before)]:
        path = _below("", name)
        if name not in after:
            coarse.append({"op": "remove", "path": path})
        elif name not in before or not same(before[name], after[name]):
            coarse.append({"op": "add", "path": path, "value": copy_tree(after[name])})
    return coarse


def _values(path: str, before: JSON, after: JSON, found: list[Operation]) -> None:
    if isinstance(before, dict) and isinstance(after, dict):
        _members(path, before, after, found)
    elif isinstance(before, list) and isinstance(after, list):
        _items(path, before, after, found)
    elif not same(before, after):
        found.append({"op": "replace", "path": path, "value": copy_tree(after)})


def _members(path: str, before: dict[str, JSON], after: dict[str, JSON], found: list[Operation]) -> None:
    for name, value in before.items():
        if name in after:
            _values(_below(path, name), value, after[name], found)
        else:
            found.append({"op": "remove", "path": _below(path, name)})
    for name, value in after.items():
        if name not in before:
            found.append({"op": "add", "path": _below(path, name), "value": copy_tree(value)})


def _items(path: str, before: list[JSON], after: list[JSON], found: list[Operation]) -> None:
    shorter = min(len(before), len(after))
    start = 0
    while start < shorter and same(before[start], after[start]):
        start += 1
    tail = 0
    while tail < shorter - start and same(before[-1 - tail], after[-1 - tail]):
        tail += 1
    old_end, new_end = len(before) - tail, len(after) - tail
    both = min(old_end, new_end)
    for at in range(start, both):
        _values(f"{path}/{at}", before[at], after[at], found)
    # From the back, so that each index still refers to the same item.
    found.extend({"op": "remove", "path": f"{path}/{at}"} for at in range(old_end - 1, both - 1, -1))
    found.extend({"op": "add", "path": f"{path}/{at}", "value": copy_tree(after[at])} for at in range(both, new_end))


def _below(path: str, name: str) -> str:
    return f"{path}/{name.replace('~', '~0').replace('/', '~1')}"
