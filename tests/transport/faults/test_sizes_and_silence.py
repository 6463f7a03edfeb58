"""Answers too large, too slow or silent, over TLS: bounded memory, and a deadline on every wait that its message names."""

from __future__ import annotations

import asyncio
import gzip
import tracemalloc
import zlib
from collections.abc import Callable

import pytest

from kubeloop.meta import DeadlineError, TransportError
from kubeloop.transport import Transport
from kubeloop.transport.connection import Connections
from kubeloop.transport.transport import REQUEST_TIMEOUT
from tests.faults import SILENCE, FaultServer, Reply

OK = b"HTTP/1.1 200 OK\r\n"


def bomb(size: int) -> bytes:
    """gzip of ``size`` zeros, made without having them."""
    pack = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    block = bytes(1 << 20)
    return b"".join(pack.compress(block) for _ in range(size >> 20)) + pack.flush()


async def test_a_gzip_bomb_is_given_up_at_the_bound_and_takes_no_more_memory_than_it() -> None:
    body = bomb(256 << 20)
    assert len(body) < 1 << 20
    reply = Reply(body=body, headers={"Content-Encoding": "gzip"})
    async with FaultServer(reply) as server, Transport(server.config(), max_answer=4 << 20) as transport:
        tracemalloc.start()
        try:
            with pytest.raises(TransportError, match=r"the answer is larger than 4 MiB; ask for less .*max_answer.*\(list pods\)"):
                await transport.request("GET", "/api/v1/pods")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert peak < 32 << 20


@pytest.mark.parametrize("code", [200, 500])
async def test_a_plain_answer_without_end_is_given_up_at_the_bound(code: int) -> None:
    reply = Reply(code, chunks=[b"x" * 65536] * 200, end="hang")
    async with FaultServer(reply) as server, Transport(server.config(), max_answer=1 << 20) as transport:
        with pytest.raises(TransportError, match="larger than 1 MiB"):
            await transport.request("GET", "/x")


async def test_an_answer_as_large_as_the_bound_is_read() -> None:
    exact = b"x" * (1 << 20)
    script = [Reply(body=exact), Reply(body=gzip.compress(exact[:100]) + gzip.compress(exact[100:]), headers={"Content-Encoding": "gzip"})]
    async with FaultServer(*script) as server, Transport(server.config(), max_answer=1 << 20) as transport:
        assert (await transport.request("GET", "/x")).body == exact
        assert (await transport.request("GET", "/x")).body == exact


async def test_a_line_of_a_megabyte_comes_through_a_stream_whole() -> None:
    line = b'{"x": "' + b"y" * (1 << 20) + b'"}\n'
    async with (
        FaultServer(Reply(chunks=[line, line])) as server,
        Transport(server.config()) as transport,
        transport.stream("GET", "/x") as stream,
    ):
        assert b"".join([chunk async for chunk in stream.chunks()]) == line * 2


Later = Callable[[float], None]


async def until_it_waits_for_more(transport: Transport) -> None:
    """Return when the head of an answer is there and its body is waited for."""
    while True:
        pool = transport._sender
        if isinstance(pool, Connections) and any(wire._head_ready and wire._waiter is not None for wire in pool._all):
            return
        await asyncio.sleep(0.001)


async def test_a_server_that_takes_the_request_and_says_nothing_is_left_after_the_time_that_is_named(later: Later) -> None:
    async with FaultServer(SILENCE) as server, Transport(server.config(), read_timeout=7) as transport:
        call = asyncio.create_task(transport.request("GET", "/api/v1/pods"))
        await server.waiting.wait()
        later(7)
        with pytest.raises(TransportError, match=r"no answer within 7 s; is the server, .*overloaded\? \(list pods\)"):
            await call
        await server.gone.wait()


async def test_an_answer_that_stops_in_the_middle_is_left_after_the_time_that_is_named(later: Later) -> None:
    half = Reply(raw=OK + b"Content-Length: 9\r\n\r\nhalf", end="hang")
    async with FaultServer(half) as server, Transport(server.config(), read_timeout=7) as transport:
        call = asyncio.create_task(transport.request("GET", "/x"))
        await until_it_waits_for_more(transport)
        later(7)
        with pytest.raises(TransportError, match=r"the answer broke off: nothing more of it came within 7 s"):
            await call
        await server.gone.wait()


async def test_a_stream_may_be_silent_without_a_limit_unless_its_reader_sets_one(later: Later) -> None:
    silent = Reply(chunks=[b"first"], end="hang")
    async with FaultServer(silent) as server, Transport(server.config()) as transport:
        async with transport.stream("GET", "/x") as stream:
            chunks = stream.chunks()
            assert await anext(chunks) == b"first"
            waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            later(1_000_000)
            for _ in range(10):
                await asyncio.sleep(0)
            assert not waiting.done()
            waiting.cancel()
            await asyncio.wait([waiting])
        async with transport.stream("GET", "/x", idle_timeout=7) as stream:
            chunks = stream.chunks()
            assert await anext(chunks) == b"first"
            waiting = asyncio.ensure_future(anext(chunks))
            await asyncio.sleep(0)
            later(7)
            with pytest.raises(TransportError, match=r"nothing more of it came within 7 s"):
                await waiting


async def test_an_answer_that_does_not_end_is_left_at_the_deadline_of_the_whole(later: Later) -> None:
    async with FaultServer(Reply(chunks=[b"x"], end="hang")) as server, Transport(server.config(), read_timeout=10_000) as transport:
        call = asyncio.create_task(transport.request("GET", "/api/v1/pods"))
        await server.waiting.wait()
        later(REQUEST_TIMEOUT)
        with pytest.raises(DeadlineError, match=r"no answer within 900 s \(list pods\)"):
            await call
        await server.gone.wait()
