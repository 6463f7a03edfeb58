"""A TLS listener on asyncio: requests in, answers out, and an end that lets streams finish.

aiohttp's low-level server underneath; handlers see ``Request`` and the kinds of ``Reply`` only.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from multidict import CIMultiDict

from kubeloop.meta.errors import ConfigError
from kubeloop.serving.accepting import close_listening, stop_accepting
from kubeloop.serving.answer import BrokenOff, Frames, Reply, SocketTakeover, Takeover
from kubeloop.serving.request import BodyTooLarge, Request

if TYPE_CHECKING:
    from aiohttp import web

Handler = Callable[[Request], Awaitable[Reply]]

_LOG = logging.getLogger(__name__)

#: OpenSSL's X509_V_FLAG_NO_CHECK_TIME (openssl/x509_vfy.h), for which ssl has no name.
_NO_CHECK_TIME = 0x200000


class Listener:
    """Serves ``handler`` at one address until ``close``.

    Guarantees
        A stream's source is closed as soon as its client has gone or the listener ends. Whole answers under way are finished first.

    Raises
        ConfigError: from ``bind``, when the address is taken or not ours; the text says which and what to do.
    """

    def __init__(self, handler: Handler, context: ssl.SSLContext | None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self._handler = handler
        self._context = context
        self._host = host
        self.port = port
        self._runner: web.ServerRunner | None = None
        self._server: asyncio.Server | None = None
        self._streams: set[asyncio.Task[Any]] = set()
        self._ending = False

    @property
    def url(self) -> str:
        scheme = "https" if self._context is not None else "http"
        return f"{scheme}://{self._host}:{self.port}"

    async def bind(self) -> None:
        """Take the address; connections wait until ``serve``."""
        from aiohttp import web

        from kubeloop.serving.malformed import HttpServer

        server = HttpServer(self._serve, access_log=None, keepalive_timeout=75.0, handler_cancellation=True, auto_decompress=False)
        self._runner = web.ServerRunner(server, handle_signals=False, shutdown_timeout=2.0)
        await self._runner.setup()
        assert self._runner.server is not None
        try:
            self._server = await asyncio.get_running_loop().create_server(
                self._runner.server, self._host, self.port, ssl=self._context, backlog=1024, start_serving=False
            )
        except OSError as fault:
            await self._runner.cleanup()
            raise ConfigError(
                f"cannot listen on {self._host}:{self.port}: {fault.strerror or fault}; choose another port, or 0 for any that is free"
            ) from None
        self.port = self._server.sockets[0].getsockname()[1]

    async def serve(self) -> None:
        """Answer from now on."""
        assert self._server is not None
        await self._server.start_serving()

    def abort(self) -> None:
        """Break every connection off at once and stop listening, as when the process dies. ``close`` is still due."""
        if self._server is not None:
            stop_accepting(self._server)
            asyncio.get_running_loop().call_soon(self._server.close)
        server = self._runner.server if self._runner is not None else None
        for connection in server.connections if server is not None else ():
            if connection.transport is not None:
                connection.transport.abort()

    async def close(self) -> None:
        """Stop listening, end streams, finish answers."""
        self._ending = True
        if self._server is not None:
            await close_listening(self._server)
        for task in list(self._streams):
            task.cancel()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _serve(self, raw: web.BaseRequest) -> web.StreamResponse:
        from aiohttp import web

        transport = raw.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        request = Request(
            method=raw.method,
            path=raw.path,
            query_string=raw.rel_url.raw_query_string,
            headers=raw.headers,
            read_body=lambda limit: _read(raw, limit),
            peer_certificate=certificate or None,
            remote=raw.remote or "",
            body=lambda: raw.content.iter_any(),
        )
        answer = await self._handler(request)
        if isinstance(answer, Takeover | SocketTakeover):
            return await self._take_over(raw, answer)
        headers: CIMultiDict[str] = CIMultiDict(answer.headers)
        if answer.content_type:
            headers["Content-Type"] = answer.content_type
        if isinstance(answer, Frames):
            return await self._stream(raw, answer, headers)
        return web.Response(status=answer.status, body=answer.body or b"", headers=headers)

    async def _stream(self, raw: web.BaseRequest, frames: Frames, headers: CIMultiDict[str]) -> web.StreamResponse:
        from aiohttp import web

        response = web.StreamResponse(status=frames.status, headers=headers)
        if "Content-Length" not in headers:
            response.enable_chunked_encoding()
        await self._until_end(self._pump(raw, response, frames))
        if response.prepared:  # else the listener ended before the stream began
            with contextlib.suppress(ConnectionError):
                await response.write_eof()
        return response

    async def _take_over(self, raw: web.BaseRequest, answer: Takeover | SocketTakeover) -> web.StreamResponse:
        from kubeloop.serving.takeover import over_socket, over_transport

        try:
            if isinstance(answer, SocketTakeover):
                response, work = await over_socket(raw, answer)
            else:
                response, work = over_transport(raw, answer)
            await self._until_end(work)
        finally:
            answer.close()
        return response

    async def _until_end(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work of a stream; the listener's own end cancels it, which is no fault."""
        pump = asyncio.ensure_future(work)
        self._streams.add(pump)
        try:
            await pump
        except asyncio.CancelledError:
            pump.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pump
            if not self._ending:
                raise
        finally:
            self._streams.discard(pump)

    @staticmethod
    async def _pump(raw: web.BaseRequest, response: web.StreamResponse, frames: Frames) -> None:
        source = frames.chunks
        try:
            await response.prepare(raw)
            async for chunk in source:
                await response.write(chunk)
        except ConnectionError:
            _LOG.debug("client of %s has gone", raw.path)
        except BrokenOff as fault:
            _LOG.debug("the answer to %s broke off: %s", raw.path, fault)
            if raw.transport is not None:
                raw.transport.abort()
        finally:
            close = getattr(source, "aclose", None)
            if close is not None:
                await close()


async def _read(raw: web.BaseRequest, limit: int) -> bytes:
    """The body, at most ``limit`` bytes of it."""
    if raw.content_length is not None and raw.content_length > limit:
        raise BodyTooLarge(limit)
    parts: list[bytes] = []
    size = 0
    async for chunk in raw.content.iter_any():
        size += len(chunk)
        if size > limit:
            raise BodyTooLarge(limit)
        parts.append(chunk)
    return b"".join(parts)


def server_context(certificate: bytes, key: bytes, client_authority: bytes) -> ssl.SSLContext:
    """TLS for a server that asks for client certificates without insisting.

    Who sends none is anonymous; who sends one of another authority is refused during the handshake. One that is expired comes through, as
    with kube-apiserver, which answers 401: whoever authenticates must look at its times. PEM in; the key is in a file of mode 0600 only
    while it is loaded, since ssl reads files only.
    """
    import tempfile
    from pathlib import Path

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= _NO_CHECK_TIME
    context.load_verify_locations(cadata=client_authority.decode())
    with tempfile.TemporaryDirectory(prefix="kubeloop-") as folder:  # the folder is 0700, so nobody else can look in
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(certificate + key)
        context.load_cert_chain(path)
    return context
