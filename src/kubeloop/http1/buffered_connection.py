"""The buffers of one connection: received bytes are buffered within limits, and writes wait while the peer does not read."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from kubeloop.http1.errors import ConnectionEnded

_LOG = logging.getLogger("kubeloop.http1")

#: Buffered bytes beyond which reading pauses.
_ENOUGH = 256 * 1024


#: Minimum rate in bytes per second at which a peer must read, after as many seconds of grace.
_SLOWEST = 64 * 1024
_STALL = 30.0

#: Bytes that may be written without yielding to other tasks: a peer that reads as fast as we write, or a broken connection, which
#: asyncio reports in a later turn only, never makes a writer wait.
_IN_A_TURN = 1024 * 1024


class BufferedConnection(asyncio.Protocol):
    """A connection with a read buffer, from whose front the server takes bytes. One task may read, and one at a time may write."""

    def __init__(self) -> None:
        self.buffer = bytearray()
        self.transport: asyncio.Transport | None = None
        self.ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._arrival: asyncio.Future[None] | None = None
        self._writable: asyncio.Future[None] | None = None
        self._reading_paused = False
        self._over = False
        self._in_this_turn = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        if len(self.buffer) > _ENOUGH and not self._reading_paused and self.transport is not None:
            self._reading_paused = True
            self.transport.pause_reading()
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    def eof_received(self) -> None:
        """Handle the end of the peer's data. The transport closes itself, and data written until it is closed is lost."""
        self._over = True

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = asyncio.get_running_loop().create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            if not self._writable.done():
                self._writable.set_result(None)
            self._writable = None

    def connection_lost(self, exc: Exception | None) -> None:
        if exc is not None:
            _LOG.debug("a connection was lost: %s", exc)
        if not self.ended.done():
            self.ended.set_result(None)
        self._over = True
        self.resume_writing()
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_result(None)

    async def more(self) -> None:
        """Wait until more bytes have arrived.

        Raises:
            ConnectionEnded: The peer has disconnected.
            TimeoutError: ``give_up`` was called.
        """
        if self._reading_paused and self.transport is not None and not self.ended.done():
            self._reading_paused = False
            self.transport.resume_reading()
        before = len(self.buffer)
        while len(self.buffer) == before:
            if self.ended.done():
                raise ConnectionEnded
            self._arrival = asyncio.get_running_loop().create_future()
            try:
                await self._arrival
            finally:
                self._arrival = None

    def give_up(self) -> None:
        """End a wait for more bytes with TimeoutError."""
        if self._arrival is not None and not self._arrival.done():
            self._arrival.set_exception(TimeoutError())

    def take(self, size: int) -> bytes:
        """Remove and return up to ``size`` bytes from the front of the buffer."""
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    async def write(self, *parts: bytes) -> None:
        """Write bytes, and return when more may be written.

        Raises:
            ConnectionEnded: The peer has disconnected.
        """
        if self._over or self.transport is None or self.transport.is_closing():
            raise ConnectionEnded
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        self.transport.write(data)
        self._in_this_turn += len(data)
        if self._writable is not None:
            await self._read_by_peer(self._writable)
        elif self._in_this_turn > _IN_A_TURN:
            await asyncio.sleep(0)
        else:
            return
        self._in_this_turn = 0
        if self._over:
            raise ConnectionEnded

    def try_write(self, data: bytes) -> bool:
        """Write bytes, unless the peer has not read earlier ones yet or has disconnected. Return whether they were written."""
        if self._writable is not None or self._over or self.transport is None or self.transport.is_closing():
            return False
        self.transport.write(data)
        return True

    async def drained(self) -> None:
        """Return when more may be written.

        Raises:
            ConnectionEnded: The peer has disconnected.
        """
        if self._writable is not None:
            await self._read_by_peer(self._writable)
        if self._over or self.transport is None or self.transport.is_closing():
            raise ConnectionEnded

    def limit_write_buffer(self, size: int) -> None:
        """Let ``write`` wait when more than ``size`` bytes are buffered."""
        if self.transport is not None:
            self.transport.set_write_buffer_limits(high=size)

    async def _read_by_peer(self, writable: asyncio.Future[None]) -> None:
        """Wait until the peer has read the written data. A peer that is too slow is disconnected, because its data stays in memory."""
        assert self.transport is not None
        patience = _STALL + self.transport.get_write_buffer_size() / _SLOWEST
        try:
            async with asyncio.timeout(patience):
                await writable
        except TimeoutError:
            _LOG.info("disconnected a client that did not read for %.0f s", patience)
            self.transport.abort()
            raise ConnectionEnded from None

    def extra_info(self, name: str) -> Any:
        """Return the transport's extra information of that name."""
        return None if self.transport is None else self.transport.get_extra_info(name)
