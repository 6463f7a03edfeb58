"""Connections that become a WebSocket: messages both ways, by aiohttp, whose import waits until the first one is asked for."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

from aiohttp import WSMsgType, web

from kubeloop.serving.answer import SocketTakeover
from kubeloop.serving.http1.wire import Wire

#: Bytes of one message that are taken from a client, as by Go's library.
_MESSAGE = 32 << 20


class _Messages:
    """aiohttp's WebSocket as a ``Socket``."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    @property
    def protocol(self) -> str:
        return self._socket.ws_protocol or ""

    async def receive(self) -> bytes | str | None:
        message = await self._socket.receive()
        return message.data if message.type in (WSMsgType.BINARY, WSMsgType.TEXT) else None

    async def send(self, message: bytes | str) -> None:
        if isinstance(message, str):
            await self._socket.send_str(message)
        else:
            await self._socket.send_bytes(message)


class _Handshake(web.RequestHandler):
    """Tells the wire that the connection is over."""

    __slots__ = ("wire",)

    wire: Wire

    def connection_lost(self, exc: BaseException | None) -> None:
        super().connection_lost(exc)
        Wire.connection_lost(self.wire, None)


class _Server(web.Server):
    def __call__(self) -> _Handshake:
        return _Handshake(self, loop=self._loop, **self._kwargs)


async def over_socket(
    wire: Wire, head: bytes, takeover: SocketTakeover, keep: Callable[[Coroutine[Any, Any, None]], Awaitable[None]]
) -> None:
    """The connection is aiohttp's from here on: it reads ``head`` once more, answers it, and frames messages. ``keep`` does the work."""
    transport = wire.transport
    if transport is None or wire.ended.done():
        return

    async def serve(raw: web.BaseRequest) -> web.StreamResponse:
        socket = web.WebSocketResponse(protocols=takeover.protocols, compress=False, max_msg_size=_MESSAGE, autoping=True, timeout=1.0)
        try:
            await socket.prepare(raw)
        except web.HTTPException as refusal:
            refusal.force_close()
            raise
        await keep(_serve_messages(socket, takeover))
        return socket

    server = _Server(serve, access_log=None, handler_cancellation=True)
    http = server()
    http.wire = wire
    http.connection_made(transport)
    transport.set_protocol(http)
    http.data_received(head + wire.take(len(wire.buffer)))
    try:
        await asyncio.shield(wire.ended)
    finally:
        await server.shutdown(1.0)


async def _serve_messages(socket: web.WebSocketResponse, takeover: SocketTakeover) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            await takeover.serve(_Messages(socket))
    finally:
        with contextlib.suppress(ConnectionError):
            await socket.close()
