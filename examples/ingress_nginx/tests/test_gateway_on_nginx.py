"""What a real NGINX answers for Gateways and routes, with Lua and with reloads."""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from examples.ingress_nginx.gateway.addresses import AddressPool
from examples.ingress_nginx.gateway.objects import GatewayOptions
from examples.ingress_nginx.nginx.binary import find_nginx
from examples.ingress_nginx.nginx.lua_server import LuaNginx
from examples.ingress_nginx.nginx.server import NginxServer
from examples.ingress_nginx.nginx.static_server import StaticNginx
from examples.ingress_nginx.tests.gateway_objects import build, gateway, http_route, listener, path, rule
from examples.ingress_nginx.tests.nginx_stage import Answer, EchoBackend, Stage, echo_backends, free_port, request, stage
from examples.ingress_nginx.tests.objects import AUTHORITY, service, slice_of, tls_secret
from kubeloop.meta import Resource

OPTIONS = GatewayOptions(pool=AddressPool("127.0.0.0/24"))


class GatewayStage:
    """An NGINX that serves a Gateway on 127.0.0.1, with the services first and second."""

    def __init__(self, running: Stage, backends: tuple[EchoBackend, ...]) -> None:
        self.running = running
        self.backends = {backend.name: backend for backend in backends}
        self.services = tuple(
            found for backend in backends for found in (service(backend.name), slice_of(backend.name, "127.0.0.1", port=backend.port))
        )
        self.port = free_port()
        self.tls_port = free_port()

    async def serve(self, *routes: Resource, listeners: tuple[dict[str, Any], ...] = ()) -> None:
        """Start NGINX with a Gateway (one listener of HTTP unless others are given) and routes."""
        front = gateway("front", *(listeners or (listener(port=self.port),)), addresses=[{"value": "127.0.0.1"}])
        result = build(front, *routes, *self.services, options=OPTIONS)
        configuration = replace(self.running.configuration)
        result.add_to(configuration)
        self.running.configuration = configuration
        await self.running.nginx.start(configuration)

    async def get(self, host: str, target: str = "/", **options: Any) -> Answer:
        return await request(self.port, host, target, **options)

    async def answers(self, *requests: tuple[str, str]) -> list[int | str]:
        """Return for each host and target the name of the backend that answers, else the status."""
        answers = [await self.get(host, target) for host, target in requests]
        return [answer.seen["backend"] if answer.status == 200 else answer.status for answer in answers]


@pytest.fixture(params=[pytest.param(True, id="Lua", marks=pytest.mark.nginx_lua), pytest.param(False, id="reloads")])
async def at(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[GatewayStage]:
    binary = await find_nginx("", lua=request.param)
    nginx: NginxServer
    nginx = LuaNginx(binary, tmp_path / "nginx") if request.param else StaticNginx(binary, tmp_path / "nginx", resolvers=())
    first, second = EchoBackend("first"), EchoBackend("second")
    async with echo_backends(first, second), stage(nginx) as running:
        yield GatewayStage(running, (first, second))


async def test_paths_hosts_and_conditions(at: GatewayStage) -> None:
    headers = [{"name": "version", "value": "2"}]
    await at.serve(
        http_route(
            "one",
            rule(path("/"), to=["first"]),
            rule(path("/a"), to=["second"]),
            rule(path("/a", headers=headers), to=["first"]),
            rule(path("/x[0-9]", "RegularExpression"), to=["second"]),
            hosts=["a.test"],
        ),
        http_route("wild", rule(path("/only"), to=["second"]), hosts=["*.test"]),
    )
    seen = await at.answers(
        *(("a.test", target) for target in ("/", "/a", "/a/b", "/ab", "/x7", "/X7", "/x77")),
        *(("b.c.test", target) for target in ("/only", "/")),
        ("other", "/"),
    )
    assert seen == ["first", "second", "second", "first", "second", "first", "first", "second", 404, 404]
    assert (await at.get("a.test", "/a", headers={"Version": "2"})).seen["backend"] == "first"


async def test_weights_and_unresolved_backends(at: GatewayStage) -> None:
    await at.serve(
        http_route("web", rule(path("/half"), to=["first", "none"]), rule(path("/none"), to=["none"]), rule(path("/zero"), to=["first*0"]))
    )
    counts = Counter([(await at.get("a.test", "/half")).status for _ in range(60)])
    assert set(counts) == {200, 500}
    assert await at.answers(("a.test", "/none"), ("a.test", "/zero")) == [500, 500]


async def test_filters(at: GatewayStage) -> None:
    prefix = {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"hostname": "inner.test", "path": prefix}}
    redirect = {"type": "RequestRedirect", "requestRedirect": {"hostname": "b.test", "statusCode": 301, "path": prefix}}
    to_tls = {"type": "RequestRedirect", "requestRedirect": {"scheme": "https"}}
    headers = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "X-Set", "value": "$1"}], "remove": ["X-Gone"]}}
    answer = {"type": "ResponseHeaderModifier", "responseHeaderModifier": {"add": [{"name": "X-Answer", "value": "yes"}]}}
    await at.serve(
        http_route(
            "web",
            rule(path("/rewrite"), to=["first"], filters=[rewrite]),
            rule(path("/redirect"), to=[], filters=[redirect]),
            rule(path("/tls"), to=[], filters=[to_tls]),
            rule(path("/headers"), to=["first"], filters=[headers, answer]),
        )
    )
    rewritten = (await at.get("a.test", "/rewrite/b?c=d")).seen
    assert (rewritten["target"], rewritten["headers"]["host"]) == ("/new/b?c=d", "inner.test")
    redirected = await at.get("a.test", "/redirect/b?c=d")
    assert (redirected.status, redirected.header("location")) == (301, f"http://b.test:{at.port}/new/b?c=d")
    assert (await at.get("a.test", "/tls/b")).header("location") == "https://a.test/tls/b"
    changed = await at.get("a.test", "/headers", headers={"X-Set": "old", "X-Gone": "1"})
    assert (changed.seen["headers"]["x-set"], "x-gone" in changed.seen["headers"]) == ("$1", False)
    assert changed.header("x-answer") == "yes"


async def test_copies_of_requests_go_to_other_backends(at: GatewayStage) -> None:
    def copies(name: str, **fields: Any) -> dict[str, Any]:
        return {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": name, "port": 80}, **fields}}

    header = {"type": "RequestHeaderModifier", "requestHeaderModifier": {"set": [{"name": "X-Set", "value": "1"}]}}
    rewrite = {"type": "URLRewrite", "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/new"}}}
    await at.serve(
        http_route(
            "web",
            rule(path("/copied"), to=["first"], filters=[copies("second"), header]),
            rule(path("/never"), to=["first"], filters=[copies("second", percent=0)]),
            rule(path("/rewritten"), to=["first"], filters=[rewrite, copies("second", fraction={"numerator": 3, "denominator": 3})]),
            rule(path("/missing"), to=["first"], filters=[copies("none")]),
            rule(path("/twice"), to=["first"], filters=[copies("first"), copies("second")]),
            rule(path("/half"), to=["first"], filters=[copies("second", percent=50)]),
        )
    )
    copied = at.backends["second"].descriptions
    targets = ("/never", "/missing", "/copied/%41?b=1", "/rewritten/x", "/twice")
    answers = [await at.get("a.test", target, method="POST", body=b"text") for target in targets]
    assert [answer.seen["backend"] for answer in answers] == ["first"] * 5
    assert answers[3].seen["target"] == "/new/x"
    found = [await asyncio.wait_for(copied.get(), 30) for _ in range(3)]
    assert sorted((one["method"], one["target"], one["body"]) for one in found) == [
        ("POST", target, "text") for target in ("/copied/%41?b=1", "/rewritten/x", "/twice")
    ]
    assert {one["target"]: one["headers"].get("x-set") for one in found} == {"/copied/%41?b=1": "1", "/rewritten/x": None, "/twice": None}
    assert {one["headers"]["host"] for one in found} == {"a.test"}
    received = at.backends["first"].descriptions
    for target in ("/never", "/missing", "/copied/%41?b=1", "/new/x", "/twice", "/twice"):
        assert (await asyncio.wait_for(received.get(), 30))["target"] == target
    assert copied.empty()
    for _ in range(100):
        await at.get("a.test", "/half")
    await asyncio.wait_for(copied.get(), 30)
    assert copied.qsize() < 99


async def test_a_copy_is_not_upgraded_and_leaves_the_websocket_of_the_client(at: GatewayStage) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"upgrade: websocket" not in head.lower():
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
            writer.write(await reader.readline())
        writer.close()

    servers = [await asyncio.start_server(answer, "127.0.0.1", 0) for _ in range(2)]
    for name, found in zip(("chat", "next"), servers, strict=True):
        at.services += (service(name), slice_of(name, "127.0.0.1", port=found.sockets[0].getsockname()[1]))
    copies = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "next", "port": 80}}}
    await at.serve(http_route("web", rule(to=["chat"], filters=[copies])))
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: a.test\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n")
    assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    writer.write(b"hello\n")
    assert await asyncio.wait_for(reader.readline(), 30) == b"hello\n"
    writer.close()
    for found in servers:
        found.close()


async def test_a_backend_leads_a_request_to_another_path_and_a_copy_to_none(at: GatewayStage) -> None:
    copies = {"type": "RequestMirror", "requestMirror": {"backendRef": {"name": "leads", "port": 80}}}
    async with echo_backends(EchoBackend("leads", headers=(("X-Accel-Redirect", "/inner?a=1"),))) as backends:
        (endpoint,) = backends["leads"].endpoints
        at.services += (service("leads"), slice_of("leads", "127.0.0.1", port=endpoint.port))
        await at.serve(
            http_route(
                "web",
                rule(path("/moved"), to=["leads"]),
                rule(path("/inner"), to=["second"]),
                rule(path("/copied"), to=["first"], filters=[copies]),
            )
        )
        moved = (await at.get("a.test", "/moved")).seen
        assert (moved["backend"], moved["target"]) == ("second", "/inner?a=1")
        assert len(moved["headers"]["x-request-id"]) == 32
        at.backends["second"].descriptions.get_nowait()
        reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
        writer.write(b"GET /copied HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n")
        # NGINX closes the connection after the copy is answered, too.
        assert b'"backend": "first"' in await asyncio.wait_for(reader.read(), 30)
        writer.close()
    assert at.backends["second"].descriptions.empty()


async def test_https_listeners(at: GatewayStage) -> None:
    secure = listener("secure", at.tls_port, "*.shop.test", "HTTPS", certificates=["tls"])
    parents = [{"name": "front", "sectionName": "secure"}]
    await at.serve(
        http_route("web", rule(to=["first"]), parents=parents),
        tls_secret("tls", "*.shop.test"),
        listeners=(listener(port=at.port), secure),
    )
    context = ssl.create_default_context(cadata=AUTHORITY.certificate.decode())
    answer = await request(at.tls_port, "a.shop.test", "/", tls=context)
    assert (answer.status, answer.seen["backend"]) == (200, "first")
    assert (await at.get("a.shop.test")).status == 404


CREDENTIALS = {"allowOrigins": ["*"], "allowMethods": ["*"], "allowHeaders": ["*"], "exposeHeaders": ["*"], "allowCredentials": True}
PUBLIC = {**CREDENTIALS, "allowCredentials": False}
LABELS = {"allowOrigins": ["https://*.b.test"], "allowMethods": ["GET"]}


@pytest.mark.parametrize(
    ("cors", "origin", "wish", "expected"),
    [
        pytest.param(CREDENTIALS, "https://a.test:1", "PUT", ("https://a.test:1", "PUT", "X-A", ""), id="a wildcard with credentials"),
        pytest.param(CREDENTIALS, "https://a.test", "", ("https://a.test", "", "", ""), id="a wildcard, and no wish"),
        pytest.param(PUBLIC, "https://a.test", "PUT", ("*", "*", "*", "*"), id="a wildcard without credentials"),
        pytest.param(LABELS, "https://a.c.b.test", "GET", ("https://a.c.b.test", "GET", "", ""), id="a wildcard for several labels"),
        pytest.param(LABELS, "https://b.test", "GET", ("", "", "", ""), id="another origin"),
    ],
)
async def test_cors(at: GatewayStage, cors: dict[str, Any], origin: str, wish: str, expected: tuple[str, ...]) -> None:
    await at.serve(http_route("web", rule(to=["first"], filters=[{"type": "CORS", "cors": cors}])))
    wishes = {"Access-Control-Request-Method": wish, "Access-Control-Request-Headers": "X-A"} if wish else {}
    answer = await at.get("a.test", method="OPTIONS", headers={"Origin": origin, **wishes})
    names = ("allow-origin", "allow-methods", "allow-headers", "expose-headers")
    assert tuple(answer.header(f"access-control-{name}") for name in names) == expected
    assert answer.status == (204 if wish else 200)
