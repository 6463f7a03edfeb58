"""Refusals: the API server's come first, as far as they tell nothing of hidden objects; those of the proxy itself look like them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from kubeloop.serving.answer import Answer, StreamingResponse
from kubeloop.transport.round_tripper import OutgoingRequest
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import JSON_TYPE, METADATA, METADATA_LIST, PODS, PROTOBUF, ScriptedAnswer, ScriptedProxy, body_of, list_of, pod

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}], name="hide")
#: A rule that could change every field by which clients select, and changes no object.
IDLE = rule(
    {"set": {"metadata.labels.idle": "yes", "spec.nodeName": "idle"}},
    name="idle",
    match=[{"labelSelector": "no-object-has-this-label"}],
    writes="Pass",
)
FORBIDDEN = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "ann may not", "reason": "Forbidden", "code": 403}
WIDGETS = "/apis/example.com/v1/namespaces/shop/widgets"

UNSERVABLE = [
    pytest.param(f"{PODS}?labelSelector=a%20b", JSON_TYPE, 400, id="a list with a malformed label selector"),
    pytest.param(f"{PODS}?fieldSelector=a", JSON_TYPE, 400, id="a list with a malformed field selector"),
    pytest.param(f"{PODS}?watch=true&fieldSelector=a", JSON_TYPE, 400, id="a watch with a malformed field selector"),
    pytest.param(PODS, METADATA, 406, id="a list as the metadata of one object"),
    pytest.param(f"{PODS}/a", METADATA_LIST, 406, id="an object as a list of metadata"),
    pytest.param(f"{PODS}?watch=true", "application/yaml", 406, id="a watch in YAML"),
    pytest.param(PODS, "application/cbor", 406, id="a list in CBOR"),
    pytest.param(f"{PODS}/a", "text/plain", 406, id="an object as text"),
    pytest.param(f"{WIDGETS}/a", PROTOBUF, 406, id="a custom object in protobuf"),
    pytest.param(f"{WIDGETS}?watch=true", PROTOBUF, 406, id="a watch of a custom resource in protobuf"),
]


def accept_of(request: OutgoingRequest) -> str:
    (accept,) = [value for name, value in request.headers if name.lower() == "accept"]
    return accept


def server(request: OutgoingRequest, status: int = 200, body: Any = None) -> ScriptedAnswer:
    """Answer reads of the proxy itself with a pod or a widget, and requests that the client has sent with a status."""
    if "customresourcedefinitions" in request.target:
        return ScriptedAnswer(chunks=[b'{"spec":{"versions":[{"name":"v1"}]}}'])
    if accept_of(request) == JSON_TYPE and "Selector" not in request.target:
        tree = pod("a") if "/pods" in request.target else pod("a") | {"kind": "Widget", "apiVersion": "example.com/v1"}
        return ScriptedAnswer(chunks=[msgspec.json.encode(tree)])
    return ScriptedAnswer(status, [msgspec.json.encode(body)], **{"Audit-Id": "seen", "Retry-After": "7"})


@pytest.mark.parametrize(("target", "accept", "code"), UNSERVABLE)
async def test_the_refusal_of_the_api_server_comes_first(target: str, accept: str, code: int) -> None:
    proxy = ScriptedProxy(lambda request: server(request, 403, FORBIDDEN), IDLE)
    reply = await proxy(target, Accept=accept)
    assert isinstance(reply, Answer)
    assert (reply.status, json.loads(await body_of(reply))) == (403, FORBIDDEN)
    assert {("Audit-Id", "seen"), ("Retry-After", "7")} <= set(reply.headers)
    sent = proxy.upstream.requests[-1]
    assert (sent.target, accept_of(sent)) == (target, accept)


@pytest.mark.parametrize(("target", "accept", "code"), UNSERVABLE)
async def test_what_the_api_server_would_serve_is_refused_by_the_proxy(target: str, accept: str, code: int) -> None:
    proxy = ScriptedProxy(lambda request: server(request, 200, "x" * 100_000), IDLE)
    reply = await proxy(target, Accept=accept)
    assert isinstance(reply, Answer)
    assert (reply.status, b"xx" in await body_of(reply)) == (code, False)
    assert all(answer.closed for answer in proxy.upstream.answers)


@pytest.mark.parametrize("name", ["web-0", "absent"])
async def test_a_hidden_object_is_as_unacceptable_as_a_missing_one(name: str) -> None:
    """The API server refuses the form of an object after it has found the object."""

    def script(request: OutgoingRequest) -> ScriptedAnswer:
        found = request.target.rpartition("/")[2]
        if found == "web-0" and accept_of(request) == JSON_TYPE:
            return ScriptedAnswer(chunks=[msgspec.json.encode(pod("web-0", "back"))])
        status, reason = (406, "NotAcceptable") if found == "web-0" else (404, "NotFound")
        message = f"{found}: {reason}"
        tree = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "reason": reason, "code": status}
        return ScriptedAnswer(status, [msgspec.json.encode(tree)])

    reply = await ScriptedProxy(script, HIDE_BACK)(f"{PODS}/{name}", Accept=METADATA_LIST)
    assert isinstance(reply, Answer)
    assert (reply.status, json.loads(await body_of(reply))["message"]) == (404, f"{name}: NotFound")


@pytest.mark.parametrize(
    "query", ["labelSelector=a%20b", "fieldSelector=a", "labelSelector=tier=back", "fieldSelector=spec.nodeName=other"]
)
async def test_selectors_of_a_get_are_ignored(query: str) -> None:
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(chunks=[msgspec.json.encode(pod("a"))]), IDLE)
    reply = await proxy(f"{PODS}/a?{query}")
    assert isinstance(reply, Answer)
    assert reply.status == 200
    assert proxy.upstream.targets == [f"GET {PODS}/a?{query}"]


@pytest.mark.parametrize(
    ("target", "method", "headers", "code"),
    [
        pytest.param("/api/v1//pods", "GET", {}, 404, id="a path with an empty segment"),
        pytest.param("/api/v1/watch/pods", "GET", {}, 400, id="a deprecated path"),
        pytest.param(f"{PODS}?labelSelector={'a,' * 9000}", "GET", {}, 400, id="long selectors"),
        pytest.param(PODS, "OPTIONS", {}, 405, id="an unknown method"),
        pytest.param(f"{PODS}/a", "HEAD", {}, 405, id="HEAD of an object"),
        pytest.param(PODS, "POST", {"Accept": "text/plain"}, 406, id="a write with an unacceptable answer"),
        pytest.param(f"{PODS}/a", "GET", {"Connection": "Upgrade", "Upgrade": "x"}, 400, id="an upgrade of a get"),
    ],
)
async def test_a_refusal_of_the_proxy_itself_is_not_cached_and_in_no_audit_log(
    target: str, method: str, headers: dict[str, str], code: int
) -> None:
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(404, [b"{}"], **{"Audit-Id": "x"}), IDLE)
    reply = await proxy(target, method, {"metadata": {"name": "a"}} if method == "POST" else None, **headers)
    assert isinstance(reply, Answer)
    assert (reply.status, reply.headers) == (code, [("Cache-Control", "no-cache, private")])


@pytest.mark.parametrize(
    ("method", "target"), [("DELETE", f"{PODS}/a"), ("PUT", f"{PODS}/a"), ("PATCH", f"{PODS}/a"), ("POST", f"{PODS}/a/eviction")]
)
@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        pytest.param(503, "text/plain; charset=utf-8", b"service unavailable\n", id="an API that is not available"),
        pytest.param(429, "text/plain; charset=utf-8", b"Too many requests, please try again later.\n", id="too many requests"),
        pytest.param(401, JSON_TYPE, b'{"kind":"Status","apiVersion":"v1","code":401}\n', id="an unknown user"),
    ],
)
async def test_a_write_gets_the_refusal_of_the_read_that_it_needs(
    method: str, target: str, status: int, content_type: str, body: bytes
) -> None:
    answer = ScriptedAnswer(status, [body], content_type, **{"Retry-After": "3", "Audit-Id": "seen"})
    proxy = ScriptedProxy(lambda _: answer, rule({"set": {"status.idle": True}}, match=[{"resources": ["pods", "pods/*"]}], writes="Pass"))
    reply = await proxy(target, method, {"metadata": {"name": "a"}})
    assert isinstance(reply, Answer)
    assert (reply.status, reply.content_type, await body_of(reply)) == (status, content_type, body)
    assert {("Retry-After", "3"), ("Audit-Id", "seen")} <= set(reply.headers)
    assert proxy.upstream.targets == [f"GET {PODS}/a"]


@pytest.mark.parametrize(
    ("method", "sent", "code"),
    [
        pytest.param("POST", [], 400, id="a creation names a pod that a rule may hide"),
        pytest.param("DELETE", ["DELETE /api/v1/namespaces/shop/bindings"], 405, id="the API server refuses everything else"),
    ],
)
async def test_the_deprecated_bindings(method: str, sent: list[str], code: int) -> None:
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(405, [b'{"kind":"Status","apiVersion":"v1","code":405}']), IDLE)
    reply = await proxy("/api/v1/namespaces/shop/bindings", method, {"metadata": {"name": "a"}} if method == "POST" else None)
    assert isinstance(reply, Answer | StreamingResponse)
    assert (reply.status, proxy.upstream.targets) == (code, sent)


async def test_another_success_than_the_object_is_a_bad_gateway() -> None:
    proxy = ScriptedProxy(lambda _: ScriptedAnswer(201, [list_of()]), IDLE)
    reply = await proxy(f"{PODS}/a")
    assert isinstance(reply, Answer)
    assert reply.status == 502
