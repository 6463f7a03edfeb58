"""One connection: its requests one after the other, each answered before the next is read."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from kubeloop.http1 import response_writer
from kubeloop.http1.buffered_connection import BufferedConnection
from kubeloop.http1.errors import ConnectionEnded
from kubeloop.http1.request_body import RequestBody
from kubeloop.http1.request_parser import LIMIT, TOO_LARGE, RequestHead, RequestRefused, end_of_head, parse_head
from kubeloop.serving.answer import Aborted, Answer, Hijack, Reply, SocketTakeover, StreamingResponse
from kubeloop.serving.request import Request


def peer_chain(connection: ssl.SSLObject | None) -> tuple[bytes, ...]:
    """Its own, DER, and behind it those by which TLS came to trust it, where Python tells them (3.13). Empty: it showed none."""
    own = connection.getpeercert(binary_form=True) if connection is not None else None
    if own is None:
        return ()
    verified = getattr(connection, "get_verified_chain", None)
    # Of a session that was resumed, nothing is told but the certificate itself.
    return (tuple(verified()) if verified is not None else ()) or (own,)


_LOG = logging.getLogger(__name__)

#: Seconds without a request after which a connection ends, and in which a head must have come: kube-apiserver's.
_IDLE = 90.0
_HEAD = 32.0
#: Bytes of a body that nobody wanted to read, read over so that the connection can be kept; and seconds for that. As net/http.
_UNWANTED = 256 * 1024
_PATIENCE = 5.0
#: Seconds at most between a refusal and the end, and without anything that came: what the client still sends would otherwise reset the
#: connection before it has read.
_LINGER = 0.5
_QUIET = 0.05

Handler = Callable[[Request], Awaitable[Reply]]
#: Does the work of a stream or of a changed protocol, until its own end or the listener's.
Keeper = Callable[[Coroutine[Any, Any, None]], Awaitable[None]]


class ServerConnection(BufferedConnection):
    """Answers requests by ``handler``.

    Guarantees
        A client that goes cancels the handler. Nothing of one request is taken for another: what is not framed clearly ends the connection.

    Not guaranteed
        Requests at the same time: those that come early wait, unread once 256 KiB of them have come.
    """

    def __init__(self, handler: Handler, keep: Keeper, opened: Callable[[ServerConnection], None]) -> None:
        super().__init__()
        self._handler = handler
        self._keep = keep
        self._opened = opened
        self._ending = False
        self._waiting = False
        self._posted = False
        self._peer: tuple[Any, str] = (None, "")
        self._chain: tuple[bytes, ...] = ()
        self.task: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        address = self.told("peername")
        self._peer = (self.told("peercert") or None, address[0] if address else "")
        self._chain = peer_chain(self.told("ssl_object"))
        self.task = asyncio.get_running_loop().create_task(self._run())
        self._opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self.task is not None:
            self.task.cancel()

    def finish(self) -> None:
        """End when the answer under way has gone out; at once when there is none."""
        self._ending = True
        if self._waiting and self.transport is not None:
            self.transport.close()

    def abort(self) -> None:
        """End at once."""
        if self.transport is not None:
            self.transport.abort()

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
            if self.transport is not None:
                self.transport.close()

    async def _head(self) -> RequestHead | None:
        """The next request's; None when none comes in time.

        Raises:
            RequestRefused, ConnectionEnded
        """
        seen = 0
        breaks = 4 if self._posted else 0  # clients of old send a line break too many after a form (RFC 9112, section 2.2)
        loop = asyncio.get_running_loop()
        deadline = 0.0
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
                if not deadline or (seen and self._waiting):
                    deadline = loop.time() + (_HEAD if seen else _IDLE)
                self._waiting = not seen
                breaks = breaks if self._waiting else 0
                async with asyncio.timeout_at(deadline):
                    await self.more()
        except TimeoutError:
            return None
        finally:
            self._waiting = False
        if end > LIMIT:
            raise RequestRefused(TOO_LARGE)
        return parse_head(self.take(end))

    async def _exchange(self, head: RequestHead) -> bool:
        """Answer one request; whether another may follow."""
        if head.is_asterisk_form:
            await self.write(response_writer.response_head(head.minor, 200, [("Content-Length", "0")]))
            return head.keep
        if head.has_unknown_expectation:
            await self.write(response_writer.response_head(head.minor, 417, [("Connection", "close"), ("Content-Length", "0")]))
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
        if response_writer.has_body(answer.status):
            fields.append(("Content-Length", str(len(body))))
        else:
            body = b""
        start = response_writer.response_head(head.minor, answer.status, _with_connection(fields, head, keep=keep))
        if body and head.method != "HEAD":
            await self.write(start, body)
        else:
            await self.write(start)

    async def _stream(self, head: RequestHead, frames: StreamingResponse, *, keep: bool) -> bool:
        """Whether the connection can be kept."""
        fields = [*frames.headers]
        if frames.content_type:
            fields.append(("Content-Type", frames.content_type))
        known = any(name.lower() == "content-length" for name, _ in fields)
        chunked = bool(head.minor) and not known
        if chunked:
            fields.append(("Transfer-Encoding", "chunked"))
        keep = keep and (chunked or known)
        start = response_writer.response_head(head.minor, frames.status, _with_connection(fields, head, keep=keep))
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
                from kubeloop.serving.takeover import over_transport

                await self._keep(over_transport(self, answer))
        finally:
            answer.close()

    async def _read_over(self, body: RequestBody, *, keep: bool) -> bool:
        """What the client sends though nobody reads it; whether another request may follow."""
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
        """Read over what still comes, for a moment."""
        loop = asyncio.get_running_loop()
        end = loop.time() + _LINGER
        with contextlib.suppress(TimeoutError, ConnectionEnded):
            while loop.time() < end:
                self.buffer.clear()
                async with asyncio.timeout(_QUIET):
                    await self.more()


def _with_connection(fields: list[tuple[str, str]], head: RequestHead, *, keep: bool) -> list[tuple[str, str]]:
    """What the answer says of the connection, where that is not what its version says already (RFC 9112, section 9.3)."""
    if keep and not head.minor:
        return [*fields, ("Connection", "keep-alive")]
    if not keep and head.minor:
        return [*fields, ("Connection", "close")]
    return fields
