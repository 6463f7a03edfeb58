"""WebSocket connections: the opening handshake, whole messages in both directions, the closing handshake (RFC 6455).

The ``websockets`` library's protocol without I/O encodes and decodes frames. This module is imported at the first WebSocket.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import hashlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import TYPE_CHECKING, Any

from websockets.frames import Opcode
from websockets.protocol import Protocol, Side, State

from kubeloop.http1.buffered_connection import BufferedConnection
from kubeloop.http1.errors import ConnectionEnded
from kubeloop.http1.server_heads import response_head
from kubeloop.serving.answer import SocketTakeover

if TYPE_CHECKING:
    from websockets.frames import Frame

#: Maximum bytes of a client's message, as in Go's library.
_MESSAGE = 32 << 20
#: Seconds in which a client may reply to our closing frame.
_FAREWELL = 1.0
_NORMAL = 1000
# RFC 6455, section 1.3.
_GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
# The library would write the content of frames into debug logs, and that may be secret.
_SILENT = logging.getLogger("kubeloop.serving.frames")
_SILENT.disabled = True


class _Messages:
    """An upgraded connection as a ``Socket``. Pings are answered while a task reads."""

    def __init__(self, wire: BufferedConnection, protocol: str) -> None:
        self.protocol = protocol
        self._wire = wire
        self._frames = Protocol(Side.SERVER, state=State.OPEN, max_size=_MESSAGE, logger=_SILENT)
        self._messages: deque[bytes | str] = deque()
        self._parts: list[bytes] = []
        self._text = False
        self._ended = False
        self._writing = asyncio.Lock()

    async def receive(self) -> bytes | str | None:
        while not self._messages:
            if self._ended:
                return None
            await self._read()
        return self._messages.popleft()

    async def send(self, message: bytes | str) -> None:
        if self._frames.state is not State.OPEN:
            raise ConnectionEnded
        if isinstance(message, str):
            self._frames.send_text(message.encode())
        else:
            self._frames.send_binary(message)
        await self._flush()

    async def close(self) -> None:
        """Send a close frame, and wait a moment for the client's close frame."""
        if self._frames.state is State.OPEN:
            self._frames.send_close(_NORMAL)
            await self._flush()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_FAREWELL):
                while not self._ended:
                    self._messages.clear()
                    await self._read()

    async def _read(self) -> None:
        wire = self._wire
        if not wire.buffer:
            try:
                await wire.more()
            except ConnectionEnded:
                self._ended = True
                return
        self._frames.receive_data(wire.take(len(wire.buffer)))
        for event in self._frames.events_received():
            self._take(event)  # type: ignore[arg-type]  # requests and responses are the handshake's, which is not the library's here
        if self._frames.parser_exc is not None:
            self._ended = True
        await self._flush()

    def _take(self, frame: Frame) -> None:
        if frame.opcode is Opcode.CLOSE:
            self._ended = True
        elif frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            if frame.opcode is not Opcode.CONT:
                self._text = frame.opcode is Opcode.TEXT
            self._parts.append(bytes(frame.data))
            if frame.fin:
                whole = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
                self._messages.append(whole.decode("utf-8", "replace") if self._text else whole)
                self._parts = []

    async def _flush(self) -> None:
        if data := b"".join(self._frames.data_to_send()):
            async with self._writing:
                await self._wire.write(data)


async def over_socket(
    wire: BufferedConnection,
    headers: Mapping[str, str],
    takeover: SocketTakeover,
    keep: Callable[[Coroutine[Any, Any, None]], Awaitable[None]],
) -> None:
    """Complete the handshake in ``headers`` and serve messages.

    Args:
        wire: The connection.
        headers: Headers of the request.
        takeover: The handler's response.
        keep: Runs the work until it is complete or the listener closes.
    """
    fault = _fault(headers)
    if fault:
        fields = [("Connection", "close"), ("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(fault)))]
        await wire.write(response_head(1, 400, [*fields, ("Sec-WebSocket-Version", "13")]), fault.encode())
        return
    offered = [each.strip() for each in headers.get("Sec-WebSocket-Protocol", "").split(",")]
    protocol = next((each for each in offered if each in takeover.protocols), "")
    accept = hashlib.sha1((headers["Sec-WebSocket-Key"].strip() + _GUID).encode(), usedforsecurity=False).digest()
    fields = [("Upgrade", "websocket"), ("Connection", "Upgrade"), ("Sec-WebSocket-Accept", base64.b64encode(accept).decode())]
    if protocol:
        fields.append(("Sec-WebSocket-Protocol", protocol))
    await wire.write(response_head(1, 101, fields))
    await keep(_serve_messages(_Messages(wire, protocol), takeover))


def _fault(headers: Mapping[str, str]) -> str:
    """Return the error in a handshake (RFC 6455, section 4.2.1), or an empty text if it is valid."""
    if headers.get("Sec-WebSocket-Version", "").strip() != "13":
        return "the WebSocket version is not 13\n"
    try:
        key = base64.b64decode(headers.get("Sec-WebSocket-Key", "").strip(), validate=True)
    except (ValueError, binascii.Error):
        key = b""
    return "" if len(key) == 16 else "the WebSocket key is not 16 bytes in base64\n"


async def _serve_messages(socket: _Messages, takeover: SocketTakeover) -> None:
    try:
        with contextlib.suppress(ConnectionError):
            await takeover.serve(socket)
    finally:
        with contextlib.suppress(ConnectionError):
            await socket.close()
