"""Computes the fields of an object, and the fields that differ between two states. Runs on every write; skips parts that both states share.

Source: structured-merge-diff's typed/tofieldset and typed/compare; its odd cases (duplicates, null, changed shapes) are the same here.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from kubeloop.merge.fields import tree
from kubeloop.merge.fields.errors import MISMATCHES, TypeMismatch
from kubeloop.merge.fields.field_set import FieldSet
from kubeloop.merge.fields.field_types import ABSENT, ListType, MapType, MergeType, shape
from kubeloop.merge.fields.tree import LEAF, SELF, Node
from kubeloop.types import JSONObject


class StateComparison(NamedTuple):
    """The fields that were added, modified and removed between two states.

    A path is in several of the sets only if its value changed its shape.
    """

    added: FieldSet
    modified: FieldSet
    removed: FieldSet

    def __bool__(self) -> bool:
        return bool(self.added or self.modified or self.removed)


def field_set(obj: JSONObject, type_: MergeType) -> FieldSet:
    """Return every field that has a value in ``obj``, list items included.

    Raises:
        TypeMismatch: A field is not in the type, or an item has no key. ``check`` finds other faults.
    """
    with MISMATCHES:
        return FieldSet(LEAF if type_.map is None or type_.map.atomic else _map_set(obj, type_.map))


def compare(old: JSONObject, new: JSONObject, type_: MergeType) -> StateComparison:
    """Return the fields that differ between two states. An added or removed container is in the result together with its content.

    Raises:
        TypeMismatch: See ``field_set``; parts that both states share are not checked.
    """
    if old is new:
        return _SAME
    changes = _Changes()
    with MISMATCHES:
        if type_.map is not None and not type_.map.atomic:
            _compare_maps(old, new, type_.map, changes)
    return StateComparison(FieldSet(changes.added), FieldSet(changes.modified), FieldSet(changes.removed))


_SAME = StateComparison(FieldSet(), FieldSet(), FieldSet())


def _undeclared(name: str) -> TypeMismatch:
    return TypeMismatch(f".{name}: field not declared in schema")


# Field sets of objects


def _map_set(value: JSONObject, type_: MapType) -> Node:
    out: Node = {}
    fields, values = type_.fields, type_.values
    for name, below in value.items():
        field = fields.get(name)
        named = field is not None
        if field is None:
            field = values
            if field is None:
                raise _undeclared(name)
        kind = below.__class__
        if kind is dict:
            if not below:
                out["f:" + name] = LEAF
                continue
            node = _below_map(below, field)
        elif kind is list:
            node = _below_list(below, field)
        else:
            out["f:" + name] = LEAF
            continue
        if node is not None:
            out["f:" + name] = {SELF: LEAF, **node} if node and not named else node
        elif not named:
            out["f:" + name] = LEAF
    return out


def _below_map(value: JSONObject, type_: MergeType) -> Node | None:
    """Return the node of a map, without the map itself unless it is a leaf, or None if the set is empty."""
    if type_.map is None:
        return None
    if type_.map.atomic:
        return LEAF
    return _map_set(value, type_.map) or None


def _below_list(value: list[Any], type_: MergeType) -> Node | None:
    if type_.list is None:
        return None
    if type_.list.atomic:
        return LEAF
    return _list_set(value, type_.list) or None


def _list_set(value: list[Any], type_: ListType) -> Node:
    out: Node = {}
    for element, items in _indexed(value, type_).items():
        # Items with the same key are owned together, as a whole.
        out[element] = _item_set(items[0], type_.items) if len(items) == 1 else LEAF
    return out


def _item_set(item: Any, type_: MergeType) -> Node:
    node: Node | None = None
    if item.__class__ is dict:
        node = _below_map(item, type_)
    elif item.__class__ is list:
        node = _below_list(item, type_)
    return {SELF: LEAF, **node} if node else LEAF


def _indexed(value: list[Any], type_: ListType) -> dict[str, list[Any]]:
    out: dict[str, list[Any]] = {}
    identity = type_.element
    for item in value:
        element = identity(item)
        known = out.get(element)
        if known is None:
            out[element] = [item]
        else:
            known.append(item)
    return out


# Values that were added or removed as a whole


def _whole(value: Any, type_: MergeType) -> Node:
    """Return the node of a value that was added or removed as a whole: all of its fields are in the set."""
    kind = value.__class__
    out: Node
    if kind is dict and value and type_.map is not None and not type_.map.atomic:
        out = {SELF: LEAF}
        fields, values = type_.map.fields, type_.map.values
        for name, below in value.items():
            field = fields.get(name, values)
            if field is None:
                raise _undeclared(name)
            kind = below.__class__
            out["f:" + name] = _whole(below, field) if kind is dict or kind is list else LEAF
        return out
    if kind is list and value and type_.list is not None and not type_.list.atomic:
        out = {SELF: LEAF}
        for element, items in _indexed(value, type_.list).items():
            out[element] = _whole(items[0], type_.list.items) if len(items) == 1 else LEAF
        return out
    return LEAF


# Comparison


class _Changes:
    """The trees of changes of one container during the comparison."""

    __slots__ = ("added", "modified", "removed")

    def __init__(self) -> None:
        self.added: Node = {}
        self.modified: Node = {}
        self.removed: Node = {}

    def put(self, element: str, changes: _Changes) -> None:
        if changes.added:
            _put(self.added, element, changes.added)
        if changes.modified:
            _put(self.modified, element, changes.modified)
        if changes.removed:
            _put(self.removed, element, changes.removed)


def _put(parent: Node, element: str, node: Node) -> None:
    """Add a node in canonical form to a tree of changes; a node without members is not added."""
    found = tree.canonical(node)
    if found is not None:
        known = parent.get(element)
        parent[element] = found if known is None else tree.union({element: known}, {element: found})[element]


def _compare_maps(old: JSONObject, new: JSONObject, type_: MapType, changes: _Changes) -> None:
    fields, values = type_.fields, type_.values
    for name, after in new.items():
        before = old.get(name, ABSENT)
        if before is after:
            continue
        field = fields.get(name, values)
        if field is None:
            raise _undeclared(name)
        kind = after.__class__
        if before is ABSENT:
            changes.added["f:" + name] = _whole(after, field)
        elif kind is before.__class__ and kind is not dict and kind is not list:
            if before != after:
                changes.modified["f:" + name] = LEAF
        else:
            _compare(before, after, field, "f:" + name, changes)
    if len(old) != len(new) or not old.keys() <= new.keys():
        for name, before in old.items():
            if name not in new:
                field = fields.get(name, values)
                if field is None:
                    raise _undeclared(name)
                changes.removed["f:" + name] = _whole(before, field)


def _compare(before: Any, after: Any, type_: MergeType, element: str, changes: _Changes) -> None:
    """Compare two values that are both present and not the same Python object."""
    was, is_ = shape(type_, before), shape(type_, after)
    _compare_as(is_, before, after, type_, element, changes)
    if was != is_:
        # A value that changed its shape counts as removed and added: its old parts vanished, its new ones appeared.
        _compare_as(was, before, after, type_, element, changes)


def _compare_as(as_: str, before: Any, after: Any, type_: MergeType, element: str, changes: _Changes) -> None:
    if as_ == "map" and type_.map is not None and not type_.map.atomic:
        old = before if before.__class__ is dict else {}
        new = after if after.__class__ is dict else {}
        if old or new:
            below = _Changes()
            _compare_maps(old, new, type_.map, below)
            changes.put(element, below)
            return
    elif as_ == "list" and type_.list is not None and not type_.list.atomic:
        first = before if before.__class__ is list else []
        second = after if after.__class__ is list else []
        if first or second:
            # Computing the keys of items costs more than detecting that nothing changed.
            if first == second and not type_.loose:
                return
            below = _Changes()
            _compare_lists(first, second, type_.list, below)
            changes.put(element, below)
            return
    if not equal(before, after):
        _put(changes.modified, element, {SELF: LEAF})


def _compare_lists(old: list[Any], new: list[Any], type_: ListType, changes: _Changes) -> None:
    before, after = _indexed(old, type_), _indexed(new, type_)
    for element, second in after.items():
        first = before.get(element)
        if first is None:
            changes.added[element] = _whole(second[0], type_.items) if len(second) == 1 else LEAF
        elif len(first) == 1 and len(second) == 1:
            if first[0] is not second[0]:
                _compare(first[0], second[0], type_.items, element, changes)
        elif len(first) > 1 and len(second) > 1:
            if not equal(first, second):
                changes.modified[element] = LEAF
        elif len(first) > 1:
            # Several items became one: the old items vanish as a whole, the fields of the new one appear.
            changes.removed[element] = LEAF
            changes.added[element] = _whole(second[0], type_.items)
        else:
            changes.removed[element] = _whole(first[0], type_.items)
            changes.added[element] = LEAF
    for element, first in before.items():
        if element not in after:
            changes.removed[element] = _whole(first[0], type_.items) if len(first) == 1 else LEAF


def equal(left: Any, right: Any) -> bool:
    """Return whether two JSON values are equal: 1 equals 1.0, but not true."""
    return bool(left == right) and not _differ_in_booleans(left, right)


def _differ_in_booleans(left: Any, right: Any) -> bool:
    if left is right:
        return False
    if isinstance(left, dict):
        return any(_differ_in_booleans(value, right[name]) for name, value in left.items())
    if isinstance(left, list):
        return any(map(_differ_in_booleans, left, right))
    return (left.__class__ is bool) != (right.__class__ is bool)
