""""""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.merge import PatchError, json_patch
from kubeloop.merge.json_patch import MAX_OPERATIONS, json_diff

DOC = {"data": {"k": "v", "l": "w"}, "list": [1, 2, 3]}

JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.text("ab/~", max_size=3),
    lambda child: st.lists(child, max_size=3) | st.dictionaries(st.text("ab/~", min_size=1, max_size=2), child, max_size=3),
    max_leaves=8,
)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        pytest.param(
            {"op": "add", "path": "/data/n", "value": "x"},
            {"data": {"k": "v", "l": "w", "n": "x"}, "list": [1, 2, 3]},
            id="add sets a new member",
        ),
        pytest.param(
            {"op": "add", "path": "/data/k", "value": 1}, {"data": {"k": 1, "l": "w"}, "list": [1, 2, 3]}, id="add replaces a member"
        ),
        pytest.param({"op": "add", "path": "/list/1", "value": 9}, DOC | {"list": [1, 9, 2, 3]}, id="add inserts before an index"),
        pytest.param({"op": "add", "path": "/list/-", "value": 9}, DOC | {"list": [1, 2, 3, 9]}, id="add appends at a dash"),
        pytest.param({"op": "add", "path": "/list/3", "value": 9}, DOC | {"list": [1, 2, 3, 9]}, id="add appends at the length"),
        pytest.param(
            {"op": "add", "path": "/list/-1", "value": 9},
            DOC | {"list": [1, 2, 3, 9]},
            id="a negative index counts from behind the end when adding",
        ),
        pytest.param(
            {"op": "add", "path": "/data/a~1b~0c", "value": 1},
            {"data": {"k": "v", "l": "w", "a/b~c": 1}, "list": [1, 2, 3]},
            id="tokens are unescaped",
        ),
        pytest.param(
            {"op": "add", "path": "/data/null"},
            {"data": {"k": "v", "l": "w", "null": None}, "list": [1, 2, 3]},
            id="a missing value is null",
        ),
        pytest.param({"op": "remove", "path": "/data/k"}, {"data": {"l": "w"}, "list": [1, 2, 3]}, id="remove takes a member away"),
        pytest.param({"op": "remove", "path": "/list/0"}, DOC | {"list": [2, 3]}, id="remove closes the gap in a list"),
        pytest.param({"op": "remove", "path": "/list/-1"}, DOC | {"list": [1, 2]}, id="remove counts a negative index from the end"),
        pytest.param(
            {"op": "replace", "path": "/data/new", "value": "x"},
            {"data": {"k": "v", "l": "w", "new": "x"}, "list": [1, 2, 3]},
            id="replace of a missing member adds it",
        ),
        pytest.param({"op": "replace", "path": "/list/2", "value": 9}, DOC | {"list": [1, 2, 9]}, id="replace sets an element"),
        pytest.param({"op": "replace", "path": "", "value": {"a": 1}}, {"a": 1}, id="replace of the root is the value"),
        pytest.param(
            {"op": "move", "from": "/data/k", "path": "/list/0"},
            {"data": {"l": "w"}, "list": ["v", 1, 2, 3]},
            id="move takes away and adds",
        ),
        pytest.param(
            {"op": "copy", "from": "/list", "path": "/data/k"},
            {"data": {"k": [1, 2, 3], "l": "w"}, "list": [1, 2, 3]},
            id="copy leaves its source",
        ),
        pytest.param({"op": "test", "path": "/data", "value": {"l": "w", "k": "v"}}, DOC, id="test compares objects whatever their order"),
        pytest.param({"op": "test", "path": "/data/no"}, DOC, id="test of a missing member holds for null"),
        pytest.param({"op": "test", "path": "", "value": DOC}, DOC, id="test compares the root"),
    ],
)
def test_an_operation(operation: dict[str, Any], expected: Any) -> None:
    assert json_patch(DOC, [operation]) == expected


@pytest.mark.parametrize(
    ("operation", "message"),
    [
        pytest.param(
            {"op": "test", "path": "/data/k", "value": "x"}, "testing value /data/k failed: test failed", id="a failing test names its path"
        ),
        pytest.param(
            {"op": "test", "path": "/list/0", "value": 1.0}, "testing value /list/0 failed: test failed", id="test tells 1 from 1.0"
        ),
        pytest.param(
            {"op": "test", "path": "/list/0", "value": True}, "testing value /list/0 failed: test failed", id="test tells 1 from true"
        ),
        pytest.param(
            {"op": "test", "path": "/no/k", "value": 1},
            "test operation does not apply: is missing path: /no/k: missing value",
            id="test below nothing",
        ),
        pytest.param(
            {"op": "remove", "path": "/data/no"},
            "error in remove for path: '/data/no': Unable to remove nonexistent key: no: missing value",
            id="remove of a missing member",
        ),
        pytest.param(
            {"op": "remove", "path": "/no/k"},
            'remove operation does not apply: doc is missing path: "/no/k": missing value',
            id="remove below nothing",
        ),
        pytest.param(
            {"op": "remove", "path": "/list/3"},
            "error in remove for path: '/list/3': Unable to access invalid index: 3: invalid index referenced",
            id="remove beyond a list",
        ),
        pytest.param(
            {"op": "add", "path": "/no/k", "value": 1},
            'add operation does not apply: doc is missing path: "/no/k": missing value',
            id="add below nothing",
        ),
        pytest.param(
            {"op": "add", "path": "", "value": 1},
            'add operation does not apply: doc is missing path: "": missing value',
            id="add of the root",
        ),
        pytest.param(
            {"op": "add", "path": "/data/k/x", "value": 1},
            'add operation does not apply: doc is missing path: "/data/k/x": missing value',
            id="add below a string",
        ),
        pytest.param(
            {"op": "add", "path": "/list/4", "value": 1},
            "error in add for path: '/list/4': Unable to access invalid index: 4: invalid index referenced",
            id="add beyond a list",
        ),
        pytest.param(
            {"op": "add", "path": "/list/x", "value": 1},
            "error in add for path: '/list/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            id="add at a word in a list",
        ),
        pytest.param(
            {"op": "replace", "path": "/list/9", "value": 1},
            "replace operation does not apply: doc is missing key: /list/9: missing value",
            id="replace beyond a list",
        ),
        pytest.param(
            {"op": "replace", "path": "", "value": 1},
            "replace operation value must be object or array: %!w(<nil>)",
            id="replace of the root by a scalar",
        ),
        pytest.param(
            {"op": "move", "path": "/x"},
            "move operation failed to decode from: operation, missing from field: missing value",
            id="move from nowhere",
        ),
        pytest.param(
            {"op": "copy", "from": "/list/7", "path": "/x"},
            "error in copy for from: '/list/7': Unable to access invalid index: 7: invalid index referenced",
            id="copy from beyond a list",
        ),
        pytest.param({"op": "add"}, "add operation failed to decode path: missing value", id="no path"),
        pytest.param({"op": "explode", "path": "/x"}, "Unexpected kind: explode", id="an unknown operation"),
        pytest.param({"path": "/x"}, "Unexpected kind: unknown", id="no operation"),
    ],
)
def test_an_operation_that_does_not_apply_is_422_and_says_why(operation: dict[str, Any], message: str) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(DOC, [operation])
    assert (str(caught.value), caught.value.code, caught.value.reason) == (message, 422, "Invalid")
    assert caught.value.answer == "the server rejected our request due to an error in our request"


@pytest.mark.parametrize(
    ("patch", "message"),
    [
        pytest.param({"op": "add"}, "object into Go value of type []handlers.jsonPatchOp", id="an object is no list of operations"),
        pytest.param("text", "string into Go value of type []handlers.jsonPatchOp", id="a string is no list of operations"),
        pytest.param([1], "number into Go value of type handlers.jsonPatchOp", id="a number is no operation"),
        pytest.param([{"op": 1}], "number into Go struct field jsonPatchOp.op of type string", id="an operation is a word"),
        pytest.param([{"path": []}], "array into Go struct field jsonPatchOp.path of type string", id="a path is a text"),
    ],
)
def test_an_invalid_patch_is_400(patch: Any, message: str) -> None:
    with pytest.raises(PatchError) as caught:
        json_patch(DOC, patch)
    assert (str(caught.value), caught.value.code) == (f"error decoding patch: json: cannot unmarshal {message}", 400)
    assert caught.value.answer == str(caught.value)


def test_too_many_operations_are_413() -> None:
    with pytest.raises(PatchError, match="maximum operations in a JSON patch is 10000, got 10001") as caught:
        json_patch(DOC, [{"op": "test", "path": "", "value": DOC}] * 10_001)
    assert caught.value.code == 413


def test_operations_apply_in_order_and_all_or_none() -> None:
    patch = [{"op": "add", "path": "/data/m", "value": {}}, {"op": "add", "path": "/data/m/n", "value": 1}]
    assert json_patch(DOC, patch)["data"]["m"] == {"n": 1}
    with pytest.raises(PatchError):
        json_patch(DOC, [*patch, {"op": "remove", "path": "/x"}])
    assert DOC == {"data": {"k": "v", "l": "w"}, "list": [1, 2, 3]}


@given(JSON_VALUES, JSON_VALUES)
def test_neither_document_nor_patch_are_shared_with_the_result(doc: Any, value: Any) -> None:
    source = {"a": doc}
    result = json_patch(source, [{"op": "add", "path": "/b", "value": value}, {"op": "copy", "from": "/a", "path": "/c"}])
    assert result == {"a": doc, "b": value, "c": doc}
    assert source == {"a": doc}
    for container in (result["a"], result["b"], result["c"]):
        if isinstance(container, dict | list):
            assert container is not doc
            assert container is not value


@given(st.dictionaries(st.text("ab/~01", min_size=1, max_size=3), JSON_VALUES, min_size=1, max_size=4), st.data())
def test_removing_and_adding_back_gives_the_document_again(doc: dict[str, Any], data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(doc)))
    path = "/" + name.replace("~", "~0").replace("/", "~1")
    patch = [
        {"op": "test", "path": path, "value": doc[name]},
        {"op": "remove", "path": path},
        {"op": "add", "path": path, "value": doc[name]},
    ]
    assert json_patch(doc, patch) == doc


def test_copies_of_a_patch_add_three_mebibytes_at_most() -> None:
    doc = {"a": {"text": "x" * 1024}}
    with pytest.raises(PatchError, match="exceeding the limit 3145728"):
        json_patch(doc, [{"op": "copy", "from": "/a", "path": f"/a/{number}"} for number in range(20)])
    assert doc == {"a": {"text": "x" * 1024}}


# The JSON patch between two trees: applied to the first it gives the second, and it names only what differs.


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
