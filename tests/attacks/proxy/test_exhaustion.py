"""Clients that take without end: each is let go, memory stays bounded, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import ssl
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from multidict import CIMultiDict

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.endpoints.access import User
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta import ObjectMeta
from kubeloop.proxy import RuleSet, pipeline
from kubeloop.proxy.identity import ClientIdentity
from kubeloop.proxy.rules import RewriteContext
from kubeloop.proxy.scope import ProxiedRequest
from kubeloop.serving import connection
from kubeloop.serving.request import Request
from tests.attacks.conftest import Thief, parsed
from tests.attacks.proxy.conftest import HOME, Proxied
from tests.servers import ServerUnderTest

_PATIENCE = 30.0
_MANY = 10
_MAPS = f"{HOME}/configmaps"


@pytest.fixture
def hasty(thief: Thief, monkeypatch: pytest.MonkeyPatch) -> Thief:
    """The attacker behind a proxy with little patience."""
    monkeypatch.setattr(connection, "_HEAD", 0.3)
    monkeypatch.setattr(connection, "_PATIENCE", 0.3)
    monkeypatch.setattr(pipeline, "BODY_SECONDS", 0.3)
    return thief


@asynccontextmanager
async def _connected(thief: Thief) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    reader, writer = await asyncio.open_connection(thief.host, thief.port, ssl=thief.tls, limit=1 << 12)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def _trickled(thief: Thief, begin: str, crumb: bytes) -> bytes:
    """Everything that a client gets that sends ``begin``, and then a crumb now and then without end."""
    async with _connected(thief) as (reader, writer), asyncio.timeout(_PATIENCE):
        writer.write(begin.encode())

        async def feed() -> None:
            while not writer.is_closing():
                writer.write(crumb)
                await asyncio.sleep(0.005)

        feeding = asyncio.create_task(feed())
        try:
            return await reader.read()
        except (ConnectionError, ssl.SSLError):
            return b""
        finally:
            feeding.cancel()
            await asyncio.gather(feeding, return_exceptions=True)


async def _is_served(thief: Thief) -> bool:
    """Another client. The proxy has the same short timeouts for it, so on a busy machine it tries again."""
    async with asyncio.timeout(_PATIENCE):
        while not parsed(await thief.raw(_head(thief, "GET", _MAPS, "Connection: close").encode())):
            pass
    return True


def _head(thief: Thief, method: str, path: str, *fields: str) -> str:
    lines = [f"{method} {thief.written(path)} HTTP/1.1", "Host: x", f"Authorization: Bearer {thief.token}", *fields]
    return "\r\n".join(lines) + "\r\n\r\n"


@pytest.mark.parametrize(
    ("begin", "crumb"),
    [
        pytest.param("GET / HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n", id="field by field"),
        pytest.param("GET / HTTP/1.1\r\nX-A: ", b"b", id="letter by letter"),
        pytest.param("G", b"", id="a letter and nothing more"),
    ],
)
async def test_a_head_that_comes_slowly_is_given_up(hasty: Thief, begin: str, crumb: bytes) -> None:
    answers = asyncio.gather(*(_trickled(hasty, begin, crumb) for _ in range(_MANY)))
    assert await _is_served(hasty)
    assert set(await answers) == {b""}


@pytest.mark.parametrize(
    ("framing", "crumb"),
    [
        pytest.param("Content-Length: 100000", b" ", id="of a known length"),
        pytest.param("Transfer-Encoding: chunked", b"1\r\n \r\n", id="in chunks"),
        pytest.param("Content-Length: 100000", b"", id="that does not come at all"),
    ],
)
async def test_a_body_that_comes_slowly_is_given_up(hasty: Thief, framing: str, crumb: bytes) -> None:
    head = _head(hasty, "POST", _MAPS, framing)
    answers = asyncio.gather(*(_trickled(hasty, head, crumb) for _ in range(_MANY)))
    assert await _is_served(hasty)
    assert {answer[:12] for answer in await answers} <= {b"HTTP/1.1 504", b""}


@pytest.mark.parametrize(
    ("framing", "crumb"),
    [
        pytest.param("Content-Length: 4000000", b"", id="that is too long"),
        pytest.param("Content-Length: 999999999999999999", b"", id="of an absurd length"),
        pytest.param("Transfer-Encoding: chunked", b"100000\r\n" + b" " * 0x100000 + b"\r\n", id="in chunks without end"),
    ],
)
async def test_a_body_that_no_server_accepts_is_not_read(thief: Thief, framing: str, crumb: bytes) -> None:
    received = await _trickled(thief, _head(thief, "POST", _MAPS, framing), crumb)
    assert received[:12] in (b"HTTP/1.1 413", b"")
    assert await _is_served(thief)


@pytest.mark.parametrize(
    "head",
    [
        pytest.param("X-A: " + "a" * 1_100_000, id="a field without end"),
        pytest.param("\r\n".join(["X-A: b"] * 200_000), id="fields without end"),
    ],
)
async def test_a_head_without_end_is_refused(thief: Thief, head: str) -> None:
    answers = parsed(await thief.raw(_head(thief, "GET", _MAPS, head).encode()))
    assert [answered.status for answered in answers] in ([], [431])
    assert await _is_served(thief)


async def test_silent_connections_keep_no_client_from_being_served(thief: Thief) -> None:
    opened = [await asyncio.open_connection(thief.host, thief.port) for _ in range(50)]  # not even a handshake
    try:
        assert await _is_served(thief)
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened))


@pytest.fixture(scope="module")
def large(server: ServerUnderTest, proxied: Proxied) -> Iterator[int]:
    """A list of some megabytes: its size."""
    names = [f"large-{number}" for number in range(60)]
    for name in names:
        metadata = ObjectMeta(name=name, namespace=proxied.thief.home)
        server.administrator.create(ConfigMap(metadata=metadata, data={"a": "a" * 100_000}))
    yield 100_000 * len(names)
    for name in names:
        server.administrator.delete(ConfigMap, name, namespace=proxied.thief.home)


@pytest.mark.parametrize("query", ["", "watch=1"])
async def test_clients_that_read_nothing_cost_no_memory(thief: Thief, large: int, query: str) -> None:
    tracemalloc.start()
    try:
        async with asyncio.timeout(_PATIENCE):
            opened = [await asyncio.open_connection(thief.host, thief.port, ssl=thief.tls, limit=1 << 12) for _ in range(_MANY)]
            for _, writer in opened:
                writer.write(_head(thief, "GET", f"{_MAPS}?{query}").encode())
            await asyncio.sleep(2)
            assert await _is_served(thief)
            held, _ = tracemalloc.get_traced_memory()
            for _, writer in opened:
                writer.transport.abort()
    finally:
        tracemalloc.stop()
    assert held < _MANY * large / 2, f"{held / 1e6:.0f} MB for {_MANY} clients of {large / 1e6:.0f} MB"


def test_long_texts_of_clients_are_not_remembered() -> None:
    """A header can have a million characters, and the selections for thousands of requests are cached."""
    rules = RuleSet.parse(
        json.dumps(
            {
                "apiVersion": "proxy.kubeloop.dev/v1alpha1",
                "kind": "RewriteRule",
                "metadata": {"name": "a"},
                "spec": {"match": [{"resources": ["pods"], "userAgents": ["a*"]}], "actions": [{"drop": True}]},
            }
        )
    )
    tracemalloc.start()
    try:
        for number in range(50):
            agent = f"a{number}" + "a" * 500_000
            rules.select(RewriteContext(User("x"), "list", "", "v1", "pods", "", "", "", agent))
        del agent
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 5_000_000


async def test_long_selectors_are_refused(thief: Thief) -> None:
    """Their evaluation would take a second for each list, and milliseconds for each object."""
    for name in ("labelSelector", "fieldSelector", "label%53elector"):
        selector = "metadata.name=a," + ",".join(f"a{number}!=b" for number in range(20_000))
        answered = await thief.ask("GET", f"{_MAPS}?{name}={selector}")
        assert answered.status == 400
        assert "the proxy evaluates at most" in answered.body


def test_long_texts_of_lists_are_not_remembered() -> None:
    """The proxy remembers a thousand lists for the watches that follow."""

    async def read_body(limit: int) -> bytes:
        return b"x" * min(limit, 0)

    long = "a" * 10_000
    headers: CIMultiDict[str] = CIMultiDict({"User-Agent": long})
    request = Request("GET", f"/api/v1/namespaces/{long}/pods", f"labelSelector={long}&fieldSelector={long}", headers, read_body)
    scope = ProxiedRequest(request, RequestInfo("list", request.path, namespace=long), ClientIdentity(User("x")), User("x"))
    assert max(len(text) for text in scope.list_scope()) < 300
    other = dataclasses.replace(scope, info=RequestInfo("list", request.path, namespace=f"{long}b"))
    assert other.list_scope() != scope.list_scope()
