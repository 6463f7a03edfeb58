"""Bodies that are read as they come."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.meta import Forbidden, TransportError
from kubeloop.transport import Transport
from tests.faults import FaultServer, Reply, status


async def read_all(transport: Transport, path: str) -> bytes:
    async with transport.stream("GET", path) as stream:
        return b"".join([chunk async for chunk in stream.chunks()])


async def test_pieces_come_uncompressed_until_the_server_ends_the_body() -> None:
    async with FaultServer(Reply(chunks=[b"one", b"two"])) as server, Transport(server.config()) as transport:
        assert await read_all(transport, "/x") == b"onetwo"
    assert server.received[0].headers["accept-encoding"] == "identity"


async def test_leaving_early_frees_the_socket() -> None:
    async with FaultServer(Reply(chunks=[b"first"], end="hang")) as server, Transport(server.config()) as transport:
        async with transport.stream("GET", "/x") as stream:
            async for chunk in stream.chunks():
                assert chunk == b"first"
                break
        async with asyncio.timeout(30):
            await server.gone.wait()


async def test_cancelling_a_reader_frees_the_socket() -> None:
    async with FaultServer(Reply(chunks=[b"first"], end="hang")) as server, Transport(server.config()) as transport:
        task = asyncio.create_task(read_all(transport, "/x"))
        await server.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with asyncio.timeout(30):
            await server.gone.wait()


async def test_a_stream_that_breaks_is_an_error_and_is_not_repeated() -> None:
    async with FaultServer(Reply(chunks=[b"first"], end="cut")) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError, match=r"the connection ended .*\(list pods\)"):
            await read_all(transport, "/api/v1/pods")
    assert len(server.received) == 1


async def test_a_refusal_is_raised_before_the_block() -> None:
    async with FaultServer(status(403, "Forbidden", "no")) as server, Transport(server.config()) as transport:
        with pytest.raises(Forbidden):
            async with transport.stream("GET", "/x"):
                pytest.fail("the block must not run")


async def test_an_error_of_the_callers_own_goes_through_unchanged() -> None:
    async with FaultServer(Reply(chunks=[b"first"], end="hang")) as server, Transport(server.config()) as transport:
        with pytest.raises(FileNotFoundError, match="mine"):
            async with transport.stream("GET", "/x"):
                raise FileNotFoundError("mine")


async def test_streams_do_not_starve_requests() -> None:
    def answer(received: object) -> Reply:
        return Reply(chunks=[b"."], end="hang") if "watch" in str(received) else Reply(body=b"ok")

    async with FaultServer(answer=answer, tls=False) as server, Transport(server.config()) as transport, asyncio.timeout(20):
        async with asyncio.TaskGroup() as group:
            streams = [transport.stream("GET", "/watch") for _ in range(120)]
            for stream in streams:
                group.create_task(stream.__aenter__())
        assert (await transport.request("GET", "/x")).body == b"ok"
        for stream in streams:
            await stream.__aexit__(None, None, None)


async def test_a_compressed_stream_is_refused() -> None:
    reply = Reply(chunks=[b"x"], headers={"Content-Encoding": "gzip"})
    async with FaultServer(reply) as server, Transport(server.config()) as transport:
        with pytest.raises(TransportError, match=r"the answer is compressed \(gzip\), which the client did not request"):
            await read_all(transport, "/x")


async def test_an_empty_coding_is_none() -> None:
    async with (
        FaultServer(Reply(200, b"plain", {"Content-Encoding": ""})) as server,
        Transport(server.config()) as transport,
        transport.stream("GET", "/x") as stream,
    ):
        assert b"".join([chunk async for chunk in stream.chunks()]) == b"plain"


async def test_a_stream_that_was_left_does_not_look_as_if_it_had_ended() -> None:
    async with FaultServer(Reply(chunks=[b"first"], end="hang")) as server, Transport(server.config()) as transport:
        async with transport.stream("GET", "/x") as stream:
            assert await anext(aiter(stream.chunks())) == b"first"
        with pytest.raises(TransportError, match="left before its end"):
            await anext(aiter(stream.chunks()))
