"""A WebSocket over an upgraded connection: the opening handshake, whole messages, pings that detect a dead peer (RFC 6455).

Frames are read and written by the ``websockets`` library's protocol without I/O, which is imported when the first socket opens.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from kubeloop.client.streams.errors import StreamError
from kubeloop.meta.errors import TransportError
from kubeloop.tasks import end_tasks
from kubeloop.timing import Clock
from kubeloop.transport import Query, Transport, Upgraded

_LOG = logging.getLogger("kubeloop.client.streams")

if TYPE_CHECKING:
    from websockets.frames import Frame

# client-go sends a ping as often, and gives up after twelve that were not answered, and one second (tools/remotecommand/websocket.go).
PING_PERIOD = 5.0
PONG_DEADLINE = 61.0
#: Maximum bytes of a received message; Kubernetes' programs send 32 KiB at a time.
MAX_MESSAGE = 4 << 20
# RFC 6455, section 1.3.
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_NORMAL = 1000
# The library would write the content of frames, which may be secret, to debug logs.
_SILENT = logging.getLogger("kubeloop.client.frames")
_SILENT.disabled = True


class WebSocket:
    """Messages in both directions. One task reads; any number of tasks write.

    Guarantees
        Pings of the peer are answered while a task reads, also while ``send`` waits for the peer.
        If nothing arrives for ``PONG_DEADLINE`` seconds, not even an answer to pings, reading raises.

    Not guaranteed
        If no task reads, a dead peer is not detected in that time, but only by TCP.
    """

    def __init__(self, wire: Upgraded, clock: Clock, description: str, protocol: str = "") -> None:
        """Create an instance. Programs call ``open_socket`` instead.

        Args:
            wire: The upgraded connection.
            clock: The clock of pings.
            description: Pod and container, for messages.
            protocol: The chosen subprotocol.
        """
        from websockets.protocol import Protocol, Side

        self.protocol = protocol
        """The subprotocol that the server chose."""
        self._wire = wire
        self._clock = clock
        self._where = description
        self._frames = Protocol(Side.CLIENT, max_size=MAX_MESSAGE, logger=_SILENT)
        self._messages: deque[bytes] = deque()
        self._parts: list[bytes] = []
        self._ended = False
        self._fault: Exception | None = None
        self._waiting_since: float | None = None
        self._writing = asyncio.Lock()
        self._to_write = asyncio.Event()
        self._writer = asyncio.ensure_future(self._write_control())
        self._timer = clock.call_later(PING_PERIOD, self._tick)

    async def send(self, message: bytes) -> None:
        """Send a message; return when more can be sent.

        Raises:
            TransportError: The connection has ended.
        """
        async with self._writing:
            self._check_open()
            self._frames.send_binary(message)
            await self._flush()

    async def receive(self) -> bytes | None:
        """Return the next binary message; None after the peer closed regularly.

        Raises:
            StreamError: The peer broke the protocol, sent too large a message, or closed with an error.
            TransportError: The connection was lost, or the peer no longer answers.
        """
        while not self._messages:
            if self._ended:
                return None
            if self._fault is not None:
                raise self._fault
            await self._read()
        return self._messages.popleft()

    async def close(self) -> None:
        """Send the close frame without waiting for the peer's. It does not close the connection: ``open_socket`` does."""
        from websockets.protocol import State

        self._timer.cancel()
        self._writer.cancel()
        if self._frames.state is State.OPEN and self._fault is None:
            self._frames.send_close(_NORMAL)
        if not self._writing.locked():
            with contextlib.suppress(TransportError, TimeoutError):
                async with asyncio.timeout(0):  # what the socket does not take at once is not worth waiting for
                    await self._flush()
        await end_tasks(self._writer, logger=_LOG)

    async def _read(self) -> None:
        from websockets.frames import Frame

        self._waiting_since = self._clock.now()
        try:
            data = await self._wire.read()
        except TransportError as error:
            self._fault = self._fault or TransportError(f"{self._where}: the connection broke: {error}")
            return
        finally:
            self._waiting_since = None
        if not data:
            self._fault = TransportError(f"{self._where}: the connection ended without a closing handshake")
            return
        self._frames.receive_data(data)
        for event in self._frames.events_received():
            if isinstance(event, Frame):
                self._take(event)
        if self._frames.parser_exc is not None and not self._ended:
            self._fault = StreamError(f"{self._where}: the server broke the WebSocket protocol: {self._frames.parser_exc}")
        self._to_write.set()

    def _take(self, frame: Frame) -> None:
        from websockets.frames import CloseCode, Opcode

        if frame.opcode in (Opcode.BINARY, Opcode.TEXT, Opcode.CONT):
            self._parts.append(bytes(frame.data))
            if frame.fin:
                self._messages.append(self._parts[0] if len(self._parts) == 1 else b"".join(self._parts))
                self._parts = []
        elif frame.opcode is Opcode.CLOSE:
            close = self._frames.close_rcvd
            if close is None or close.code in (CloseCode.NORMAL_CLOSURE, CloseCode.GOING_AWAY, CloseCode.NO_STATUS_RCVD):
                self._ended = True
            else:
                why = f"{close.code}" + (f" ({close.reason})" if close.reason else "")
                self._fault = StreamError(f"{self._where}: the server closed the WebSocket with code {why}")

    def _tick(self) -> None:
        """Send a ping in each period, and check how long nothing has arrived."""
        from websockets.protocol import State

        since = self._waiting_since
        if since is not None and self._clock.now() - since >= PONG_DEADLINE:
            self._fault = TransportError(
                f"{self._where}: the server has sent nothing for {PONG_DEADLINE:g} s, not even answers to pings: the connection is dead"
            )
            self._wire.close()
            return
        if self._frames.state is State.OPEN:
            self._frames.send_ping(b"")
            self._to_write.set()
        self._timer = self._clock.call_later(PING_PERIOD, self._tick)

    async def _write_control(self) -> None:
        """Send pings, and answers to the peer's, concurrently with messages: reading never waits for writing."""
        while True:
            await self._to_write.wait()
            self._to_write.clear()
            try:
                async with self._writing:
                    await self._flush()
            except TransportError:
                return  # the reading task raises the error

    async def _flush(self) -> None:
        if data := b"".join(self._frames.data_to_send()):
            await self._wire.write(data)

    def _check_open(self) -> None:
        from websockets.protocol import State

        if self._fault is not None:
            raise self._fault
        if self._frames.state is not State.OPEN:
            raise TransportError(f"{self._where}: the server has ended the connection")


@asynccontextmanager
async def open_socket(
    transport: Transport, path: str, query: Query | None, protocols: Sequence[str], clock: Clock, description: str
) -> AsyncIterator[WebSocket]:
    """Open a WebSocket for one of ``protocols``. Leaving the block closes it and its connection.

    Args:
        transport: The connection to the API server.
        path: The path of the request.
        query: Parameters of the URL.
        protocols: Subprotocols by preference.
        clock: The clock of pings.
        description: Pod and container, for messages.

    Returns:
        A context manager whose value is the WebSocket.

    Raises:
        ApiError, NotUpgradedError: The server refused. StreamError: its response is not a handshake. TransportError: no response.
    """
    key = base64.b64encode(os.urandom(16))
    headers = {"Sec-WebSocket-Key": key.decode(), "Sec-WebSocket-Version": "13", "Sec-WebSocket-Protocol": ", ".join(protocols)}
    async with transport.upgrade("GET", path, protocol="websocket", query=query, headers=headers) as wire:
        socket = WebSocket(wire, clock, description, _agreed(wire, key, protocols, description))
        try:
            yield socket
        finally:
            await socket.close()


def _agreed(wire: Upgraded, key: bytes, protocols: Sequence[str], description: str) -> str:
    """Return the subprotocol of the response to the handshake (RFC 6455, section 4.1)."""
    accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
    fault = ""
    if wire.headers.get("Upgrade", "").lower() != "websocket" or wire.headers.get("Sec-WebSocket-Accept", "") != accept:
        fault = "it does not answer the key that was sent"
    elif wire.headers.get("Sec-WebSocket-Extensions", ""):
        fault = "it uses extensions that were not offered"
    chosen = wire.headers.get("Sec-WebSocket-Protocol", "")
    if not fault and chosen not in protocols:
        fault = f'it chose the protocol "{chosen}", where {" and ".join(protocols)} were offered'
    if fault:
        raise StreamError(f"{description}: the server's WebSocket handshake is wrong: {fault}")
    return chosen
