"""Many requests and streams at once, slow and large ones, and cancelling in every phase: no socket is lost, no answer goes astray."""

from __future__ import annotations

import asyncio
import gc
import logging
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from kubeloop.config import ClusterConfig
from kubeloop.http1.client_connection import READ_BUFFER
from kubeloop.meta import RequestEntityTooLarge, TransportError
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from kubeloop.transport.connection import Connections
from kubeloop.transport.limits import MAX_REQUESTS
from tests.faults import FaultServer, Received, Reply

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def plain(serve: Serve) -> AsyncIterator[ClusterConfig]:
    """A server without TLS that does with each connection what the test says."""
    tasks: set[asyncio.Task[None]] = set()

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            await serve(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass  # the client left
        finally:
            writer.close()
            tasks.discard(task)

    async with await asyncio.start_server(handle, "127.0.0.1", 0) as server:
        try:
            yield ClusterConfig(server=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def test_many_requests_share_a_bounded_number_of_connections() -> None:
    def answer(received: Received) -> Reply:
        return Reply(body=received.path.encode())

    async with FaultServer(answer=answer, tls=False) as server, Transport(server.config()) as transport:
        answers = await asyncio.gather(*(transport.request("GET", f"/{number}") for number in range(500)))
        assert [one.body for one in answers] == [f"/{number}".encode() for number in range(500)]
        assert server.connections <= MAX_REQUESTS


async def test_waiting_for_a_place_counts_as_time_and_closing_ends_it() -> None:
    async with FaultServer(Reply(status=0, end="hang"), tls=False) as server:
        transport = Transport(server.config())
        calls = [asyncio.create_task(transport.request("GET", "/x")) for _ in range(MAX_REQUESTS + 20)]
        while len(server.received) < MAX_REQUESTS:
            await asyncio.sleep(0.001)
        await transport.close()
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(one) for one in outcomes} == {TransportError}
    assert all("closed" in str(one) for one in outcomes)


@pytest.mark.parametrize("tls", [False, True])
async def test_cancelling_at_any_moment_leaves_no_socket_and_no_answer_behind(tls: bool) -> None:
    def answer(received: Received) -> Reply:
        return Reply(body=received.path.encode())

    async with FaultServer(answer=answer, tls=tls) as server, Transport(server.config()) as transport:
        for turns in range(60):
            # Another moment each time: dialling, handshake, sending, head, body, giving back.
            call = asyncio.create_task(transport.request("GET", f"/late-{turns}"))
            for _ in range(turns):
                await asyncio.sleep(0)
            call.cancel()
            await asyncio.wait([call])
            assert (await transport.request("GET", f"/{turns}")).body == f"/{turns}".encode()
        pool = transport._sender
        assert isinstance(pool, Connections)
        assert (len(pool._all), len(pool._idle)) == (1, 1)


async def test_a_certificate_that_is_no_longer_used_takes_its_connections_with_it() -> None:
    async with FaultServer(Reply(chunks=[b"x"], end="keep")) as server, Transport(server.config()) as transport:
        async with transport.stream("GET", "/x") as stream:
            pool = transport._sender
            assert isinstance(pool, Connections)
            pool._use(server.config().ssl_context())
            assert [chunk async for chunk in stream.chunks()] == [b"x"]
        await transport.request("GET", "/x")
        assert server.connections == 2


async def test_one_byte_at_a_time_is_read() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        for byte in b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n":
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(0)

    async with plain(slow) as config, Transport(config) as transport:
        assert (await transport.request("GET", "/x")).body == b"ok"


async def test_a_large_body_flows_through_a_stream_without_piling_up() -> None:
    size, block = 48, b"x" * (1 << 20)

    async def large(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {size * len(block)}\r\n\r\n".encode())
        for _ in range(size):
            writer.write(block)
            await writer.drain()

    async with plain(large) as config, Transport(config) as transport, transport.stream("GET", "/x") as stream:
        received = 0
        tracemalloc.start()
        try:
            async for chunk in stream.chunks():
                received += len(chunk)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert received == size * len(block)
    assert peak < 8 * READ_BUFFER


async def test_a_reader_that_pauses_holds_the_server_back() -> None:
    sent = 0

    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"10000\r\n" + b"x" * 0x10000 + b"\r\n")
            await writer.drain()
            sent += 0x10000

    async with plain(endless) as config, Transport(config) as transport, transport.stream("GET", "/x") as stream:
        await anext(aiter(stream.chunks()))
        before = -1
        while before != sent:
            before = sent
            await asyncio.sleep(0.02)
    # What the kernel's buffers of both sides take, and ours.
    assert sent < 32 * READ_BUFFER


async def test_a_refusal_of_a_body_that_is_still_being_sent_is_read() -> None:
    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 X\r\nContent-Length: 3\r\n\r\nbig")
        await writer.drain()
        await reader.read(1)
        # kube-apiserver too reads on for a moment, so that its answer is not lost in a reset.
        while await reader.read(1 << 20):
            pass

    async with plain(refuse) as config, Transport(config) as transport:
        with pytest.raises(RequestEntityTooLarge, match=r"RequestEntityTooLarge: .*big"):
            await transport.request("POST", "/x", body=b"x" * (32 << 20))


async def test_a_server_that_takes_the_connection_and_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.http1.dial.HANDSHAKE_TIMEOUT", 0.02)

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async with plain(silent) as config:
        secure = ClusterConfig(server=config.server.replace("http:", "https:"))
        async with Transport(secure, clock=FakeClock()) as transport:
            with pytest.raises(TransportError, match="no TLS handshake within"):
                await transport.request("GET", "/x")


def test_a_transport_that_is_left_open_dies_quietly(caplog: pytest.LogCaptureFixture) -> None:
    async def leave() -> Transport:
        async with FaultServer(Reply(body=b"ok"), Reply(status=0, end="hang"), tls=False) as server:
            transport = Transport(server.config(), max_retries=0)
            await transport.request("GET", "/x")
            call = asyncio.create_task(transport.request("GET", "/x"))
            await server.waiting.wait()
            call.cancel()
            await asyncio.wait([call])
            return transport

    caplog.set_level(logging.DEBUG, "asyncio")
    transport = asyncio.run(leave(), debug=True)
    del transport
    gc.collect()
    assert "never retrieved" not in caplog.text
    assert "Traceback" not in caplog.text


async def test_a_second_event_loop_is_refused_at_once_and_the_first_goes_on() -> None:
    """A connection whose loop is another one's would never answer."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()

    async with plain(serve) as config, Transport(config) as transport:
        assert (await transport.request("GET", "/")).status == 200
        with pytest.raises(TransportError, match=r"belongs to another event loop.*async def reconcile"):
            await asyncio.to_thread(lambda: asyncio.run(transport.request("GET", "/")))
        assert (await transport.request("GET", "/")).status == 200
