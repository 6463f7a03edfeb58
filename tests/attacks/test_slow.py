"""Clients that take their time: each is let go, and others are served meanwhile."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.apiserver.filters import OperationOptions
from kubeloop.serving import connection
from tests.apiserver.conftest import CONFIGMAPS, Api, running_api

_PATIENCE = 120.0
_MANY = 10


@pytest.fixture
async def api(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Api]:
    """A server with little patience."""
    monkeypatch.setattr(connection, "_HEAD", 0.3)
    monkeypatch.setattr(connection, "_PATIENCE", 0.3)
    async with running_api(operation=OperationOptions(request_timeout=0.3)) as found:
        yield found


@asynccontextmanager
async def connected(api: Api) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    host, port = api.server.url.removeprefix("https://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=api.context)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


async def trickled(api: Api, begin: str, crumb: bytes) -> bytes:
    """Everything that a client gets that sends ``begin`` and then a crumb now and then without end."""
    async with connected(api) as (reader, writer), asyncio.timeout(_PATIENCE):
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


async def is_served(api: Api) -> bool:
    """Another client. The server has the same short timeouts for it, so on a busy machine it tries again."""
    async with asyncio.timeout(_PATIENCE):
        while (await api("GET", "/version", token="")).status != 200:
            pass
    return True


@pytest.mark.parametrize(
    ("begin", "crumb"),
    [
        pytest.param("GET / HTTP/1.1\r\nHost: x\r\n", b"X-A: b\r\n", id="field by field"),
        pytest.param("GET / HTTP/1.1\r\nX-A: ", b"b", id="letter by letter"),
        pytest.param("G", b"", id="a letter and nothing more"),
    ],
)
async def test_a_head_that_comes_slowly_is_given_up(api: Api, begin: str, crumb: bytes) -> None:
    """Its time counts from the first byte; crumbs make it no longer."""
    answers = asyncio.gather(*(trickled(api, begin, crumb) for _ in range(_MANY)))
    assert await is_served(api)
    assert set(await answers) == {b""}


@pytest.mark.parametrize(
    ("framing", "crumb"),
    [
        pytest.param("Content-Length: 100000", b" ", id="of a known length"),
        pytest.param("Transfer-Encoding: chunked", b"1\r\n \r\n", id="in chunks"),
        pytest.param("Content-Length: 100000", b"", id="that does not come at all"),
    ],
)
async def test_a_body_that_comes_slowly_is_given_up(api: Api, framing: str, crumb: bytes) -> None:
    head = f"POST {CONFIGMAPS} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer admin-token\r\n{framing}\r\n\r\n"
    answers = asyncio.gather(*(trickled(api, head, crumb) for _ in range(_MANY)))
    assert await is_served(api)
    assert {answer[:12] for answer in await answers} <= {b"HTTP/1.1 504", b""}


async def test_silent_connections_keep_no_client_from_being_served(api: Api) -> None:
    host, port = api.server.url.removeprefix("https://").split(":")
    opened = [await asyncio.open_connection(host, int(port)) for _ in range(_MANY)]  # not even a handshake
    try:
        assert await is_served(api)
    finally:
        for _, writer in opened:
            writer.close()
        await asyncio.gather(*(writer.wait_closed() for _, writer in opened))
