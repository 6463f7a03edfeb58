"""Taking fields out of an object, or only some of them."""

import pytest

from kubeloop.merge.fields import FieldSet, TypeMismatch, extract, remove
from kubeloop.merge.fields.removing import with_named_fields
from kubeloop.types import JSONObject
from tests.merge.fields.things import THING

X, Y = 'k:{"name":"x"}', 'k:{"name":"y"}'


@pytest.mark.parametrize(
    ("obj", "fields", "left"),
    [
        pytest.param({"number": 1, "text": "a"}, {"f:number": {}}, {"text": "a"}, id="a scalar"),
        pytest.param({"number": 1}, {}, {"number": 1}, id="nothing"),
        pytest.param({"number": 1}, {"f:text": {}}, {"number": 1}, id="a field that is not there"),
        pytest.param({"set": ["a", "b"]}, {"f:set": {'v:"a"': {}}}, {"set": ["b"]}, id="an item of a set"),
        pytest.param({"set": ["a"]}, {"f:set": {'v:"a"': {}}}, {"set": None}, id="the last item leaves null"),
        pytest.param({"granular": {"a": "1"}}, {"f:granular": {"f:a": {}}}, {"granular": None}, id="the last key too"),
        pytest.param({"granular": {"a": "1"}}, {"f:granular": {".": {}, "f:a": {}}}, {}, id="unless the map itself goes"),
        pytest.param({"map": [{"name": "x"}, {"name": "y"}]}, {"f:map": {X: {}}}, {"map": [{"name": "y"}]}, id="an item of a list map"),
        pytest.param(
            {"map": [{"name": "x", "value": 1}]}, {"f:map": {X: {"f:value": {}}}}, {"map": [{"name": "x"}]}, id="a field of an item"
        ),
        pytest.param(
            {"map": [{"name": "x", "value": 1}]}, {"f:map": {X: {".": {}, "f:name": {}}}}, {"map": None}, id="an item with what is below it"
        ),
        pytest.param({"whole": {"a": "1"}}, {"f:whole": {"f:a": {}}}, {"whole": None}, id="a part of an atomic map takes it all"),
        pytest.param({"atomic": [{"a": "1"}]}, {"f:atomic": {"i:0": {}}}, {"atomic": None}, id="a part of an atomic list takes it all"),
    ],
)
def test_remove(obj: JSONObject, fields: JSONObject, left: JSONObject) -> None:
    assert remove(obj, FieldSet.from_json(fields), THING) == left


@pytest.mark.parametrize(
    ("fields", "taken"),
    [
        pytest.param({}, {}, id="nothing"),
        pytest.param({"f:number": {}}, {"number": 1}, id="a scalar"),
        pytest.param({"f:set": {'v:"b"': {}, 'v:"z"': {}}}, {"set": ["b"]}, id="items of a set that are there"),
        pytest.param({"f:map": {X: {"f:value": {}}}}, {"map": [{"name": "x", "value": 1}]}, id="a field of an item, with its key"),
        pytest.param({"f:map": {Y: {}}}, {"map": [{"name": "y"}]}, id="an item alone is its key"),
        pytest.param({"f:whole": {}}, {"whole": {"a": "1"}}, id="an atomic map"),
        pytest.param({"f:granular": {"f:b": {}}}, {"granular": {"b": "2"}}, id="a key of a map"),
    ],
)
def test_extract(fields: JSONObject, taken: JSONObject) -> None:
    obj = {
        "number": 1,
        "set": ["a", "b"],
        "map": [{"name": "x", "value": 1}, {"name": "y", "value": 2}],
        "whole": {"a": "1"},
        "granular": {"a": "1", "b": "2"},
    }
    assert extract(obj, FieldSet.from_json(fields), THING) == taken


def test_structs_that_have_fields_in_the_set_can_be_named_with_them() -> None:
    fields = FieldSet.from_json({"f:struct": {"f:b": {"f:c": {}}}, "f:granular": {"f:a": {}}, "f:free": {"f:a": {"f:b": {}}}})
    assert with_named_fields(fields, THING).to_json() == {
        "f:free": {".": {}, "f:a": {"f:b": {}}},
        "f:granular": {".": {}, "f:a": {}},
        "f:struct": {".": {}, "f:b": {".": {}, "f:c": {}}},
    }


def test_an_item_without_identity_is_refused() -> None:
    with pytest.raises(TypeMismatch):
        remove({"map": [{"value": 1}]}, FieldSet.from_json({"f:map": {X: {}}}), THING)
    with pytest.raises(TypeMismatch):
        extract({"map": [{"value": 1}]}, FieldSet.from_json({"f:map": {X: {}}}), THING)
