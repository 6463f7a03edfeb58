"""What a field manager owns, taken out of an object by its managedFields alone."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kubeloop.client import extract
from kubeloop.codec import decode, document_of
from kubeloop.meta import Unstructured

Tree = dict[str, Any]

KIND = Unstructured.for_kind("example.com/v1", "Widget")


def key(**fields: Any) -> str:
    return f"k:{json.dumps(fields, separators=(',', ':'))}"


def entry(fields: Tree, manager: str = "ops", operation: str = "Apply", subresource: str = "") -> Tree:
    return {"manager": manager, "operation": operation, "subresource": subresource, "fieldsV1": fields, "fieldsType": "FieldsV1"}


def widget(spec: Any, *entries: Tree) -> Unstructured:
    metadata = {"name": "w", "namespace": "n", "managedFields": list(entries)}
    return decode(KIND, json.dumps({"apiVersion": "example.com/v1", "kind": "Widget", "metadata": metadata, "spec": spec}).encode())


def owned(spec: Any, fields: Tree, *more_fields: Tree) -> Any:
    found = extract(widget(spec, *more_fields, entry({"f:spec": fields})), "ops").to_dict()
    assert found["metadata"] == {"name": "w", "namespace": "n"}
    return found.get("spec")


PORTS = [{"port": 53, "protocol": "TCP", "name": "a"}, {"port": 53, "protocol": "UDP", "name": "b", "target": 5353}]
DNS = key(port=53, protocol="UDP")


@pytest.mark.parametrize(
    ("spec", "fields", "kept"),
    [
        pytest.param({"a": 1, "b": 2}, {"f:a": {}}, {"a": 1}, id="a field"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"f:a": {"f:x": {}}}, {"a": {"x": 1}}, id="a field of a field"),
        pytest.param({"a": {"x": 1, "y": 2}}, {"f:a": {".": {}, "f:x": {}}}, {"a": {"x": 1}}, id="a field and what it is in"),
        pytest.param({"a": {"x": 1, "y": [2]}}, {"f:a": {}}, {"a": {"x": 1, "y": [2]}}, id="an atomic value as a whole"),
        pytest.param({"a": 1}, {"f:b": {}}, None, id="a field that is no longer there"),
        pytest.param({"a": {"y": 1}}, {"f:a": {"f:x": {}}}, None, id="a field whose parts are no longer there"),
        pytest.param({"a": None}, {"f:a": {}}, {"a": None}, id="a null"),
        pytest.param({"a": "text"}, {"f:a": {"f:x": {}}}, {"a": "text"}, id="a field that became something else"),
        pytest.param(
            {"ports": PORTS},
            {"f:ports": {DNS: {".": {}, "f:port": {}, "f:protocol": {}, "f:target": {}}}},
            {"ports": [{"port": 53, "protocol": "UDP", "target": 5353}]},
            id="an item by all of its keys",
        ),
        pytest.param(
            {"ports": PORTS},
            {"f:ports": {DNS: {"f:target": {}}}},
            {"ports": [{"port": 53, "protocol": "UDP", "target": 5353}]},
            id="with its keys, owned or not",
        ),
        pytest.param(
            {"l": [{"k": True, "x": 1}, {"k": 1, "x": 2}]}, {"f:l": {key(k=1): {"f:x": {}}}}, {"l": [{"k": 1, "x": 2}]}, id="1 is not true"
        ),
        pytest.param({"l": ["a", "b", 1]}, {"f:l": {'v:"b"': {}, "v:1": {}}}, {"l": ["b", 1]}, id="members of a set"),
        pytest.param({"l": [{"a": 1}, {"a": 2}]}, {"f:l": {"i:1": {"f:a": {}}}}, {"l": [{"a": 2}]}, id="items by their place"),
        pytest.param({"a.b/c d": 1}, {"f:a.b/c d": {}}, {"a.b/c d": 1}, id="a name of any characters"),
    ],
)
def test_owned(spec: Any, fields: Tree, kept: Any) -> None:
    assert owned(spec, fields) == kept


def test_an_empty_map_that_others_filled_stays_empty_here() -> None:
    theirs = entry({"f:spec": {"f:a": {"f:x": {}}, "f:l": {"v:1": {}}}}, "dev", "Update")
    assert owned({"a": {"x": 1}, "l": [1]}, {"f:a": {}, "f:l": {}}, theirs) == {"a": {}, "l": []}


def test_only_the_entry_of_that_manager_and_subresource_that_applies_counts() -> None:
    found = widget(
        {"a": 1, "b": 2, "c": 3},
        entry({"f:spec": {"f:a": {}}}, operation="Update"),
        entry({"f:spec": {"f:b": {}}}, subresource="status"),
        entry({"f:spec": {"f:c": {}}}),
    )
    assert extract(found, "ops")["spec"] == {"c": 3}
    assert extract(found, "ops", subresource="status")["spec"] == {"b": 2}
    assert "spec" not in extract(found, "absent")


def test_numbers_keep_their_spelling() -> None:
    document = b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w","managedFields":[%s]},"spec":{"a":1.50,"b":1e3}}'
    found = decode(KIND, document % json.dumps(entry({"f:spec": {"f:a": {}, "f:b": {}}})).encode())
    assert document_of(extract(found, "ops")) == (
        b'{"apiVersion":"example.com/v1","kind":"Widget","metadata":{"name":"w"},"spec":{"a":1.50,"b":1e3}}'
    )
