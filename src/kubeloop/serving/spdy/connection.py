"""The streams of one SPDY connection, for clients and servers.

A stream is opened with headers. Each direction is closed separately, and a stream that is abandoned is reset.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Mapping

from kubeloop.meta.errors import KubeloopError
from kubeloop.serving.answer import Duplex
from kubeloop.serving.spdy.frames import Frame, Kind, Packer, SpdyError, Unpacker
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.serving.spdy")

#: Bytes of data in one frame.
_PIECE = 32 * 1024
#: Bytes buffered unread in all streams before reading from the peer pauses.
_UNREAD = 1 << 20
_CANCEL = 5
#: Maximum number of streams that a peer may open; a forwarded connection takes two. kubelets set no limit, but memory does.
_STREAMS = 4096


class StreamReset(ConnectionError):
    """The peer reset this stream, or the connection ended before the stream did."""


class ConnectionOver(StreamReset):
    """The connection ended before the stream did."""


class SpdyStream:
    """One stream. One task reads it, one task writes it."""

    def __init__(self, connection: SpdyConnection, number: int, headers: Mapping[str, str]) -> None:
        self.number = number
        self.headers = headers
        self._connection = connection
        self._parts: deque[bytes] = deque()
        self._news = asyncio.Event()
        self._ended = False
        self._fault: StreamReset | None = None
        self._finished = False
        #: Whether the peer accepted the stream, once it has replied or can no longer reply.
        self.replied: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    async def read(self) -> bytes:
        """Return the next bytes, or empty bytes once the peer has closed its direction.

        Raises:
            StreamReset: The stream was reset, or the connection ended.
        """
        while not self._parts:
            if self._ended:
                return b""
            if self._fault is not None:
                raise self._fault
            self._news.clear()
            await self._news.wait()
        piece = self._parts.popleft()
        self._connection.was_read(len(piece))
        return piece

    async def write(self, data: bytes) -> None:
        """Send data, in as many frames as necessary.

        Raises:
            StreamReset: The stream was reset, or the connection ended.
        """
        if self._fault is not None or self._finished:
            raise self._fault or StreamReset("this half of the stream is closed")
        for at in range(0, len(data), _PIECE):
            await self._connection.send_data(self.number, data[at : at + _PIECE])

    async def close(self) -> None:
        """Close this side's direction of the stream. The peer may continue to send."""
        if self._finished or self._fault is not None:
            return
        self._finished = True
        await self._connection.send_data(self.number, b"", fin=True)
        self._connection.forget(self)

    async def reset(self) -> None:
        """Reset both directions of the stream, and discard unread data."""
        unread = sum(map(len, self._parts))
        self._parts.clear()
        self._connection.was_read(unread)
        if self._fault is None and not (self._finished and self._ended):
            self.break_off(StreamReset("given up here"))
            await self._connection.send_reset(self.number)

    @property
    def lost(self) -> ConnectionOver | None:
        """The error of the stream if the connection ended first, else None."""
        return self._fault if isinstance(self._fault, ConnectionOver) else None

    @property
    def over(self) -> bool:
        return self._fault is not None or (self._finished and self._ended)

    def take(self, data: bytes, *, fin: bool) -> None:
        """Add data that the peer has sent."""
        if data and not self._ended:
            self._parts.append(data)
        else:
            self._connection.was_read(len(data))
        self._ended = self._ended or fin
        self._news.set()

    def break_off(self, fault: StreamReset) -> None:
        self._fault = self._fault or fault  # data from before the fault can still be read
        if not self.replied.done():
            self.replied.set_result(False)
        self._news.set()


class SpdyConnection:
    """All streams over one ``Duplex``. ``run`` reads from it and must be running for all other methods.

    ``accept`` is called with each stream that the peer opens, in order, after the reply. If it is None, such streams are reset.
    """

    def __init__(self, duplex: Duplex, *, client: bool, accept: Callable[[SpdyStream], Awaitable[None]] | None = None) -> None:
        self._duplex = duplex
        self._accept = accept
        self._packer = Packer()
        self._unpacker = Unpacker()
        self._streams: dict[int, SpdyStream] = {}
        self._next = 1 if client else 2
        self._parity = self._next % 2
        self._last = 0
        self._sending = asyncio.Lock()
        self._unread = 0
        self._room = asyncio.Event()
        self._room.set()
        self._ended = False
        self._resets: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        """Read until the peer ends the connection. All streams have then ended.

        Raises:
            SpdyError: The peer broke the protocol.
            OSError: The connection failed.
        """
        try:
            while data := await self._duplex.read():
                for frame in self._unpacker.feed(data):
                    if frame.kind is Kind.GOAWAY:
                        return
                    await self._take(frame)
                await self._room.wait()
        finally:
            self._ended = True
            for stream in list(self._streams.values()):
                if not stream.over:
                    stream.break_off(ConnectionOver("the connection ended"))
            self._streams.clear()
            await end_tasks(*self._resets, expected=(SpdyError, OSError), logger=_LOG)

    async def open(self, headers: Mapping[str, str]) -> SpdyStream:
        """Open a new stream, and return it when the peer has accepted it.

        Raises:
            StreamReset: The peer refused the stream, or the connection has ended.
        """
        async with self._sending:
            if self._ended:
                raise ConnectionOver("the connection ended")
            stream = SpdyStream(self, self._next, headers)
            self._next += 2
            self._streams[stream.number] = stream
            try:
                await self._duplex.write(self._packer.syn_stream(stream.number, headers))
            except BaseException:
                self.give_up(stream)
                raise
        try:
            taken = await stream.replied
        except BaseException:
            # The peer may have accepted the stream, and would hold it for the lifetime of the connection.
            self.give_up(stream)
            raise
        # An accepted stream may already have ended, with all its data. That is not a refusal.
        if not taken:
            raise stream.lost or StreamReset("the peer refused the stream")
        return stream

    def give_up(self, *streams: SpdyStream) -> None:
        """Reset streams in the background, as soon as a frame can be written. They also end with the connection."""
        task = asyncio.ensure_future(_reset(streams))
        self._resets.add(task)
        task.add_done_callback(self._resets.discard)

    async def ping(self, number: int) -> None:
        """Send a ping, which keeps proxies from closing an idle connection. ``number`` is odd for clients."""
        async with self._sending:
            await self._duplex.write(self._packer.ping(number))

    async def close(self) -> None:
        """Announce that no more streams are accepted. The caller closes the ``Duplex``."""
        with contextlib.suppress(OSError):
            async with self._sending:
                await self._duplex.write(self._packer.goaway(self._last))

    async def send_data(self, stream: int, data: bytes, *, fin: bool = False) -> None:
        async with self._sending:
            await self._duplex.write(self._packer.data(stream, data, fin=fin))

    async def send_reset(self, stream: int) -> None:
        self._streams.pop(stream, None)
        async with self._sending:
            await self._duplex.write(self._packer.rst_stream(stream, _CANCEL))

    def was_read(self, size: int) -> None:
        self._unread -= size
        if self._unread <= _UNREAD:
            self._room.set()

    def forget(self, stream: SpdyStream) -> None:
        """Remove a stream after both directions have ended."""
        if stream.over:
            self._streams.pop(stream.number, None)

    async def _take(self, frame: Frame) -> None:
        stream = self._streams.get(frame.number)
        if frame.kind is Kind.SYN_STREAM:
            await self._opened(frame)
        elif frame.kind is Kind.PING:
            if frame.number % 2 != self._parity:  # else it is the reply to one of ours
                await self.ping(frame.number)
        elif stream is None:
            return  # frames for an ended stream may still be in transit
        elif frame.kind is Kind.DATA:
            self._unread += len(frame.data)
            if self._unread > _UNREAD:
                self._room.clear()
            stream.take(frame.data, fin=frame.fin)
        elif frame.kind is Kind.RST_STREAM:
            stream.break_off(StreamReset("the peer gave the stream up"))
        else:
            if frame.kind is Kind.SYN_REPLY and not stream.replied.done():
                stream.replied.set_result(True)
            stream.take(b"", fin=frame.fin)
        if stream is not None:
            self.forget(stream)

    async def _opened(self, frame: Frame) -> None:
        if frame.number % 2 == self._parity or frame.number <= self._last:
            raise SpdyError(f"stream {frame.number} cannot be opened by the peer now")
        self._last = frame.number
        if self._accept is None or len(self._streams) >= _STREAMS:
            async with self._sending:
                await self._duplex.write(self._packer.rst_stream(frame.number, 3))  # REFUSED_STREAM
            return
        stream = SpdyStream(self, frame.number, frame.headers or {})
        stream.replied.set_result(True)
        self._streams[frame.number] = stream
        if frame.fin:
            stream.take(b"", fin=True)
        async with self._sending:
            await self._duplex.write(self._packer.syn_reply(frame.number, {}))
        await self._accept(stream)


async def _reset(streams: tuple[SpdyStream, ...]) -> None:
    with contextlib.suppress(OSError, KubeloopError):
        for stream in streams:
            await stream.reset()
