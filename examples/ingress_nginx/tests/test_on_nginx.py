"""The controller on a cluster and a real NGINX: paths, endpoints, classes, certificates, status, and the end of the program."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import cast

import dns.message
import dns.rrset
import pytest
from cryptography import x509

from examples.ingress_nginx.nginx import lua_server, static_server
from examples.ingress_nginx.tests.nginx_stage import EchoBackend
from examples.ingress_nginx.tests.objects import ingress, ingress_class, service, slice_of, tls_secret
from examples.ingress_nginx.tests.stage import ADDRESS, ControllerStage, controller_stage, stage_options
from kubeloop.api.core.v1 import Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressClass


async def test_a_missing_service_and_missing_endpoints_are_503(at: ControllerStage) -> None:
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("503", "shop.test")
    await at.warning("web", "service shop/web does not exist")
    await at.expose("web")
    await at.handled()
    assert await at.backend_of("shop.test") == "503"
    await at.endpoints("web", await at.backend("web"))
    await at.answers("web", "shop.test")
    await at.delete(Service, "web")
    await at.answers("503", "shop.test")


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        pytest.param(
            ["shop.test /aaa one:80"],
            {"/aaa": "one", "/aaa/": "one", "/aaa/ccc": "one", "/aaaccc": "404", "/AAA": "404", "/": "404"},
            id="a prefix matches whole elements",
        ),
        pytest.param(
            ["shop.test =/foo one:80", "shop.test /foo two:80", "shop.test / three:80"],
            {"/foo": "one", "/foo/": "two", "/foo/bar": "two", "/foobar": "three", "/foo?a=/x": "one"},
            id="an exact path comes before a prefix",
        ),
        pytest.param(
            ["shop.test /a one:80", "shop.test /a/b two:80", "shop.test =/a/b/c three:80"],
            {"/a/x": "one", "/a/b": "two", "/a/b/c": "three", "/a/b/c/d": "two", "/a/bb": "one"},
            id="the longest prefix is taken",
        ),
        pytest.param(["* / one:80", "shop.test /a two:80"], {"/a": "two", "/b": "404"}, id="a rule without a host serves other hosts only"),
        pytest.param(["*.test / one:80", "shop.test / two:80"], {"/": "two"}, id="a name comes before a wildcard"),
        pytest.param(["*.test / one:80"], {"/": "one"}, id="a wildcard stands for one label"),
        pytest.param(["test / one:80", "*.shop.test / two:80"], {"/": "404"}, id="a wildcard never stands for no label"),
    ],
)
async def test_paths(at: ControllerStage, rules: list[str], expected: dict[str, str]) -> None:
    for name in ("one", "two", "three"):
        await at.web(name)
    await at.put(ingress("web", *rules))

    async def all_answers() -> dict[str, str]:
        return {path: await at.backend_of("shop.test", path) for path in expected}

    await at.until(all_answers, expected)


async def test_expressions_with_a_rewrite(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test ~/api(/|$)(.*) web:80", rewrite_target="/$2"))
    await at.answers("web", "shop.test", "/api/x")
    targets = [(await at.get("shop.test", path)).seen["target"] for path in ("/api/a/b?c=d", "/API/x", "/api")]
    assert targets == ["/a/b?c=d", "/x", "/"]
    assert await at.backend_of("shop.test", "/apix") == "404"
    await at.put(ingress("web", "shop.test ~/v[0-9]+/ web:80", use_regex="true"))
    await at.answers("web", "shop.test", "/v12/x")
    assert await at.backend_of("shop.test", "/vx/") == "404"


async def test_endpoints_come_and_go(at: ControllerStage) -> None:
    first, second, third = [await at.backend(name) for name in ("first", "second", "third")]
    await at.expose("web", first)
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("first", "shop.test")
    workers, reports = at.workers(), len(at.reports)

    async def served() -> set[str]:
        return {await at.backend_of("shop.test") for _ in range(8)}

    for backends in ([first, second, third], [third], [], [second]):
        await at.endpoints("web", *backends)
        await at.until(served, {backend.name for backend in backends} or {"503"})
    reloads = [report.applied.reloaded for report in at.reports[reports:]]
    if at.mode == "lua":
        assert at.workers() == workers
        assert not any(reloads)
    else:
        assert all(reloads)
        assert "1 backend changed" in at.reports[-1].applied.reason


async def test_an_endpoint_that_is_not_ready_gets_no_request(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("web", "shop.test")
    found = await at.client.get(EndpointSlice, "web-1")
    found.endpoints[0].conditions.ready = False
    await at.client.update(found)
    await at.answers("503", "shop.test")


async def test_a_backend_that_refuses_connections_is_passed_over(at: ControllerStage) -> None:
    alive, dead = await at.backend("alive"), await at.backend("dead")
    at.close_backend("dead")
    await at.expose("web", alive, dead)
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("alive", "shop.test")
    assert {await at.backend_of("shop.test") for _ in range(6)} == {"alive"}


async def test_certificates(at: ControllerStage) -> None:
    def serial(secret: Secret) -> int:
        return x509.load_pem_x509_certificate(secret.data["tls.crt"]).serial_number

    async def presented(name: str = "shop.test") -> int:
        return (await at.certificate(name)).serial_number

    await at.web()
    fake = await presented()
    await at.put(ingress("web", "shop.test / web:80", "other.test / web:80", tls=["cert shop.test"]))
    await at.warning("web", "secret shop/cert does not exist")
    # The default certificate serves a host without its Secret, and http:// is redirected all the same.
    await at.answers("308", "shop.test")
    assert await presented() == fake
    workers = at.workers()
    # The Secret is created after the Ingress, replaced, and deleted.
    first, second = tls_secret("cert", "shop.test"), tls_secret("cert", "shop.test")
    for secret in (first, second):
        await at.put(secret)
        await at.until(presented, serial(secret))
        await at.answers("web", "shop.test", https=True)
        assert await presented("other.test") == fake
        answer = await at.get("shop.test", "/a?b=c")
        assert (answer.status, answer.header("location")) == (308, "https://shop.test/a?b=c")
        assert "max-age" in (await at.get("shop.test", https=True)).header("strict-transport-security")
        assert await at.backend_of("other.test") == "web"
    if at.mode == "lua":
        rotated = at.workers()
        await at.put(tls_secret("cert", "shop.test"))
        await at.until(lambda: _differs(presented, serial(second)))
        assert at.workers() == rotated
    await at.delete(Secret, "cert")
    await at.until(presented, fake)
    await at.answers("308", "shop.test")
    assert at.mode != "reload" or at.workers() != workers


async def _differs(presented: object, old: int) -> bool:
    assert callable(presented)
    return bool(await presented() != old)


async def test_broken_certificates_leave_the_default_one(at: ControllerStage) -> None:
    await at.web()
    fake = (await at.certificate("shop.test")).serial_number
    secret = tls_secret("cert", "shop.test")
    secret.data["tls.key"] = tls_secret("other", "shop.test").data["tls.key"]
    await at.put(secret, ingress("web", "shop.test / web:80", tls=["cert shop.test"]))
    await at.warning("web", "tls.key is not the key of the certificate")
    await at.answers("308", "shop.test")
    assert (await at.certificate("shop.test")).serial_number == fake


async def test_an_unknown_class_is_ignored_until_it_is_ours(at: ControllerStage) -> None:
    await at.web()
    await at.put(ingress("web", "shop.test / web:80", ingress_class_name="theirs"))
    await at.handled()
    assert await at.backend_of("shop.test") == "404"
    await at.put(ingress_class("theirs", "example.com/other"))
    await at.handled()
    assert await at.backend_of("shop.test") == "404"
    await at.delete(IngressClass, "theirs")
    await at.put(ingress_class("theirs"))
    await at.answers("web", "shop.test")
    await at.delete(IngressClass, "theirs")
    await at.answers("404", "shop.test")
    found = await at.client.get(Ingress, "web")
    found.spec.ingress_class_name = "kubeloop"
    await at.client.update(found)
    await at.answers("web", "shop.test")
    await at.delete(Ingress, "web")
    await at.answers("404", "shop.test")


async def test_the_default_backend_of_an_ingress_serves_what_no_rule_matches(at: ControllerStage) -> None:
    await at.web("web")
    await at.web("rest")
    await at.put(ingress("all", default="rest:80"), ingress("web", "shop.test /a web:80"))
    await at.answers("rest", "unknown.test", "/x")
    await at.answers("web", "shop.test", "/a")
    assert await at.backend_of("shop.test", "/b") == "404"
    await at.put(ingress("web", "shop.test /a web:80", default="rest:80"))
    await at.answers("rest", "shop.test", "/b")


async def test_the_status_survives_a_new_connection_to_the_api(at: ControllerStage) -> None:
    async def addresses(name: str) -> list[str]:
        return [entry.ip or "" for entry in (await at.client.get(Ingress, name)).status.load_balancer.ingress]

    await at.put(ingress("web", "shop.test / web:80"))
    await at.until(lambda: addresses("web"), [ADDRESS])
    await at.server.restart()
    await at.put(ingress("late", "late.test / web:80"))
    await at.until(lambda: addresses("late"), [ADDRESS])
    assert await addresses("web") == [ADDRESS]
    await at.answers("503", "late.test")


async def test_requests_in_progress_survive_the_end_of_the_controller(at: ControllerStage) -> None:
    slow = await at.backend("slow", release=asyncio.Event())
    assert slow.release is not None
    await at.expose("web", slow)
    await at.put(ingress("web", "shop.test /slow web:80"))
    await at.until(lambda: _is_reached(at, slow))
    slow.reached.clear()
    running = asyncio.create_task(at.get("shop.test", "/slow"))
    await slow.reached.wait()
    process = at.process
    stopping = asyncio.create_task(at.stop())
    await at.until(lambda: _refuses(at))
    assert not running.done()
    assert not stopping.done()
    slow.release.set()
    assert (await running).seen["backend"] == "slow"
    await stopping
    assert process.pid is None


async def _is_reached(at: ControllerStage, slow: EchoBackend) -> bool:
    """Report whether a request reaches the backend; its answer is not awaited."""
    _, writer = await asyncio.open_connection("127.0.0.1", at.port)
    writer.write(b"GET /slow HTTP/1.1\r\nHost: shop.test\r\n\r\n")
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(slow.reached.wait(), 0.2)
    writer.close()
    return slow.reached.is_set()


async def _refuses(at: ControllerStage) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", at.port)
    except ConnectionError:
        return True
    writer.close()
    return False


async def test_websockets(at: ControllerStage) -> None:
    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b"upgrade: websocket" not in head or b"connection: upgrade" not in head:
            writer.close()
            return
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        while data := await reader.read(100):
            writer.write(data.upper())
        writer.close()

    backend = EchoBackend("socket")
    backend.answer = accept  # type: ignore[method-assign]
    await at.expose("web", await at.serve_backend(backend))
    await at.put(ingress("web", "shop.test / web:80"))
    await at.answers("502", "shop.test")
    reader, writer = await asyncio.open_connection("127.0.0.1", at.port)
    writer.write(b"GET / HTTP/1.1\r\nHost: shop.test\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    for word in (b"first", b"second"):
        writer.write(word)
        assert await reader.readexactly(len(word)) == word.upper()
    writer.close()


class ScriptedNames(asyncio.DatagramProtocol):
    """A DNS server: addresses by name; other names do not exist."""

    def __init__(self) -> None:
        self.addresses: dict[str, str] = {}

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.DatagramTransport", transport)

    def datagram_received(self, data: bytes, addr: tuple[str | int, int]) -> None:
        query = dns.message.from_wire(data)
        answer = dns.message.make_response(query)
        question = query.question[0]
        if (address := self.addresses.get(str(question.name).rstrip("."))) is None:
            answer.set_rcode(dns.rcode.NXDOMAIN)
        elif question.rdtype == dns.rdatatype.A:
            answer.answer.append(dns.rrset.from_text(question.name, 1, "IN", "A", address))
        self._transport.sendto(answer.to_wire(), addr)


@pytest.fixture
async def names(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[ScriptedNames]:
    """A DNS server that NGINX asks in place of the machine's."""
    transport, found = await asyncio.get_running_loop().create_datagram_endpoint(ScriptedNames, ("127.0.0.1", 0))
    resolvers = ("127.0.0.1:{}".format(transport.get_extra_info("sockname")[1]),)
    for module in (static_server, lua_server):
        monkeypatch.setattr(module, "system_resolvers", lambda: resolvers)
    yield found
    transport.close()


async def test_external_names(mode: str, tmp_path: Path, names: ScriptedNames) -> None:
    async with controller_stage(stage_options(mode, tmp_path / "nginx"), mode) as at:
        one, two = await at.backend("one"), await at.backend("two")
        names.addresses = {"one.example.com": "127.0.1.1", "two.example.com": "127.0.1.2"}
        port = {"name": "http", "port": one.port}
        await at.put(ingress("web", f"shop.test / web:{one.port}"))

        def named(name: str) -> Service:
            return service("web", type="ExternalName", externalName=name, ports=[port], clusterIP=None)

        for name, expected in (("one.example.com", "one"), ("two.example.com", "two"), ("missing.example.com", "502")):
            await at.put(named(name))
            await at.answers(expected, "shop.test")
        await at.put(named("localhost"))
        await at.answers("503", "shop.test")
        await at.warning("web", "is not the name of another machine")
        await at.put(named("one.example.com"))
        await at.answers("one", "shop.test")
        await at.delete(Service, "web")
        await at.answers("503", "shop.test")
        assert two.port == one.port


async def test_slices_of_one_service_are_joined(at: ControllerStage) -> None:
    one, two = await at.backend("one"), await at.backend("two")
    await at.expose("web", one)
    await at.put(slice_of("web", "127.0.1.2", port=two.port, suffix="2"), ingress("web", "shop.test / web:http"))

    async def served() -> set[str]:
        return {await at.backend_of("shop.test") for _ in range(6)}

    await at.until(served, {"one", "two"})
    await at.delete(EndpointSlice, "web-1")
    await at.until(served, {"two"})
