"""Streams whose source pushes frames: they arrive as those of an iterator, and a client that does not read is not written to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.serving.answer import FrameWriter, Reply, StreamingResponse
from kubeloop.serving.listener import Listener
from kubeloop.serving.request import Request


async def _nothing() -> AsyncIterator[bytes]:
    return
    yield


class _Source:
    """A stream that the test writes to."""

    def __init__(self) -> None:
        self.writer: asyncio.Future[FrameWriter] = asyncio.get_running_loop().create_future()
        self.ended = asyncio.Event()
        self.closed = False

    async def push(self, writer: FrameWriter) -> None:
        self.writer.set_result(writer)
        await self.ended.wait()

    def close(self) -> None:
        self.closed = True


@asynccontextmanager
async def _connected(source: _Source, version: str = "1.1", method: str = "GET") -> AsyncIterator[asyncio.StreamReader]:
    async def handle(_: Request) -> Reply:
        return StreamingResponse(_nothing(), close=source.close, push=source.push)

    listener = Listener(handle, None)
    await listener.bind()
    await listener.serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port, limit=1024)
    writer.write(f"{method} / HTTP/{version}\r\nHost: x\r\n\r\n".encode())
    try:
        yield reader
    finally:
        writer.close()
        await listener.close()


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        pytest.param("1.1", b"3\r\none\r\n3\r\ntwo\r\n5\r\nthree\r\n0\r\n\r\n", id="frames are chunks"),
        pytest.param("1.0", b"onetwothree", id="frames are plain for a client without chunks"),
    ],
)
async def test_frames_arrive_in_order(version: str, expected: bytes) -> None:
    source = _Source()
    async with _connected(source, version) as reader:
        writer = await source.writer
        assert writer.push(writer.encode(b"one"))
        await writer.write(writer.encode(b"two"))
        await writer.drained()
        assert writer.push(writer.encode(b"three"))
        source.ended.set()
        await reader.readuntil(b"\r\n\r\n")
        assert await reader.readexactly(len(expected)) == expected
    assert source.closed


async def test_a_client_that_does_not_read_is_not_written_to_until_it_reads() -> None:
    source = _Source()
    async with _connected(source) as reader:
        writer = await source.writer
        frame = writer.encode(b"x" * 65536)
        pushed = 0
        while writer.push(frame):
            pushed += 1
            assert pushed < 1000
            await asyncio.sleep(0)
        waiting = asyncio.create_task(writer.drained())
        await asyncio.sleep(0.05)
        assert not waiting.done()
        while not waiting.done():
            await reader.read(65536)
        assert writer.push(frame)


async def test_a_client_that_has_left_ends_the_source() -> None:
    source = _Source()
    async with _connected(source) as reader:
        writer = await source.writer
        reader._transport.abort()  # type: ignore[attr-defined]
        async with asyncio.timeout(5):
            while not source.closed:
                await asyncio.sleep(0.01)
        assert not writer.push(b"x")
        with pytest.raises(OSError):
            await writer.drained()


async def test_a_head_request_gets_no_frames() -> None:
    source = _Source()
    async with _connected(source, method="HEAD") as reader:
        assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200")
    assert not source.writer.done()
    assert source.closed
