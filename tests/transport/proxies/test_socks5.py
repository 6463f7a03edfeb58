"""SOCKS 5 proxies: what they are asked, and what becomes of each refusal. Over real sockets."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from kubeloop.config import ClusterConfig
from kubeloop.meta import TransportError
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
OK = b"\x05\x00\x00\x01\x7f\x00\x00\x01\x00\x00"


async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()


@asynccontextmanager
async def proxy(serve: Serve) -> AsyncIterator[int]:
    tasks: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.IncompleteReadError):
                await serve(reader, writer)
        finally:
            writer.close()

    async with await asyncio.start_server(one, "127.0.0.1", 0) as server:
        try:
            yield server.sockets[0].getsockname()[1]
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await asyncio.sleep(0)  # what was closed is closed in the next turn


class Socks:
    """A proxy that works, and the requests that it got. ``user`` is the only user that may pass."""

    def __init__(self, port: int, user: tuple[bytes, bytes] | None = None, tail: bytes = OK) -> None:
        self.port = port
        self.user = user
        self.tail = tail
        self.methods: list[bytes] = []
        self.credentials: list[tuple[bytes, bytes]] = []
        self.description: list[bytes] = []

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        _, count = await reader.readexactly(2)
        self.methods.append(await reader.readexactly(count))
        writer.write(b"\x05\x02" if self.user else b"\x05\x00")
        if self.user:
            _, size = await reader.readexactly(2)
            user = await reader.readexactly(size)
            password = await reader.readexactly((await reader.readexactly(1))[0])
            self.credentials.append((user, password))
            writer.write(b"\x01\x00" if (user, password) == self.user else b"\x01\x01")
            if (user, password) != self.user:
                return
        head = await reader.readexactly(4)
        size = {1: 4, 4: 16}.get(head[3]) or (await reader.readexactly(1))[0]
        self.description.append(head + await reader.readexactly(size + 2))
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        # Answer and what follows at once: a client that reads too much of it loses the server's first bytes.
        writer.write(self.tail)
        ways = [asyncio.ensure_future(pump(reader, back)), asyncio.ensure_future(pump(there, writer))]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            back.transport.abort()
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)


async def version(config: ClusterConfig) -> bytes:
    async with Transport(config) as transport:
        return (await transport.request("GET", "/version")).body


@pytest.mark.parametrize("scheme", ["socks5", "socks5h"])
async def test_tls_goes_through_and_an_address_is_requested_as_one(scheme: str) -> None:
    async with FaultServer(Reply(body=b"ok")) as server:
        socks = Socks(server.port)
        async with proxy(socks) as port:
            assert await version(server.config(proxy_url=f"{scheme}://127.0.0.1:{port}")) == b"ok"
    assert socks.methods == [b"\x00"]
    assert socks.description == [b"\x05\x01\x00\x01\x7f\x00\x00\x01" + server.port.to_bytes(2, "big")]


async def test_a_name_is_resolved_by_the_proxy_and_any_address_in_its_answer_is_read_over() -> None:
    for tail in (b"\x05\x00\x00\x03\x05proxy\x00\x50", b"\x05\x00\x00\x04" + bytes(18)):
        async with FaultServer(Reply(body=b"ok")) as server:
            socks = Socks(server.port, tail=tail)
            async with proxy(socks) as port:
                config = server.config(
                    server="https://no-such-host.invalid", proxy_url=f"socks5://127.0.0.1:{port}", tls_server_name="localhost"
                )
                assert await version(config) == b"ok"
        assert socks.description == [b"\x05\x01\x00\x03no-such-host.invalid\x01\xbb"]


async def test_plain_http_goes_through_as_it_is() -> None:
    async with FaultServer(Reply(body=b"ok"), tls=False) as server, proxy(Socks(server.port)) as port:
        assert await version(server.config(proxy_url=f"socks5://127.0.0.1:{port}")) == b"ok"
    assert server.received[0].target == "/version"
    assert "proxy-authorization" not in server.received[0].headers


async def test_user_and_password_are_sent_if_they_are_requested() -> None:
    async with FaultServer(Reply(body=b"ok")) as server:
        socks = Socks(server.port, user=(b"me", b"p@ss"))
        async with proxy(socks) as port:
            assert await version(server.config(proxy_url=f"socks5://me:p%40ss@127.0.0.1:{port}")) == b"ok"
            with pytest.raises(TransportError, match=r"does not accept the user and password in the URL of proxy-url") as raised:
                await version(server.config(proxy_url=f"socks5://me:wrong-one@127.0.0.1:{port}"))
    assert (socks.methods[0], socks.credentials[0]) == (b"\x00\x02", (b"me", b"p@ss"))
    assert "wrong-one" not in str(raised.value)


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        pytest.param(
            [b"HTTP/1.1 400 Bad Request\r\n\r\n"], "does not speak SOCKS 5; should proxy-url .* begin with http://", id="an HTTP proxy"
        ),
        pytest.param([b"\x05\xff"], "requires another authentication method; write user and password", id="no way to log in"),
        pytest.param([b"\x05\x02"], "requires another authentication method", id="a password that is missing"),
        pytest.param([b"\x05\x00", b"\x05\x02\x00\x01" + bytes(6)], "does not connect to .*: its rules do not allow it", id="not allowed"),
        pytest.param([b"\x05\x00", b"\x05\x05\x00\x01" + bytes(6)], "does not connect to .*: nothing listens there", id="refused"),
        pytest.param([b"\x05\x00", b"\x05\x63\x00\x01" + bytes(6)], "does not connect to .*: reply 99", id="an unknown reply"),
        pytest.param([b"\x05\x00", b"\x04\x5a\x00\x00"], "does not speak SOCKS 5", id="an answer of SOCKS 4"),
        pytest.param([b"\x05\x00", b"\x05\x00"], "cannot be reached: it ended the connection", id="half an answer"),
        pytest.param([b""], "cannot be reached: it ended the connection", id="no answer"),
    ],
)
async def test_what_a_proxy_says_becomes(answers: list[bytes], text: str) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.readuntil(b"\x00")
            writer.write(answer)
            await writer.drain()
        writer.write_eof()
        await reader.read()

    async with proxy(serve) as port:
        config = ClusterConfig(server="http://10.0.0.1:6443", proxy_url=f"socks5://127.0.0.1:{port}", source="here")
        with pytest.raises(TransportError, match=rf"socks5://127\.0\.0\.1:{port} {text}"):
            await version(config)


async def test_a_proxy_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.http1.dial.CONNECT_TIMEOUT", 0.05)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with proxy(silent) as port:
        with pytest.raises(TransportError, match="no connection within"):
            await version(ClusterConfig(server="http://10.0.0.1:6443", proxy_url=f"socks5://127.0.0.1:{port}"))


async def test_a_proxy_that_is_not_there_is_named() -> None:
    config = ClusterConfig(server="http://10.0.0.1:6443", proxy_url="socks5://127.0.0.1:1", source="here")
    with pytest.raises(TransportError, match=r"the proxy socks5://127\.0\.0\.1:1 cannot be reached: .*it is set by proxy-url in here"):
        await version(config)


async def test_more_than_a_user_can_be_is_refused_before_anything_is_sent() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.read() == b""

    async with proxy(serve) as port:
        config = ClusterConfig(server="http://10.0.0.1:6443", proxy_url=f"socks5://{'x' * 300}:p@127.0.0.1:{port}", source="here")
        with pytest.raises(TransportError, match="above 255 bytes"):
            await version(config)


@pytest.mark.parametrize("host", ["x" * 64 + ".example", ".".join(["x" * 60] * 5)])
async def test_a_name_that_no_host_can_have_is_refused(host: str) -> None:
    socks = Socks(1)
    async with proxy(socks) as port:
        with pytest.raises(TransportError, match="no host can have the name"):
            await version(ClusterConfig(server=f"http://{host}:6443", proxy_url=f"socks5://127.0.0.1:{port}", source="here"))
    assert not socks.description
