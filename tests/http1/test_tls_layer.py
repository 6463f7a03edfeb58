"""TLS with one buffer for all connections of a loop: bytes stay apart, and a connection is small."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import sys
import tracemalloc
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator

import pytest

from kubeloop.http1.tls_layer import BUFFER, RECORD, TlsLayer, _shared
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, loopback_certificate


async def test_what_many_connections_bring_at_once_stays_apart() -> None:
    def answer(received: Received) -> Reply:
        return Reply(chunks=[received.path[1:].encode() * 5000] * 20)

    async def read(transport: Transport, name: str) -> bool:
        async with transport.stream("GET", f"/{name}") as stream:
            return b"".join([chunk async for chunk in stream.chunks()]) == name.encode() * 100_000

    async with FaultServer(answer=answer) as server, Transport(server.config()) as transport:
        assert all(await asyncio.gather(*(read(transport, name) for name in "abcdefghijklmnopqrst")))


async def test_a_connection_takes_a_fraction_of_what_one_of_asyncio_does() -> None:
    count = 20
    async with FaultServer(Reply(chunks=[b"x"], end="hang")) as server, Transport(server.config()) as transport:
        streams = [transport.stream("GET", "/x") for _ in range(count + 1)]
        await streams[0].__aenter__()
        tracemalloc.start()
        try:
            for stream in streams[1:]:
                await stream.__aenter__()
            held = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(True, "*/asyncio/sslproto.py")])
        finally:
            tracemalloc.stop()
        for stream in streams:
            await stream.__aexit__(None, None, None)
    # The server's side of each connection is in this process too, with the 256 KiB that asyncio gives it.
    sizes = [trace.size for trace in held.traces if trace.size >= BUFFER // 2]
    assert len(sizes) == count


async def test_two_loops_in_two_threads_do_not_read_each_other() -> None:
    def run(name: str) -> bool:
        async def read() -> bool:
            reply = Reply(body=name.encode() * 300_000)
            async with FaultServer(reply) as server, Transport(server.config()) as transport:
                return all([(await transport.request("GET", "/x")).body == reply.body for _ in range(5)])

        return asyncio.run(read())

    loopback_certificate()  # made here, once
    assert all(await asyncio.gather(*(asyncio.to_thread(run, name) for name in ("abc", "xyz", "123"))))


_PARAMETERS = (
    "self",
    "loop",
    "app_protocol",
    "sslcontext",
    "waiter",
    "server_side",
    "server_hostname",
    "call_connection_made",
    "ssl_handshake_timeout",
    "ssl_shutdown_timeout",
)
#: What the layer uses of asyncio without being promised it, by Python version: the parameters of ``SSLProtocol`` and its buffer.
PRIVATE = {
    (3, 11): (_PARAMETERS, ("_ssl_buffer", "_ssl_buffer_view", "max_size")),
    (3, 12): (_PARAMETERS, ("_ssl_buffer", "_ssl_buffer_view", "max_size")),
    (3, 13): (_PARAMETERS, ("_ssl_buffer", "_ssl_buffer_view", "max_size")),
    (3, 14): (_PARAMETERS, ("_ssl_buffer", "_ssl_buffer_view", "max_size")),
}


@pytest.fixture
async def layer() -> AsyncIterator[TlsLayer]:
    loop = asyncio.get_running_loop()
    made = TlsLayer(loop, asyncio.Protocol(), ssl.create_default_context(), loop.create_future(), False, "example.com")
    made.share()
    yield made
    made.connection_lost(None)


async def test_asyncio_has_what_the_layer_uses_in_this_version_of_python(layer: TlsLayer) -> None:
    version = sys.version_info[:2]
    assert version in PRIVATE, f"read asyncio/sslproto.py of Python {version[0]}.{version[1]}, and add it to this table"
    parameters, attributes = PRIVATE[version]
    assert tuple(inspect.signature(SSLProtocol.__init__).parameters) == parameters
    assert [name for name in attributes if not hasattr(layer, name)] == []


@pytest.mark.parametrize("size_hint", [-1, 1, RECORD, RECORD + 1, 1 << 18])
async def test_the_loop_reads_into_the_buffer_that_all_connections_of_a_thread_share(layer: TlsLayer, size_hint: int) -> None:
    assert layer.get_buffer(size_hint).obj is _shared.buffer
    assert len(layer.get_buffer(size_hint)) == BUFFER
