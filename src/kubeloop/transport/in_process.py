"""``InProcessSender`` passes requests to a server's handler in the same event loop, without sockets, TLS and HTTP. Bodies stay bytes.

Each stream has a buffer of about 1 MiB, as a socket has: the server waits for a slow reader of a stream, without delaying other streams.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any
from urllib.parse import unquote

from multidict import CIMultiDict

from kubeloop.http1.errors import BodyTooLarge
from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import TransportError
from kubeloop.serving.answer import Answer as WholeReply
from kubeloop.serving.answer import Hijack, Reply, SocketTakeover, StreamingResponse
from kubeloop.serving.connection import Handler
from kubeloop.serving.request import Request
from kubeloop.tasks import wait_all
from kubeloop.transport.round_tripper import OutgoingRequest, ResponseHead

_LOG = logging.getLogger("kubeloop.transport")

#: Bytes buffered for a reader before the server has to wait.
_ENOUGH = 1 << 20


class InProcessSender:
    """Sends the requests of a ``Transport`` to a server in this process, as ``user`` in ``groups``.

    ``handler`` returns the server's handler. It is called for each request, so that the server may be restarted in between.
    ``end_streams`` and ``close`` end all tasks of the sender::

        sender = InProcessSender(lambda: api.handler, "kubeloop-admin", ("system:masters",))
        transport = Transport(config, sender=sender)
    """

    def __init__(self, handler: Callable[[], Handler], user: str, groups: Iterable[str]) -> None:
        self._handler = handler
        self._certificate = _certificate(user, groups)
        self._streams: set[_Streamed] = set()
        self._running: set[asyncio.Task[Reply]] = set()
        self._closed = False

    async def send(self, request: OutgoingRequest) -> ResponseHead:
        if self._closed:
            raise TransportError(f"this transport was closed during the request ({request.description})")
        # A separate task, so that closing the transport ends it as it would end a connection.
        task = asyncio.ensure_future(self._answered(self._received(request)))
        self._running.add(task)
        try:
            async with asyncio.timeout(request.patience):
                reply = await task
        except BaseException as error:
            await _ended(task)
            if not task.cancelled():
                await _let_go(task.result())
            if isinstance(error, TimeoutError):
                raise TransportError(f"the server sent nothing for {request.patience:g} s ({request.description})") from error
            if self._closed:
                raise TransportError(f"this transport was closed during the request ({request.description})") from None
            raise
        finally:
            self._running.discard(task)
        if isinstance(reply, StreamingResponse):
            streamed = _Streamed(reply, request, self._streams.discard)
            self._streams.add(streamed)
            return streamed
        if isinstance(reply, Hijack | SocketTakeover):
            await _let_go(reply)
            raise TransportError(
                "a server in this process has no connection that could change its protocol; use a server with sockets "
                f"({request.description})"
            )
        return _Whole(reply, request)

    async def end_streams(self, *, broken: bool = False) -> None:
        """End all open streams: normally, or (``broken``) as if the server had died."""
        for one in list(self._streams):
            await one.end(TransportError("the server ended the connection in the middle") if broken else None)

    async def close(self) -> None:
        self._closed = True
        for task in list(self._running):
            task.cancel()
        for one in list(self._streams):
            await one.end(TransportError("this transport was closed during the request"))

    async def _answered(self, request: Request) -> Reply:
        try:
            return await self._handler()(request)
        except Exception:  # noqa: BLE001 - as over a connection, a fault of the handler is answered with 500 and logged
            _LOG.exception("%s %s failed", request.method, request.path)
            return WholeReply(500, body=b"500 Internal Server Error", content_type="text/plain; charset=utf-8")

    def _received(self, request: OutgoingRequest) -> Request:
        path, _, query = request.target.partition("?")
        body = request.body or b""

        async def read(limit: int) -> bytes:
            if len(body) > limit:
                raise BodyTooLarge(limit)
            return body

        async def pieces() -> AsyncIterator[bytes]:
            yield body

        headers = CIMultiDict(request.headers)
        headers.popall("Accept-Encoding", None)  # To compress what stays in this process costs time, and this sender does not decompress.
        headers.add("Host", "kubernetes.default.svc")
        if request.body is not None:
            headers.add("Content-Length", str(len(body)))
        return Request(request.method, unquote(path), query, headers, read, self._certificate, "127.0.0.1", pieces)


class _Whole:
    """A complete response with its body."""

    def __init__(self, reply: WholeReply, request: OutgoingRequest) -> None:
        self.status = reply.status
        self.headers = _headers(reply.headers, reply.content_type)
        self._description = request.description
        self._body = (reply.body or b"") if reply.status not in (204, 304) and request.method != "HEAD" else b""

    async def read(self, limit: int) -> bytes:
        if len(self._body) > limit:
            raise TransportError(f"the answer is larger than {limit} bytes ({self._description})")
        return await self.chunk()

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        del read_timeout  # the whole body is there
        body, self._body = self._body, b""
        return body

    async def write(self, data: bytes) -> None:
        raise TransportError(f"the protocol was not changed, so that {len(data)} bytes have nowhere to go ({self._description})")

    def close(self) -> None:
        self._body = b""


class _Streamed:
    """The head of a streaming response, and the buffer between server and client."""

    def __init__(self, reply: StreamingResponse, request: OutgoingRequest, gone: Callable[[_Streamed], None]) -> None:
        self.status = reply.status
        self.headers = _headers(reply.headers, reply.content_type)
        self._description = request.description
        self._gone = gone
        self._chunks: deque[bytes] = deque()
        self._size = 0
        self._news = asyncio.Event()
        self._room = asyncio.Event()
        self._begun = False
        self._left = False
        self._over = False
        self._fault: TransportError | None = None
        self._pump = asyncio.ensure_future(self._fill(reply, silent=request.method == "HEAD"))

    async def read(self, limit: int) -> bytes:
        parts: list[bytes] = []
        size = 0
        while part := await self.chunk():
            size += len(part)
            if size > limit:
                raise TransportError(f"the answer is larger than {limit} bytes ({self._description})")
            parts.append(part)
        return b"".join(parts)

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        try:
            async with asyncio.timeout(read_timeout):
                while not self._chunks and not self._over:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError as error:
            raise TransportError(f"the server sent nothing for {read_timeout:g} s ({self._description})") from error
        if self._chunks:
            taken = b"".join(self._chunks)
            self._chunks.clear()
            self._size = 0
            self._room.set()
            return taken
        if self._fault is not None:
            raise TransportError(f"{self._fault} ({self._description})")
        return b""

    async def write(self, data: bytes) -> None:
        raise TransportError(f"the protocol was not changed, so that {len(data)} bytes have nowhere to go ({self._description})")

    def close(self) -> None:
        self._chunks.clear()
        self._leave(TransportError("this answer was left before its end and cannot be read on"))

    async def end(self, fault: TransportError | None) -> None:
        """End the stream with an error or, if ``fault`` is None, normally, and wait until the server has closed it."""
        self._leave(fault)
        await wait_all(self._pump)

    def _leave(self, fault: TransportError | None) -> None:
        if not self._over:
            self._fault = self._fault or fault
        self._left = True
        if self._begun:  # an unstarted task would never end
            self._pump.cancel()

    async def _fill(self, reply: StreamingResponse, *, silent: bool) -> None:
        source = reply.chunks
        self._begun = True
        try:
            if silent or self._left:
                return
            async for chunk in source:
                self._chunks.append(chunk)
                self._size += len(chunk)
                self._news.set()
                while self._size > _ENOUGH:
                    self._room.clear()
                    await self._room.wait()
        except asyncio.CancelledError:
            return
        except Exception as error:  # noqa: BLE001 - whatever ends a stream early is a broken connection to its client
            self._fault = TransportError(f"the connection broke: {error}")
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()
            reply.close()
            self._over = True
            self._news.set()
            self._gone(self)


async def _ended(task: asyncio.Task[Any]) -> None:
    """Cancel the task if it is running, and wait until it has ended."""
    task.cancel()
    await wait_all(task)


async def _let_go(reply: Reply) -> None:
    """Close a response that is not read."""
    if isinstance(reply, Hijack | SocketTakeover):
        reply.close()
    elif isinstance(reply, StreamingResponse):
        if (close := getattr(reply.chunks, "aclose", None)) is not None:
            await close()
        reply.close()


def _headers(fields: list[tuple[str, str]], content_type: str) -> Headers:
    headers = Headers()
    for name, value in fields:
        headers.add(name, value)
    if content_type:
        headers.add("Content-Type", content_type)
    return headers


def _certificate(user: str, groups: Iterable[str]) -> dict[str, Any]:
    """Return the client's certificate in the form of ``ssl.SSLSocket.getpeercert``."""
    subject = ((("commonName", user),), *((("organizationName", group),) for group in groups))
    return {"subject": subject, "notBefore": "Jan  1 00:00:00 2000 GMT", "notAfter": "Jan  1 00:00:00 2100 GMT"}
