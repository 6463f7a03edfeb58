"""Paths of fields: their syntax, and what set and remove do at them."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from kubeloop.proxy.rules.errors import ActionFailed
from kubeloop.proxy.rules.object_paths import EACH, FieldPath, shown_path
from kubeloop.types import JSONObject


@pytest.mark.parametrize(
    ("text", "segments"),
    [
        pytest.param("spec", ("spec",), id="one name"),
        pytest.param("spec.nodeName", ("spec", "nodeName"), id="names separated by dots"),
        pytest.param("spec.containers[*].image", ("spec", "containers", EACH, "image"), id="every item"),
        pytest.param("spec.a[0][12]", ("spec", "a", 0, 12), id="indexes"),
        pytest.param('metadata.annotations["a.b/c"]', ("metadata", "annotations", "a.b/c"), id="a name in double quotes"),
        pytest.param("metadata.annotations['a\"b'].c", ("metadata", "annotations", 'a"b', "c"), id="a name in single quotes"),
        pytest.param(r'a["\"\\]"]', ("a", '"\\]'), id="escaped quotes and backslashes"),
        pytest.param('a[""]', ("a", ""), id="an empty name"),
        pytest.param("data.tls-key", ("data", "tls-key"), id="a name with a hyphen"),
    ],
)
def test_a_path_has_segments(text: str, segments: tuple[Any, ...]) -> None:
    path = FieldPath.parse(text)
    assert path.segments == segments
    assert FieldPath.parse(shown_path(segments)).segments == segments


@pytest.mark.parametrize(
    ("text", "at"),
    [
        pytest.param("a..b", 2, id="an empty name between dots"),
        pytest.param(".a", 1, id="a dot at the start"),
        pytest.param("a.", 2, id="a dot at the end"),
        pytest.param("a[", 2, id="an open bracket"),
        pytest.param("a[-1]", 2, id="a negative index"),
        pytest.param("a[x]", 2, id="a name without quotes in brackets"),
        pytest.param('a["x]', 2, id="an open quote"),
        pytest.param("[0]", 1, id="an index of the object"),
        pytest.param('["a"]', 1, id="brackets at the start"),
        pytest.param("a b", 2, id="a space"),
        pytest.param("a[0]b", 5, id="a name without a dot after an index"),
        pytest.param("a[99999999999]", 2, id="an index that no list has"),
    ],
)
def test_a_wrong_path_has_a_position(text: str, at: int) -> None:
    with pytest.raises(ValueError, match=f"wrong path at character {at};"):
        FieldPath.parse(text)


TREE: JSONObject = {"a": {"b": 1, "n": None, "l": [{"x": 1}, {"x": 2}], "t": "text"}}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("a.b", {**TREE["a"], "b": 9}, id="a value is replaced"),
        pytest.param("a.c", {**TREE["a"], "c": 9}, id="a field is added"),
        pytest.param("a.c.d.e", {**TREE["a"], "c": {"d": {"e": 9}}}, id="missing mappings are created"),
        pytest.param("a.n.d", {**TREE["a"], "n": {"d": 9}}, id="null is a missing mapping"),
        pytest.param("a.l[1].x", {**TREE["a"], "l": [{"x": 1}, {"x": 9}]}, id="one item is changed"),
        pytest.param("a.l[*].x", {**TREE["a"], "l": [{"x": 9}, {"x": 9}]}, id="every item is changed"),
        pytest.param(
            "a.l[*].y.z", {**TREE["a"], "l": [{"x": 1, "y": {"z": 9}}, {"x": 2, "y": {"z": 9}}]}, id="mappings in items are created"
        ),
        pytest.param("a.l[0]", {**TREE["a"], "l": [9, {"x": 2}]}, id="an item is replaced"),
        pytest.param("a.l[2].x", TREE["a"], id="an item is not created"),
        pytest.param("a.c[*].x", TREE["a"], id="a list is not created"),
        pytest.param("a.c.d[0].x", TREE["a"], id="mappings above a missing list are not created"),
    ],
)
def test_set_changes_what_exists_and_creates_mappings(path: str, expected: Any) -> None:
    before = copy.deepcopy(TREE)
    assert FieldPath.parse(path).set(TREE, 9) == {"a": expected}
    assert before == TREE


@pytest.mark.parametrize(
    ("path", "message"),
    [
        pytest.param("a.t.x", "a.t.x: a.t is text, expected a mapping", id="a field of a text"),
        pytest.param("a.l.x", "a.l.x: a.l is a list, expected a mapping", id="a field of a list"),
        pytest.param("a.t[0]", "a.t[0]: a.t is text, expected a list", id="an item of a text"),
        pytest.param("a[*].b", "a[*].b: a is a mapping, expected a list", id="an item of a mapping"),
        pytest.param("a.l[*].x.y", "a.l[*].x.y: a.l[*].x is a number, expected a mapping", id="a field of a number in a list"),
    ],
)
def test_set_fails_where_another_type_is(path: str, message: str) -> None:
    with pytest.raises(ActionFailed) as caught:
        FieldPath.parse(path).set(TREE, 9)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        pytest.param("a.b", {"n": None, "l": [{"x": 1}, {"x": 2}], "t": "text"}, id="a field is removed"),
        pytest.param("a.l[0]", {**TREE["a"], "l": [{"x": 2}]}, id="an item is removed"),
        pytest.param("a.l[*]", {**TREE["a"], "l": []}, id="all items are removed"),
        pytest.param("a.l[*].x", {**TREE["a"], "l": [{}, {}]}, id="a field of every item is removed"),
        pytest.param("a.l[1].x", {**TREE["a"], "l": [{"x": 1}, {}]}, id="a field of one item is removed"),
    ],
)
def test_remove_takes_fields_away(path: str, expected: Any) -> None:
    before = copy.deepcopy(TREE)
    assert FieldPath.parse(path).remove(TREE) == {"a": expected}
    assert before == TREE


@pytest.mark.parametrize("path", ["a.c", "c.d", "a.t.x", "a.b[0]", "a.l[2]", "a.l[2].x", "a.l[*].y", "a.c[*]", "a.l.x"])
def test_remove_of_a_missing_field_returns_the_same_object(path: str) -> None:
    assert FieldPath.parse(path).remove(TREE) is TREE


@pytest.mark.parametrize(("path", "value"), [("a.b", 1), ("a.l[0].x", 1), ("a.t", "text"), ("a.l[*]", None), ("a.l[5]", 1)])
def test_set_of_an_equal_value_returns_the_same_object(path: str, value: Any) -> None:
    tree = {"a": {**TREE["a"], "l": [None, None]}} if path == "a.l[*]" else TREE
    assert FieldPath.parse(path).set(tree, value) is tree


def test_set_tells_true_from_one() -> None:
    assert FieldPath.parse("a.b").set(TREE, True)["a"]["b"] is True


def test_set_copies_only_the_path() -> None:
    tree = {"spec": {"nodeName": "n", "containers": [{}]}, "status": {}}
    result = FieldPath.parse("spec.nodeName").set(tree, "hidden")
    assert result["status"] is tree["status"]
    assert result["spec"]["containers"] is tree["spec"]["containers"]
