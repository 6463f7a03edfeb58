"""Structural schemas at work on plain trees: pruning, nulls, defaults, lists. Messages: tests/apiserver/crd/test_recorded.py."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.schema.custom_objects import apply_defaults, check_lists, drop_nulls, prune
from kubeloop.schema.structural import parse
from kubeloop.schema.validation import same, validate

STRING: dict[str, Any] = {"type": "string"}


def fields(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties}


@pytest.mark.parametrize(
    ("schema", "before", "after", "removed"),
    [
        pytest.param(fields(a=STRING), {"a": "x", "b": 1}, {"a": "x"}, ["b"], id="a field that is not named goes"),
        pytest.param(
            fields(a={"type": "array", "items": fields(b=STRING)}), {"a": [{"b": "x", "c": 1}]}, {"a": [{"b": "x"}]}, ["a[0].c"],
            id="items of lists are pruned",
        ),
        pytest.param(
            fields(a={"type": "object", "additionalProperties": fields(b=STRING)}), {"a": {"k": {"c": 1}}}, {"a": {"k": {}}}, ["a.k.c"],
            id="values of maps are pruned, keys are kept",
        ),
        pytest.param(
            {"type": "object", "x-kubernetes-preserve-unknown-fields": True, **fields(a=fields(b=STRING))},
            {"z": {"y": 1}, "a": {"b": "x", "c": 1}}, {"z": {"y": 1}, "a": {"b": "x"}}, ["a.c"],
            id="preserve-unknown-fields keeps unspecified fields, and prunes below specified ones",
        ),
        pytest.param(
            fields(a={"type": "object", "additionalProperties": True}), {"a": {"k": 1, "l": {"m": 1}}}, {"a": {"k": 1, "l": {}}}, ["a.l.m"],
            id="additionalProperties true keeps scalars, and nothing below objects",
        ),
        pytest.param(
            fields(a={"type": "object", "x-kubernetes-embedded-resource": True, "x-kubernetes-preserve-unknown-fields": True}),
            {"a": {"apiVersion": "v1", "kind": "X", "metadata": {"odd": 1}, "b": 1}},
            {"a": {"apiVersion": "v1", "kind": "X", "metadata": {"odd": 1}, "b": 1}}, [],
            id="metadata of embedded resources is not looked at",
        ),
        pytest.param({}, {"apiVersion": "v1", "kind": "X", "metadata": {}, "a": 1},
                     {"apiVersion": "v1", "kind": "X", "metadata": {}}, ["a"],
                     id="an empty schema leaves type and metadata"),
    ],
)  # fmt: skip
def test_pruning(schema: dict[str, Any], before: dict[str, Any], after: dict[str, Any], removed: list[str]) -> None:
    assert prune(before, parse(schema)) == removed
    assert before == after


@pytest.mark.parametrize(
    ("schema", "before", "after"),
    [
        pytest.param(fields(a={**STRING, "default": "d"}), {}, {"a": "d"}, id="a missing field gets its default"),
        pytest.param(fields(a={**STRING, "default": "d"}), {"a": "x"}, {"a": "x"}, id="a given value stays"),
        pytest.param(fields(a={**STRING, "default": "d"}), {"a": None}, {"a": "d"}, id="null where it is not allowed gets the default"),
        pytest.param(fields(a={**STRING, "default": "d", "nullable": True}), {"a": None}, {"a": None}, id="null where it is allowed stays"),
        pytest.param(fields(a=STRING), {"a": None}, {}, id="null that is neither allowed nor defaulted goes"),
        pytest.param(fields(a=fields(b={**STRING, "default": "d"})), {}, {}, id="defaults inside an object do not create it"),
        pytest.param(
            fields(a={**fields(b={**STRING, "default": "d"}), "default": {}}), {}, {"a": {"b": "d"}},
            id="defaults inside a defaulted object are applied after it",
        ),
        pytest.param(
            fields(a={"type": "array", "items": fields(b={**STRING, "default": "d"})}), {"a": [{}, {"b": "x"}]},
            {"a": [{"b": "d"}, {"b": "x"}]}, id="items of lists get their defaults",
        ),
        pytest.param(
            fields(a={"type": "object", "additionalProperties": fields(b={**STRING, "default": "d"})}), {"a": {"k": {}}},
            {"a": {"k": {"b": "d"}}}, id="values of maps get their defaults",
        ),
    ],
)  # fmt: skip
def test_nulls_and_defaults(schema: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> None:
    node = parse(schema)
    drop_nulls(before, node)
    apply_defaults(before, node)
    assert before == after


def test_a_default_is_copied_so_that_objects_do_not_share_it() -> None:
    node = parse(fields(a={"type": "array", "items": STRING, "default": ["x"]}))
    first: dict[str, Any] = {}
    second: dict[str, Any] = {}
    apply_defaults(first, node)
    apply_defaults(second, node)
    first["a"].append("y")
    assert second == {"a": ["x"]}


def test_a_repeated_value_of_a_set_is_named_once() -> None:
    node = parse(fields(a={"type": "array", "items": STRING, "x-kubernetes-list-type": "set"}))
    assert [fault.field for fault in check_lists({"a": ["x", "y", "x", "x"]}, node)] == ["a[2]"]


def test_items_of_a_map_without_their_key_are_the_same() -> None:
    items = {"type": "array", "items": fields(k=STRING), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"]}
    assert [str(fault) for fault in check_lists({"a": [{}, {}]}, parse(fields(a=items)))] == ["a[1]: Duplicate value: {}"]


@pytest.mark.parametrize(
    ("left", "other", "equal"),
    [
        pytest.param(1, True, False, id="one is not true"),
        pytest.param(1, 1.0, False, id="a whole number is not a fraction"),
        pytest.param({"a": [1]}, {"a": [1]}, True, id="trees are compared to the bottom"),
        pytest.param({"a": None}, {}, False, id="null is not absence"),
    ],
)
def test_equality(left: Any, other: Any, equal: bool) -> None:
    assert same(left, other) is equal


TREES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab", max_size=2),
    lambda below: st.lists(below, max_size=2) | st.dictionaries(st.sampled_from("abk"), below, max_size=3),
    max_leaves=8,
)
SCHEMA = parse(
    fields(
        a={**fields(b={**STRING, "default": "d", "maxLength": 1}, k={"type": "integer", "nullable": True}), "default": {}},
        b={"type": "array", "items": fields(a=STRING), "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["a"]},
        k={"type": "object", "additionalProperties": {"type": "integer", "default": 3}},
    )
)


@settings(max_examples=150, deadline=None)
@given(st.dictionaries(st.sampled_from("abkz"), TREES, max_size=4))
def test_a_conformed_object_does_not_change_any_more_and_is_never_worse_than_itself(obj: dict[str, Any]) -> None:
    prune(obj, SCHEMA)
    drop_nulls(obj, SCHEMA)
    apply_defaults(obj, SCHEMA)
    again = copy.deepcopy(obj)
    assert prune(again, SCHEMA) == []
    drop_nulls(again, SCHEMA)
    apply_defaults(again, SCHEMA)
    assert same(again, obj)
    assert validate(obj, SCHEMA, old=obj) == []
