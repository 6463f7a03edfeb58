"""Relays requests to the upstream server and reports each step. Bodies pass unchanged and unbuffered, with back-pressure.

Source: RFC 9110 section 7.6 (message forwarding). Each connection of a client has an upstream connection, which is reused likewise.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from functools import partial
from urllib.parse import quote

from kubeloop.endpoints.responses import finish, status_answer
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.client_heads import chunked_body
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import ApiError
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, PATH_SAFE, error_text, request_head
from kubeloop.reverseproxy.http import HOP_BY_HOP
from kubeloop.reverseproxy.upgrade import BackendUnreachable, forwarded_headers, header_lines, is_upgrade, relay, request_upgrade
from kubeloop.serving.answer import Aborted, Answer, Duplex, Hijack, Reply, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.tap.traffic import (
    ConnectionClosed,
    Observe,
    RequestData,
    RequestEnded,
    RequestStarted,
    ResponseData,
    ResponseStarted,
    StillWaiting,
)
from kubeloop.tap.upstream import UPSTREAM_ERRORS, DialedBackend, UpstreamServer, unreachable
from kubeloop.timing import Clock, Timer

#: Seconds without a response after which the observer gets a note.
NOTES_AFTER = (5.0, 10.0, 30.0)
#: Seconds for which an idle upstream connection is reused: less than the 90 s after which servers close it.
_REUSED_FOR = 30.0

_LEFT = "the client closed the connection"


class RelayClock:
    """The time since the start of a tap, and the numbers of its connections and requests."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.started = clock.wall()
        self._start = clock.now()
        self.connections: Iterator[int] = itertools.count(1)
        self.requests: Iterator[int] = itertools.count(1)

    def now(self) -> float:
        """Return the seconds since the start."""
        return self.clock.now() - self._start


class ClientSession:
    """One connection of a client, and its upstream connection. ``handle`` relays its requests, one after the other.

    Guarantees:
        A response reaches the client as it arrives, and no faster than the client reads.
        If either side breaks, the other one's connection is cut too, so that a part of a response is not mistaken for the whole.
    """

    def __init__(self, number: int, upstream: UpstreamServer, observe: Observe, time: RelayClock) -> None:
        """Create the session of a client.

        Args:
            number: The number of the connection.
            upstream: The destination.
            observe: Gets the facts.
            time: The time and the numbers of requests.
        """
        self.number = number
        self._upstream = upstream
        self._observe = observe
        self._time = time
        self._idle: ClientConnection | None = None

    def close(self) -> None:
        """Close the upstream connection."""
        if self._idle is not None:
            self._idle.abort()
            self._idle = None
        self._observe(ConnectionClosed(self._time.now(), self.number))

    async def handle(self, request: Request) -> Reply:
        """Relay a request and return the response."""
        observed = _RequestObserver(next(self._time.requests), self._observe, self._time)
        path = quote(request.path, safe=PATH_SAFE, errors="surrogateescape")
        url = f"{self._upstream.url}{self._upstream.base}{path}"
        observed.started(self.number, request, url)
        try:
            if is_upgrade(request):
                return await self._upgrade(request, path, observed)
            return await self._relay(request, path, observed)
        except ApiError as error:
            answer = status_answer(error.status)
            finish(request, answer)
            observed.answered(answer.status, [("Content-Type", answer.content_type), *answer.headers])
            observed.received(answer.body or b"")
            observed.ended(error.status.message)
            return answer
        except BaseException:
            observed.ended(_LEFT)
            raise

    async def _relay(self, request: Request, path: str, observed: _RequestObserver) -> Reply:
        backend = wire = None
        try:
            backend = await self._backend(request, path)
            while True:
                wire, reused = await self._connection(backend, observed)
                try:
                    head = request_head(request.method, backend.target, self._request_headers(request))
                    status, headers = await wire.exchange(request.method, head, None, more=_body(request, observed))
                    break
                except BACKEND_ERRORS:
                    wire.abort()
                    # The server may close an idle connection at any time (RFC 9112, section 9.3.1).
                    if not reused or _has_body(request):
                        raise
        except UPSTREAM_ERRORS as error:
            if wire is not None:
                wire.abort()
            raise unreachable(error, backend) from None
        except BaseException:
            if wire is not None:
                wire.abort()
            raise
        lines = header_lines(headers)
        observed.answered(status, lines)
        return self._response(status, lines, wire, backend, observed)

    async def _backend(self, request: Request, path: str) -> DialedBackend:
        has_credentials = bool(request.header("Authorization"))
        return await self._upstream.backend(path, request.query_string, has_credentials=has_credentials)

    async def _connection(self, backend: DialedBackend, observed: _RequestObserver) -> tuple[ClientConnection, bool]:
        """Return a connection, and whether it was used before."""
        wire, self._idle = self._idle, None
        if wire is not None:
            if wire.reusable and self._time.now() - wire.idle_since < _REUSED_FOR and wire.made_with is backend.tls:
                return wire, True
            wire.abort()
        wire = await backend.connect()
        wire.made_with = backend.tls
        observed.connected()
        return wire, False

    def _request_headers(self, request: Request) -> list[tuple[str, str]]:
        named = {one.strip().lower() for one in request.header("Connection").split(",") if one.strip()}
        chunked = _is_chunked(request)
        without = HOP_BY_HOP | named | ({"content-length"} if chunked else set())
        headers = self._addressed(forwarded_headers(request, without=without, credentials=True), request)
        return [*headers, ("Transfer-Encoding", "chunked")] if chunked else headers

    def _addressed(self, headers: list[tuple[str, str]], request: Request) -> list[tuple[str, str]]:
        """Return the headers for the upstream server. It must not notice the tap: X-Forwarded-For stays as the client sent it."""
        passed = [(name, value) for name, value in headers if name not in ("Host", "X-Forwarded-For")]
        before = [(name, value) for name, value in request.headers.items() if name.lower() == "x-forwarded-for"]
        return [("Host", self._upstream.authority), *passed, *before]

    def _response(
        self,
        status: int,
        lines: list[tuple[str, str]],
        wire: ClientConnection,
        backend: DialedBackend,
        observed: _RequestObserver,
    ) -> Reply:
        # The server of this side adds a Date.
        passed = [(name, value) for name, value in lines if name.lower() not in HOP_BY_HOP and name != "Date"]
        content_type = next((value for name, value in passed if name == "Content-Type"), "")
        rest = [(name, value) for name, value in passed if name != "Content-Type"]

        def close() -> None:
            if wire.complete and wire.reusable and self._idle is None:
                wire.idle_since = self._time.now()
                self._idle = wire
            else:
                wire.abort()
            observed.ended(_LEFT if not wire.complete else "")

        if status in (204, 304):
            close()
            return Answer(status, body=b"", content_type=content_type, headers=rest, verbatim=True)
        return StreamingResponse(_chunks(wire, backend, observed), content_type, rest, status, close)

    async def _upgrade(self, request: Request, path: str, observed: _RequestObserver) -> Reply:
        # The forwarded request has no body, as in reverseproxy.upgrade.
        try:
            backend = await self._backend(request, path)
        except UPSTREAM_ERRORS as error:
            raise unreachable(error, None) from None
        headers = self._addressed(forwarded_headers(request, without=("content-length", "transfer-encoding"), credentials=True), request)
        if request.method in ("POST", "PUT", "PATCH"):
            headers.append(("Content-Length", "0"))
        try:
            response = await request_upgrade(backend, request.method, headers)
        except BackendUnreachable as error:
            raise unreachable(ConnectionError(error.why), None) from None
        if isinstance(response, StreamingResponse):
            observed.answered(response.status, [("Content-Type", response.content_type), *response.headers])
            response.chunks = _copied(response.chunks, observed)
            response.close = observed.ended
            return response
        wire, received = response
        return self._tunnel(wire, received, observed)

    def _tunnel(self, wire: ClientConnection, received: Headers, observed: _RequestObserver) -> Reply:
        lines = header_lines(received)
        observed.answered(101, lines)

        def close() -> None:
            wire.abort()
            observed.ended()

        return Hijack(lambda duplex: relay(_ObservedDuplex(duplex, observed), wire), lines, close)


class _RequestObserver:
    """Reports the steps of one request."""

    def __init__(self, number: int, observe: Observe, time: RelayClock) -> None:
        self._number = number
        self._observe = observe
        self._time = time
        self._timers: list[Timer] = []
        self._connected: float | None = None
        self._ended = False
        self._failure = ""

    def started(self, connection: int, request: Request, url: str) -> None:
        lines = tuple((str(name), value) for name, value in request.headers.items())
        query = request.query_string
        self._observe(RequestStarted(self._time.now(), self._number, connection, request.method, url, request.path, query, lines))
        self._timers = [self._time.clock.call_later(seconds, partial(self._waiting, seconds)) for seconds in NOTES_AFTER]

    def connected(self) -> None:
        self._connected = self._time.now()

    def sent(self, data: bytes) -> None:
        self._observe(RequestData(self._time.now(), self._number, data))

    def answered(self, status: int, headers: list[tuple[str, str]]) -> None:
        self._stop_timers()
        self._observe(ResponseStarted(self._time.now(), self._number, status, tuple(headers), self._connected))

    def received(self, data: bytes) -> None:
        if data:
            self._observe(ResponseData(self._time.now(), self._number, data))

    def failed(self, outcome: str) -> None:
        """Record why the response stays incomplete."""
        self._failure = outcome

    def ended(self, outcome: str = "") -> None:
        self._stop_timers()
        if not self._ended:
            self._ended = True
            self._observe(RequestEnded(self._time.now(), self._number, self._failure or outcome))

    def _waiting(self, seconds: float) -> None:
        self._observe(StillWaiting(self._time.now(), self._number, seconds))

    def _stop_timers(self) -> None:
        for timer in self._timers:
            timer.cancel()
        self._timers.clear()


class _ObservedDuplex:
    """The client's side of an upgraded connection, observed in both directions."""

    def __init__(self, duplex: Duplex, observed: _RequestObserver) -> None:
        self._duplex = duplex
        self._observed = observed

    async def read(self) -> bytes:
        data = await self._duplex.read()
        if data:
            self._observed.sent(data)
        return data

    async def write(self, data: bytes) -> None:
        self._observed.received(data)
        await self._duplex.write(data)


def _is_chunked(request: Request) -> bool:
    return bool(request.header("Transfer-Encoding").strip())


def _has_body(request: Request) -> bool:
    return request.body is not None and (_is_chunked(request) or request.header("Content-Length") not in ("", "0"))


def _body(request: Request, observed: _RequestObserver) -> AsyncIterator[bytes] | None:
    if request.body is None or not _has_body(request):
        return None
    body = _observed_body(request.body(), observed)
    return chunked_body(body) if _is_chunked(request) else body


async def _observed_body(parts: AsyncIterator[bytes], observed: _RequestObserver) -> AsyncIterator[bytes]:
    async for part in parts:
        observed.sent(part)
        yield part


async def _chunks(wire: ClientConnection, backend: DialedBackend, observed: _RequestObserver) -> AsyncIterator[bytes]:
    """Yield the body of a response.

    Raises:
        Aborted: The upstream connection broke: the client's connection must be cut likewise.
    """
    while True:
        try:
            part = await wire.chunk()
        except BACKEND_ERRORS as error:
            observed.failed(f"the server's connection broke: {error_text(error, backend)}")
            raise Aborted(str(error)) from None
        if not part:
            return
        observed.received(part)
        yield part


async def _copied(chunks: AsyncIterator[bytes], observed: _RequestObserver) -> AsyncIterator[bytes]:
    async for chunk in chunks:
        observed.received(chunk)
        yield chunk
