"""The connections behind a transport: opened when needed, kept while idle, TLS renewed with its certificates."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Iterable

from kubeloop.config import Authenticator, ClusterConfig
from kubeloop.meta.errors import ConfigError, TransportError
from kubeloop.timing import Clock
from kubeloop.transport.dial import Dialer
from kubeloop.transport.failure import TRANSPORT_FAULTS, failure_of
from kubeloop.transport.headers import Headers
from kubeloop.transport.http1 import Wire

_logger = logging.getLogger("kubeloop.transport")

# kube-apiserver closes what is idle for 90 s (IdleTimeout); being first avoids requests that meet a closing connection.
IDLE_TIMEOUT = 60.0
# client-go re-reads certificate files as often (transport/cert_rotation.go).
CERTIFICATE_PERIOD = 300.0


class Answer:
    """The head of an answer whose body is still to be read. ``close`` must be called; at the body's end that keeps the connection."""

    def __init__(self, pool: Connections, wire: Wire, status: int, headers: Headers, request: str) -> None:
        self._pool = pool
        self._wire: Wire | None = wire
        self._request = request
        self.status = status
        self.headers = headers

    async def read(self) -> bytes:
        """The whole body, decompressed.

        Raises:
            TransportError: it broke off, or is compressed in a way that was not asked for.
        """
        parts: list[bytes] = []
        while part := await self.chunk():
            parts.append(part)
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        coding = self.headers.get("Content-Encoding", "identity").lower()
        if coding == "identity" or not body:
            return body
        return self._pool.unpack(body, coding, self._request)

    async def chunk(self) -> bytes:
        """What has come since the last call, or the next piece; empty at the end."""
        if self._wire is None:
            return b""
        try:
            return await self._wire.chunk()
        except TRANSPORT_FAULTS as error:
            raise failure_of(error, self._pool.config, self._request) from error

    def close(self) -> None:
        """Give the connection back, or end it if the body was not read to its end: whoever leaves a watch wants its socket back now."""
        wire, self._wire = self._wire, None
        if wire is not None:
            self._pool.give_back(wire)


class Connections:
    """All connections of one transport; each carries one request at a time. For one event loop."""

    def __init__(self, config: ClusterConfig, authenticator: Authenticator, clock: Clock, user_agent: str) -> None:
        self.config = config
        self._authenticator = authenticator
        self._clock = clock
        self._user_agent = user_agent
        self._dialer = Dialer(config.server, config.proxy_url, config.tls_server_name)
        self._all: set[Wire] = set()
        self._idle: list[Wire] = []
        self._tls: ssl.SSLContext | None = None
        self._certificate: tuple[bytes, bytes] | None = None
        self._files: tuple[bytes, ...] = ()
        self._checked = clock.now()
        self._closed = False

    async def send(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None, request: str) -> Answer:
        """Send and give the answer when its head is there. ``request`` says in words what is asked.

        Raises:
            TransportError: no answer.
            ValueError: a header or the target holds a line break.
        """
        head = self._head(method, target, headers, body)
        wire: Wire | None = None
        try:
            tls = await self._tls_context() if self.config.secure else None
            wire = self._take_idle() or await self._connect(tls)
            status, received = await wire.exchange(method, head, body)
        except TRANSPORT_FAULTS as error:
            self._drop(wire)
            raise failure_of(error, self.config, request) from error
        except BaseException:
            # A cancelled request must not leave its answer to the next one.
            self._drop(wire)
            raise
        return Answer(self, wire, status, received, request)

    def give_back(self, wire: Wire) -> None:
        if wire.reusable and wire.complete and not self._closed:
            wire.idle_since = self._clock.now()
            self._idle.append(wire)
        else:
            self._drop(wire)

    def unpack(self, body: bytes, coding: str, request: str) -> bytes:
        """A body in the one coding that is asked for."""
        import gzip
        import zlib

        try:
            if coding == "gzip":
                return gzip.decompress(body)
            fault = f"it is coded as {coding}, which was not asked for"
        except (OSError, EOFError, zlib.error) as error:
            fault = str(error)
        raise TransportError(f"{self.config.server}: the answer cannot be unpacked: {fault} ({request})")

    async def close(self) -> None:
        """Close all connections, used or idle. Returns when they are closed."""
        self._closed = True
        wires = list(self._all)
        for wire in wires:
            self._drop(wire)
        await asyncio.gather(*(wire.wait_closed() for wire in wires))

    def _head(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None) -> bytes:
        lines = [
            f"{method} {self._dialer.target_prefix}{target} HTTP/1.1",
            f"Host: {self._dialer.authority}",
            f"User-Agent: {self._user_agent}",
        ]
        lines += [f"{name}: {value}" for name, value in headers]
        lines += [f"{name}: {value}" for name, value in self._dialer.proxy_headers.items()]
        if body is not None or method in ("POST", "PUT", "PATCH"):
            lines.append(f"Content-Length: {len(body or b'')}")
        text = "\r\n".join([*lines, "", ""])
        if text.count("\n") != len(lines) + 1 or text.count("\r") != len(lines) + 1 or target.strip() != target or " " in target:
            raise ValueError(f"a header or the path of a request holds a line break or blank ({method} {target!r})")
        return text.encode("utf-8")

    async def _connect(self, tls: ssl.SSLContext | None) -> Wire:
        wire = await self._dialer.connect(tls)
        if self._closed:
            wire.abort()
            raise TransportError(f"{self.config.server}: the transport was closed meanwhile")
        self._all.add(wire)
        return wire

    def _take_idle(self) -> Wire | None:
        # The youngest first: what is too many then grows old and is closed.
        old = self._clock.now() - IDLE_TIMEOUT
        while self._idle and (self._idle[0].idle_since < old or not self._idle[0].reusable):
            self._drop(self._idle.pop(0))
        while self._idle:
            wire = self._idle.pop()
            if wire.reusable:
                return wire
            self._drop(wire)
        return None

    def _drop(self, wire: Wire | None) -> None:
        if wire is not None:
            wire.abort()
            self._all.discard(wire)

    async def _tls_context(self) -> ssl.SSLContext:
        certificate = await self._authenticator.client_certificate()
        now = self._clock.now()
        if self._tls is None:
            self._files = self._read_files()
            self._checked = now
        elif certificate != self._certificate:
            self._use(None)
        elif now - self._checked >= CERTIFICATE_PERIOD:
            self._checked = now
            self._renew()
        if self._tls is None:
            self._certificate = certificate
            self._tls = self.config.ssl_context(certificate)
        return self._tls

    def _renew(self) -> None:
        """Use changed certificate files for new connections; a broken file leaves the old ones in use."""
        try:
            files = self._read_files()
            if files != self._files:
                self._use(self.config.ssl_context(self._certificate))
                self._files = files
        except ConfigError as error:
            _logger.warning("certificates stay as they were: %s", error)

    def _use(self, tls: ssl.SSLContext | None) -> None:
        """Idle connections were made with what is not to be used any longer."""
        self._tls = tls
        while self._idle:
            self._drop(self._idle.pop())

    def _read_files(self) -> tuple[bytes, ...]:
        user = self.config.credentials
        return tuple(pem.read() for pem in (self.config.ca, user.client_certificate, user.client_key) if pem is not None and not pem.data)
