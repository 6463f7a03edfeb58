from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.merge import PatchError, create_merge_patch, merge_patch

SCALARS = st.booleans() | st.integers(-3, 3) | st.floats(-1, 1, width=16).map(lambda value: value + 0.0) | st.text("ab", max_size=2)
VALUES = st.recursive(
    SCALARS, lambda child: st.lists(child, max_size=3) | st.dictionaries(st.sampled_from("abc"), child, max_size=3), max_leaves=8
)
OBJECTS = st.dictionaries(st.sampled_from("abcd"), VALUES, max_size=4)
NULLABLE = st.recursive(
    SCALARS | st.none(),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.sampled_from("abc"), child, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("doc", "patch", "expected"),
    [
        pytest.param({"a": "b"}, {"a": "c"}, {"a": "c"}, id="a member is replaced"),
        pytest.param({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}, id="a member is added"),
        pytest.param({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}, id="null removes"),
        pytest.param({"b": "c"}, {"a": None}, {"b": "c"}, id="null for a missing member is nothing"),
        pytest.param({"a": ["b"]}, {"a": "c"}, {"a": "c"}, id="a list gives way to a scalar"),
        pytest.param({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}, id="objects merge"),
        pytest.param({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}, id="a list is replaced whole"),
        pytest.param({"a": "foo"}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}, id="a new object comes without its nulls"),
        pytest.param({"e": None}, {"a": 1}, {"e": None, "a": 1}, id="a null of the document stays"),
        pytest.param({"a": None}, {"a": {"b": None}}, {"a": {}}, id="a null of the document counts as missing"),
        pytest.param({}, {"a": [None, {"b": None}]}, {"a": [None, {}]}, id="objects in a new list lose their nulls, the list does not"),
        pytest.param({"a": {}}, {"a": [{"b": None}]}, {"a": [{"b": None}]}, id="a list in place of an object is taken as it is"),
        pytest.param(["x"], {"a": 1}, {"a": 1}, id="a document that is no object is replaced"),
    ],
)
def test_merge(doc: Any, patch: Any, expected: Any) -> None:
    assert merge_patch(doc, patch) == expected


@pytest.mark.parametrize(("patch", "type_"), [([], "array"), ("x", "string"), (1, "number"), (True, "bool")])
def test_a_patch_that_is_no_object_is_refused(patch: Any, type_: str) -> None:
    with pytest.raises(PatchError) as caught:
        merge_patch({}, patch)
    assert str(caught.value) == f"error decoding patch: json: cannot unmarshal {type_} into Go value of type map[string]interface {{}}"
    assert caught.value.code == 400


@given(OBJECTS, OBJECTS)
def test_a_created_patch_turns_the_old_into_the_new(old: dict[str, Any], new: dict[str, Any]) -> None:
    assert repr_sorted(merge_patch(old, create_merge_patch(old, new))) == repr_sorted(new)


@given(OBJECTS)
def test_no_change_is_an_empty_patch(doc: dict[str, Any]) -> None:
    assert create_merge_patch(doc, doc) == {}
    assert merge_patch(doc, {}) == doc


@given(st.dictionaries(st.sampled_from("abcd"), NULLABLE, max_size=4), st.dictionaries(st.sampled_from("abcd"), NULLABLE, max_size=4))
def test_a_patch_applied_twice_is_a_patch_applied_once(doc: dict[str, Any], patch: dict[str, Any]) -> None:
    before = repr((doc, patch))
    once = merge_patch(doc, patch)
    if "[" not in repr(patch):
        assert merge_patch(once, patch) == once
    assert repr((doc, patch)) == before


def test_one_one_point_zero_and_true_are_three_values() -> None:
    assert repr(create_merge_patch({"a": 1}, {"a": True})) == "{'a': True}"
    assert repr(create_merge_patch({"a": 1}, {"a": 1.0})) == "{'a': 1.0}"


def test_members_keep_the_documents_order() -> None:
    assert list(merge_patch({"b": 1, "a": 2}, {"c": 3, "a": 4})) == ["b", "a", "c"]


def repr_sorted(value: Any) -> str:
    """A text in which 1, 1.0 and True differ."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{repr_sorted(value[key])}" for key in sorted(value)) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(repr_sorted, value)) + "]"
    return repr(value)
