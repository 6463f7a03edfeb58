"""Writes that rules deny, and writes whose answers could show the original of what they write."""

from __future__ import annotations

import json

import pytest

from kubeloop.codec import protobuf
from tests.attacks.conftest import GOLD, Thief
from tests.attacks.proxy.conftest import CHANGES_ONLY, HIDDEN, HOME, SHOWN, OpenProxy

_MAPS = f"{HOME}/configmaps"
_JSON_PATCH = {"Content-Type": "application/json-patch+json"}
_MERGE = {"Content-Type": "application/merge-patch+json"}
_STRATEGIC = {"Content-Type": "application/strategic-merge-patch+json"}
_APPLY = {"Content-Type": "application/apply-patch+yaml"}
_YAML = {"Content-Type": "application/yaml"}
_PROTOBUF = {"Content-Type": "application/vnd.kubernetes.protobuf"}
_BACK = {"name": "smuggled", "labels": {"tier": "back"}}


def _map(**metadata: object) -> bytes:
    return json.dumps({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}).encode()


def _twice(first: bytes, second: bytes) -> bytes:
    """A ConfigMap whose metadata comes twice: Go merges both, other programs take the last."""
    return b'{"apiVersion":"v1","kind":"ConfigMap","metadata":%b,"metadata":%b}' % (first, second)


@pytest.mark.parametrize(
    ("method", "path", "headers", "body", "status"),
    [
        pytest.param("PUT", "/changed", {}, _map(name="changed"), 403, id="an update of a changed object"),
        pytest.param("PUT", "/changed?dryRun=All", {}, _map(name="changed"), 403, id="an update as a dry run"),
        pytest.param("PATCH", "/changed", _MERGE, b'{"data":{"x":"y"}}', 403, id="a merge patch"),
        pytest.param("PATCH", "/changed", _STRATEGIC, b'{"data":{"x":"y"}}', 403, id="a strategic merge patch"),
        pytest.param("PATCH", "/changed", _JSON_PATCH, b'[{"op":"remove","path":"/data/price"}]', 403, id="a JSON patch"),
        pytest.param("PATCH", "/changed?dryRun=All", _MERGE, b"{}", 403, id="an empty patch as a dry run, which returns the object"),
        pytest.param("PATCH", "/changed?fieldManager=x&force=true", _APPLY, _map(name="changed"), 403, id="an apply"),
        pytest.param("DELETE", "/changed", {}, b"", 403, id="a deletion"),
        pytest.param("DELETE", "/changed?dryRun=All", {}, b"", 403, id="a deletion as a dry run, which returns the object"),
        pytest.param("DELETE", "", {}, b"", 403, id="a deletion of all"),
        pytest.param("DELETE", "?fieldSelector=metadata.name%3Dm-secret-plan", {}, b"", 403, id="a deletion by the name of a hidden one"),
        pytest.param("DELETE", "?labelSelector=tier%3Dback&dryRun=All", {}, b"", 403, id="a deletion by the label of hidden ones"),
        pytest.param("POST", "", {}, _map(**_BACK), 403, id="a creation of what would be hidden"),
        pytest.param("POST", "?dryRun=All", {}, _map(**_BACK), 403, id="such a creation as a dry run"),
        pytest.param("POST", "", {"Content-Type": ""}, _map(**_BACK), 403, id="such a creation without a media type"),
        pytest.param("POST", "", {}, _map(**_BACK, namespace=""), 403, id="such a creation with an empty namespace"),
        pytest.param("POST", "", _YAML, _map(**_BACK), 403, id="such a creation in YAML"),
        pytest.param("POST", "", _YAML, b"%b\n---\n%b" % (_map(name="a"), _map(**_BACK)), 400, id="such a creation in a second document"),
        pytest.param(
            "POST",
            "",
            _YAML,
            b"apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: smuggled\n  labels: &a {tier: back}\n  annotations: *a\n",
            403,
            id="such a creation by an alias of YAML",
        ),
        pytest.param("POST", "", _PROTOBUF, protobuf.encode(json.loads(_map(**_BACK))), 403, id="such a creation in protobuf"),
        pytest.param("POST", "", {"Content-Type": "application/cbor"}, _map(**_BACK), 415, id="such a creation in CBOR"),
        pytest.param("POST", "", {"Content-Type": "application/xml"}, _map(**_BACK), 415, id="such a creation in no known form"),
        pytest.param("POST", "", {}, _twice(json.dumps(_BACK).encode(), b'{"name":"smuggled"}'), 400, id="metadata twice"),
        pytest.param("POST", "", {}, _map(**_BACK).replace(b"smuggled", b"smuggled\xff"), 400, id="a byte that is no text"),
        pytest.param("POST", "", {}, _map(**_BACK).replace(b"smuggled", b"smuggled\\ud800"), 400, id="half a character"),
        pytest.param("POST", "", {}, b"\xef\xbb\xbf" + _map(**_BACK), 400, id="a byte order mark"),
        pytest.param("POST", "", {}, b'{"a":' * 5000, 400, id="a body of braces"),
        pytest.param("POST", "", {}, b"", 400, id="no body"),
        pytest.param("PUT", "/smuggled", {}, _map(**_BACK), 403, id="an update of a missing object to what would be hidden"),
        pytest.param("PATCH", "/smuggled?fieldManager=x", _APPLY, _map(**_BACK), 403, id="an apply of what would be hidden"),
        pytest.param(
            "PATCH", "/smuggled?fieldManager=x", {"Content-Type": "application/apply-patch+cbor"}, _map(**_BACK), 415, id="an apply in CBOR"
        ),
        pytest.param("POST", "?x=1", {"X-HTTP-Method-Override": "PUT"}, _map(**_BACK), 403, id="with another method in a header"),
    ],
)
async def test_no_way_of_writing_leads_round_a_denial(
    thief: Thief, direct: Thief, method: str, path: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    before = json.loads((await direct.ask("GET", _MAPS)).body)["items"]
    answered = await thief.ask(method, _MAPS + path, headers, body)
    assert answered.status == status, answered.body[:300]
    assert not answered.has_gold
    assert json.loads((await direct.ask("GET", _MAPS)).body)["items"] == before


def _operation(op: str, path: str, **fields: object) -> bytes:
    return json.dumps([{"op": op, "path": path, **fields}]).encode()


@pytest.mark.parametrize("writes", ["Pass", "Reverse"])
@pytest.mark.parametrize(
    "body",
    [
        pytest.param(_operation("test", "/data/price", value=GOLD), id="a test for the value"),
        pytest.param(_operation("test", "/data/price", value="wrong"), id="a test for another value"),
        pytest.param(_operation("test", "/data", value={"price": GOLD, "open": "1"}), id="a test for the map around the value"),
        pytest.param(_operation("test", "", value={}), id="a test for the whole object"),
        pytest.param(_operation("test", "/metadata/labels/price", value=GOLD), id="a test for the label"),
        pytest.param(_operation("copy", "/data/open", **{"from": "/data/price"}), id="a copy of the value"),
        pytest.param(_operation("copy", "/data/open", **{"from": "/data"}), id="a copy of the map around the value"),
        pytest.param(_operation("copy", "/data/open", **{"from": "/d~0ta".replace("~0", "a") + "/price"}), id="a copy by another pointer"),
        pytest.param(_operation("copy", "/data/open", **{"from": "/metadata/managedFields"}), id="a copy of the managed fields"),
        pytest.param(_operation("move", "/data/open", **{"from": "/data/price"}), id="a move of the value"),
    ],
)
async def test_a_json_patch_reads_no_original_value(open_proxy: OpenProxy, writes: str, body: bytes) -> None:
    with open_proxy(writes=writes) as proxied:
        answered = await proxied.thief.ask("PATCH", f"{_MAPS}/changed?dryRun=All", _JSON_PATCH, body)
    assert answered.status == 403, answered.body
    assert not answered.has_gold
    assert "the proxy denies this JSON patch, because it reads" in answered.body


@pytest.mark.parametrize("writes", ["Pass", "Reverse"])
@pytest.mark.parametrize(
    ("method", "headers", "body", "status"),
    [
        pytest.param("PATCH", _MERGE, b"{}", 200, id="an empty merge patch"),
        pytest.param("PATCH", _STRATEGIC, b'{"data":{"open":"2"}}', 200, id="a strategic merge patch"),
        pytest.param("PATCH", _JSON_PATCH, b"[]", 200, id="an empty JSON patch"),
        pytest.param("PATCH", _MERGE | {"Accept": "application/vnd.kubernetes.protobuf"}, b"{}", 200, id="a patch for protobuf"),
        pytest.param("PATCH", _MERGE | {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, b"{}", 200, id="a patch for a Table"),
        pytest.param("PATCH", _MERGE, b'{"data":{"wrong key":"x"}}', 422, id="a patch that is invalid"),
        pytest.param("PATCH", _MERGE, b'{"metadata":{"resourceVersion":"1"}}', 409, id="a patch of an old version"),
        pytest.param("PATCH", _APPLY, b'{"apiVersion":"v1","kind":"ConfigMap","data":{"price":"x"}}', 409, id="an apply in conflict"),
        pytest.param("DELETE", {}, b"", 200, id="a deletion"),
        pytest.param("DELETE", {}, b'{"preconditions":{"resourceVersion":"1"}}', 409, id="a deletion of an old version"),
    ],
)
async def test_no_answer_to_a_write_shows_the_original(
    open_proxy: OpenProxy, writes: str, method: str, headers: dict[str, str], body: bytes, status: int
) -> None:
    with open_proxy(writes=writes) as proxied:
        answered = await proxied.thief.ask(method, f"{_MAPS}/changed?dryRun=All&fieldManager=x", headers, body)
    assert answered.status == status, answered.body
    assert not answered.has_gold
    if status >= 400:
        # The errors of validation and of apply quote values that are not the client's own.
        assert "the proxy withholds why" in answered.body
        assert "causes" not in answered.body


async def test_the_deletion_of_a_collection_shows_no_originals(open_proxy: OpenProxy) -> None:
    with open_proxy(CHANGES_ONLY, writes="Pass") as proxied:
        for accept in ("application/json", "application/vnd.kubernetes.protobuf", "application/json;as=Table;v=v1;g=meta.k8s.io"):
            answered = await proxied.thief.ask("DELETE", f"{_MAPS}?dryRun=All&fieldSelector=metadata.name%3Dchanged", {"Accept": accept})
            assert answered.status == 200, answered.body
            assert not answered.has_gold
            assert SHOWN in answered.body
        guessed = await proxied.thief.ask("DELETE", f"{_MAPS}?dryRun=All&labelSelector=price%3D{GOLD}")
        assert guessed.status == 403, guessed.body


async def test_a_binding_in_the_old_way_is_refused_where_rules_concern_pods(thief: Thief) -> None:
    body = json.dumps({"apiVersion": "v1", "kind": "Binding", "metadata": {"name": HIDDEN}, "target": {"name": "n"}}).encode()
    answered = await thief.ask("POST", f"{HOME}/bindings", {}, body)
    assert answered.status == 400
    assert "/pods/NAME/binding" in answered.body


async def test_an_empty_namespace_in_a_body_avoids_no_rule(open_proxy: OpenProxy) -> None:
    """The API server puts the namespace of the path there."""
    rules = CHANGES_ONLY.replace("names: [changed]", "verbs: [get]").replace(
        "writes:", "when: object.metadata.namespace == 'HOME'\n  writes:"
    )
    with open_proxy(rules) as proxied:
        for metadata in ({"name": "smuggled"}, {"name": "smuggled", "namespace": ""}):
            answered = await proxied.thief.ask("POST", f"{_MAPS}?dryRun=All", {}, _map(**metadata))
            assert answered.status == 403, answered.body
