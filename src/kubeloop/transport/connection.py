"""The connection pool of a transport: connections are opened on demand, reused, and replaced when TLS certificates change."""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable

from kubeloop.config import ClusterConfig, RequestAuthenticator
from kubeloop.config.tls import TlsSource
from kubeloop.http1.client_connection import READ_BUFFER, ClientConnection
from kubeloop.http1.client_heads import chunked_body, request_head
from kubeloop.http1.dial import Dialer
from kubeloop.http1.errors import CONNECTION_FAULTS
from kubeloop.http1.headers import Headers
from kubeloop.http1.progress import PROGRESS
from kubeloop.meta.errors import TransportError
from kubeloop.timing import Clock
from kubeloop.transport.errors import failure_of
from kubeloop.transport.instrumentation.counters import RequestCounters
from kubeloop.transport.round_tripper import OutgoingRequest

_GZIP = zlib.MAX_WBITS | 16


class UnpackError(Exception):
    """The response cannot be decompressed. The message gives the reason."""


class TooLargeError(UnpackError):
    def __init__(self, limit: int) -> None:
        super().__init__(
            f"the answer is larger than {limit / (1 << 20):.0f} MiB; ask for less (limit=, a selector, stream()), "
            "or raise the transport's limit (max_answer=)"
        )


class BodyDecompressor:
    """Decompresses the body of one response. It holds at most ``limit`` bytes plus the last chunk.

    Raises:
        UnpackError: The encoding is not gzip, which is the only encoding that requests accept.
    """

    def __init__(self, coding: str, limit: int) -> None:
        if coding not in ("gzip", "x-gzip"):
            raise UnpackError(f"the answer cannot be unpacked: it is coded as {coding}, which the client did not request")
        self._limit = limit
        self._left = limit
        self._parts: list[bytes] = []
        self._unpack = zlib.decompressobj(_GZIP)
        self._began = False

    def feed(self, data: bytes) -> None:
        """Decompress the next chunk.

        Raises:
            UnpackError: The data is not gzip.
            TooLargeError: The body exceeds the limit.
        """
        self._began = self._began or bool(data)
        while data:
            if self._unpack.eof:  # several members form one body (RFC 1952, section 2.2)
                self._unpack = zlib.decompressobj(_GZIP)
            try:
                part = self._unpack.decompress(data, self._left + 1)
            except zlib.error as error:
                raise UnpackError(f"the answer cannot be unpacked: {error}") from error
            if len(part) > self._left:
                raise TooLargeError(self._limit)
            self._left -= len(part)
            self._parts.append(part)
            data = self._unpack.unused_data if self._unpack.eof else self._unpack.unconsumed_tail

    def finish(self) -> bytes:
        """Return the whole decompressed body, or empty bytes if there was no data.

        Raises:
            UnpackError: The data is incomplete.
        """
        if self._began and not self._unpack.eof:
            raise UnpackError("the answer cannot be unpacked: it ends in the middle of its gzip stream")
        return self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)


# kube-apiserver closes connections that are idle for 90 s (IdleTimeout); a shorter time avoids requests on a closing connection.
IDLE_TIMEOUT = 60.0
# Methods that are repeated if an idle connection turns out to be closed.
_REPEATABLE = ("GET", "HEAD")
# Iterations of the event loop until the end of a socket's data is read and reported: select, TLS, protocol.
_TURNS = 3


class PooledAnswer:
    """The head of a response with an unread body.

    The caller must call ``close``. If the whole body was read, ``close`` returns the connection to the pool.
    """

    def __init__(self, pool: Connections, wire: ClientConnection, status: int, headers: Headers, request: OutgoingRequest) -> None:
        """Create the response.

        Args:
            pool: Gets the connection back after the whole body was read.
            wire: The connection, with the body unread.
            status: HTTP status code.
            headers: Headers of the response.
            request: The request, for its timeouts.
        """
        self._pool = pool
        self._wire: ClientConnection | None = wire
        self._complete = False
        self._request = request
        self.status = status
        self.headers = headers

    async def read(self, limit: int) -> bytes:
        """Return the whole body, decompressed.

        Raises:
            TransportError: The connection broke, the body is larger than ``limit`` bytes, or its compression was not requested.
        """
        coding = self.headers.get("Content-Encoding", "").strip().lower() or "identity"
        patience = self._request.patience
        try:
            if coding == "identity":
                parts: list[bytes] = []
                size = 0
                while part := await self.chunk(patience):
                    size += len(part)
                    if size > limit:
                        raise TooLargeError(limit)
                    parts.append(part)
                return parts[0] if len(parts) == 1 else b"".join(parts)
            unpacking = BodyDecompressor(coding, limit)
            while part := await self.chunk(patience):
                unpacking.feed(part)
            return unpacking.finish()
        except UnpackError as error:
            raise TransportError(f"{self._pool.config.server}: {error} ({self._request.description})") from error

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        """Return the data received since the last call, or wait for data. Return empty bytes at the end of the body."""
        if self._wire is None:
            if self._complete:
                return b""
            raise self._left()
        self._wire.patience = read_timeout
        try:
            data = await self._wire.chunk()
        except CONNECTION_FAULTS as error:
            raise self._pool.failure(error, self._request.description) from error
        progress = PROGRESS.get()
        if progress is not None:
            progress.receive(len(data))
        return data

    async def pass_on(self, take: Callable[[bytes], bool], ready: Callable[[], Awaitable[None]]) -> None:
        """Give the rest of the body to ``take`` as it arrives, and return at its end.

        Args:
            take: Gets the next bytes, and returns whether it took them. If not, they are kept, and the server has to wait.
            ready: Returns when ``take`` can take bytes again. It may raise if that will never be.

        Raises:
            TransportError: The body broke off.
        """
        wire = self._wire
        if wire is None:
            if self._complete:
                return
            raise self._left()
        wire.patience = None
        gone: list[BaseException] = []

        async def until_ready() -> None:
            try:
                await ready()
            except CONNECTION_FAULTS as error:
                gone.append(error)  # the reader's fault, not that of this connection
                raise

        try:
            await wire.pass_on(take, until_ready)
        except CONNECTION_FAULTS as error:
            if gone:
                raise
            raise self._pool.failure(error, self._request.description) from error

    def _left(self) -> TransportError:
        return TransportError(
            f"{self._pool.config.server}: this answer was left before its end and cannot be read on ({self._request.description})"
        )

    async def write(self, data: bytes) -> None:
        """Send data over the upgraded connection."""
        if self._wire is None:
            raise TransportError(f"{self._pool.config.server}: this connection was left and is closed ({self._request.description})")
        try:
            await self._wire.write(data)
        except CONNECTION_FAULTS as error:
            raise self._pool.failure(error, self._request.description) from error

    def close(self) -> None:
        """Return the connection to the pool, or close it if the body was not read completely, so that leaving a watch frees its socket."""
        wire, self._wire = self._wire, None
        if wire is not None:
            self._complete = wire.complete
            self._pool.give_back(wire)


class Connections:
    """The connection pool of one transport. For one event loop.

    Each connection serves one request or stream at a time, and ``Transport`` limits the number of concurrent requests. A connection that
    was idle for ``IDLE_TIMEOUT`` is closed at the next request, or when the server closes it.
    """

    def __init__(self, config: ClusterConfig, authenticator: RequestAuthenticator, clock: Clock, figures: RequestCounters) -> None:
        """Create an empty pool. ``send`` opens connections on demand.

        Args:
            config: Address, TLS and credentials of the server.
            authenticator: Adds credentials to requests.
            clock: Measures idle times and limits.
            figures: Counts requests, DNS lookups and reloads of certificates.
        """
        self.config = config
        self._authenticator = authenticator
        self._clock = clock
        self._figures = figures
        self._dialer = Dialer(
            config.server,
            config.proxy_url,
            config.tls_server_name,
            config.source,
            authorities=config.ca.read if config.ca is not None else None,
            resolved=figures.resolver.observe,
            clock=clock,
        )
        self._all: set[ClientConnection] = set()
        self._idle: list[ClientConnection] = []
        self._tls: ssl.SSLContext | None = None
        self._source = TlsSource(config, clock)
        figures.ca_reloads = self._source.reloads
        self._closed = False
        # asyncio reads into 256 KiB at a time and frees most of them. glibc maps and unmaps pages for each such read (12 us
        # instead of 1) until it has seen a block as large being freed: mallopt(3), dynamic M_MMAP_THRESHOLD.
        bytes(READ_BUFFER)

    async def send(self, request: OutgoingRequest) -> PooledAnswer:
        """Send a request and return its response as soon as the head has arrived.

        Raises:
            TransportError: There was no response.
            ValueError: A header or the target is malformed (``request_head``).
        """
        method, body, upgrade = request.method, request.body, request.upgrade
        length = len(body or b"") if body is not None or method in ("POST", "PUT", "PATCH") else None
        sent = [("Host", self._dialer.authority), *request.headers, *self._dialer.proxy_headers.items()]
        chunked = request.more is not None
        head = request_head(method, self._dialer.target_prefix, request.target, sent, length, upgrade, chunked=chunked)
        progress = PROGRESS.get()
        if progress is not None:
            progress.begin(request.description)
        wire: ClientConnection | None = None
        try:
            tls = await self._tls_context() if self.config.secure else None
            wire = self._take_idle() if not upgrade else None
            if wire is not None and method not in _REPEATABLE and _has_news(wire):
                wire = await self._still_open(wire)
            if wire is None:
                wire = await self._connect(tls)
            wire.patience = request.patience
            more = chunked_body(request.more) if request.more is not None else None
            status, received = await wire.exchange(method, head, body, more=more, upgrade=bool(upgrade))
        except CONNECTION_FAULTS as error:
            self._drop(wire)
            # The event loop's frames would not help a reader of the traceback.
            raise self.failure(error, request.description) from error.with_traceback(None)
        except BaseException:
            # The response to a cancelled request must not be read as that of the next one.
            self._drop(wire)
            raise
        return PooledAnswer(self, wire, status, received, request)

    def failure(self, error: BaseException, request: str) -> TransportError:
        """Return the error to raise for an exception of a connection."""
        if self._closed:
            return TransportError(
                f'{self.config.server} (cluster "{self.config.name}"): this transport was closed during the request ({request})'
            )
        return failure_of(error, self.config, request)

    def give_back(self, wire: ClientConnection) -> None:
        # A connection with a certificate that was renewed or refused since must not serve another request.
        if wire.reusable and wire.complete and not self._closed and wire.made_with is self._tls:
            wire.idle_since = self._clock.now()
            self._idle.append(wire)
        else:
            self._drop(wire)

    async def close(self) -> None:
        """Close all connections, including those in use, and wait until they are closed."""
        self._closed = True
        wires = list(self._all)
        for wire in wires:
            self._drop(wire)
        await asyncio.gather(*(wire.wait_closed() for wire in wires))

    async def _connect(self, tls: ssl.SSLContext | None) -> ClientConnection:
        wire = await self._dialer.connect(tls)
        if self._closed:
            wire.abort()
            raise ConnectionAbortedError("closed meanwhile")
        wire.made_with = tls
        self._figures.connections += 1
        self._all.add(wire)
        return wire

    def _take_idle(self) -> ClientConnection | None:
        # The youngest first: surplus connections then stay idle and are closed.
        old = self._clock.now() - IDLE_TIMEOUT
        while self._idle and (self._idle[0].idle_since < old or not self._idle[0].reusable):
            self._drop(self._idle.pop(0))
        while self._idle:
            wire = self._idle.pop()
            if wire.reusable:
                return wire
            self._drop(wire)
        return None

    async def _still_open(self, wire: ClientConnection) -> ClientConnection | None:
        """Return the connection if it is still usable, or else another idle connection, or None if there is none."""
        candidate: ClientConnection | None = wire
        try:
            while candidate is not None and _has_news(candidate):
                for _ in range(_TURNS):
                    await asyncio.sleep(0)
                if candidate.reusable:
                    break  # a TLS message, such as a session ticket
                self._drop(candidate)
                candidate = self._take_idle()
        except BaseException:
            self._drop(candidate)
            raise
        return candidate

    def _drop(self, wire: ClientConnection | None) -> None:
        if wire is not None:
            wire.abort()
            self._all.discard(wire)

    async def _tls_context(self) -> ssl.SSLContext:
        tls = self._source.current(await self._authenticator.client_certificate())
        if tls is not self._tls:
            self._use(tls)
        return tls

    def _use(self, tls: ssl.SSLContext) -> None:
        """Use new TLS settings. Idle connections with the old settings are closed now, connections in use after their request."""
        self._tls = tls
        while self._idle:
            self._drop(self._idle.pop())


def _has_news(wire: ClientConnection) -> bool:
    """Return whether the kernel has data of an idle connection that the event loop has not read: most likely the end of the connection.

    After a long computation the event loop may not have noticed that the server closed a connection. If a write request failed on such a
    connection, it would be unknown whether the server executed it.
    """
    made: socket.socket | None = wire.transport.get_extra_info("socket") if wire.transport is not None else None
    if made is None or made.fileno() < 0 or not hasattr(select, "poll"):
        return False
    poll = select.poll()
    poll.register(made.fileno(), select.POLLIN)
    return bool(poll.poll(0))
