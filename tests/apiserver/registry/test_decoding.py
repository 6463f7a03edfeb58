"""Parts that need no server: Go's words for broken JSON, request paths, negotiation, YAML, the registry."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from multidict import CIMultiDict

from kubeloop.apiserver.builtin.conversion import convert_event
from kubeloop.apiserver.registry.object_meta import generate_name
from kubeloop.apiserver.registry.registry import Change, Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.strategy import Strategy
from kubeloop.endpoints.go_json_errors import json_fault
from kubeloop.endpoints.negotiation import JSON, PROTOBUF, YAML, Accepted, media_type_for_errors, negotiate, require_streamable
from kubeloop.endpoints.request_info import request_info
from kubeloop.endpoints.yaml_body import dump_yaml, parse_yaml
from kubeloop.meta.errors import DecodeError, NotAcceptable
from kubeloop.meta.kinds import GroupResource, GroupVersion, GroupVersionKind, GroupVersionResource
from kubeloop.schema import TypeSchema
from kubeloop.serving.request import Request


async def no_body(_: int) -> bytes:
    return b""


def request(method: str, target: str) -> Request:
    path, _, query = target.partition("?")
    return Request(method, path, query, CIMultiDict(), no_body)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a":1', "unexpected end of JSON input"),
        ('{"a" 1}', "invalid character '1' after object key"),
        ('{"a":1 2}', "invalid character '2' after object key:value pair"),
        ("[1 2]", "invalid character '2' after array element"),
        ("{} x", "invalid character 'x' after top-level value"),
        ('"\n"', "invalid character '\\n' in string literal"),
        ('"\\x"', "invalid character 'x' in string escape code"),
        ('"\\u12', "unexpected end of JSON input"),
        ('"\\u12g4"', "invalid character 'g' in \\u hexadecimal character escape"),
        ("tru}", "invalid character '}' in literal true (expecting 'e')"),
        ("not", "invalid character 'o' in literal null (expecting 'u')"),
        ("-}", "invalid character '}' in numeric literal"),
        ("1.}", "invalid character '}' after decimal point in numeric literal"),
        ("1e}", "invalid character '}' in exponent of numeric literal"),
        ("'", "invalid character '\\'' looking for beginning of value"),
        ("{'", "invalid character '\\'' looking for beginning of object key string"),
    ],
)
def test_broken_json_is_reported_in_gos_words(text: str, fault: str) -> None:
    assert json_fault(text.encode()) == fault


SCALARS = st.none() | st.booleans() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
TREES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8)


@given(TREES)
@settings(max_examples=50)
def test_json_has_no_fault_and_cut_short_always_one(tree: Any) -> None:
    text = json.dumps([tree]).encode()
    assert json_fault(text) == ""
    assert json_fault(text[:-1]) != ""


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        pytest.param("GET /api/v1/pods", "list v1 pods [] []", id="all pods"),
        pytest.param("GET /api/v1/namespaces/a/pods", "list v1 pods [a] []", id="pods of a namespace"),
        pytest.param("GET /api/v1/namespaces//pods", "list v1 pods [] []", id="an empty namespace is all"),
        pytest.param("GET /api/v1/namespaces/a/pods/p", "get v1 pods [a] [p]", id="a pod"),
        pytest.param("HEAD /api/v1/namespaces/a/pods/p", "get v1 pods [a] [p]", id="HEAD is get"),
        pytest.param("GET /api/v1/pods?watch=1", "watch v1 pods [] []", id="a watch"),
        pytest.param("GET /api/v1/pods?watch=false", "list v1 pods [] []", id="no watch"),
        pytest.param("GET /api/v1/watch/namespaces/a/pods/p", "watch v1 pods [a] [p]", id="a watch in the old form"),
        pytest.param("GET /api/v1/pods?fieldSelector=metadata.name=p", "list v1 pods [] [p]", id="a name in the selector"),
        pytest.param("PUT /apis/apps/v1/namespaces/a/deployments/d/status", "update apps/v1 deployments/status [a] [d]", id="a status"),
        pytest.param("GET /api/v1/namespaces/a", "get v1 namespaces [a] [a]", id="a namespace"),
        pytest.param("PUT /api/v1/namespaces/a/finalize", "update v1 namespaces/finalize [a] [a]", id="a namespace's finalizer"),
        pytest.param("DELETE /api/v1/namespaces/a/pods", "deletecollection v1 pods [a] []", id="a collection's deletion"),
    ],
)
def test_a_request_asks_for(target: str, expected: str) -> None:
    info = request_info(request(*target.split(" ")))
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    assert info.is_resource
    assert f"{info.verb} {info.group_version} {resource} [{info.namespace}] [{info.name}]" == expected


@pytest.mark.parametrize("path", ["/", "/healthz", "/api", "/apis", "/api/v1", "/apis/apps", "/apis/apps/v1", "/openapi/v3/apis/apps/v1"])
def test_other_paths_ask_for_no_resource(path: str) -> None:
    info = request_info(request("GET", path))
    assert (info.is_resource, info.verb, info.path) == (False, "get", path)


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param("", Accepted(), id="nothing asked is JSON"),
        pytest.param("*/*", Accepted(), id="anything is JSON"),
        pytest.param("application/yaml", Accepted(YAML), id="YAML"),
        pytest.param("application/json;q=0.1,application/yaml", Accepted(YAML), id="the better quality wins"),
        pytest.param("text/html, */*;q=0.5", Accepted(JSON), id="a type that is not served is passed over"),
        pytest.param("application/json;as=Table;v=v1;g=meta.k8s.io", Accepted(JSON, "Table", "v1"), id="a table"),
        pytest.param("application/json;as=Odd;v=v1;g=meta.k8s.io,application/json", Accepted(JSON), id="an unknown form falls back"),
    ],
)
def test_an_accept_header_is_answered_with(header: str, expected: Accepted) -> None:
    assert negotiate(header) == expected


@pytest.mark.parametrize(
    ("header", "verb", "custom"),
    [
        pytest.param("text/html", "get", False, id="an unknown media type"),
        pytest.param("application/*", "get", False, id="a range of media types"),
        pytest.param(f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io", "list", False, id="a table in protobuf"),
        pytest.param(PROTOBUF, "get", True, id="a custom resource in protobuf"),
    ],
)
def test_a_type_that_is_not_offered_is_not_acceptable(header: str, verb: str, custom: bool) -> None:
    with pytest.raises(NotAcceptable):
        negotiate(header, verb, custom=custom)


@pytest.mark.parametrize("header", ["application/yaml", "application/yaml,application/json"])
def test_yaml_is_offered_to_watches_and_refused_by_them(header: str) -> None:
    with pytest.raises(NotAcceptable):
        require_streamable(negotiate(header, "watch"))


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        pytest.param(f"{PROTOBUF},application/json", Accepted(JSON), id="JSON stands in where it is accepted too"),
        pytest.param(
            f"{PROTOBUF};as=PartialObjectMetadata;v=v1;g=meta.k8s.io",
            Accepted(PROTOBUF, "PartialObjectMetadata", "v1"),
            id="their metadata has a protobuf form",
        ),
        pytest.param("application/*", Accepted(JSON), id="a range of media types is JSON"),
    ],
)
def test_custom_resources_have_no_protobuf(header: str, expected: Accepted) -> None:
    assert negotiate(header, custom=True) == expected


@pytest.mark.parametrize(
    ("header", "media_type"),
    [
        pytest.param(f"{PROTOBUF},application/json", PROTOBUF, id="protobuf first"),
        pytest.param(f"{PROTOBUF};as=Table;v=v1;g=meta.k8s.io,application/json", JSON, id="a form that errors do not have is passed over"),
        pytest.param("text/html", "", id="no type for a client that accepts none"),
    ],
)
def test_errors_go_out_in(header: str, media_type: str) -> None:
    assert media_type_for_errors(header) == media_type


@pytest.mark.parametrize(
    ("text", "tree"),
    [
        pytest.param("a: 2020-01-01", {"a": "2020-01-01"}, id="dates stay text"),
        pytest.param("a: on\nb: y\nc: 'y'", {"a": True, "b": True, "c": "y"}, id="booleans are those of YAML 1.1"),
        pytest.param("1: x\ntrue: z", {"1": "x", "true": "z"}, id="keys become strings"),
        pytest.param("a: 1\n---\nb: 2", {"a": 1}, id="only the first document counts"),
        pytest.param("a: &x {b: 1}\nc: *x", {"a": {"b": 1}, "c": {"b": 1}}, id="anchors are followed"),
        pytest.param("", None, id="nothing is null"),
    ],
)
def test_yaml_is_read_as_kubernetes_reads_it(text: str, tree: Any) -> None:
    assert parse_yaml(text.encode()) == tree


def test_broken_yaml_is_reported_with_its_line() -> None:
    with pytest.raises(DecodeError, match=r"^yaml: line 2: did not find expected ',' or '\]'$"):
        parse_yaml(b"x: y\na: [1")


def test_yaml_is_written_with_sorted_keys() -> None:
    assert dump_yaml({"b": [1, "2"], "a": None}) == b'a: null\nb:\n- 1\n- "2"\n'


def served(version: str = "v1", group: str = "example.com") -> ServedResource:
    gvr = GroupVersionResource(group, version, "foos")
    return ServedResource(gvr, "Foo", "foo", True, ("get",), TypeSchema(), Strategy, custom=True)


def test_resources_come_and_go_and_listeners_are_notified() -> None:
    registry, changes = Registry(), list[Change]()
    end = registry.on_change(changes.append)
    one, two = served("v1"), served("v2")
    registry.add(one)
    registry.add(two)
    assert (registry.groups(), registry.versions("example.com")) == (["example.com"], ["v1", "v2"])
    assert registry.get(one.gvr) is registry.kind(GroupVersionKind("example.com", "v1", "Foo")) is one
    assert registry.siblings(GroupResource("example.com", "foos")) == [one, two]
    with pytest.raises(ValueError, match="is served already"):
        registry.add(one)
    newer = replace(one, short_names=("f",))
    registry.replace(newer)
    assert registry.resources(GroupVersion("example.com", "v1")) == [newer]
    registry.remove(one.gvr)
    registry.remove(one.gvr)
    end()
    registry.remove(two.gvr)
    assert changes == [Change(None, one), Change(None, two), Change(one, newer), Change(newer, None)]
    assert (registry.has_group("example.com"), registry.revision) == (False, 5)


def test_a_resource_that_is_not_served_is_not_found() -> None:
    registry = Registry()
    registry.add(replace(served(), served=False))
    assert registry.get(served().gvr) is None


def test_generated_names_fit_into_a_label() -> None:
    name = generate_name("x" * 80)
    assert len(name) == 63
    assert name.startswith("x" * 58)


def test_events_convert_there_and_back() -> None:
    shared = {"involvedObject": {"name": "p"}, "message": "m", "source": {"component": "c"}, "count": 2, "type": "Normal"}
    times = {"firstTimestamp": None, "lastTimestamp": None, "eventTime": None}
    reporting = {"reportingComponent": "r", "reportingInstance": "i"}
    core = {"kind": "Event", "apiVersion": "v1", "metadata": {"name": "e"}, **shared, **times, **reporting}
    there = convert_event(core, "events.k8s.io/v1")
    assert (there["note"], there["regarding"], there["reportingController"]) == ("m", {"name": "p"}, "r")
    assert convert_event(there, "v1") == core
