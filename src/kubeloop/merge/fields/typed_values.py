"""Merges, removes and extracts fields of objects by their merge types."""

from __future__ import annotations

from typing import Any

from kubeloop.merge.fields import tree
from kubeloop.merge.fields.comparison import field_set
from kubeloop.merge.fields.elements import element_text
from kubeloop.merge.fields.errors import MISMATCHES, TypeMismatch
from kubeloop.merge.fields.field_set import FieldSet
from kubeloop.merge.fields.field_types import ABSENT, ListType, MapType, MergeType, shape
from kubeloop.merge.fields.tree import SELF, Node
from kubeloop.types import JSONObject

# Merges an applied configuration into a live object.
#
# Source: structured-merge-diff's typed/merge. List items are in upstream's order: as in the live object where nothing moves, else as
# applied.


def merge(live: JSONObject, applied: JSONObject, type_: MergeType) -> JSONObject:
    """Return ``live`` with each value of ``applied``; nothing is removed. Changed parts are new, the rest is shared.

    Raises:
        TypeMismatch: ``applied`` has a field that the type lacks, or a list item without a key or with the key of another item.
    """
    with MISMATCHES:
        merged = _merge(live, applied, type_)
        return merged if isinstance(merged, dict) else {}


def _merge(live: Any, applied: Any, type_: MergeType) -> Any:
    """Return the merged value, or ABSENT if nothing remains."""
    if applied is ABSENT:
        as_ = shape(type_, live)
    else:
        as_ = shape(type_, applied)
        if live is applied:
            return applied
    if as_ == "map" and type_.map is not None and not type_.map.atomic:
        old = live if live.__class__ is dict else {}
        new = applied if applied.__class__ is dict else {}
        if old or new:
            return _merge_maps(old, new, type_.map)
    elif as_ == "list" and type_.list is not None and not type_.list.atomic:
        first = live if live.__class__ is list else []
        second = applied if applied.__class__ is list else []
        if first or second:
            return _merge_lists(first, second, type_.list)
    return live if applied is ABSENT else applied


def _merge_maps(live: JSONObject, applied: JSONObject, type_: MapType) -> Any:
    if not applied:
        return live
    out = dict(live)
    for name, value in applied.items():
        field = type_.of(name)
        if field is None:
            raise TypeMismatch(f".{name}: field not declared in schema")
        merged = _merge(live.get(name, ABSENT), value, field)
        if merged is ABSENT:
            out.pop(name, None)
        else:
            out[name] = merged
    return out or ABSENT


def _merge_lists(live: list[Any], applied: list[Any], type_: ListType) -> Any:
    wanted = [type_.element(item) for item in applied]
    by_wanted = dict(zip(wanted, applied, strict=True))
    if len(by_wanted) != len(wanted):
        twice = next(element for index, element in enumerate(wanted) if element in wanted[:index])
        raise TypeMismatch(f"duplicate entries for key {element_text(twice)}")
    present = [type_.element(item) for item in live]
    by_present: dict[str, Any] = {}
    for element, item in zip(present, live, strict=True):
        # Items that share a key are replaced, not merged into.
        by_present[element] = None if element in by_present else item

    shared = iter([element for element in wanted if element in by_present])
    next_shared = next(shared, None)
    out: list[Any] = []
    merged: set[str] = set()
    at_live = at_wanted = 0

    def take(known: Any, value: Any) -> None:
        result = _merge(known, value, type_.items)
        if result is not ABSENT:
            out.append(result)

    while at_live < len(present) or at_wanted < len(wanted):
        if at_live < len(present):
            element = present[at_live]
            if at_wanted < len(wanted):
                if element == wanted[at_wanted]:
                    merged.add(element)
                    take(by_present[element], by_wanted[element])
                    at_live += 1
                    at_wanted += 1
                    next_shared = next(shared, None)
                    continue
                if element in by_wanted and next_shared is not None and next_shared != element:
                    # The item is in both, but its position in the applied order is later or earlier.
                    at_live += 1
                    continue
            if element not in by_wanted:
                take(live[at_live], ABSENT)
                at_live += 1
                continue
            if element in merged:
                at_live += 1
        if at_wanted < len(wanted):
            element = wanted[at_wanted]
            merged.add(element)
            take(by_present.get(element, ABSENT), by_wanted[element])
            at_wanted += 1
            if next_shared == element:
                next_shared = next(shared, None)
    return out or ABSENT


# Removes fields from an object, and extracts fields of it.
#
# Source: structured-merge-diff's typed/remove.


def remove(obj: JSONObject, fields: FieldSet, type_: MergeType) -> JSONObject:
    """Return ``obj`` without ``fields`` and the fields below them; unchanged parts are shared.

    A container that loses all of its content, without being in ``fields`` itself, becomes null, as in Kubernetes.

    Raises:
        TypeMismatch: A list item has no key.
    """
    if not fields:
        return obj
    with MISMATCHES:
        left = _without(obj, fields.root, type_)
        return left if isinstance(left, dict) else {}


def _without(value: Any, node: Node, type_: MergeType) -> Any:
    """Return ``value`` without the fields of ``node``, which has children."""
    if value.__class__ is dict:
        if type_.map is None or type_.map.atomic:
            return None
        return _map_without(value, node, type_) or None
    if value.__class__ is list:
        if type_.list is None or type_.list.atomic:
            return None
        out: list[Any] = []
        for item in value:
            below = node.get(type_.list.element(item))
            if below is None:
                out.append(item)
            elif not tree.is_member(below):
                out.append(_without(item, below, type_.list.items))
        return out or None
    return value


def _map_without(value: JSONObject, node: Node, type_: MergeType) -> JSONObject:
    out: JSONObject = {}
    for name, child in value.items():
        below = node.get("f:" + name)
        if below is None:
            out[name] = child
        elif not tree.is_member(below):
            field = type_.map.of(name) if type_.map is not None else None
            out[name] = child if field is None else _without(child, below, field)
    return out


def extract(obj: JSONObject, fields: FieldSet, type_: MergeType) -> JSONObject:
    """Return only ``fields`` of ``obj``, with the keys of their list items: the configuration with which a manager owns the same fields.

    Raises:
        TypeMismatch: See ``field_set``.
    """
    # Fields that the object no longer has are ignored.
    present = field_set(obj, type_) & fields
    if not present:
        return {}
    with MISMATCHES:
        taken = _only(obj, present.root, type_)
        return taken if isinstance(taken, dict) else {}


def _only(value: Any, node: Node, type_: MergeType) -> Any:
    if value.__class__ is dict and type_.map is not None and not type_.map.atomic:
        return {name: _only(child, node["f:" + name], type_.map.of(name) or type_) for name, child in value.items() if "f:" + name in node}
    if value.__class__ is list and type_.list is not None and not type_.list.atomic:
        return _only_items(value, node, type_)
    return value


def _only_items(value: list[Any], node: Node, type_: MergeType) -> list[Any]:
    out: list[Any] = []
    if type_.list is None:
        return out
    for item in value:
        below = node.get(type_.list.element(item))
        if below is None:
            continue
        taken = _only(item, below, type_.list.items)
        if item.__class__ is dict and type_.list.keys and taken is not item:
            taken = {name: item[name] for name in item if name in type_.list.keys or name in taken} | taken
        out.append(taken)
    return out


def with_named_fields(fields: FieldSet, type_: MergeType) -> FieldSet:
    """Return ``fields`` with every named field above them. The fields of a struct are named; the keys of a map are not."""
    return FieldSet(_with_named(fields.root, type_))


def _with_named(node: Node, type_: MergeType | None) -> Node:
    map_ = None if type_ is None else type_.map
    list_ = None if type_ is None else type_.list
    out: Node = {}
    for element, below in node.items():
        if not below:
            out[element] = below
        elif element[0] == "f" and map_ is not None:
            name = element[2:]
            found = _with_named(below, map_.of(name))
            out[element] = {SELF: {}, **found} if name in map_.fields else found
        elif element[0] == "k" and list_ is not None:
            out[element] = _with_named(below, list_.items)
        else:
            out[element] = _with_named(below, None)
    return out
