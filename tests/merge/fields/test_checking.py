"""Whether an object fits its type. The texts are those of a Kubernetes API server."""

import pytest

from kubeloop.merge.fields import DEDUCED, TypeMismatch, check
from kubeloop.types import JSONObject
from tests.merge.fields.things import THING


@pytest.mark.parametrize(
    "obj",
    [
        pytest.param({"number": 1.5, "text": "", "flag": False, "either": "80%"}, id="scalars of their types"),
        pytest.param({"number": None, "set": None, "map": None, "struct": None}, id="null anywhere"),
        pytest.param({"either": 80}, id="a number or a text"),
        pytest.param({"free": {"a": [None, {"b": [[1]]}]}}, id="anything without a schema"),
        pytest.param({"metadata": {"labels": {"a": "b"}, "finalizers": ["a"]}, "apiVersion": "v1", "kind": "X"}, id="metadata"),
    ],
)
def test_what_fits(obj: JSONObject) -> None:
    check(obj, THING)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        pytest.param({"dta": {}}, ".dta: field not declared in schema", id="a field that the type lacks"),
        pytest.param({"struct": {"z": 1}}, ".struct.z: field not declared in schema", id="below another"),
        pytest.param({"number": "x"}, ".number: expected numeric (int or float), got string", id="a text for a number"),
        pytest.param({"number": {}}, ".number: expected numeric (int or float), got map[string]interface {}", id="a map for a number"),
        pytest.param({"text": 1}, ".text: expected string, got &value.valueUnstructured{Value:1}", id="a number for a text"),
        pytest.param(
            {"text": {"b": [True, "x", None]}},
            ".text: expected string, got &value.valueUnstructured"
            '{Value:map[string]interface {}{"b":[]interface {}{true, "x", interface {}(nil)}}}',
            id="a map for a text, in Go's syntax",
        ),
        pytest.param({"flag": "x"}, ".flag: expected boolean, got &{x}", id="a text for a truth value"),
        pytest.param({"set": {"a": 1}}, ".set: expected list, got &{map[a:1]}", id="a map for a list"),
        pytest.param({"struct": [1, "a"]}, ".struct: expected map, got &{[1 a]}", id="a list for a map"),
        pytest.param({"set": ["a", "b", "a"]}, '.set: duplicate entries for key [="a"]', id="an item of a set twice"),
        pytest.param(
            {"ports": [{"port": 80}, {"port": 80, "protocol": "TCP"}]},
            '.ports: duplicate entries for key [port=80,protocol="TCP"]',
            id="an item of a list map twice, once by the default of a key",
        ),
        pytest.param(
            {"map": [{"name": "a"}, {"value": 1}]},
            '.map: element 1: associative list with keys has an element that omits all key fields ["name"] '
            "(and doesn't have default values for any key fields)",
            id="an item without its key",
        ),
        pytest.param(
            {"map": [{"name": {"a": ["b", 1]}}]},
            '.map[name=a=["b",1]].name: expected string, got &value.valueUnstructured'
            '{Value:map[string]interface {}{"a":[]interface {}{"b", 1}}}',
            id="a key of another shape",
        ),
        pytest.param({"map": ["a"]}, ".map: element 0: associative list with keys may not have non-map elements", id="a text for an item"),
        pytest.param({"set": [["a"]]}, ".set: element 0: not supported: associative list with lists as elements", id="a list in a set"),
        pytest.param(
            {"map": [{"name": "a", "value": "x"}]}, '.map[name="a"].value: expected numeric (int or float), got string', id="below an item"
        ),
        pytest.param(
            {"atomic": [{}, {"a": 1}]}, ".atomic[1].a: expected string, got &value.valueUnstructured{Value:1}", id="below an atomic list"
        ),
        pytest.param({"either": {"a": 1}}, "", id="any shape where a number or a text is expected: validation tells"),
        pytest.param(
            {"number": "x", "text": 1},
            "errors:\n"
            "  .number: expected numeric (int or float), got string\n"
            "  .text: expected string, got &value.valueUnstructured{Value:1}",
            id="several faults, a line each",
        ),
    ],
)
def test_what_does_not_fit(obj: JSONObject, text: str) -> None:
    if not text:
        check(obj, THING)
        return
    with pytest.raises(TypeMismatch) as refused:
        check(obj, THING)
    assert str(refused.value) == text


def test_stored_objects_may_hold_doubles() -> None:
    check({"set": ["a", "a"]}, THING, allow_duplicates=True)


def test_without_a_schema_everything_fits() -> None:
    check({"a": [None, {}]}, DEDUCED)
