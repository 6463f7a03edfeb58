"""Merging, removing and extracting fields of objects."""

from __future__ import annotations

import pytest

from kubeloop.merge.fields import FieldSet, TypeMismatch, extract, merge, remove
from kubeloop.merge.fields.typed_values import with_named_fields
from kubeloop.types import JSONObject
from tests.merge.fields.things import THING


@pytest.mark.parametrize(
    ("live", "applied", "merged"),
    [
        pytest.param({"number": 1}, {"text": "a"}, {"number": 1, "text": "a"}, id="fields join"),
        pytest.param({"number": 1}, {"number": 2}, {"number": 2}, id="a scalar is replaced"),
        pytest.param({"number": 1}, {"number": None}, {"number": None}, id="null replaces a scalar"),
        pytest.param({"granular": {"a": "1"}}, {"granular": None}, {"granular": {"a": "1"}}, id="null says nothing of a map"),
        pytest.param({"set": ["a"]}, {"set": None}, {"set": ["a"]}, id="nor of a set"),
        pytest.param({"granular": {}}, {"granular": None}, {"granular": None}, id="but replaces an empty map"),
        pytest.param({"granular": {"a": "1"}}, {"granular": {"b": "2"}}, {"granular": {"a": "1", "b": "2"}}, id="maps join by key"),
        pytest.param({"whole": {"a": "1"}}, {"whole": {"b": "2"}}, {"whole": {"b": "2"}}, id="atomic maps are replaced"),
        pytest.param({"atomic": [{"a": "1"}]}, {"atomic": []}, {"atomic": []}, id="atomic lists are replaced"),
        pytest.param({"set": ["a", "b"]}, {"set": ["c"]}, {"set": ["a", "b", "c"]}, id="sets join"),
        pytest.param(
            {"set": ["a", "b", "c"]}, {"set": ["d", "c", "a"]}, {"set": ["b", "d", "c", "a"]}, id="shared items come in the applied order"
        ),
        pytest.param({"set": ["a", "b"]}, {"set": ["a", "c", "b"]}, {"set": ["a", "c", "b"]}, id="new items keep their place"),
        pytest.param({"set": ["a", "a", "b"]}, {"set": ["a"]}, {"set": ["a", "b"]}, id="doubles that are applied melt"),
        pytest.param({"set": ["a", "a"]}, {"set": ["b"]}, {"set": ["a", "a", "b"]}, id="doubles that are not stay"),
        pytest.param(
            {"map": [{"name": "x", "value": 1}]},
            {"map": [{"name": "y"}, {"name": "x", "labels": {"l": "1"}}]},
            {"map": [{"name": "y"}, {"name": "x", "value": 1, "labels": {"l": "1"}}]},
            id="items of a list map join by key",
        ),
        pytest.param(
            {"ports": [{"port": 80, "protocol": "TCP", "name": "a"}]},
            {"ports": [{"port": 80, "name": "b"}]},
            {"ports": [{"port": 80, "protocol": "TCP", "name": "b"}]},
            id="a key that is left out is its default",
        ),
        pytest.param({"free": {"a": 1}}, {"free": {"a": {"b": 1}}}, {"free": {"a": {"b": 1}}}, id="another shape replaces"),
        pytest.param({"free": {"a": [1]}}, {"free": {"a": [2]}}, {"free": {"a": [2]}}, id="lists without schema are replaced"),
        pytest.param({}, {}, {}, id="nothing and nothing"),
    ],
)
def test_merge(live: JSONObject, applied: JSONObject, merged: JSONObject) -> None:
    before = repr(live), repr(applied)
    assert merge(live, applied, THING) == merged
    assert (repr(live), repr(applied)) == before


def test_what_does_not_change_is_shared() -> None:
    live: JSONObject = {"struct": {"a": "1"}, "number": 1}
    assert merge(live, {"number": 2}, THING)["struct"] is live["struct"]


@pytest.mark.parametrize(
    ("applied", "text"),
    [
        pytest.param({"undeclared": 1}, ".undeclared: field not declared in schema", id="a field that the type lacks"),
        pytest.param({"set": ["a", "a"]}, r'duplicate entries for key \[="a"\]', id="an item twice"),
        pytest.param({"map": [{"value": 1}]}, "omits all key fields", id="an item without its key"),
    ],
)
def test_what_cannot_be_merged_is_refused(applied: JSONObject, text: str) -> None:
    with pytest.raises(TypeMismatch, match=text):
        merge({}, applied, THING)


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
            {"map": [{"name": "x", "value": 1}]},
            {"f:map": {X: {".": {}, "f:name": {}}}},
            {"map": None},
            id="an item with the fields below it",
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
