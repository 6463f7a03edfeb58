"""A client's connection after 101: bytes both ways, and only if it was asked for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.dial import open_wire
from kubeloop.http1.errors import ConnectionEnded, ProtocolError

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"
SWITCHED = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: shout\r\n\r\n"

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def wire_to(serve: Serve) -> AsyncIterator[ClientConnection]:
    serving: set[asyncio.Task[None]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        serving.add(task)
        try:
            await reader.readuntil(b"\r\n\r\n")
            await serve(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    wire = await open_wire("127.0.0.1", server.sockets[0].getsockname()[1], None, "")
    try:
        async with asyncio.timeout(30):
            yield wire
    finally:
        wire.abort()
        await wire.wait_closed()
        server.close()
        await asyncio.gather(*serving, return_exceptions=True)
        await server.wait_closed()


async def _shout(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(SWITCHED + b"first")
    while data := await reader.read(1 << 16):
        writer.write(data.upper())
        await writer.drain()


async def test_bytes_go_both_ways_and_those_behind_the_head_come_first() -> None:
    async with wire_to(_shout) as wire:
        status, headers = await wire.exchange("GET", HEAD, None, upgrade=True)
        assert (status, headers["Upgrade"]) == (101, "shout")
        assert await wire.chunk() == b"first"
        await wire.write(b"hello")
        assert await wire.chunk() == b"HELLO"
        assert not wire.reusable


async def test_writing_waits_for_a_peer_that_does_not_read() -> None:
    go_on = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED)
        await go_on.wait()
        await _shout(reader, writer)

    async with wire_to(serve) as wire:
        await wire.exchange("GET", HEAD, None, upgrade=True)
        writing = asyncio.ensure_future(wire.write(b"x" * (1 << 26)))
        done, _ = await asyncio.wait((writing,), timeout=0.02)
        assert not done
        wire.abort()
        await asyncio.wait((writing,))
        go_on.set()


async def test_the_end_of_the_peer_is_the_end() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(SWITCHED + b"last")

    async with wire_to(serve) as wire:
        await wire.exchange("GET", HEAD, None, upgrade=True)
        assert [await wire.chunk(), await wire.chunk()] == [b"last", b""]
        await wire.wait_closed()
        with pytest.raises((ConnectionEnded, OSError)):
            await wire.write(b"x")


async def test_a_change_that_was_not_asked_for_is_an_error() -> None:
    async with wire_to(_shout) as wire:
        with pytest.raises(ProtocolError):
            await wire.exchange("GET", HEAD, None)


async def test_a_body_that_comes_in_pieces_is_sent_as_it_comes() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        body = await reader.readexactly(6)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\n" + body)

    async def pieces() -> AsyncIterator[bytes]:
        yield b"one"
        yield b"two"

    async with wire_to(serve) as wire:
        status, _ = await wire.exchange("POST", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n\r\n", None, more=pieces())
        assert (status, await wire.chunk()) == (200, b"onetwo")


async def test_a_refusal_in_the_middle_of_a_body_ends_the_sending() -> None:
    sent = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await reader.read()

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(10_000):
            sent.append(number)
            yield b"x"
            await asyncio.sleep(0)

    async with wire_to(serve) as wire:
        head = b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10000\r\n\r\n"
        status, _ = await wire.exchange("POST", head, None, more=pieces())
        assert status == 413
        assert len(sent) < 10_000
        assert not wire.reusable
