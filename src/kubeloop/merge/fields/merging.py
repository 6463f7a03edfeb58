"""Merges an applied configuration into a live object.

Source: structured-merge-diff's typed/merge; list items have its order: as in the live object where nothing moves, else as applied.
"""

from __future__ import annotations

from typing import Any

from kubeloop.merge.fields.elements import element_text
from kubeloop.merge.fields.errors import MISMATCHES, TypeMismatch
from kubeloop.merge.fields.field_types import ABSENT, ListType, MapType, MergeType, shape
from kubeloop.types import JSONObject


def merge(live: JSONObject, applied: JSONObject, type_: MergeType) -> JSONObject:
    """Return ``live`` with each value of ``applied``; nothing is removed. Changed parts are new, the rest is shared.

    Raises:
        TypeMismatch: ``applied`` has a field that the type lacks, or a list item without a key or with the key of another.
    """
    with MISMATCHES:
        merged = _merge(live, applied, type_)
        return merged if isinstance(merged, dict) else {}


def _merge(live: Any, applied: Any, type_: MergeType) -> Any:
    """Return ABSENT if nothing remains."""
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
