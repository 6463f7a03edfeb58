"""Bodies of built-in kinds as Go's types read and write them. The expected texts are a Kubernetes 1.36 API server's answers."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.schema.strict import conform, parse_json, zero

_CASES: dict[str, dict[str, Any]] = json.loads((Path(__file__).parent / "strict_cases.json").read_text())

_LEASE = "coordination.k8s.io/v1", "Lease"
#: Sentence: version and kind, what a client writes, what it is then.
_WRITTEN: dict[str, tuple[tuple[str, str], dict[str, Any], dict[str, Any]]] = {
    "quantities get their short form": (
        ("v1", "LimitRange"),
        {"metadata": {}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "1000m", "memory": "1024Ki", "a/b": 0.5}}]}},
        {"metadata": {}, "spec": {"limits": [{"type": "Pod", "max": {"a/b": "500m", "cpu": "1", "memory": "1Mi"}}]}},
    ),
    "times are in UTC and whole seconds": (
        ("v1", "ConfigMap"),
        {"metadata": {"creationTimestamp": "2020-01-01T02:00:00.5+02:00"}},
        {"metadata": {"creationTimestamp": "2020-01-01T00:00:00Z"}},
    ),
    "times of leases keep microseconds": (
        _LEASE,
        {"metadata": {}, "spec": {"renewTime": "2020-01-01T01:00:00.123456+01:00"}},
        {"metadata": {}, "spec": {"renewTime": "2020-01-01T00:00:00.123456Z"}},
    ),
    "empty optional values go": (
        ("v1", "ConfigMap"),
        {"metadata": {"name": "", "labels": {}, "finalizers": [], "generation": 0}, "data": {}, "immutable": False},
        {"metadata": {}, "immutable": False},
    ),
    "absent values that Go writes come": (
        ("v1", "Service"),
        {"metadata": {}},
        {"metadata": {}, "spec": {}, "status": {"loadBalancer": {}}},
    ),
    "base64 gets its standard form": (
        ("v1", "Secret"),
        {"metadata": {}, "data": {"a": "YQ==", "b": "", "c": None}},
        {"metadata": {}, "data": {"a": "YQ==", "b": "", "c": ""}},
    ),
    "fields stand in the order of the type": (
        ("v1", "ConfigMap"),
        {"data": {"b": "1", "a": "2"}, "metadata": {"namespace": "n", "name": "m"}},
        {"metadata": {"name": "m", "namespace": "n"}, "data": {"a": "2", "b": "1"}},
    ),
}


def _kind(api_version: str, kind: str) -> GroupVersionKind:
    group, _, version = api_version.rpartition("/")
    return GroupVersionKind(group, version, kind)


@pytest.mark.parametrize("name", _CASES)
def test_answers_as_recorded(name: str) -> None:
    case = _CASES[name]
    api_version, kind = case["kind"].split(" ")
    body = parse_json(case["body"].encode())
    body.setdefault("apiVersion", api_version)
    body.setdefault("kind", kind)
    gvk = _kind(api_version, kind)
    if "refused" in case:
        with pytest.raises(DecodeError) as caught:
            conform(body, gvk)
        assert str(caught.value) == case["refused"]
    else:
        assert conform(body, gvk).problems == case["warnings"]


@pytest.mark.parametrize("name", _WRITTEN)
def test_writes_as_go(name: str) -> None:
    (api_version, kind), given, expected = _WRITTEN[name]
    gvk = _kind(api_version, kind)
    before = copy.deepcopy(given)
    found = conform({"apiVersion": api_version, "kind": kind, **given}, gvk)
    head = {"kind": kind, "apiVersion": api_version}
    assert found.obj == {**head, **expected}
    assert given == before
    assert conform(found.obj, gvk).obj == found.obj


def test_maps_are_written_by_key_and_structs_in_the_order_of_their_type() -> None:
    obj = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"b": "1", "a": "2"}, "metadata": {"labels": {"z": "", "y": ""}, "name": "x"}}
    found = conform(obj, _kind("v1", "ConfigMap")).obj
    assert list(found) == ["kind", "apiVersion", "metadata", "data"]
    assert list(found["metadata"]) == ["name", "labels"]
    assert list(found["data"]) == ["a", "b"]
    assert list(found["metadata"]["labels"]) == ["y", "z"]


def test_a_status_that_go_always_writes() -> None:
    assert zero(GroupVersionKind("", "v1", "Service"), "status") == {"loadBalancer": {}}


def test_fractions_in_free_form_json_are_plain_numbers() -> None:
    body = b'{"apiVersion":"apps/v1","kind":"ControllerRevision","metadata":{},"revision":1,"data":{"a":[0.5,{"b":1e3}],"c":2.5}}'
    obj = conform(parse_json(body), GroupVersionKind("apps", "v1", "ControllerRevision")).obj
    assert obj["data"] == {"a": [0.5, {"b": 1000.0}], "c": 2.5}
    assert {type(obj["data"]["c"]), type(obj["data"]["a"][0]), type(obj["data"]["a"][1]["b"])} == {float}
