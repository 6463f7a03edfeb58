"""How a server is reached: idle connections, proxies, and requests that would not stay one request."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.config import ClusterConfig
from kubeloop.meta import TransportError
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from kubeloop.transport.connection import IDLE_TIMEOUT
from tests.faults import DROP, FaultServer, Reply


@asynccontextmanager
async def proxy(answer: bytes = b"HTTP/1.1 200 OK\r\n\r\n") -> AsyncIterator[tuple[int, list[str]]]:
    """A tunnelling proxy: its port, and the heads of the requests that it got."""
    heads: list[str] = []
    tasks: set[asyncio.Task[None]] = set()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(1 << 16):
                writer.write(data)
        except ConnectionError:
            pass
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        heads.append(head)
        writer.write(answer)
        if b" 200 " in answer:
            host, _, port = head.split(" ")[1].rpartition(":")
            there, back = await asyncio.open_connection(host, int(port))
            tasks.add(asyncio.create_task(pump(reader, back)))
            tasks.add(asyncio.create_task(pump(there, writer)))
        else:
            writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        yield server.sockets[0].getsockname()[1], heads
        await asyncio.gather(*tasks)


async def version(config: ClusterConfig) -> bytes:
    async with Transport(config) as transport:
        return (await transport.request("GET", "/version")).body


async def test_tls_goes_through_a_tunnel_of_the_proxy() -> None:
    async with FaultServer(Reply(body=b"ok")) as server, proxy() as (port, heads):
        assert await version(server.config(proxy_url=f"http://me:p%40ss@127.0.0.1:{port}")) == b"ok"
    assert heads[0].startswith(f"CONNECT 127.0.0.1:{server.port} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\n")
    assert "Proxy-Authorization: Basic bWU6cEBzcw==" in heads[0]
    assert "secret-token" not in heads[0]
    assert "proxy-authorization" not in server.received[0].headers


async def test_a_proxy_that_refuses_is_named() -> None:
    refusal = b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n"
    async with FaultServer(Reply()) as server, proxy(refusal) as (port, _):
        with pytest.raises(TransportError, match=r"the proxy http://127\.0\.0\.1:\d+ refused: HTTP status 403 to CONNECT .*allow it there"):
            await version(server.config(proxy_url=f"http://127.0.0.1:{port}"))


async def test_a_proxy_of_plain_http_gets_the_whole_url() -> None:
    async with FaultServer(Reply(), tls=False) as server:
        config = ClusterConfig(server="http://api.example:8080/base", proxy_url=f"http://127.0.0.1:{server.port}")
        async with Transport(config) as transport:
            await transport.request("GET", "/version")
    assert server.received[0].target == "http://api.example:8080/base/version"
    assert server.received[0].headers["host"] == "api.example:8080"


async def test_a_proxy_that_wants_a_password_says_where_to_write_it_and_keeps_the_wrong_one_secret() -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n"
    async with FaultServer(Reply()) as server, proxy(refusal) as (port, _):
        with pytest.raises(TransportError, match='write user and password into the URL of proxy-url in cluster "faulty"') as raised:
            await version(server.config(proxy_url=f"http://me:wrong@127.0.0.1:{port}"))
    assert "wrong" not in str(raised.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_proxy_that_is_not_there_is_not_taken_for_the_server(scheme: str) -> None:
    async with FaultServer(Reply()) as server:
        port = server.port
    config = ClusterConfig(server=f"{scheme}://api.example", proxy_url=f"http://me:hidden@127.0.0.1:{port}", source="kubeconfig")
    with pytest.raises(
        TransportError, match=rf"the proxy http://127\.0\.0\.1:{port} cannot be reached: .*set by proxy-url in kubeconfig"
    ) as raised:
        await version(config)
    assert "hidden" not in str(raised.value)


async def test_a_proxy_that_hangs_up_is_named() -> None:
    async with FaultServer(DROP, tls=False) as server:
        config = ClusterConfig(server="https://api.example", proxy_url=f"http://127.0.0.1:{server.port}")
        with pytest.raises(TransportError, match=r"the proxy http://127\.0\.0\.1:\d+ cannot be reached: connection ended"):
            await version(config)


async def test_an_idle_connection_is_closed_before_the_server_does() -> None:
    clock = FakeClock()
    async with FaultServer(Reply(body=b"{}")) as server, Transport(server.config(), clock=clock) as transport:
        await transport.request("GET", "/version")
        await clock.advance(IDLE_TIMEOUT - 1)
        await transport.request("GET", "/version")
        assert server.connections == 1
        await clock.advance(IDLE_TIMEOUT + 1)
        await transport.request("GET", "/version")
        assert server.connections == 2


async def test_requests_at_the_same_time_have_a_connection_each_and_share_them_later() -> None:
    async with FaultServer(Reply(body=b"{}")) as server, Transport(server.config()) as transport:
        for _ in range(3):
            await asyncio.gather(*(transport.request("GET", "/version") for _ in range(4)))
        assert server.connections == 4


async def test_an_answer_without_a_waiter_is_not_given_to_the_next_request() -> None:
    def answer(received: object) -> Reply:
        return Reply(body=b"late") if "slow" in str(received) else Reply(body=b"right")

    async with FaultServer(answer=answer) as server, Transport(server.config()) as transport:
        await transport.request("GET", "/x")
        slow = asyncio.create_task(transport.request("GET", "/slow"))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
        assert (await transport.request("GET", "/x")).body == b"right"


async def test_an_answer_that_is_not_http_says_so() -> None:
    async def odd(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"220 mail.example ESMTP\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(odd, "127.0.0.1", 0) as server:
        config = ClusterConfig(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        async with Transport(config) as transport:
            with pytest.raises(TransportError, match="the answer is not HTTP"):
                await transport.request("GET", "/version")
