"""The acceptor on real sockets: the limit of TLS handshakes, waiting connections, silent clients and the end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Callable

import pytest

from kubeloop.pki import CertificateAuthority
from kubeloop.serving.acceptor import SLOW_HANDSHAKE, Acceptor
from kubeloop.serving.listener import server_context
from kubeloop.timing import FakeClock

LIMIT = 2


class Greeting(asyncio.Protocol):
    """Sends a greeting to each client."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        transport.write(b"hello")
        transport.close()


class Accepting:
    """An acceptor of TLS connections, its clock, and clients."""

    def __init__(self) -> None:
        authority = CertificateAuthority.create("test-ca")
        own = authority.issue("test", ip_addresses=("127.0.0.1",), server=True)
        self._trust = ssl.create_default_context(cadata=authority.certificate.decode())
        listening = socket.create_server(("127.0.0.1", 0))
        listening.setblocking(False)
        self.port: int = listening.getsockname()[1]
        self.clock = FakeClock()
        context = server_context(own.certificate, own.key, authority.certificate)
        self.acceptor = Acceptor([listening], Greeting, context, max_handshakes=LIMIT, clock=self.clock)
        self.acceptor.start()
        self._silent: list[asyncio.StreamWriter] = []

    async def greeting(self) -> bytes:
        """Connect with TLS and return what the server sends."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, ssl=self._trust)
        try:
            return await reader.read()
        finally:
            writer.transport.abort()

    async def connect_silently(self, count: int) -> list[asyncio.StreamReader]:
        """Open connections that never begin their handshake."""
        opened = [await asyncio.open_connection("127.0.0.1", self.port) for _ in range(count)]
        self._silent += [writer for _, writer in opened]
        return [reader for reader, _ in opened]

    async def end(self) -> None:
        self.acceptor.stop()
        await self.acceptor.end_handshakes()
        for writer in self._silent:
            writer.transport.abort()


@pytest.fixture(params=[pytest.param(True, id="readers"), pytest.param(False, id="a loop without readers")])
async def accepting(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Accepting]:
    if not request.param:
        monkeypatch.setattr(asyncio.get_running_loop(), "add_reader", _no_readers)
    made = Accepting()
    yield made
    await made.end()


def _no_readers(*_: object) -> None:
    """Refuse as the loop of Windows."""
    raise NotImplementedError


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.001)


async def test_of_many_clients_at_once_each_is_served_and_no_more_than_the_limit_shake_hands(accepting: Accepting) -> None:
    most = 0
    waited = False

    async def watch() -> None:
        nonlocal most, waited
        while True:
            most = max(most, accepting.acceptor.handshakes)
            waited = waited or accepting.acceptor.waiting > 0
            await asyncio.sleep(0)

    watching = asyncio.create_task(watch())
    try:
        async with asyncio.timeout(60):
            assert await asyncio.gather(*(accepting.greeting() for _ in range(40))) == [b"hello"] * 40
    finally:
        watching.cancel()
    assert (most, waited) == (LIMIT, True)


async def test_silent_clients_keep_others_waiting_for_two_seconds_only(accepting: Accepting) -> None:
    await accepting.connect_silently(LIMIT)
    await until(lambda: accepting.acceptor.handshakes == LIMIT)
    greeting = asyncio.create_task(accepting.greeting())
    await until(lambda: accepting.acceptor.waiting == 1)
    await accepting.clock.advance(SLOW_HANDSHAKE / 2)
    assert (accepting.acceptor.handshakes, accepting.acceptor.waiting) == (LIMIT, 1)
    await accepting.clock.advance(SLOW_HANDSHAKE / 2)
    async with asyncio.timeout(60):
        assert await greeting == b"hello"
    assert (accepting.acceptor.handshakes, accepting.acceptor.waiting) == (LIMIT, 0)


async def test_a_client_that_leaves_in_its_handshake_makes_room(accepting: Accepting) -> None:
    await accepting.connect_silently(LIMIT)
    await until(lambda: accepting.acceptor.handshakes == LIMIT)
    accepting._silent[0].transport.abort()
    async with asyncio.timeout(60):
        assert await accepting.greeting() == b"hello"


async def test_beyond_the_waiting_ones_connections_stay_in_the_accept_queue(accepting: Accepting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kubeloop.serving.acceptor.MAX_WAITING", 3)
    await accepting.connect_silently(LIMIT)
    await until(lambda: accepting.acceptor.handshakes == LIMIT)
    greetings = [asyncio.create_task(accepting.greeting()) for _ in range(20)]
    await until(lambda: accepting.acceptor.waiting == 3)
    await accepting.clock.advance(SLOW_HANDSHAKE)
    async with asyncio.timeout(60):
        assert await asyncio.gather(*greetings) == [b"hello"] * 20


@pytest.mark.parametrize("operation", ["stop", "abort"])
async def test_when_it_ends_all_connections_without_a_handshake_are_closed(accepting: Accepting, operation: str) -> None:
    readers = await accepting.connect_silently(LIMIT + 2)
    await until(lambda: accepting.acceptor.waiting == 2)
    if operation == "abort":
        accepting.acceptor.abort()
    else:
        accepting.acceptor.stop()
        await accepting.acceptor.end_handshakes()
    async with asyncio.timeout(60):
        for reader in readers:
            with contextlib.suppress(ConnectionResetError):
                assert await reader.read() == b""
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", accepting.port)


async def test_without_free_files_it_accepts_again_after_a_pause(accepting: Accepting, caplog: pytest.LogCaptureFixture) -> None:
    class Exhausted:
        """A listening socket of a process that has no file left, once."""

        def __init__(self, listening: socket.socket) -> None:
            self._listening, self._failures = listening, [OSError(errno.EMFILE, "Too many open files")]

        def fileno(self) -> int:
            return self._listening.fileno()

        def listen(self, backlog: int) -> None:
            self._listening.listen(backlog)

        def close(self) -> None:
            self._listening.close()

        def accept(self) -> tuple[socket.socket, object]:
            if self._failures:
                raise self._failures.pop()
            return self._listening.accept()

    acceptor = accepting.acceptor
    acceptor._pause()
    acceptor._sockets = [Exhausted(listening) for listening in acceptor._sockets]  # type: ignore[misc]
    acceptor.start()
    greeting = asyncio.create_task(accepting.greeting())
    await until(lambda: acceptor._suspended)
    await accepting.clock.advance(1)
    async with asyncio.timeout(60):
        assert await greeting == b"hello"
    assert "no connection can be accepted for 1 s: [Errno 24] Too many open files" in caplog.text
