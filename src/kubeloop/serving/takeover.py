"""Connections after a change of protocol: bytes both ways. WebSocket is in ``websocket``."""

from __future__ import annotations

import contextlib

from kubeloop.http1.buffered_connection import BufferedConnection
from kubeloop.serving.answer import Hijack

_PIECE = 64 * 1024


class _Bytes:
    """A connection as a ``Duplex``."""

    def __init__(self, wire: BufferedConnection) -> None:
        self._wire = wire

    async def read(self) -> bytes:
        if not self._wire.buffer:
            try:
                await self._wire.more()
            except OSError:
                return b""
        return self._wire.take(_PIECE)

    async def write(self, data: bytes) -> None:
        await self._wire.write(data)


async def over_transport(wire: BufferedConnection, takeover: Hijack) -> None:
    """Answer 101 and serve what comes from then on."""
    head = ["HTTP/1.1 101 Switching Protocols", *(f"{name}: {value}" for name, value in takeover.headers), "", ""]
    with contextlib.suppress(ConnectionError):
        await wire.write("\r\n".join(head).encode("latin-1"))
        await takeover.serve(_Bytes(wire))
