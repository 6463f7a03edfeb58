"""Two ends of a SPDY connection over a pipe in memory: streams, their halves, their end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest

from kubeloop.serving.spdy import ConnectionOver, SpdyConnection, SpdyError, SpdyStream, StreamReset
from kubeloop.serving.spdy.frames import Frame, Kind, Packer, Unpacker


class Pipe:
    """One end of a pipe; ``hold`` keeps written data from arriving."""

    def __init__(self) -> None:
        self.incoming: asyncio.Queue[bytes] = asyncio.Queue()
        self.other: Pipe
        self.written: list[bytes] = []

    async def read(self) -> bytes:
        return await self.incoming.get()

    async def write(self, data: bytes) -> None:
        self.written.append(data)
        self.other.incoming.put_nowait(data)

    def end(self) -> None:
        self.other.incoming.put_nowait(b"")


def pipes() -> tuple[Pipe, Pipe]:
    one, other = Pipe(), Pipe()
    one.other, other.other = other, one
    return one, other


@dataclass
class Ends:
    client: SpdyConnection
    server: SpdyConnection
    client_pipe: Pipe
    server_pipe: Pipe
    accepted: asyncio.Queue[SpdyStream] = field(default_factory=asyncio.Queue)

    async def both(self, **headers: str) -> tuple[SpdyStream, SpdyStream]:
        """A stream that the client opened, at both ends."""
        mine = await self.client.open(headers)
        return mine, await self.accepted.get()


@asynccontextmanager
async def connected() -> AsyncIterator[Ends]:
    client_pipe, server_pipe = pipes()
    ends: Ends

    async def accept(stream: SpdyStream) -> None:
        ends.accepted.put_nowait(stream)

    ends = Ends(
        SpdyConnection(client_pipe, client=True), SpdyConnection(server_pipe, client=False, accept=accept), client_pipe, server_pipe
    )
    running = [asyncio.ensure_future(one.run()) for one in (ends.client, ends.server)]
    try:
        async with asyncio.timeout(5):
            yield ends
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def test_a_stream_has_headers_and_both_ways() -> None:
    async with connected() as ends:
        mine, theirs = await ends.both(streamtype="data", port="80")
        assert theirs.headers == {"streamtype": "data", "port": "80"}
        await mine.write(b"there")
        await theirs.write(b"back")
        assert (await theirs.read(), await mine.read()) == (b"there", b"back")


async def test_ids_are_odd_for_clients_and_grow() -> None:
    async with connected() as ends:
        assert [(await ends.both())[0].number for _ in range(3)] == [1, 3, 5]


async def test_large_data_is_cut_into_frames_and_arrives_whole() -> None:
    async with connected() as ends:
        mine, theirs = await ends.both()
        sent = bytes(range(256)) * 1000
        await mine.write(sent)
        await mine.close()
        got = b""
        while part := await theirs.read():
            assert len(part) <= 32 * 1024
            got += part
        assert got == sent


async def test_each_half_ends_on_its_own() -> None:
    async with connected() as ends:
        mine, theirs = await ends.both()
        await mine.close()
        assert await theirs.read() == b""
        await theirs.write(b"still here")
        assert await mine.read() == b"still here"
        await theirs.close()
        assert await mine.read() == b""
        assert mine.over
        with pytest.raises(StreamReset):
            await mine.write(b"x")


async def test_a_reset_ends_both_halves_after_what_came_before() -> None:
    async with connected() as ends:
        mine, theirs = await ends.both()
        await theirs.write(b"last")
        await theirs.reset()
        assert await mine.read() == b"last"
        with pytest.raises(StreamReset):
            await mine.read()
        with pytest.raises(StreamReset):
            await theirs.read()


async def test_the_end_of_the_connection_ends_its_streams() -> None:
    async with connected() as ends:
        mine, theirs = await ends.both()
        await theirs.write(b"last")
        await theirs.close()
        other, _ = await ends.both()
        ends.server_pipe.end()
        assert (await mine.read(), await mine.read()) == (b"last", b"")
        with pytest.raises(StreamReset):
            await other.read()
        with pytest.raises(StreamReset):
            await ends.client.open({})


async def test_a_connection_that_accepts_no_streams_refuses_them() -> None:
    async with connected() as ends:
        await ends.both()
        with pytest.raises(StreamReset):
            await ends.server.open({})


async def test_a_ping_is_answered_once() -> None:
    async with connected() as ends:
        await ends.client.ping(1)
        await ends.both()
        frames = [frame for data in ends.server_pipe.written for frame in Unpacker().feed(data) if frame.kind is Kind.PING]
        assert frames == [Frame(Kind.PING, 1)]


async def test_a_goodbye_ends_the_other_side() -> None:
    client, server = pipes()
    running = asyncio.ensure_future(SpdyConnection(server, client=False).run())
    await SpdyConnection(client, client=True).close()
    async with asyncio.timeout(5):
        await running


async def test_unread_data_holds_the_peer_back() -> None:
    async with connected() as ends:
        mine, theirs = await ends.both()
        for _ in range(200):
            await mine.write(b"x" * 32_768)
        for _ in range(1000):
            await asyncio.sleep(0)
        waiting = ends.server_pipe.incoming.qsize()
        assert waiting > 150  # about 1 MiB of 6.5 was taken
        total = 0
        while total < 200 * 32_768:
            total += len(await theirs.read())


@pytest.mark.parametrize("number", [2, 1])
async def test_a_stream_with_an_id_that_it_cannot_have_ends_the_connection(number: int) -> None:
    client, server = pipes()

    async def accept(stream: SpdyStream) -> None:
        return

    running = asyncio.ensure_future(SpdyConnection(server, client=False, accept=accept).run())
    packer = Packer()
    await client.write(packer.syn_stream(3, {}))
    await client.write(packer.syn_stream(number, {}))
    with pytest.raises(SpdyError):
        async with asyncio.timeout(5):
            await running


async def test_a_stream_that_is_over_before_its_opener_runs_again_was_no_refusal() -> None:
    """All of it may come in one piece: a fast command, or a slow opener."""
    client_pipe, server_pipe = pipes()
    client, packer = SpdyConnection(client_pipe, client=True), Packer()
    running = asyncio.ensure_future(client.run())
    opening = asyncio.ensure_future(client.open({"streamtype": "stdout"}))
    async with asyncio.timeout(5):
        await server_pipe.read()
        await server_pipe.write(packer.syn_reply(1, {}) + packer.data(1, b"all of it", fin=True) + packer.goaway(1))
        stream = await opening
        assert [await stream.read(), await stream.read()] == [b"all of it", b""]
        await running


async def test_unread_data_of_an_abandoned_stream_does_not_hold_the_peer_back() -> None:
    async with connected() as ends:
        for _ in range(3):
            mine, theirs = await ends.both()
            for _ in range(20):
                await theirs.write(b"x" * 32_000)
            for _ in range(100):
                await asyncio.sleep(0)  # all of it arrives, and none is read
            await mine.reset()
        mine, theirs = await ends.both()
        await theirs.write(b"arrives")
        assert await mine.read() == b"arrives"


async def test_a_stream_whose_opener_gave_up_waiting_is_given_up() -> None:
    client_pipe, server_pipe = pipes()
    client, packer, unpacker = SpdyConnection(client_pipe, client=True), Packer(), Unpacker()
    running = asyncio.ensure_future(client.run())
    opening = asyncio.ensure_future(client.open({"streamtype": "data"}))
    async with asyncio.timeout(5):
        assert [frame.kind for frame in unpacker.feed(await server_pipe.read())] == [Kind.SYN_STREAM]
        opening.cancel()
        await asyncio.wait((opening,))
        assert [(frame.kind, frame.number) for frame in unpacker.feed(await server_pipe.read())] == [(Kind.RST_STREAM, 1)]
        await server_pipe.write(packer.syn_reply(1, {}) + packer.data(1, b"x" * 10))
        server_pipe.end()
        await running
    assert client._unread == 0


async def test_a_stream_that_was_under_way_when_the_connection_ended_was_not_refused() -> None:
    client_pipe, server_pipe = pipes()
    client = SpdyConnection(client_pipe, client=True)
    running = asyncio.ensure_future(client.run())
    opening = asyncio.ensure_future(client.open({}))
    async with asyncio.timeout(5):
        await server_pipe.read()
        server_pipe.end()
        with pytest.raises(ConnectionOver):
            await opening
        await running
