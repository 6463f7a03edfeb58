"""Connections after a change of protocol: raw bytes for any protocol, messages for WebSocket. The listener's own part of ``Takeover``."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from kubeloop.serving.answer import SocketTakeover, Takeover

if TYPE_CHECKING:
    from aiohttp import web

_PIECE = 64 * 1024
#: Bytes of one WebSocket message that are taken from a client, as by Go's library.
_MESSAGE = 32 << 20


class _Bytes:
    """A connection as a ``Duplex``."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE)
        except OSError:
            return b""  # reset by the client, which ends it as well

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()


class _Connection(asyncio.StreamReaderProtocol):
    """Knows whether the connection is over."""

    lost = False

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost = True
        super().connection_lost(exc)


class _Messages:
    """aiohttp's WebSocket as a ``Socket``."""

    def __init__(self, socket: web.WebSocketResponse) -> None:
        self._socket = socket

    @property
    def protocol(self) -> str:
        return self._socket.ws_protocol or ""

    async def receive(self) -> bytes | str | None:
        from aiohttp import WSMsgType

        message = await self._socket.receive()
        return message.data if message.type in (WSMsgType.BINARY, WSMsgType.TEXT) else None

    async def send(self, message: bytes | str) -> None:
        if isinstance(message, str):
            await self._socket.send_str(message)
        else:
            await self._socket.send_bytes(message)


def over_transport(raw: web.BaseRequest, takeover: Takeover) -> tuple[web.StreamResponse, Coroutine[Any, Any, None]]:
    """The response that ends aiohttp's part, and the work to be awaited before it is returned."""
    from aiohttp import web

    return web.Response(), _serve_bytes(raw, takeover)


async def _serve_bytes(raw: web.BaseRequest, takeover: Takeover) -> None:
    transport = raw.transport
    if transport is None:
        return
    http = transport.get_protocol()
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=_PIECE, loop=loop)
    protocol = _Connection(reader, loop=loop)
    protocol.connection_made(transport)
    writer = asyncio.StreamWriter(transport, protocol, reader, loop)
    transport.set_protocol(protocol)
    try:
        head = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in takeover.headers), "", ""]
        writer.write("\r\n".join(head).encode("latin-1"))
        with contextlib.suppress(ConnectionError):
            await takeover.serve(_Bytes(reader, writer))
    finally:
        # aiohttp has to hear of the connection's end, or would count it as open for ever.
        if protocol.lost:
            http.connection_lost(None)
        else:
            transport.set_protocol(http)
            transport.close()


async def over_socket(raw: web.BaseRequest, takeover: SocketTakeover) -> tuple[web.StreamResponse, Coroutine[Any, Any, None]]:
    """As ``over_transport``. The answer to the client's handshake has been sent when this returns."""
    from aiohttp import web

    socket = web.WebSocketResponse(protocols=takeover.protocols, compress=False, max_msg_size=_MESSAGE, autoping=True, timeout=1.0)
    await socket.prepare(raw)
    return socket, _serve_messages(socket, takeover)


async def _serve_messages(socket: web.WebSocketResponse, takeover: SocketTakeover) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            await takeover.serve(_Messages(socket))
    finally:
        with contextlib.suppress(ConnectionError):
            await socket.close()
