"""One connection to a port of a pod: a SPDY stream of data and one of errors, also as an asyncio transport."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
from typing import Any

from kubeloop.client.streams.errors import ForwardingError
from kubeloop.client.streams.spdy_wire import OPEN_TIME, SpdySession
from kubeloop.meta.errors import KubeloopError, TransportError
from kubeloop.serving.spdy import ConnectionOver, SpdyStream, StreamReset
from kubeloop.tasks import end_tasks
from kubeloop.timing import TimeLimit

_LOG = logging.getLogger("kubeloop.client.streams")

#: Maximum bytes of a node's error message that are stored.
_ERROR = 4096
#: Seconds to wait for an error message after the node has ended the data stream.
_LAST_WORDS = 1.0


class PortStream:
    """A connection to a port of a pod: bytes in both directions. One task reads, one writes."""

    def __init__(self, running: SpdySession, data: SpdyStream, errors: SpdyStream, description: str) -> None:
        """Create an instance. Programs call ``open_port`` instead.

        Args:
            running: The SPDY connection.
            data: The stream of data.
            errors: The stream on which the node reports a failure.
            description: Pod and port, for messages.
        """
        self.where = description
        self._running = running
        self._data = data
        self._errors = errors
        self._said = b""
        self._given_up = False
        self._listening = asyncio.ensure_future(self._listen())

    async def read(self) -> bytes:
        """Return the next bytes, or ``b""`` once the pod has closed its side, or after ``give_up``.

        Raises:
            ForwardingError: The node could not connect, or lost the connection. TransportError: the connection to the server was lost.
        """
        try:
            data = await self._data.read()
        except StreamReset as error:
            if self._given_up:
                return b""
            raise self._fault() from error
        if not data:
            await asyncio.sleep(0)  # an error that arrived on the other stream before this end may not have been read yet
            if self._said:
                raise self._fault()
        return data

    async def write(self, data: bytes) -> None:
        """Send bytes; return when more can be sent. Raises the errors of ``read``."""
        try:
            await self._data.write(data)
        except (StreamReset, OSError, KubeloopError) as error:
            raise self._fault() from error

    async def write_eof(self) -> None:
        """End the local side; the pod's side can continue."""
        with contextlib.suppress(StreamReset, OSError, KubeloopError):
            await self._data.close()

    def give_up(self) -> None:
        """Reset both directions and release a waiting reader."""
        self._given_up = True
        self._running.connection.give_up(self._data, self._errors)

    async def finish(self) -> None:
        """Discard unsent data after the pod has closed its side, and check that the stream ended without an error.

        Raises:
            ForwardingError: The node reported an error.
        """
        with contextlib.suppress(OSError, KubeloopError):
            await self._data.reset()
        await asyncio.wait((self._listening,), timeout=_LAST_WORDS)
        if self._said:
            raise self._fault()

    async def close(self) -> None:
        """Reset the streams at once."""
        self._listening.cancel()
        self.give_up()
        await end_tasks(self._listening, logger=_LOG)

    def _fault(self) -> KubeloopError:
        if self._said:
            return ForwardingError(f"{self.where}: {' '.join(self._said.decode('utf-8', 'replace').split())}")
        return self._running.fault or TransportError(f"{self.where}: the pod's node closed the connection")

    async def _listen(self) -> None:
        with contextlib.suppress(StreamReset):
            while data := await self._errors.read():
                self._said = (self._said + data)[:_ERROR]


async def open_port(running: SpdySession, numbers: itertools.count[int], port: int, description: str) -> PortStream:
    """Open a connection to ``port``. If the port is closed, the first read raises.

    Args:
        running: The SPDY connection to the node.
        numbers: Yields the number of the next connection.
        port: The pod's port.
        description: Pod and port, for messages.

    Returns:
        The connection.

    Raises:
        ForwardingError: The node accepts no more connections. TransportError: the connection to the node has ended.
    """
    # The error stream comes first: it reports failures of the data stream.
    names = {"port": str(port), "requestid": str(next(numbers))}
    errors: SpdyStream | None = None
    try:
        async with TimeLimit(running.clock, OPEN_TIME):
            errors = await running.connection.open({"streamtype": "error", **names})
            await errors.close()
            data = await running.connection.open({"streamtype": "data", **names})
    except BaseException as error:
        if errors is not None:
            running.connection.give_up(errors)
        if isinstance(error, TimeoutError):
            raise TransportError(f"{description}: the pod's node did not accept the connection within {OPEN_TIME:g} s") from error
        if isinstance(error, StreamReset) and not isinstance(error, ConnectionOver) and running.fault is None:
            raise ForwardingError(f"{description}: the pod's node does not accept the connection; are too many open?") from error
        if isinstance(error, OSError | KubeloopError):
            raise running.fault or TransportError(f"{description}: the connection ended while a stream was opened ({error})") from error
        raise
    return PortStream(running, data, errors, description)


_HIGH, _LOW = 64 * 1024, 16 * 1024


class PortTransport(asyncio.Transport):
    """A connection to a port of a pod as an asyncio transport, so that any protocol runs over it. Errors reach ``connection_lost``."""

    #: ``loop.start_tls`` requires this attribute.
    _start_tls_compatible = True

    def __init__(self, stream: PortStream, protocol: asyncio.BaseProtocol, extra: dict[str, Any]) -> None:
        super().__init__(extra)
        self._stream = stream
        self._protocol = protocol
        self._buffer = bytearray()
        self._marks = (_LOW, _HIGH)
        self._held_back = False
        self._news = asyncio.Event()
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._ends = False  # no more is written
        self._closing = False
        self._lost = False
        loop = asyncio.get_running_loop()
        protocol.connection_made(self)
        self._tasks = [loop.create_task(self._read()), loop.create_task(self._write())]
        self.closed: asyncio.Task[None] | None = None

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    def is_reading(self) -> bool:
        return self._may_read.is_set() and not self._closing

    def pause_reading(self) -> None:
        self._may_read.clear()

    def resume_reading(self) -> None:
        self._may_read.set()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        high = _HIGH if high is None else high
        self._marks = (high // 4 if low is None else low, high)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._marks

    def get_write_buffer_size(self) -> int:
        return len(self._buffer)

    def write(self, data: Any) -> None:
        if self._ends and not self._closing:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not data:
            return
        self._buffer += data
        self._news.set()
        if len(self._buffer) > self._marks[1] and not self._held_back:
            self._held_back = True
            self._call("pause_writing")

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self._ends = True
        self._news.set()

    def is_closing(self) -> bool:
        return self._closing

    @property
    def is_over(self) -> bool:
        """Whether all tasks of the connection have ended."""
        return self.closed is not None and self.closed.done()

    def close(self) -> None:
        """Close the connection after written data was sent."""
        if not self._closing:
            self._closing = self._ends = True
            self._news.set()
            if not self._buffer:
                self._lose(None)

    def abort(self) -> None:
        self._closing = True
        self._lose(None)

    async def _read(self) -> None:
        try:
            while True:
                await self._may_read.wait()
                data = await self._stream.read()
                await self._may_read.wait()
                if self._closing:
                    return
                if not data:
                    break
                self._feed(data)
            if not self._call("eof_received"):
                self.close()
        except KubeloopError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - logged, and given to the protocol
            self._break(error)

    def _feed(self, data: bytes) -> None:
        protocol = self._protocol
        if isinstance(protocol, asyncio.BufferedProtocol):
            view = memoryview(data)
            while view:
                into = memoryview(protocol.get_buffer(len(view)))
                size = min(len(into), len(view))
                into[:size] = view[:size]
                protocol.buffer_updated(size)
                view = view[size:]
        elif isinstance(protocol, asyncio.Protocol):
            protocol.data_received(data)

    async def _write(self) -> None:
        try:
            while True:
                await self._news.wait()
                self._news.clear()
                while self._buffer:
                    piece = bytes(self._buffer[:_HIGH])
                    await self._stream.write(piece)
                    del self._buffer[: len(piece)]
                    if self._held_back and len(self._buffer) <= self._marks[0]:
                        self._held_back = False
                        self._call("resume_writing")
                if self._closing:
                    self._lose(None)
                    return
                if self._ends:
                    await self._stream.write_eof()
        except KubeloopError as error:
            self._lose(error)
        except Exception as error:  # noqa: BLE001 - logged, and given to the protocol
            self._break(error)

    def _break(self, error: Exception) -> None:
        """End the connection after an error of the protocol's callbacks, as asyncio's own transports do."""
        _LOG.error("a connection to a pod's port failed (%s)", type(error).__name__, exc_info=error)
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = self._closing = True
        self._buffer.clear()
        loop = asyncio.get_running_loop()
        loop.call_soon(self._protocol.connection_lost, error)
        self.closed = loop.create_task(self._end())

    async def _end(self) -> None:
        await end_tasks(*self._tasks, logger=_LOG)
        await self._stream.close()

    def _call(self, name: str) -> Any:
        return getattr(self._protocol, name)()
