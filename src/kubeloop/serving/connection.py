"""A server's connection. Its requests are served one after the other; each is completed before the next is read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kubeloop.http1.buffered_connection import BufferedConnection
from kubeloop.http1.errors import ConnectionEnded
from kubeloop.http1.request_body import RequestBody
from kubeloop.http1.server_heads import LIMIT, TOO_LARGE, RequestHead, RequestRefused, end_of_head, has_body, parse_head, response_head
from kubeloop.serving.answer import Aborted, Answer, Hijack, Reply, SocketTakeover, StreamingResponse
from kubeloop.serving.request import Request


def peer_chain(connection: ssl.SSLObject | None) -> tuple[bytes, ...]:
    """Return the peer's certificate chain in DER, or an empty tuple if the peer sent no certificate.

    Python 3.13 and later provide the whole chain, earlier versions only the peer's own certificate.
    """
    own = connection.getpeercert(binary_form=True) if connection is not None else None
    if own is None:
        return ()
    verified = getattr(connection, "get_verified_chain", None)
    # For a resumed session, Python provides only the certificate itself.
    return (tuple(verified()) if verified is not None else ()) or (own,)


_LOG = logging.getLogger("kubeloop.serving.http1")

#: Idle timeout in seconds of a connection, and timeout of a request head: kube-apiserver's.
_IDLE = 90.0
_HEAD = 32.0
#: Maximum bytes and seconds of an unread body that are discarded so that the connection can be reused, as in net/http.
_UNWANTED = 256 * 1024
_PATIENCE = 5.0
#: Maximum seconds between an error response and the close, in total and without received bytes: bytes that the client still sends would
#: otherwise reset the connection before it has read the response.
_LINGER = 0.5
_QUIET = 0.05

Handler = Callable[[Request], Awaitable[Reply]]
#: Runs the work of a stream or of an upgraded connection until it is complete or the listener closes.
ConnectionOwner = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


class ServerConnection(BufferedConnection):
    """Serves the requests of one connection with ``handler``.

    Guarantees
        If the client disconnects, the handler is cancelled. Ambiguous framing ends the connection, so that no request is misread as two.

    Not guaranteed
        Requests of one connection do not run concurrently: pipelined requests wait, and at most 256 KiB of them are read ahead.
    """

    def __init__(self, handler: Handler, keep: ConnectionOwner, opened: Callable[[ServerConnection], None]) -> None:
        super().__init__()
        self._handler = handler
        self._keep = keep
        self._opened = opened
        self._ending = False
        self._waiting = False
        self._posted = False
        self._peer: tuple[Any, str] = (None, "")
        self._chain: tuple[bytes, ...] = ()
        self._deadline: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = self.extra_info("peername")
        self._peer = (self.extra_info("peercert") or None, address[0] if address else "")
        self._chain = peer_chain(self.extra_info("ssl_object"))
        self.task = asyncio.get_running_loop().create_task(self._run())
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self.task is not None:
            self.task.cancel()

    def finish(self) -> None:
        """End the connection after the current response, or at once if there is none."""
        self._ending = True
        if self._waiting:
            self._close()

    def abort(self) -> None:
        """Close the connection at once."""
        if self.transport is not None:
            self.transport.abort()

    def _close(self) -> None:
        # A TLS transport that is closed twice forgets its protocol: abort() then fails in Python 3.11.2 and does nothing in 3.11.7.
        if self.transport is not None and not self.transport.is_closing():
            self.transport.close()

    async def _run(self) -> None:
        try:
            while not self._ending:
                head = await self._head()
                if head is None or not await self._exchange(head):
                    break
                self._posted = head.method == "POST"
                if self.buffer:
                    await asyncio.sleep(0)  # many requests at once must not keep other connections waiting
        except ConnectionEnded:
            return
        except RequestRefused as refusal:
            _LOG.debug("refused what %s sent: %s", self._peer[1], refusal)
            with contextlib.suppress(ConnectionEnded):
                await self.write(refusal.answer())
                await self._linger()
        except Aborted as fault:
            _LOG.debug("an answer broke off: %s", fault)
            self.abort()
        finally:
            self._close()

    async def _head(self) -> RequestHead | None:
        """Return the head of the next request, or None if none arrives in time.

        Raises:
            RequestRefused: The request is malformed.
            ConnectionEnded: The client disconnected.
        """
        seen = 0
        breaks = 4 if self._posted else 0  # old clients send a superfluous line break after a form (RFC 9112, section 2.2)
        self._waiting = True
        try:
            while True:
                while breaks and self.buffer.startswith((b"\r", b"\n")):
                    self.take(1)
                    breaks -= 1
                if (end := end_of_head(self.buffer, seen)) >= 0:
                    break
                seen = len(self.buffer)
                if seen > LIMIT:
                    raise RequestRefused(TOO_LARGE)
                if self._deadline is None or (seen and self._waiting):
                    self._expect(_HEAD if seen else _IDLE)
                self._waiting = not seen
                breaks = breaks if self._waiting else 0
                if self._timer is None:
                    return None  # it expired when these bytes had just arrived
                await self.more()
        except TimeoutError:
            return None
        finally:
            self._waiting = False
            self._deadline = None
        if end > LIMIT:
            raise RequestRefused(TOO_LARGE)
        return parse_head(self.take(end))

    def _expect(self, seconds: float) -> None:
        """Let ``more`` raise TimeoutError after some seconds, unless the head is complete by then.

        All heads of a connection share one timer, because most arrive long before it expires.
        """
        loop = asyncio.get_running_loop()
        self._deadline = loop.time() + seconds
        if self._timer is None or self._timer.when() > self._deadline:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = loop.call_at(self._deadline, self._expire)

    def _expire(self) -> None:
        self._timer = None
        if self._deadline is None:
            return  # a request is being served: the next wait sets the timer
        loop = asyncio.get_running_loop()
        if self._deadline > loop.time():
            self._timer = loop.call_at(self._deadline, self._expire)
        else:
            self.give_up()

    async def _exchange(self, head: RequestHead) -> bool:
        """Serve one request. Return whether another request may follow."""
        if head.is_asterisk_form:
            await self.write(response_head(head.minor, 200, [("Content-Length", "0")]))
            return head.keep
        if head.has_unknown_expectation:
            await self.write(response_head(head.minor, 417, [("Connection", "close"), ("Content-Length", "0")]))
            return False
        body = RequestBody(self, head.length, invite=head.minor > 0 and head.expects_continue)
        certificate, remote = self._peer
        request = Request(head.method, head.path, head.query, head.headers, body.read, certificate, remote, body.pieces, self._chain)
        try:
            answer = await self._handler(request)
        except ConnectionEnded:
            raise
        except Exception:  # noqa: BLE001 - a defect of the handler: its client gets an answer, the log gets the traceback
            _LOG.exception("%s %s failed", head.method, head.path)
            answer = Answer(500, body=b"500 Internal Server Error", content_type="text/plain; charset=utf-8")
        if isinstance(answer, Hijack | SocketTakeover):
            await self._take_over(head, answer)
            return False
        keep = head.keep and not self._ending and self._may_keep(body)
        if isinstance(answer, StreamingResponse):
            try:
                keep = await self._stream(head, answer, keep=keep)
            finally:
                answer.close()
        else:
            await self._whole(head, answer, keep=keep)
        keep = await self._read_over(body, keep=keep)
        if keep and isinstance(answer, Answer) and answer.hold:
            self._waiting = True
            await asyncio.sleep(answer.hold)
            self._waiting = False
        return keep

    @staticmethod
    def _may_keep(body: RequestBody) -> bool:
        return body.complete or not (body.uninvited or body.malformed or body.left > _UNWANTED)

    async def _whole(self, head: RequestHead, answer: Answer, *, keep: bool) -> None:
        body = answer.body or b""
        fields = [*answer.headers]
        if answer.content_type:
            fields.append(("Content-Type", answer.content_type))
        if has_body(answer.status):
            fields.append(("Content-Length", str(len(body))))
        else:
            body = b""
        start = response_head(head.minor, answer.status, _with_connection(fields, head, keep=keep))
        if body and head.method != "HEAD":
            await self.write(start, body)
        else:
            await self.write(start)

    async def _stream(self, head: RequestHead, frames: StreamingResponse, *, keep: bool) -> bool:
        """Send a streaming response. Return whether the connection can be reused."""
        fields = [*frames.headers]
        if frames.content_type:
            fields.append(("Content-Type", frames.content_type))
        known = any(name.lower() == "content-length" for name, _ in fields)
        chunked = bool(head.minor) and not known
        if chunked:
            fields.append(("Transfer-Encoding", "chunked"))
        keep = keep and (chunked or known)
        start = response_head(head.minor, frames.status, _with_connection(fields, head, keep=keep))
        await self._keep(self._pump(start, frames, chunked=chunked, silent=head.method == "HEAD"))
        if chunked and head.method != "HEAD":
            await self.write(b"0\r\n\r\n")
        return keep

    async def _pump(self, start: bytes, frames: StreamingResponse, *, chunked: bool, silent: bool) -> None:
        source = frames.chunks
        try:
            await self.write(start)
            if silent:
                return
            if frames.push is not None:
                await frames.push(_PushedFrames(self, chunked=chunked))
                return
            async for chunk in source:
                if chunked and chunk:
                    await self.write(b"%x\r\n" % len(chunk), chunk, b"\r\n")
                elif chunk:
                    await self.write(chunk)
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()

    async def _take_over(self, head: RequestHead, answer: Hijack | SocketTakeover) -> None:
        try:
            if isinstance(answer, SocketTakeover):
                from kubeloop.serving.websocket import over_socket

                await over_socket(self, head.headers, answer, self._keep)
            else:
                await self._keep(_serve_hijacked(self, answer))
        finally:
            answer.close()

    async def _read_over(self, body: RequestBody, *, keep: bool) -> bool:
        """Discard the unread rest of a request body; return whether another request may follow."""
        if body.complete:
            return keep
        if keep:
            try:
                async with asyncio.timeout(_PATIENCE):
                    return await body.drain(_UNWANTED)
            except TimeoutError:
                return False
        await self._linger()
        return False

    async def _linger(self) -> None:
        """Discard received bytes for a moment, so that the client can read the response before the connection is closed."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _LINGER
        with contextlib.suppress(TimeoutError, ConnectionEnded):
            while loop.time() < end:
                self.buffer.clear()
                async with asyncio.timeout(_QUIET):
                    await self.more()


def _with_connection(fields: list[tuple[str, str]], head: RequestHead, *, keep: bool) -> list[tuple[str, str]]:
    """Return the response's fields with a Connection field, if its version does not imply it (RFC 9112, section 9.3)."""
    if keep and not head.minor:
        return [*fields, ("Connection", "keep-alive")]
    if not keep and head.minor:
        return [*fields, ("Connection", "close")]
    return fields


#: Bytes that may wait for a client to which frames are pushed; asyncio's limit for TLS is 512 KiB.
_PUSHED = 16 * 1024


class _PushedFrames:
    """A connection as a ``FrameWriter``."""

    def __init__(self, wire: BufferedConnection, *, chunked: bool) -> None:
        self.chunked = chunked
        self.push = wire.try_write
        self.drained = wire.drained
        self._wire = wire
        wire.limit_write_buffer(_PUSHED)

    def encode(self, frame: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(frame), frame) if self.chunked else frame

    async def write(self, encoded: bytes) -> None:
        await self._wire.write(encoded)


#: Maximum bytes of one read after a change of protocol.
_READ_SIZE = 64 * 1024


class _Bytes:
    """An upgraded connection as a ``Duplex``."""

    def __init__(self, wire: BufferedConnection) -> None:
        self._wire = wire

    async def read(self) -> bytes:
        if not self._wire.buffer:
            try:
                await self._wire.more()
            except OSError:
                return b""
        return self._wire.take(_READ_SIZE)

    async def write(self, data: bytes) -> None:
        await self._wire.write(data)


async def _serve_hijacked(wire: BufferedConnection, hijack: Hijack) -> None:
    """Send 101 and let the handler use the connection."""
    head = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in hijack.headers), "", ""]
    with contextlib.suppress(ConnectionError):
        await wire.write("\r\n".join(head).encode("latin-1"))
        await hijack.serve(_Bytes(wire))
