"""TLS with one buffer for all connections of a loop: bytes stay apart, and a connection is small."""

from __future__ import annotations

import asyncio
import asyncio.sslproto
import inspect
import random
import socket
import ssl
import sys
import tracemalloc
from asyncio.sslproto import SSLProtocol
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from kubeloop.http1.tls_layer import BUFFER, RECORD, SLICE, TlsLayer, _shared, secure, secure_accepted
from kubeloop.serving.listener import server_context
from kubeloop.transport import Transport
from tests.faults import FaultServer, Received, Reply, authority, loopback_certificate


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
_ATTRIBUTES = (
    "_app_protocol",
    "_call_eof_received",
    "_do_read__copied",
    "_do_write",
    "_incoming",
    "_outgoing",
    "_process_outgoing",
    "_ssl_buffer",
    "_ssl_buffer_view",
    "_ssl_writing_paused",
    "_sslobj",
    "_start_shutdown",
    "_state",
    "_transport",
    "_write_backlog",
    "_write_buffer_size",
    "max_size",
)
#: What the layer uses of asyncio without being promised it, by Python version: the parameters of ``SSLProtocol``, its attributes, methods.
PRIVATE = dict.fromkeys(((3, 11), (3, 12), (3, 13), (3, 14)), (_PARAMETERS, _ATTRIBUTES))


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
    assert [name for name in attributes if not hasattr(asyncio.sslproto.SSLProtocol if name.startswith("_do_") else layer, name)] == []


class Receiver(asyncio.Protocol):
    """Collects what arrives. ``pause_after`` bytes it pauses reading until ``resume``."""

    def __init__(self, pause_after: int = 1 << 60) -> None:
        self.received = bytearray()
        self.transport: asyncio.Transport
        self.ended = asyncio.get_running_loop().create_future()
        self.paused = asyncio.Event()
        self.writable = asyncio.Event()
        self.writable.set()
        self._pause_after = pause_after

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.received += data
        if len(self.received) >= self._pause_after:
            self._pause_after = 1 << 60
            self.transport.pause_reading()
            self.paused.set()

    def eof_received(self) -> None:
        if not self.ended.done():
            self.ended.set_result(None)

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()


@asynccontextmanager
async def two_ends(pause_after: int = 1 << 60, chain: bytes = b"") -> AsyncIterator[tuple[Receiver, Receiver]]:
    """Connect two protocols by TLS; the first one is the client's.

    Args:
        pause_after: Bytes after which the server's end pauses reading.
        chain: The server's certificate, and further ones to send with it.
    """
    issued = loopback_certificate()
    serving = server_context(chain or issued.certificate, issued.key, authority().certificate)
    trusting = ssl.create_default_context(cadata=authority().certificate.decode())
    near, far = socket.socketpair()
    client, server = Receiver(), Receiver(pause_after)
    accepted = asyncio.ensure_future(secure_accepted(far, server, serving))
    below = await secure(near, client, trusting, "127.0.0.1", 10)
    await accepted
    yield client, server
    for end in (client, server):
        end.transport.abort()
    below.abort()
    await asyncio.sleep(0)


@pytest.mark.parametrize("sizes", [[1], [RECORD] * 9, [5, SLICE + 1, 7], [BUFFER * 3 + 11], [1 << 20, 1, 1 << 20]])
@pytest.mark.parametrize("pause_after", [1, BUFFER // 2, 1 << 60])
async def test_data_of_any_size_arrives_whole_and_in_order_also_after_a_pause(sizes: list[int], pause_after: int) -> None:
    async with two_ends(pause_after) as (client, server):
        whole = bytearray()
        for number, size in enumerate(sizes):
            part = random.Random(number).randbytes(size)
            whole += part
            client.transport.write(part)
        client.transport.close()
        if len(whole) >= pause_after:
            await server.paused.wait()
            assert len(server.received) >= pause_after
            server.transport.resume_reading()
        await server.ended
        assert server.received == whole


async def test_a_handshake_that_is_larger_than_a_slice_is_done_in_one_read() -> None:
    issued = loopback_certificate()
    chain = issued.certificate + authority().certificate * (SLICE // len(ssl.PEM_cert_to_DER_cert(authority().certificate.decode())) + 8)
    async with two_ends(chain=chain) as (client, server):
        client.transport.write(b"done")
        client.transport.close()
        await server.ended
        assert server.received == b"done"


async def test_a_writer_is_paused_while_the_peer_reads_nothing_and_goes_on_afterwards() -> None:
    async with two_ends(pause_after=1) as (client, server):
        written = 0
        while client.writable.is_set():
            client.transport.write(bytes(1 << 20))
            written += 1 << 20
            await asyncio.sleep(0)
        await server.paused.wait()
        held = client.transport.get_write_buffer_size()
        assert 0 < held <= written < 64 << 20
        server.transport.resume_reading()
        await client.writable.wait()
        client.transport.close()
        await server.ended
        assert len(server.received) == written


@pytest.mark.parametrize("size_hint", [-1, 1, RECORD, RECORD + 1, 1 << 18])
async def test_the_loop_reads_into_the_buffer_that_all_connections_of_a_thread_share(layer: TlsLayer, size_hint: int) -> None:
    assert layer.get_buffer(size_hint).obj is _shared.buffer
    assert len(layer.get_buffer(size_hint)) == BUFFER
