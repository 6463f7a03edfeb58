"""Connections of a listener that change their protocol: to bytes, and to WebSocket."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from typing import Self

import aiohttp
import pytest

from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Aborted, Duplex, Hijack, Reply, Socket, SocketTakeover, StreamingResponse
from kubeloop.serving.connection import Handler
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request


class Running:
    """A listener over TLS or without."""

    def __init__(self, handler: Handler, *, tls: bool) -> None:
        authority = CertificateAuthority.create("test-ca")
        own = authority.issue("test", ip_addresses=("127.0.0.1",), server=True)
        self.context = ssl.create_default_context(cadata=authority.certificate.decode()) if tls else None
        self.listener = Listener(handler, server_context(own.certificate, own.key, authority.certificate) if tls else None)

    async def __aenter__(self) -> Self:
        await self.listener.bind()
        await self.listener.serve()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.listener.close()

    async def upgraded(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter, bytes]:
        """A raw connection after its upgrade, and the head of the answer."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.listener.port, ssl=self.context)
        writer.write(b"POST /x HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\nContent-Length: 0\r\n\r\n")
        return reader, writer, await reader.readuntil(b"\r\n\r\n")


@pytest.fixture(params=[pytest.param(True, id="TLS"), pytest.param(False, id="plain")])
def tls(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


class Shouting:
    """Answers each piece in upper case, and keeps what it saw."""

    def __init__(self) -> None:
        self.begun = asyncio.Event()
        self.ended = asyncio.Event()
        self.closed = 0

    async def handle(self, request: Request) -> Reply:
        return Hijack(self.serve, [("Connection", "Upgrade"), ("Upgrade", "shout")], close=self.close)

    async def serve(self, duplex: Duplex) -> None:
        self.begun.set()
        try:
            while (data := await duplex.read()) and data != b"bye":
                await duplex.write(data.upper())
        finally:
            self.ended.set()

    def close(self) -> None:
        self.closed += 1


async def test_bytes_go_both_ways_until_the_handler_ends(tls: bool) -> None:
    shouting = Shouting()
    async with Running(shouting.handle, tls=tls) as running:
        reader, writer, head = await running.upgraded()
        assert head == b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"
        writer.write(b"hello")
        assert await reader.readexactly(5) == b"HELLO"
        writer.write(b"bye")
        assert await reader.read() == b""
        writer.close()
    assert shouting.closed == 1


async def test_much_goes_both_ways_at_once(tls: bool) -> None:
    shouting = Shouting()
    async with Running(shouting.handle, tls=tls) as running, asyncio.timeout(10):
        reader, writer, _ = await running.upgraded()
        sent = b"abcd" * 500_000
        writer.write(sent)
        assert await reader.readexactly(len(sent)) == sent.upper()
        writer.close()


async def test_a_client_that_goes_ends_the_handler(tls: bool) -> None:
    shouting = Shouting()
    async with Running(shouting.handle, tls=tls) as running, asyncio.timeout(5):
        _, writer, _ = await running.upgraded()
        await shouting.begun.wait()
        writer.transport.abort()
        await shouting.ended.wait()
    assert shouting.closed == 1


async def test_the_listeners_end_ends_the_handler(tls: bool) -> None:
    shouting = Shouting()
    async with asyncio.timeout(5):
        async with Running(shouting.handle, tls=tls) as running:
            reader, writer, _ = await running.upgraded()
            await shouting.begun.wait()
        assert shouting.ended.is_set()
        assert shouting.closed == 1
        assert await reader.read() == b""
        writer.close()


async def test_a_websocket_has_messages_of_both_kinds_and_a_normal_end() -> None:
    closed = []

    async def serve(socket: Socket) -> None:
        assert socket.protocol == "two"
        while (message := await socket.receive()) != "bye":
            assert message is not None
            await socket.send(message.upper())

    async def handle(request: Request) -> Reply:
        return SocketTakeover(serve, ("two", "one"), close=lambda: closed.append(True))

    async with (
        Running(handle, tls=False) as running,
        aiohttp.ClientSession() as session,
        session.ws_connect(running.listener.url, protocols=["three", "two"]) as socket,
    ):
        await socket.send_bytes(b"bytes")
        assert await socket.receive_bytes() == b"BYTES"
        await socket.send_str("text")
        assert await socket.receive_str() == "TEXT"
        await socket.send_str("bye")
        assert (await socket.receive()).type is aiohttp.WSMsgType.CLOSE
        assert socket.close_code == 1000
    assert closed == [True]


async def test_a_websocket_whose_client_goes_receives_nothing_more() -> None:
    ended = asyncio.Event()

    async def serve(socket: Socket) -> None:
        assert await socket.receive() is None
        ended.set()

    async def handle(request: Request) -> Reply:
        return SocketTakeover(serve)

    async with Running(handle, tls=False) as running, aiohttp.ClientSession() as session, asyncio.timeout(5):
        async with session.ws_connect(running.listener.url):
            pass
        await ended.wait()


async def test_an_invalid_websocket_handshake_is_a_bad_request_and_everything_is_closed() -> None:
    closed = []

    async def serve(socket: Socket) -> None:
        raise AssertionError("never")

    async def handle(request: Request) -> Reply:
        return SocketTakeover(serve, close=lambda: closed.append(True))

    async with Running(handle, tls=False) as running, aiohttp.ClientSession() as session, session.get(running.listener.url) as answer:
        assert answer.status == 400
    assert closed == [True]


async def test_an_answer_whose_source_breaks_off_is_cut() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"some"
        raise Aborted("as commanded")

    async def handle(request: Request) -> Reply:
        return StreamingResponse(chunks())

    async with Running(handle, tls=False) as running, aiohttp.ClientSession() as session:
        with pytest.raises((aiohttp.ClientPayloadError, aiohttp.ServerDisconnectedError)):
            async with session.get(running.listener.url) as answer:
                await answer.read()


async def test_a_stream_with_a_known_length_says_so() -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b"12"
        yield b"345"

    async def handle(request: Request) -> Reply:
        return StreamingResponse(chunks(), "text/plain", [("Content-Length", "5")], 203)

    async with Running(handle, tls=False) as running, aiohttp.ClientSession() as session, session.get(running.listener.url) as answer:
        assert (answer.status, answer.headers["Content-Length"], await answer.text()) == (203, "5", "12345")
        assert "Transfer-Encoding" not in answer.headers
