"""WebSockets on real sockets: the handshake, messages of both kinds, what a client may not send, and the end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest
from aiohttp import WSMsgType

from kubeloop.serving.answer import Socket, SocketTakeover
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request


@pytest.fixture
async def echo() -> AsyncIterator[Listener]:
    """Gives back what it gets, text in capitals; ``bye`` ends it."""

    async def serve(socket: Socket) -> None:
        while (message := await socket.receive()) not in (None, "bye"):
            assert message is not None
            await socket.send(message.upper() if isinstance(message, str) else message)

    async def handle(request: Request) -> SocketTakeover:
        return SocketTakeover(serve, ("v5", "v4"))

    listener = Listener(handle, None)
    await listener.bind()
    await listener.serve()
    yield listener
    await listener.close()


async def test_messages_go_both_ways_and_the_server_says_goodbye(echo: Listener) -> None:
    large = bytes(range(256)) * 4096
    async with aiohttp.ClientSession() as session, session.ws_connect(echo.url, protocols=("other", "v4", "v5")) as socket:
        assert socket.protocol == "v4"
        await socket.send_str("grüße")
        assert await socket.receive_str() == "GRÜSSE"
        await socket.ping(b"there?")
        await socket.send_bytes(large)
        assert await socket.receive_bytes() == large
        await socket.send_str("bye")
        end = await socket.receive()
        assert (end.type, end.data) == (WSMsgType.CLOSE, 1000)


async def test_without_a_protocol_that_both_know_there_is_none(echo: Listener) -> None:
    async with aiohttp.ClientSession() as session, session.ws_connect(echo.url) as socket:
        assert socket.protocol is None
        await socket.send_str("a")
        assert await socket.receive_str() == "A"


async def test_a_client_that_closes_is_answered(echo: Listener) -> None:
    async with aiohttp.ClientSession() as session:
        socket = await session.ws_connect(echo.url)
        assert await socket.close(code=1001)
        assert socket.close_code == 1001


async def exchange(listener: Listener, *sent: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    try:
        for part in sent:
            writer.write(part)
        async with asyncio.timeout(10):
            return await reader.read()
    finally:
        writer.close()


KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
VERSION = "Sec-WebSocket-Version: 13"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        pytest.param([VERSION], b"key", id="no key"),
        pytest.param([VERSION, "Sec-WebSocket-Key: c2hvcnQ="], b"key", id="a key that is too short"),
        pytest.param([VERSION, "Sec-WebSocket-Key: ***"], b"key", id="a key that is no base64"),
        pytest.param([KEY], b"version", id="no version"),
        pytest.param([KEY, "Sec-WebSocket-Version: 8"], b"version", id="an obsolete version"),
    ],
)
async def test_a_handshake_that_is_none_is_refused(echo: Listener, fields: list[str], fault: bytes) -> None:
    lines = ["GET / HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket", *fields, "", ""]
    answer = await exchange(echo, "\r\n".join(lines).encode())
    assert answer.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Sec-WebSocket-Version: 13\r\n" in answer
    assert fault in answer.partition(b"\r\n\r\n")[2]


@pytest.mark.parametrize(
    ("frame", "code"),
    [
        pytest.param(b"\x82\x01a", 1002, id="a frame without a mask"),
        pytest.param(b"\x83\x80\x00\x00\x00\x00", 1002, id="a frame of a kind that does not exist"),
        pytest.param(b"\x82\xff\x00\x00\x00\x00\x10\x00\x00\x00\x00\x00\x00\x00", 1009, id="a message of 256 MiB"),
        pytest.param(b"\x80\x80\x00\x00\x00\x00", 1002, id="the rest of a message that did not begin"),
    ],
)
async def test_a_client_that_breaks_the_protocol_gets_the_reason_and_is_disconnected(echo: Listener, frame: bytes, code: int) -> None:
    head = "\r\n".join(["GET / HTTP/1.1", "Host: a", "Connection: Upgrade", "Upgrade: websocket", KEY, VERSION, "", ""]).encode()
    answer = await exchange(echo, head, frame)
    assert answer.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
    assert b"Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n" in answer
    goodbye = answer.partition(b"\r\n\r\n")[2]
    assert (goodbye[0], int.from_bytes(goodbye[2:4])) == (0x88, code)
