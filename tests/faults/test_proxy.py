"""The fault proxy does to a connection what it is told, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.faults import FaultProxy


@asynccontextmanager
async def echo() -> AsyncIterator[FaultProxy]:
    """A proxy to a server that sends back what it is sent."""

    writers: list[asyncio.StreamWriter] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.append(writer)
        try:
            while data := await reader.read(1000):
                writer.write(data)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with FaultProxy(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}") as proxy:
        yield proxy
    server.close()
    for writer in writers:
        writer.close()
    await asyncio.sleep(0)


class Line:
    """A connection through the proxy."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def say(self, data: bytes) -> bytes:
        self.writer.write(data)
        return await asyncio.wait_for(self.reader.read(1000), 5)


@asynccontextmanager
async def line(proxy: FaultProxy) -> AsyncIterator[Line]:
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        yield Line(reader, writer)
    finally:
        writer.close()


async def test_without_a_fault_everything_passes() -> None:
    async with echo() as proxy, line(proxy) as one:
        assert await one.say(b"hello") == b"hello"
        assert (proxy.accepted, proxy.open, proxy.forwarded) == (1, 1, 5)


async def test_connections_are_cut() -> None:
    async with echo() as proxy, line(proxy) as one, line(proxy) as other:
        await one.say(b"a")
        await other.say(b"b")
        assert proxy.cut() == 2
        assert await one.reader.read() == b""
        assert await other.reader.read() == b""


async def test_connections_are_reset() -> None:
    async with echo() as proxy, line(proxy) as one:
        await one.say(b"a")
        assert proxy.reset() == 1
        with pytest.raises(ConnectionResetError):
            await one.reader.read()


async def test_a_connection_is_cut_after_so_many_bytes_and_the_next_is_not() -> None:
    async with echo() as proxy:
        async with line(proxy) as one:
            await one.say(b"before")
            proxy.cut_after(7)
            assert await one.say(b"12345") == b"12345"
            assert await one.say(b"6789") == b"67"
            assert await one.reader.read() == b""
        async with line(proxy) as next_one:
            assert await next_one.say(b"0123456789") == b"0123456789"


async def test_a_black_hole_answers_nothing_and_closes_nothing_until_it_thaws() -> None:
    async with echo() as proxy, line(proxy) as one:
        await one.say(b"a")
        proxy.freeze()
        async with line(proxy) as late:
            late.writer.write(b"c")
            one.writer.write(b"b")
            waiting = asyncio.ensure_future(one.reader.read(10))
            done, _ = await asyncio.wait({waiting}, timeout=0.02)
            assert not done
            assert proxy.open == 2
            proxy.thaw()
            assert (await waiting, await late.reader.read(10)) == (b"b", b"c")


async def test_new_connections_are_refused_until_they_are_accepted_at_the_same_port() -> None:
    async with echo() as proxy, line(proxy) as one:
        await one.say(b"a")
        await proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            async with line(proxy):
                pass
        assert await one.say(b"still here") == b"still here"
        await proxy.accept()
        async with line(proxy) as late:
            assert await late.say(b"b") == b"b"


async def test_connections_after_so_many_are_dropped() -> None:
    async with echo() as proxy:
        proxy.drop_after(1)
        async with line(proxy) as first, line(proxy) as second:
            assert await first.say(b"a") == b"a"
            assert await second.say(b"b") == b""
        await proxy.accept()
        async with line(proxy) as third:
            assert await third.say(b"c") == b"c"


async def test_a_half_closed_connection_ends_for_the_client_who_may_still_send() -> None:
    async with echo() as proxy, line(proxy) as one:
        await one.say(b"a")
        assert proxy.half_close() == 1
        assert await one.reader.read() == b""
        one.writer.write(b"b")
        await one.writer.drain()
        assert proxy.open == 1


async def test_a_delay_makes_everything_late() -> None:
    async with echo() as proxy, line(proxy) as one:
        proxy.delay = 0.01
        began = asyncio.get_running_loop().time()
        assert await one.say(b"a") == b"a"
        assert asyncio.get_running_loop().time() - began >= 0.02


async def test_a_lost_connection_stays_open_in_silence_while_new_ones_work() -> None:
    async with echo() as proxy, line(proxy) as one:
        await one.say(b"a")
        assert proxy.lose() == 1
        one.writer.write(b"b")
        async with line(proxy) as late:
            assert await late.say(b"c") == b"c"
        waiting = asyncio.ensure_future(one.reader.read(10))
        done, _ = await asyncio.wait({waiting}, timeout=0.02)
        assert not done
        assert proxy.open >= 1
        waiting.cancel()
