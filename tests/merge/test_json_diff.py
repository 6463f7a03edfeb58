"""The JSON patch between two trees: applied to the first it gives the second, and it names only what differs."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.merge.json_diff import json_diff
from kubeloop.merge.json_patch import MAX_OPERATIONS, json_patch

CASES = [
    pytest.param({"a": 1}, {"a": 1}, [], id="trees that are the same need no patch"),
    pytest.param({}, {"a": {"b": 1}}, [{"op": "add", "path": "/a", "value": {"b": 1}}], id="a new member is added whole"),
    pytest.param({"a": 1, "b": 2}, {"b": 2}, [{"op": "remove", "path": "/a"}], id="a member that is gone is removed"),
    pytest.param({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [{"op": "replace", "path": "/a/c", "value": 3}], id="deep down"),
    pytest.param({"a": 1}, {"a": 1.0}, [{"op": "replace", "path": "/a", "value": 1.0}], id="1 is not 1.0"),
    pytest.param({"a": True}, {"a": 1}, [{"op": "replace", "path": "/a", "value": 1}], id="true is not 1"),
    pytest.param({"a": None}, {}, [{"op": "remove", "path": "/a"}], id="null is not missing"),
    pytest.param({"a/b": 1, "c~d": 1}, {}, [{"op": "remove", "path": "/a~1b"}, {"op": "remove", "path": "/c~0d"}], id="signs are escaped"),
    pytest.param({"a": [1, 2, 3]}, {"a": [1, 3]}, [{"op": "remove", "path": "/a/1"}], id="an item that is gone is removed by itself"),
    pytest.param({"a": [1, 3]}, {"a": [1, 2, 3]}, [{"op": "add", "path": "/a/1", "value": 2}], id="an item between others is added there"),
    pytest.param({"a": [1]}, {"a": [1, 2]}, [{"op": "add", "path": "/a/1", "value": 2}], id="an item is added at the end"),
    pytest.param(
        {"a": [{"n": 1, "x": 0}, {"n": 2}]},
        {"a": [{"n": 9, "x": 0}, {"n": 2}]},
        [{"op": "replace", "path": "/a/0/n", "value": 9}],
        id="within an item only what differs is named",
    ),
    pytest.param(
        {"a": [1, 2, 3, 4]},
        {"a": [4]},
        [{"op": "remove", "path": "/a/2"}, {"op": "remove", "path": "/a/1"}, {"op": "remove", "path": "/a/0"}],
        id="items are removed from the back",
    ),
]


@pytest.mark.parametrize(("before", "after", "patch"), CASES)
def test_the_patch_between(before: dict[str, Any], after: dict[str, Any], patch: list[dict[str, Any]]) -> None:
    assert json_diff(before, after) == patch
    assert json_patch(before, patch) == after


_SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "x", "~", "/", "~1"]) | st.sampled_from([0.0, 1.0, 1.5])
_TREES = st.recursive(
    _SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(["a", "b", "a/b", "~0", "0", "-"]), inner),
    max_leaves=12,
)
_OBJECTS = st.dictionaries(st.sampled_from("abc"), _TREES, max_size=3)


@settings(max_examples=100)
@given(_OBJECTS, _OBJECTS)
def test_applying_the_difference_gives_the_changed_tree(before: dict[str, Any], after: dict[str, Any]) -> None:
    made = json_patch(before, json_diff(before, after))
    assert repr(_ordered(made)) == repr(_ordered(after))  # repr tells 1 from 1.0 and true


def test_a_patch_is_never_longer_than_servers_read() -> None:
    before = {"kept": {"a": 1}, "many": {str(number): 1 for number in range(MAX_OPERATIONS + 1)}, "gone": 1}
    after = {"kept": {"a": 1}, "many": {str(number): 2 for number in range(MAX_OPERATIONS + 1)}, "new": 1}
    patch = json_diff(before, after)
    assert [(one["op"], one["path"]) for one in patch] == [("add", "/many"), ("remove", "/gone"), ("add", "/new")]
    assert json_patch(before, patch) == after


def test_the_patch_shares_nothing_with_the_trees() -> None:
    after: dict[str, Any] = {"a": {"b": []}}
    patch = json_diff({}, after)
    after["a"]["b"].append(1)
    assert patch[0]["value"] == {"b": []}


def _ordered(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _ordered(tree[name]) for name in sorted(tree)}
    return [_ordered(one) for one in tree] if isinstance(tree, list) else tree
