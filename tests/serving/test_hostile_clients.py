"""Clients that go without listening, and bodies in crumbs: nothing is logged about them, and they cost no more than their bytes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import tracemalloc

import pytest

from kubeloop.http1.buffered_connection import BufferedConnection
from kubeloop.http1.request_body import RequestBody
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


async def test_answers_to_a_client_that_said_goodbye_are_given_up_in_silence(caplog: pytest.LogCaptureFixture) -> None:
    answered = asyncio.Event()

    async def handle(_: Request) -> Answer:
        answered.set()
        return Answer(body=b"x")

    authority = CertificateAuthority.create("test-ca")
    own = authority.issue("test", ip_addresses=("127.0.0.1",), server=True)
    listener = Listener(handle, server_context(own.certificate, own.key, authority.certificate))
    await listener.bind()
    await listener.serve()
    caplog.set_level(logging.INFO)
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = ssl.create_default_context(cadata=authority.certificate.decode()).wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    while True:
        try:
            client.do_handshake()
            break
        except ssl.SSLWantReadError:
            writer.write(outgoing.read())
            incoming.write(await reader.read(65536))
    client.write(GET * 200)
    with pytest.raises(ssl.SSLWantReadError):
        client.unwrap()  # requests and goodbye arrive together
    writer.write(outgoing.read())
    await reader.read()
    writer.close()
    await writer.wait_closed()
    await listener.close()
    assert answered.is_set()
    assert [record.getMessage() for record in caplog.records if record.name.startswith(("asyncio", "kubeloop"))] == []


async def test_a_body_in_crumbs_takes_the_memory_of_a_whole_one() -> None:
    wire = BufferedConnection()
    wire.data_received(b"2\r\nxx\r\n" * 20_000 + b"0\r\n\r\n")
    tracemalloc.start()
    try:
        assert await RequestBody(wire, None, invite=False).read(1 << 20) == b"x" * 40_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 400_000


@pytest.mark.parametrize("operation", ["close", "abort"])
async def test_a_client_that_never_ends_the_handshake_is_not_kept_when_the_listener_ends(operation: str) -> None:
    async def handle(_: Request) -> Answer:
        return Answer()

    authority = CertificateAuthority.create("test-ca")
    own = authority.issue("test", ip_addresses=("127.0.0.1",), server=True)
    listener = Listener(handle, server_context(own.certificate, own.key, authority.certificate))
    await listener.bind()
    await listener.serve()
    reader, writer = await asyncio.open_connection("127.0.0.1", listener.port)
    writer.write(b"\x16\x03\x01")
    await asyncio.sleep(0.01)
    if operation == "abort":
        listener.abort()
    else:
        await listener.close()
    async with asyncio.timeout(5):
        with contextlib.suppress(ConnectionResetError):
            assert await reader.read() == b""
    writer.close()
    await listener.close()


class _Gone(asyncio.Transport):
    """Writes to a broken connection are lost without waiting, before asyncio reports the break."""

    def write(self, data: bytes | bytearray | memoryview) -> None:
        pass

    def is_closing(self) -> bool:
        return False


async def test_a_handler_that_writes_without_end_to_a_client_that_is_gone_yields_to_other_tasks() -> None:
    wire = BufferedConnection()
    wire.connection_made(_Gone())
    asyncio.get_running_loop().call_soon(wire.connection_lost, None)

    async def write() -> None:
        for _ in range(1000):
            await wire.write(bytes(30_000))

    with pytest.raises(ConnectionError):
        await write()
