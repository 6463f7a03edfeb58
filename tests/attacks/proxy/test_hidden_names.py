"""A request about a hidden object gets the answer for an object that does not exist, byte by byte apart from its name and the audit ID."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping

import pytest

from kubeloop.proxy.upstream import Upstream
from kubeloop.transport.connection import PooledAnswer
from kubeloop.transport.round_tripper import OutgoingRequest
from tests.attacks.conftest import Answered, Thief
from tests.attacks.proxy.conftest import HIDDEN, HOME, MISSING, Proxied

_MAP = b'{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"{name}"}}'
_EVICTION = b'{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":"{name}"}}'
_BINDING = b'{"apiVersion":"v1","kind":"Binding","metadata":{"name":"{name}"},"target":{"name":"x"}}'
_SPDY = {"Connection": "Upgrade", "Upgrade": "SPDY/3.1"}
_WEBSOCKET = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    "Sec-WebSocket-Protocol": "v5.channel.k8s.io",
}
_VOLATILE = re.compile(r"(?mi)^(audit-id|date): .*$")


def _comparable(answered: Answered) -> tuple[int, list[str], str]:
    """The answer without what differs between two requests for the same thing. The order of headers says nothing."""
    head, body = (text.replace(HIDDEN, "NAME").replace(MISSING, "NAME") for text in (answered.headers, answered.body))
    return answered.status, sorted(_VOLATILE.sub(r"\1", head).split("\r\n")), body


async def _both(thief: Thief, method: str, path: str, headers: Mapping[str, str], body: bytes) -> tuple[Answered, Answered]:
    answers = [
        await thief.ask(method, path.replace("{name}", name), headers, body.replace(b"{name}", name.encode())) for name in (HIDDEN, MISSING)
    ]
    assert not any(answered.has_gold for answered in answers)
    return answers[0], answers[1]


_REQUESTS = [
    pytest.param("GET", "/configmaps/{name}", {}, b"", id="a get"),
    pytest.param("HEAD", "/configmaps/{name}", {}, b"", id="a get of the headers"),
    pytest.param("GET", "/configmaps/{name}?pretty=true", {}, b"", id="a get in a readable form"),
    pytest.param("GET", "/configmaps/{name}", {"User-Agent": "curl/8"}, b"", id="a get by curl"),
    pytest.param("GET", "/configmaps/{name}", {"Accept": "application/yaml"}, b"", id="a get in YAML"),
    pytest.param("GET", "/configmaps/{name}", {"Accept": "application/vnd.kubernetes.protobuf"}, b"", id="a get in protobuf"),
    pytest.param("GET", "/configmaps/{name}", {"Accept": "application/cbor"}, b"", id="a get in CBOR"),
    pytest.param("GET", "/configmaps/{name}", {"Accept": "text/html"}, b"", id="a get in no known form"),
    pytest.param("GET", "/configmaps/{name}", {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"}, b"", id="a get as a Table"),
    pytest.param(
        "GET", "/configmaps/{name}", {"Accept": "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io"}, b"", id="a get of metadata"
    ),
    pytest.param("GET", "/configmaps/{name}?resourceVersion=abc", {}, b"", id="a get with a wrong parameter"),
    pytest.param("GET", "/configmaps/{name}?resourceVersion=1&resourceVersionMatch=Exact", {}, b"", id="a get of the past"),
    pytest.param("GET", "/configmaps/{name}?labelSelector=tier%3Dback", {}, b"", id="a get with a selector"),
    pytest.param("GET", "/configmaps/{name}?watch=true", {}, b"", id="a watch of the object itself"),
    pytest.param("GET", "/configmaps/{name}/", {}, b"", id="a get with a slash at the end"),
    pytest.param("GET", "/configmaps?fieldSelector=metadata.name%3D{name}", {}, b"", id="a list that selects the name"),
    pytest.param("GET", "/configmaps?fieldSelector=metadata.name%3D{name}&limit=1", {}, b"", id="a page that selects the name"),
    pytest.param(
        "GET", "/configmaps?fieldSelector=metadata.name%3D{name}&watch=1&timeoutSeconds=1", {}, b"", id="a watch that selects the name"
    ),
    pytest.param(
        "GET",
        "/configmaps?fieldSelector=metadata.name%3D{name}",
        {"Accept": "application/json;as=Table;v=v1;g=meta.k8s.io"},
        b"",
        id="a Table that selects the name",
    ),
    pytest.param("PUT", "/configmaps/{name}", {}, _MAP, id="an update"),
    pytest.param("PUT", "/configmaps/{name}", {}, b"{", id="an update with a body that is cut off"),
    pytest.param("PUT", "/configmaps/{name}", {"Content-Type": "text/plain"}, _MAP, id="an update in no known form"),
    pytest.param("PUT", "/configmaps/{name}?dryRun=", {}, _MAP, id="an update as a dry run without a value"),
    pytest.param("PATCH", "/configmaps/{name}", {"Content-Type": "application/json-patch+json"}, b"[]", id="a JSON patch"),
    pytest.param("PATCH", "/configmaps/{name}", {"Content-Type": "application/json-patch+json"}, b"[{", id="a JSON patch that is cut off"),
    pytest.param("PATCH", "/configmaps/{name}", {"Content-Type": "application/merge-patch+json"}, b'{"data":{}}', id="a merge patch"),
    pytest.param("PATCH", "/configmaps/{name}", {"Content-Type": "application/none"}, b"{}", id="a patch of an unknown kind"),
    pytest.param("DELETE", "/configmaps/{name}", {}, b"", id="a deletion"),
    pytest.param("DELETE", "/configmaps/{name}?dryRun=All", {}, b"", id="a deletion as a dry run"),
    pytest.param("DELETE", "/configmaps/{name}?propagationPolicy=none", {}, b"", id="a deletion with a wrong parameter"),
    pytest.param("DELETE", "/configmaps/{name}", {}, b"{", id="a deletion with a body that is cut off"),
    pytest.param("DELETE", "/configmaps/{name}", {}, b'{"preconditions":{"uid":"x"}}', id="a deletion with a precondition"),
    pytest.param("POST", "/configmaps/{name}", {}, b"{}", id="a creation at the object's path"),
    pytest.param("OPTIONS", "/configmaps/{name}", {}, b"", id="a question for the methods"),
    pytest.param("TRACE", "/configmaps/{name}", {}, b"", id="a trace"),
    pytest.param("FETCH", "/configmaps/{name}", {}, b"", id="a method that does not exist"),
    pytest.param("GET", "/pods/{name}/status", {}, b"", id="the status"),
    pytest.param("PUT", "/pods/{name}/status", {}, b"{", id="an update of the status that is cut off"),
    pytest.param("GET", "/pods/{name}/ephemeralcontainers", {}, b"", id="the ephemeral containers"),
    pytest.param("GET", "/pods/{name}/log", {}, b"", id="the log"),
    pytest.param("HEAD", "/pods/{name}/log", {}, b"", id="the headers of the log"),
    pytest.param("GET", "/pods/{name}/log?follow=true&tailLines=x", {}, b"", id="the log with a wrong parameter"),
    pytest.param("GET", "/pods/{name}/log", _WEBSOCKET, b"", id="the log over a WebSocket"),
    pytest.param("DELETE", "/pods/{name}/log", {}, b"", id="a deletion of the log"),
    pytest.param("GET", "/pods/{name}/exec?command=id", {}, b"", id="exec without an upgrade"),
    pytest.param("POST", "/pods/{name}/exec?command=id", _SPDY, b"", id="exec over SPDY"),
    pytest.param("GET", "/pods/{name}/exec?command=id", _WEBSOCKET, b"", id="exec over a WebSocket"),
    pytest.param("POST", "/pods/{name}/attach", _SPDY, b"", id="attach"),
    pytest.param("POST", "/pods/{name}/portforward", _SPDY, b"", id="port-forward"),
    pytest.param("GET", "/pods/{name}/proxy/", {}, b"", id="the proxy to the pod"),
    pytest.param("GET", "/pods/{name}:80/proxy/", {}, b"", id="the proxy to a port of the pod"),
    pytest.param("GET", "/pods/http:{name}:80/proxy/", {}, b"", id="the proxy to a port of the pod, with a scheme"),
    pytest.param("GET", "/pods/https:{name}:/proxy/", {}, b"", id="the proxy to the pod, with a scheme and an empty port"),
    pytest.param("POST", "/pods/{name}/eviction", {}, _EVICTION, id="an eviction"),
    pytest.param("POST", "/pods/{name}/eviction", {}, b"{", id="an eviction that is cut off"),
    pytest.param("POST", "/pods/{name}/binding", {}, _BINDING, id="a binding"),
    pytest.param("POST", "/bindings", {}, _BINDING, id="a binding in the old way, which names the pod in its body"),
    pytest.param("GET", "/pods/{name}/none", {}, b"", id="a subresource that does not exist"),
    pytest.param("POST", "/pods/{name}/none", {}, b"{}", id="a write of a subresource that does not exist"),
]


@pytest.mark.parametrize(("method", "path", "headers", "body"), _REQUESTS)
async def test_a_hidden_object_is_as_a_missing_one(thief: Thief, method: str, path: str, headers: dict[str, str], body: bytes) -> None:
    hidden, missing = await _both(thief, method, HOME + path, headers, body)
    assert _comparable(hidden) == _comparable(missing)


@pytest.mark.parametrize(("method", "path", "headers", "body"), _REQUESTS)
async def test_to_a_client_without_rights_a_hidden_object_is_as_a_missing_one(
    proxied: Proxied, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    hidden, missing = await _both(proxied.stranger, method, HOME + path, headers, body)
    assert _comparable(hidden) == _comparable(missing)


@pytest.mark.parametrize("method", ["GET", "PUT", "PATCH", "DELETE"])
async def test_a_client_without_rights_does_not_learn_that_a_changed_object_exists(proxied: Proxied, method: str) -> None:
    headers = {"Content-Type": "application/merge-patch+json"} if method == "PATCH" else {}
    body = b"" if method in ("GET", "DELETE") else _MAP.replace(b"{name}", b"changed")
    answered = await proxied.stranger.ask(method, f"{HOME}/configmaps/changed", headers, body)
    assert answered.status == 403
    assert "rule" not in answered.body, answered.body


@pytest.mark.parametrize(("method", "path", "headers", "body"), _REQUESTS)
async def test_a_hidden_object_costs_as_many_requests_to_the_server_as_a_missing_one(
    thief: Thief, monkeypatch: pytest.MonkeyPatch, method: str, path: str, headers: dict[str, str], body: bytes
) -> None:
    """The time of an answer is that of the requests behind it."""
    sent: Counter[str] = Counter()
    send = Upstream.send

    async def counted(upstream: Upstream, request: OutgoingRequest, *, as_proxy: bool) -> PooledAnswer:
        if "selfsubjectreviews" not in request.target:  # the user of a token is cached for some seconds
            sent[name] += 1
        return await send(upstream, request, as_proxy=as_proxy)

    monkeypatch.setattr(Upstream, "send", counted)
    name = ""
    for name in (HIDDEN, MISSING):
        await thief.ask(method, (HOME + path).replace("{name}", name), headers, body.replace(b"{name}", name.encode()))
    assert sent[HIDDEN] == sent[MISSING]


async def test_only_a_creation_tells_that_a_name_is_taken(thief: Thief) -> None:
    """This cannot be prevented: the API server accepts a name only once."""
    created = await thief.ask("POST", f"{HOME}/configmaps", {}, _MAP.replace(b"{name}", HIDDEN.encode()))
    applied = await thief.ask(
        "PATCH",
        f"{HOME}/configmaps/{HIDDEN}?fieldManager=x&force=true",
        {"Content-Type": "application/apply-patch+yaml"},
        _MAP.replace(b"{name}", HIDDEN.encode()),
    )
    assert (created.status, applied.status) == (409, 409)
    assert f'configmaps \\"{HIDDEN}\\" already exists' in applied.body
    assert not created.has_gold
