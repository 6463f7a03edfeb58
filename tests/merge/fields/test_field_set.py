"""Sets of fields: FieldsV1 both ways, and an algebra that a model of plain sets of paths checks."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.merge.fields import ElementError, FieldSet

Paths = frozenset[tuple[str, ...]]

ELEMENTS = ["f:a", "f:b", 'k:{"name":"x"}', 'k:{"name":"y"}', 'v:"s"', "v:1"]
PATHS: st.SearchStrategy[Paths] = st.frozensets(
    st.lists(st.sampled_from(ELEMENTS), min_size=1, max_size=4).map(tuple),
    max_size=8,
)


def in_set(paths: Paths) -> FieldSet:
    return FieldSet.from_paths(*paths)


def shown(fields: FieldSet) -> Paths:
    return frozenset(fields)


@pytest.mark.parametrize(
    ("document", "paths"),
    [
        pytest.param({}, [], id="the empty set"),
        pytest.param(None, [], id="null is the empty set"),
        pytest.param({"f:a": {}}, [("f:a",)], id="an empty object is a member"),
        pytest.param({"f:a": None}, [("f:a",)], id="so is null"),
        pytest.param({"f:a": {".": {}, "f:b": {}}}, [("f:a",), ("f:a", "f:b")], id="a dot makes a member of what has children"),
        pytest.param({"f:a": {"f:b": {}}}, [("f:a", "f:b")], id="without it only the children are members"),
        pytest.param({"f:a": {".": {}}}, [("f:a",)], id="a dot alone changes nothing"),
        pytest.param({".": {}, "f:a": {}}, [("f:a",)], id="the whole object has no owner"),
        pytest.param({"f:a": {"x:future": {}}}, [("f:a",)], id="unknown types are dropped, which leaves a member"),
        pytest.param({"v:1.0": {}, "v:1": {"f:b": {}}}, [("v:1",), ("v:1", "f:b")], id="two spellings of one element join"),
    ],
)
def test_reading(document: Any, paths: list[tuple[str, ...]]) -> None:
    assert list(FieldSet.from_json(document)) == paths


@pytest.mark.parametrize(
    "document",
    [
        pytest.param([], id="a list"),
        pytest.param({"f:a": 1}, id="a number for a node"),
        pytest.param({"f:a": {"f:b": "x"}}, id="a text for a node"),
        pytest.param({"nonsense": {}}, id="a name that is no element"),
    ],
)
def test_an_invalid_set_is_refused(document: Any) -> None:
    with pytest.raises(ElementError):
        FieldSet.from_json(document)


def test_nesting_without_end_is_refused() -> None:
    document: dict[str, Any] = {}
    for _ in range(10_000):
        document = {"f:a": document}
    with pytest.raises(ElementError, match="too deeply"):
        FieldSet.from_json(document)


def test_members_come_before_what_lies_below() -> None:
    fields = FieldSet.from_paths(("f:b", "f:c"), ("f:a",), ("f:a", "v:2"), ("f:a", "v:10"), ("f:b",))
    assert list(fields) == [("f:a",), ("f:b",), ("f:a", "v:2"), ("f:a", "v:10"), ("f:b", "f:c")]


def test_json_is_written_in_order_with_the_dot_first() -> None:
    fields = FieldSet.from_paths(("f:b",), ("f:a", "v:10"), ("f:a", "v:2"), ("f:a", 'k:{"n":1}'), ("f:a",))
    assert list(fields.to_json()) == ["f:a", "f:b"]
    assert list(fields.to_json()["f:a"]) == [".", 'k:{"n":1}', "v:2", "v:10"]


def test_written_json_is_the_callers() -> None:
    fields = FieldSet.from_paths(("f:a",))
    fields.to_json()["f:a"]["f:b"] = {}
    assert fields == FieldSet.from_paths(("f:a",))


def test_the_path_of_the_whole_object_is_in_no_set() -> None:
    assert FieldSet.from_paths(()) == FieldSet()
    assert () not in FieldSet.from_paths(("f:a",))


def test_a_set_says_its_paths() -> None:
    assert repr(FieldSet.from_paths(("f:spec", "f:replicas"))) == "FieldSet(.spec.replicas)"


def test_below_is_what_lies_under_an_element() -> None:
    fields = FieldSet.from_paths(("f:a",), ("f:a", "f:b"))
    assert fields.below("f:a") == FieldSet.from_paths(("f:b",))
    assert fields.below("f:z") == FieldSet()


@given(PATHS)
def test_a_set_survives_json_and_iteration(paths: Paths) -> None:
    fields = in_set(paths)
    assert shown(fields) == paths
    assert len(fields) == len(paths)
    assert bool(fields) == bool(paths)
    assert FieldSet.from_json(fields.to_json()) == fields == FieldSet.from_paths(*fields)
    assert all(path in fields for path in paths)


@settings(max_examples=200)
@given(PATHS, PATHS)
def test_operations_are_those_of_sets_of_paths(left: Paths, right: Paths) -> None:
    one, other = in_set(left), in_set(right)
    assert shown(one | other) == left | right
    assert shown(one & other) == left & right
    assert shown(one - other) == left - right
    below_right = {path for path in left if any(path[: len(taken)] == taken for taken in right)}
    assert shown(one.recursive_difference(other)) == left - below_right
    assert shown(one.leaves()) == {path for path in left if not any(longer != path and longer[: len(path)] == path for longer in left)}
    assert (shown(one), shown(other)) == (left, right)
    assert (one == other) == (left == right)


@given(PATHS, PATHS)
def test_results_are_canonical(left: Paths, right: Paths) -> None:
    one, other = in_set(left), in_set(right)
    for result in (one | other, one & other, one - other, one.recursive_difference(other), one.leaves()):
        assert result == FieldSet.from_paths(*result)
