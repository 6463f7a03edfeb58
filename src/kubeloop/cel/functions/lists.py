"""List functions: sums and extremes, sorting, slicing and flattening, lists as sets, and building maps.

Source: k8s.io/apiserver pkg/cel/library/lists, cel-go ext/lists (version 3), ext/sets, ext/comprehensions.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

from kubeloop.cel.faults import EvalError
from kubeloop.cel.functions.operators import shown_key
from kubeloop.cel.overloads import FUNCTIONS, function, member
from kubeloop.cel.values import DurationValue, UInt, as_key, contains, equal, from_key

#: The maximum length of ``lists.range``; the cost limit stops longer ones anyway.
_LONGEST_RANGE = 1_000_000
_COMPARABLE = ("int", "uint", "double", "bool", "duration", "timestamp", "string", "bytes")
_ZERO: dict[str, Any] = {"int": 0, "uint": UInt(0), "double": 0.0, "duration": DurationValue(0)}


def _below(value: Any, other: Any) -> bool:
    return bool(FUNCTIONS["_<_"].call(value, other))


def _is_sorted(items: list[Any]) -> bool:
    return not any(_below(after, before) for before, after in pairwise(items))


def _sum(zero: Any) -> Callable[[list[Any]], Any]:
    def total(items: list[Any]) -> Any:
        result = zero
        for item in items:
            result = FUNCTIONS["_+_"].call(result, item)
        return result

    return total


def _extreme(name: str, better: Callable[[Any, Any], bool]) -> Callable[[list[Any]], Any]:
    def extreme(items: list[Any]) -> Any:
        if not items:
            raise EvalError(f"{name} called on empty list")
        result = items[0]
        for item in items[1:]:
            if better(item, result):
                result = item
        return result

    return extreme


def _sort(items: list[Any]) -> list[Any]:
    return _sort_by_keys(items, items)


def _sort_by_keys(items: list[Any], keys: list[Any]) -> list[Any]:
    if len({type(key) for key in keys}) > 1:
        raise EvalError("list elements must have the same type")
    return [items[index] for index in sorted(range(len(items)), key=keys.__getitem__)]


for _type in _COMPARABLE:
    member("isSorted", f"list({_type}) -> bool", f"list_{_type}_is_sorted_bool")(_is_sorted)
    member("max", f"list({_type}) -> {_type}", f"list_{_type}_max_{_type}")(
        _extreme("max", lambda candidate, best: _below(best, candidate))
    )
    member("min", f"list({_type}) -> {_type}", f"list_{_type}_min_{_type}")(_extreme("min", _below))
    member("sort", f"list({_type}) -> list({_type})", f"list_{_type}_sort")(_sort)
    member("@sortByAssociatedKeys", f"list(T), list({_type}) -> list(T)", f"list_{_type}_sortByAssociatedKeys")(_sort_by_keys)
for _type, _zero in _ZERO.items():
    member("sum", f"list({_type}) -> {_type}", f"list_{_type}_sum_{_type}")(_sum(_zero))


@member("indexOf", "list(A), A -> int", "list_a_index_of_int")
def _index_of(items: list[Any], value: Any) -> int:
    return next((index for index, item in enumerate(items) if equal(item, value)), -1)


@member("lastIndexOf", "list(A), A -> int", "list_a_last_index_of_int")
def _last_index_of(items: list[Any], value: Any) -> int:
    return next((index for index in range(len(items) - 1, -1, -1) if equal(items[index], value)), -1)


@member("slice", "list(T), int, int -> list(T)", "list_slice")
def _slice(items: list[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise EvalError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise EvalError(f"cannot slice({start}, {end}), start index must be less than or equal to end index")
    if len(items) < end:
        raise EvalError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return items[start:end]


@member("flatten", "list(list(T)) -> list(T)", "list_flatten")
@member("flatten", "list(dyn), int -> list(dyn)", "list_flatten_int")
def _flatten(items: list[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise EvalError("level must be non-negative")
    out: list[Any] = []
    for item in items:
        if isinstance(item, list) and depth:
            out.extend(_flatten(item, depth - 1))
        else:
            out.append(item)
    return out


@function("lists.range", "int -> list(int)", "lists_range")
def _range(count: int) -> list[int]:
    if count > _LONGEST_RANGE:
        raise EvalError("operation cancelled: actual cost limit exceeded")
    return list(range(count))


member("reverse", "list(T) -> list(T)", "list_reverse")(lambda items: items[::-1])


@member("distinct", "list(T) -> list(T)", "list_distinct")
def _distinct(items: list[Any]) -> list[Any]:
    if all(type(item) is str for item in items):
        return list(dict.fromkeys(items))
    out: list[Any] = []
    for item in items:
        if not contains(out, item):
            out.append(item)
    return out


def _has_all(items: list[Any], values: list[Any]) -> bool:
    return all(contains(items, one) for one in values)


function("sets.contains", "list(T), list(T) -> bool", "list_sets_contains_list")(_has_all)
function("sets.equivalent", "list(T), list(T) -> bool", "list_sets_equivalent_list")(
    lambda values, other: _has_all(values, other) and _has_all(other, values)
)
function("sets.intersects", "list(T), list(T) -> bool", "list_sets_intersects_list")(
    lambda values, other: any(contains(other, item) for item in values)
)


@function("cel.@mapInsert", "map(K, V), K, V -> map(K, V)", "@mapInsert_map_key_value")
def _insert(mapping: dict[Any, Any], key: Any, value: Any) -> dict[Any, Any]:
    kept = as_key(key)
    if kept in mapping:
        raise EvalError(f"insert failed: key {shown_key(key)} already exists")
    return {**mapping, kept: value}


@function("cel.@mapInsert", "map(K, V), map(K, V) -> map(K, V)", "@mapInsert_map_map")
def _insert_all(mapping: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:
    for key, value in more.items():
        mapping = _insert(mapping, from_key(key), value)
    return mapping
