"""A minimal HTTP/1.1 client on one socket: sends a request, parses the response's head, streams its body (RFC 9112).

It is not a general library, because importing one costs more than everything else between process start and the first response.
It never guesses: a response with invalid framing is an error, and its connection is not used again.
"""

from __future__ import annotations

import asyncio
import enum
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable

from kubeloop.http1.client_heads import chunk_size, content_length, may_begin_head, parse_head
from kubeloop.http1.errors import ConnectionEnded, PeerSilentError, ProtocolError
from kubeloop.http1.headers import Headers, list_contains
from kubeloop.http1.progress import ANSWERED, SENT, reach
from kubeloop.timing import Clock, SystemClock, Timer

# A watch frame has some kilobytes: with a small buffer the socket would be paused and resumed all the time.
READ_BUFFER = 1 << 20
# The maximum size of one write; the rest of a body waits until the socket accepts it, instead of being copied and encrypted at once.
WRITE_SLICE = 1 << 18
# Limit of everything around one body: interim heads, the head, trailers. Go's client allows 10 MiB, most servers send 1 KiB.
_MAX_HEAD = 1 << 18
_MAX_CHUNK_LINE = 1 << 12


class _State(enum.Enum):
    IDLE = enum.auto()
    HEAD = enum.auto()
    LENGTH = enum.auto()
    CHUNK_LINE = enum.auto()
    CHUNK = enum.auto()
    CHUNK_END = enum.auto()
    TRAILERS = enum.auto()
    UNTIL_CLOSE = enum.auto()


class ClientConnection(asyncio.Protocol):
    """A client's connection. ``exchange`` sends a request and waits for the head; ``chunk`` returns the body in parts, the last one empty.

    Guarantees
        Bytes of a body arrive in order and once, regardless of how the peer or the network splits them. At most about ``READ_BUFFER`` bytes
        are buffered; then the peer has to wait.
        ``reusable`` is True only after a complete response on a connection that both sides keep open, with nothing after the response.

        After an upgrade, ``chunk`` returns all further data of the peer, and ``write`` sends data to it.

    Not guaranteed
        There is no pipelining: only one exchange runs at a time, with one reading and one writing task.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Clock = clock or SystemClock()
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.made_with: ssl.SSLContext | None = None
        self._state = _State.IDLE
        self._left = 0
        self._head_room = 0
        self._rest = b""
        self._parts: deque[bytes] = deque()
        self._buffered = 0
        self._paused = False
        self._write_paused = False
        self._writable: asyncio.Future[None] | None = None
        self._upgrade = False
        self._keep = False
        self._complete = True
        self._method = ""
        self._status = 0
        self._headers = Headers()
        self._head_ready = False
        self._failure: BaseException | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._take: Callable[[bytes], bool] | None = None
        self.patience: float | None = None
        """Maximum seconds without any byte; None: no limit."""
        self._due = 0.0
        self._timer: Timer | None = None
        self._timer_due = 0.0
        self._lost = asyncio.get_running_loop().create_future()

    @property
    def reusable(self) -> bool:
        transport = self.transport
        open_ = transport is not None and not transport.is_closing() and not self._lost.done() and self._failure is None
        return open_ and self._keep and self._complete and transport is not None and not transport.get_write_buffer_size()

    @property
    def complete(self) -> bool:
        """True if the whole body has arrived and was read."""
        return self._complete and not self._parts

    def abort(self) -> None:
        """Close at once, without TLS close_notify."""
        self._keep = False
        if self.transport is not None:
            self.transport.abort()

    async def wait_closed(self) -> None:
        await asyncio.shield(self._lost)

    async def exchange(
        self, method: str, head: bytes, body: bytes | None, *, more: AsyncIterator[bytes] | None = None, upgrade: bool = False
    ) -> tuple[int, Headers]:
        """Send a request and wait for status and headers.

        Args:
            method: The HTTP method.
            head: The encoded head.
            body: The body, or its beginning. None: no body.
            more: The rest of the body, framed as ``head`` declares.
            upgrade: The head requests another protocol, so the peer may respond 101 (RFC 9110, section 7.8).

        Returns:
            Status and headers.

        Raises:
            ConnectionEnded, ProtocolError, OSError: There was no response on this connection.
        """
        if self._failure is not None:
            raise self._failure
        assert self.transport is not None
        self._upgrade = upgrade
        self._state, self._method, self._complete, self._head_ready, self._keep = _State.HEAD, method, False, False, True
        self._head_room = _MAX_HEAD
        if body is None or len(body) <= WRITE_SLICE:
            # One write: head and a small body in one segment.
            self.transport.write(head + body if body else head)
        else:
            await self._write_slowly(head, body)
        if more is not None:
            async for piece in more:
                if self._head_ready:
                    self._keep = False  # as in _write_slowly
                    break
                await self.write(piece)
        reach(SENT)
        while not self._head_ready:
            await self._wait()
        reach(ANSWERED)
        return self._status, self._headers

    async def _write_slowly(self, head: bytes, body: bytes) -> None:
        assert self.transport is not None
        self.transport.write(head)
        view = memoryview(body)
        for at in range(0, len(body), WRITE_SLICE):
            while self._write_paused and not self._head_ready:
                await self._wait()
            if self._head_ready:
                # The final response is there already, most likely a refusal: the rest is not sent, so the connection has to end
                # (RFC 9112, section 9.5).
                self._keep = False
                return
            self.transport.write(view[at : at + WRITE_SLICE])

    async def write(self, data: bytes) -> None:
        """Send data, and return when the peer can accept more.

        Raises:
            ConnectionEnded, ProtocolError, OSError: The connection has ended.
        """
        if self._failure is not None:
            raise self._failure
        assert self.transport is not None
        self.transport.write(data)
        while self._write_paused and self._failure is None:
            self._writable = asyncio.get_running_loop().create_future()
            try:
                await self._writable
            finally:
                self._writable = None

    async def chunk(self) -> bytes:
        """Return the data received since the last call, or wait for data. Return empty bytes at the end of the body.

        Raises:
            ConnectionEnded, ProtocolError, OSError: The body is incomplete and will stay so.
        """
        while not self._parts:
            if self._complete:
                return b""
            await self._wait()
        data = self._parts.popleft() if len(self._parts) == 1 else b"".join(self._parts)
        self._parts.clear()
        self._emptied()
        return data

    def _emptied(self) -> None:
        """Let the peer send more, after the buffered bytes were read."""
        self._buffered = 0
        if self._paused and self.transport is not None:
            self._paused = False
            self.transport.resume_reading()

    async def pass_on(self, take: Callable[[bytes], bool], ready: Callable[[], Awaitable[None]]) -> None:
        """Give the body to ``take`` as it arrives, in the same turn of the event loop, and return at its end.

        Args:
            take: Gets the next bytes, and returns whether it took them. If not, they stay here, and the peer has to wait.
            ready: Returns when ``take`` can take bytes again.

        Raises:
            ConnectionEnded, ProtocolError, OSError: The body is incomplete and will stay so; or what ``ready`` raises.
        """
        while True:
            while self._parts:
                # They stay in the queue until they are taken, so that later bytes do not overtake them.
                data = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._parts = deque((data,))
                if take(data):
                    self._parts.clear()
                    self._emptied()
                else:
                    await ready()
            if self._complete:
                return
            self._take = take
            try:
                await self._wait()
            finally:
                self._take = None

    async def _wait(self) -> None:
        if self._failure is not None:
            raise self._failure
        if self._waiter is not None:
            raise RuntimeError("two tasks read one answer; each byte arrives once, so a single task must read it all")
        self._waiter = asyncio.get_running_loop().create_future()
        if self.patience is not None:
            self._due = self._clock.now() + self.patience
            if self._timer is None or self._timer_due > self._due:
                self._set_timer()
        try:
            await self._waiter
        finally:
            self._waiter = None

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_due = self._due
        self._timer = self._clock.call_later(self._due - self._clock.now(), self._give_up)

    def _give_up(self) -> None:
        """Fail the current wait if it has lasted for ``patience`` seconds, else set the timer again.

        All waits share one timer, because most waits end long before it expires.
        """
        self._timer = None
        if self._waiter is None or self._waiter.done() or self.patience is None:
            return
        if self._clock.now() < self._due:
            self._set_timer()
            return
        what = "no answer" if not self._head_ready else "the answer broke off: nothing more of it came"
        self._waiter.set_exception(PeerSilentError(f"{what} within {self.patience:g} s"))

    def _wake(self) -> None:
        for waiter in (self._waiter, self._writable):
            if waiter is not None and not waiter.done():
                waiter.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def pause_writing(self) -> None:
        self._write_paused = True

    def resume_writing(self) -> None:
        self._write_paused = False
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._failure is None:
            self._failure = exc or ConnectionEnded("connection ended")
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._lost.done():
            self._lost.set_result(None)
        self._wake()

    def eof_received(self) -> bool:
        if self._state is _State.UNTIL_CLOSE and self._said_goodbye():
            self._finish()
        if self._failure is None:
            self._failure = ConnectionEnded("connection ended")
        self._wake()
        return False  # then the transport closes itself

    def _said_goodbye(self) -> bool:
        """Return whether the peer ended the connection properly: without TLS close_notify it may be an attack (RFC 9112, section 9.8)."""
        secured = self.transport.get_extra_info("ssl_object") if self.transport is not None else None
        if secured is None:
            return True
        try:
            return not secured.read(1)  # asyncio itself does not distinguish the two ends
        except ssl.SSLError:
            return False

    def data_received(self, data: bytes) -> None:
        if self._failure is not None:
            return
        if self._state is _State.IDLE:
            # There was no request: the data could be read as the next response.
            self._fail(ProtocolError("data without a request"))
            return
        if self._rest:
            data = self._rest + data
            self._rest = b""
        parts: list[memoryview] = []
        failure: ProtocolError | None = None
        whole = b""
        try:
            self._consume(data, parts)
        except ProtocolError as error:
            failure = error
        # Data before a fault is delivered: the result must not depend on chunk borders.
        if parts:
            whole = data if len(parts[0]) == len(data) else b"".join(parts)
            if self._take is not None and not self._parts and self._take(whole):
                if self.patience is not None:
                    self._due = self._clock.now() + self.patience
                if failure is None and not self._complete:
                    return
                whole = b""
        if whole:
            self._parts.append(whole)
            self._buffered += len(whole)
            if self._buffered > READ_BUFFER and not self._paused and self.transport is not None:
                self._paused = True
                self.transport.pause_reading()
        if failure is not None:
            self._fail(failure)
        self._wake()

    def _fail(self, error: Exception) -> None:
        if self._failure is None:
            self._failure = error
        self.abort()
        self._wake()

    def _finish(self) -> None:
        self._state, self._complete = _State.IDLE, True

    def _consume(self, data: bytes, parts: list[memoryview]) -> None:
        """Parse all available data. An incomplete rest stays in ``_rest``. Parts are views, which are copied once, when they are joined."""
        at, size = 0, len(data)
        view = memoryview(data)
        while at < size:
            state = self._state
            if state is _State.CHUNK or state is _State.LENGTH:
                taken = min(self._left, size - at)
                parts.append(view[at : at + taken])
                at += taken
                self._left -= taken
                if self._left:
                    return
                if state is _State.LENGTH:
                    self._finish()
                else:
                    self._state = _State.CHUNK_END
            elif state is _State.CHUNK_END:
                if size - at < 2:
                    break
                if data[at : at + 2] != b"\r\n":
                    raise ProtocolError("a chunk is longer than it says")
                at += 2
                self._state = _State.CHUNK_LINE
            elif state is _State.CHUNK_LINE:
                # A watch sends each event as a chunk: complete chunks stay in this loop.
                while (end := data.find(b"\r\n", at, at + _MAX_CHUNK_LINE + 2)) >= 0:
                    length = chunk_size(data[at:end])
                    at = end + 2
                    after = at + length
                    if not length or data[after : after + 2] != b"\r\n":
                        self._left = length
                        self._state = _State.CHUNK if length else _State.TRAILERS
                        break
                    parts.append(view[at:after])
                    at = after + 2
                else:
                    if size - at > _MAX_CHUNK_LINE + 1:
                        raise ProtocolError("a chunk's size line does not end")
                    _check_line(data[at:])
                    break
            elif state is _State.TRAILERS:
                end = data.find(b"\r\n", at, at + self._head_room + 2)
                if end < 0:
                    if size - at > self._head_room + 1:
                        raise ProtocolError("the trailers do not end")
                    _check_line(data[at:])
                    break
                # Complete or not, the line must be refused alike, however the data arrives.
                _check_line(data[at:end])
                self._head_room -= end - at
                if end == at:
                    self._finish()
                at = end + 2
            elif state is _State.HEAD:
                end = data.find(b"\r\n\r\n", at, at + self._head_room + 4)
                if end < 0:
                    if size - at > self._head_room + 3:
                        raise ProtocolError("the head does not end")
                    if not may_begin_head(data[at:]):
                        raise ProtocolError("the answer does not begin with an HTTP/1.1 status line")
                    break
                self._head_room -= end - at
                self._read_head(data[at:end])
                at = end + 4
            elif state is _State.UNTIL_CLOSE:
                parts.append(view[at:])
                return
            else:
                raise ProtocolError("data after the end of the answer")
        self._rest = data[at:]

    def _read_head(self, head: bytes) -> None:
        status, minor, headers = parse_head(head)
        if status == 101:
            if not self._upgrade:
                raise ProtocolError("the server changes to another protocol, which the client did not request")
            self._status, self._headers, self._head_ready = status, headers, True
            self._keep, self._state = False, _State.UNTIL_CLOSE
            return
        if status < 200:
            return  # an interim response (RFC 9110, section 15.2): the final one follows
        self._status, self._headers, self._head_ready = status, headers, True
        self._keep = self._keep and minor == 1 and not list_contains(headers.get("Connection", ""), "close")
        coding = headers.get("Transfer-Encoding", "").strip().lower()
        length = headers.get("Content-Length")
        if self._method == "HEAD" or status in (204, 304) or (self._method == "CONNECT" and status < 300):
            self._finish()
        elif coding:
            if coding != "chunked":
                raise ProtocolError("an unknown transfer coding")
            # An additional length may be an attempt at smuggling: the connection ends here (RFC 9112, section 6.3).
            self._keep = self._keep and length is None
            self._state = _State.CHUNK_LINE
        elif length is not None:
            self._left = content_length(length)
            self._state = _State.LENGTH
            if not self._left:
                self._finish()
        else:
            self._keep = False
            self._state = _State.UNTIL_CLOSE


def _check_line(begun: bytes) -> None:
    """Reject a line that ends with half a line break, because the other half would never arrive."""
    if b"\n" in begun:
        raise ProtocolError("a line ends with half a line break")
