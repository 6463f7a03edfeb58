"""Which fields an object has, and what differs between two states of it."""

from collections.abc import Callable
from typing import Any

import pytest

from kubeloop.merge.fields import DEDUCED, FieldSet, TypeMismatch, builtin_types, check, compare, custom_type, extract, field_set, merge
from kubeloop.merge.fields.comparison import equal
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.structural import parse
from kubeloop.types import JSONObject
from tests.merge.fields.things import THING


@pytest.mark.parametrize(
    ("obj", "fields"),
    [
        pytest.param({"number": 1}, {"f:number": {}}, id="a scalar"),
        pytest.param({"number": None}, {"f:number": {}}, id="null is a value"),
        pytest.param({"set": ["a", "b"]}, {"f:set": {'v:"a"': {}, 'v:"b"': {}}}, id="items of a set, not the set"),
        pytest.param({"set": []}, {}, id="nothing of an empty set"),
        pytest.param({"set": ["a", "a"]}, {"f:set": {'v:"a"': {}}}, id="an item that is there twice is one field"),
        pytest.param({"atomic": [{"a": "1"}]}, {"f:atomic": {}}, id="an atomic list as one"),
        pytest.param({"atomic": []}, {"f:atomic": {}}, id="an empty atomic list too"),
        pytest.param(
            {"map": [{"name": "x", "value": 1}]},
            {"f:map": {'k:{"name":"x"}': {".": {}, "f:name": {}, "f:value": {}}}},
            id="items of a list map, and their fields",
        ),
        pytest.param(
            {"map": [{"name": "x"}, {"name": "x", "value": 1}]}, {"f:map": {'k:{"name":"x"}': {}}}, id="items of one key as one field"
        ),
        pytest.param(
            {"ports": [{"port": 80}]}, {"f:ports": {'k:{"port":80,"protocol":"TCP"}': {".": {}, "f:port": {}}}}, id="a key by its default"
        ),
        pytest.param({"granular": {"a": "1"}}, {"f:granular": {"f:a": {}}}, id="keys of a map, not the map"),
        pytest.param({"granular": {}}, {"f:granular": {}}, id="an empty map as one"),
        pytest.param({"whole": {"a": "1"}}, {"f:whole": {}}, id="an atomic map as one"),
        pytest.param({"struct": {"b": {"c": 1}}}, {"f:struct": {"f:b": {"f:c": {}}}}, id="fields of structs, not the structs"),
        pytest.param(
            {"free": {"a": {"b": [1]}, "c": {}}},
            {"f:free": {"f:a": {".": {}, "f:b": {}}, "f:c": {}}},
            id="what has no schema: each name, lists as one",
        ),
        pytest.param(
            {"map": [{"name": "x", "labels": {"l": "1"}}]},
            {"f:map": {'k:{"name":"x"}': {".": {}, "f:labels": {"f:l": {}}, "f:name": {}}}},
            id="maps in items",
        ),
    ],
)
def test_field_set(obj: JSONObject, fields: JSONObject) -> None:
    assert field_set(obj, THING).to_json() == fields


@pytest.mark.parametrize(
    ("old", "new", "added", "modified", "removed"),
    [
        pytest.param({"number": 1}, {"number": 1}, {}, {}, {}, id="nothing"),
        pytest.param({"number": 1}, {"number": 2}, {}, {"f:number": {}}, {}, id="a scalar that changed"),
        pytest.param({}, {"number": 2}, {"f:number": {}}, {}, {}, id="a scalar that is new"),
        pytest.param({"number": 1}, {}, {}, {}, {"f:number": {}}, id="a scalar that is gone"),
        pytest.param({"number": 1}, {"number": None}, {}, {"f:number": {}}, {}, id="a scalar that became null"),
        pytest.param({"number": 1}, {"number": 1.0}, {}, {}, {}, id="a number in another spelling"),
        pytest.param(
            {},
            {"struct": {"b": {"c": 1}}},
            {"f:struct": {".": {}, "f:b": {".": {}, "f:c": {}}}},
            {},
            {},
            id="containers count when they are new",
        ),
        pytest.param({"struct": {}}, {"struct": {"a": "x"}}, {"f:struct": {"f:a": {}}}, {}, {}, id="but not when they were empty"),
        pytest.param({"set": ["a", "b"]}, {"set": ["b", "c"]}, {"f:set": {'v:"c"': {}}}, {}, {"f:set": {'v:"a"': {}}}, id="items of a set"),
        pytest.param({"set": ["a", "b"]}, {"set": ["b", "a"]}, {}, {}, {}, id="the order of a set is not a field"),
        pytest.param({"set": ["a"]}, {"set": []}, {}, {}, {"f:set": {'v:"a"': {}}}, id="the last item of a set"),
        pytest.param({"set": []}, {}, {}, {}, {"f:set": {}}, id="an empty set that is gone"),
        pytest.param(
            {"set": ["a"]}, {"set": ["a", "a"]}, {"f:set": {'v:"a"': {}}}, {}, {"f:set": {'v:"a"': {}}}, id="an item that doubled"
        ),
        pytest.param({"set": ["a", "a"]}, {"set": ["a"]}, {"f:set": {'v:"a"': {}}}, {}, {"f:set": {'v:"a"': {}}}, id="a double that went"),
        pytest.param(
            {"map": [{"name": "x"}, {"name": "x"}]},
            {"map": [{"name": "x"}, {"name": "x", "value": 1}]},
            {},
            {"f:map": {'k:{"name":"x"}': {}}},
            {},
            id="doubles that changed",
        ),
        pytest.param(
            {"map": [{"name": "x", "value": 1}, {"name": "y"}]},
            {"map": [{"name": "z"}, {"name": "x", "value": 2}]},
            {"f:map": {'k:{"name":"z"}': {".": {}, "f:name": {}}}},
            {"f:map": {'k:{"name":"x"}': {"f:value": {}}}},
            {"f:map": {'k:{"name":"y"}': {".": {}, "f:name": {}}}},
            id="items of a list map by key",
        ),
        pytest.param({"atomic": [{"a": "1"}]}, {"atomic": [{"a": "2"}]}, {}, {"f:atomic": {}}, {}, id="an atomic list"),
        pytest.param({"whole": {"a": "1"}}, {"whole": {"b": "1"}}, {}, {"f:whole": {}}, {}, id="an atomic map"),
        pytest.param(
            {"granular": {"a": "1"}},
            {"granular": {"b": "1"}},
            {"f:granular": {"f:b": {}}},
            {},
            {"f:granular": {"f:a": {}}},
            id="keys of a map",
        ),
        pytest.param(
            {"granular": {"a": "1"}}, {"granular": None}, {}, {}, {"f:granular": {"f:a": {}}}, id="a map that became null lost its keys"
        ),
        pytest.param({"granular": None}, {"granular": {}}, {}, {"f:granular": {}}, {}, id="null and empty differ"),
        pytest.param({"free": {"a": 1}}, {"free": {"a": True}}, {}, {"f:free": {"f:a": {}}}, {}, id="a truth value is no number"),
        pytest.param({"free": {"a": [1]}}, {"free": {"a": [True]}}, {}, {"f:free": {"f:a": {}}}, {}, id="not in a list either"),
        pytest.param(
            {"free": {"a": 1}},
            {"free": {"a": {"b": 1}}},
            {"f:free": {"f:a": {"f:b": {}}}},
            {"f:free": {"f:a": {}}},
            {},
            id="what changed its shape is modified, and its parts are new",
        ),
        pytest.param(
            {"free": {"a": {"b": 1}}},
            {"free": {"a": 1}},
            {},
            {"f:free": {"f:a": {}}},
            {"f:free": {"f:a": {"f:b": {}}}},
            id="or gone",
        ),
    ],
)
def test_compare(old: JSONObject, new: JSONObject, added: JSONObject, modified: JSONObject, removed: JSONObject) -> None:
    found = compare(old, new, THING)
    assert (found.added.to_json(), found.modified.to_json(), found.removed.to_json()) == (added, modified, removed)
    assert bool(found) == bool(added or modified or removed)


def test_an_object_does_not_differ_from_itself_whatever_it_holds() -> None:
    nonsense = {"undeclared": object()}
    assert not compare(nonsense, nonsense, THING)
    assert not compare({"free": nonsense}, {"free": nonsense}, THING)


@pytest.mark.parametrize(
    ("obj", "text"),
    [
        pytest.param({"undeclared": 1}, ".undeclared: field not declared in schema", id="a field that the type lacks"),
        pytest.param({"map": [{"value": 1}]}, "omits all key fields", id="an item without its key"),
        pytest.param({"map": [None]}, "may not have a null element", id="a null item"),
        pytest.param({"set": [{}]}, "an element that's a map type", id="an object in a set"),
    ],
)
def test_what_does_not_fit_is_refused(obj: JSONObject, text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        field_set(obj, THING)
    with pytest.raises(TypeMismatch, match=text):
        compare({}, obj, THING)


#: A definition that holds itself.
NESTED = builtin_types().of_definition("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaProps")


@pytest.mark.parametrize(
    "operation",
    [
        pytest.param(lambda deep: field_set(deep, DEDUCED), id="field_set"),
        pytest.param(lambda deep: compare({}, deep, DEDUCED), id="compare"),
        pytest.param(lambda deep: merge(renamed(deep, "a"), deep, DEDUCED), id="merge"),
        pytest.param(lambda deep: check(renamed(deep), NESTED), id="check"),
        pytest.param(lambda deep: extract(deep, FieldSet.from_paths(("f:a",)), DEDUCED), id="extract"),
    ],
)
def test_a_too_deeply_nested_object_is_refused(operation: Callable[[JSONObject], Any]) -> None:
    deep: JSONObject = {}
    for _ in range(5_000):
        deep = {"a": deep}
    with pytest.raises(TypeMismatch, match="too deeply"):
        operation(deep)


def renamed(deep: JSONObject, name: str = "not") -> JSONObject:
    """As deep, of other objects, with ``name`` for each field."""
    out: JSONObject = {}
    while deep:
        deep = deep["a"]
        out = {name: out}
    return out


def test_an_object_that_is_one_field_owns_nothing_below_its_root() -> None:
    whole = custom_type(parse({"type": "object", "x-kubernetes-map-type": "atomic"}))
    assert field_set({"a": 1}, whole) == FieldSet()
    assert not compare({"a": 1}, {"a": 2}, whole)


def test_equal_is_of_json() -> None:
    assert equal({"a": [1, {"b": 1.0}]}, {"a": [1.0, {"b": 1}]})
    assert not equal({"a": [1]}, {"a": [True]})
    assert not equal(None, {})


def test_a_created_pod_owns_what_kubernetes_says_it_owns() -> None:
    pod = builtin_types().of_kind(GroupVersionKind("", "v1", "Pod"))
    assert pod is not None
    new = {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i", "resources": {}}]}}
    # A Go program starts from a pod whose metadata and spec are there, and empty.
    assert compare({"metadata": {}, "spec": {}}, new, pod).added.to_json() == {
        "f:metadata": {"f:labels": {".": {}, "f:a": {}}},
        "f:spec": {"f:containers": {".": {}, 'k:{"name":"c"}': {".": {}, "f:image": {}, "f:name": {}, "f:resources": {}}}},
    }
