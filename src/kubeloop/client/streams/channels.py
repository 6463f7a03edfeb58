"""The channels of a running command (input, output, errors, result, window size), carried by WebSocket messages or SPDY streams.

Source: KEP-4006; k8s.io/apimachinery pkg/util/remotecommand; client-go tools/remotecommand (v4, v5, fallback).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from enum import IntEnum
from typing import Protocol

from kubeloop.client.streams.errors import StreamError
from kubeloop.client.streams.spdy_wire import OPEN_TIME, run_spdy
from kubeloop.client.streams.websocket import WebSocket, open_socket
from kubeloop.meta.errors import ApiError, TransportError
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL, ConnectionOver, SpdyConnection, SpdyStream, StreamReset
from kubeloop.tasks import end_tasks
from kubeloop.timing import Clock, TimeLimit
from kubeloop.transport import NotUpgradedError, Query, Transport

_LOG = logging.getLogger("kubeloop.client.streams")

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
#: Bytes of a channel that one message carries.
PIECE = 32 * 1024
_CLOSE = 255
#: Maximum number of output pieces that wait for the reader; above it, nothing is read from the peer.
_WAITING = 32


class StreamChannel(IntEnum):
    """The numbers of the channels in WebSocket messages."""

    STDIN = 0
    STDOUT = 1
    STDERR = 2
    ERROR = 3
    RESIZE = 4


_NAMES = {
    StreamChannel.STDIN: "stdin",
    StreamChannel.STDOUT: "stdout",
    StreamChannel.STDERR: "stderr",
    StreamChannel.ERROR: "error",
    StreamChannel.RESIZE: "resize",
}


class Channels(Protocol):
    """The channels of a session, over any protocol. One task reads; any number of tasks write."""

    protocol: str

    async def send(self, channel: StreamChannel, data: bytes) -> None:
        """Send data. Raises TransportError if the peer has gone."""

    async def end(self, channel: StreamChannel) -> None:
        """End a channel. Raises StreamError if the protocol cannot express that."""

    async def receive(self) -> tuple[StreamChannel, bytes] | None:
        """Return the next piece of output or the result; None after the peer's regular end."""


class SocketChannels:
    """Channels in the messages of a WebSocket: the first byte is the channel's number."""

    def __init__(self, socket: WebSocket, description: str) -> None:
        self.protocol = socket.protocol
        self._socket = socket
        self._where = description

    async def send(self, channel: StreamChannel, data: bytes) -> None:
        for at in range(0, len(data), PIECE):
            await self._socket.send(bytes((channel,)) + data[at : at + PIECE])

    async def end(self, channel: StreamChannel) -> None:
        if self.protocol != V5:
            raise StreamError(
                f"{self._where}: the server speaks {self.protocol}, which cannot end the input while the output goes on; "
                "end the command from within, or leave the block"
            )
        await self._socket.send(bytes((_CLOSE, channel)))

    async def receive(self) -> tuple[StreamChannel, bytes] | None:
        while (message := await self._socket.receive()) is not None:
            # An empty message says that the server is ready, a CLOSE signal confirms the end of a channel.
            if len(message) > 1 and message[0] in (StreamChannel.STDOUT, StreamChannel.STDERR, StreamChannel.ERROR):
                return StreamChannel(message[0]), message[1:]
        return None


class StreamChannels:
    """Channels as the streams of a SPDY connection; each ends separately."""

    def __init__(self, streams: dict[StreamChannel, SpdyStream], protocol: str, description: str) -> None:
        self.protocol = protocol
        self._streams = streams
        self._where = description
        self._come: asyncio.Queue[tuple[StreamChannel, bytes] | Exception | None] = asyncio.Queue(_WAITING)
        self._reading: asyncio.Task[None] | None = None
        self._ended = False

    async def send(self, channel: StreamChannel, data: bytes) -> None:
        try:
            await self._streams[channel].write(data)
        except (StreamReset, OSError) as error:
            raise TransportError(f"{self._where}: the server has ended the connection ({error})") from error

    async def end(self, channel: StreamChannel) -> None:
        with contextlib.suppress(StreamReset, OSError):
            await self._streams[channel].close()

    async def receive(self) -> tuple[StreamChannel, bytes] | None:
        if self._ended:
            return None
        item = await self._come.get()
        if isinstance(item, Exception):
            raise item
        self._ended = item is None
        return item

    async def read_all(self) -> None:
        """Forward data of all streams to ``receive`` until they have ended. Runs concurrently with the session."""
        readers = [one for one in (StreamChannel.STDOUT, StreamChannel.STDERR, StreamChannel.ERROR) if one in self._streams]
        end: Exception | None = None
        try:
            async with asyncio.TaskGroup() as group:
                for channel in readers:
                    group.create_task(self._read(channel))
        except* (StreamReset, OSError, TransportError) as errors:
            end = TransportError(f"{self._where}: the connection ended before the command's outcome came ({errors.exceptions[0]})")
        except* Exception as errors:  # noqa: BLE001 - raised where the output is read
            end = errors
        await self._come.put(end)

    async def _read(self, channel: StreamChannel) -> None:
        stream = self._streams[channel]
        try:
            while data := await stream.read():
                await self._come.put((channel, data))
        except ConnectionOver:
            raise
        except StreamReset:
            return  # A kubelet resets its streams once the command has ended (apimachinery httpstream/spdy, Close).


@asynccontextmanager
async def open_channels(
    transport: Transport,
    path: str,
    query: Query,
    stream_channels: Sequence[StreamChannel],
    clock: Clock,
    description: str,
    *,
    ends_input: bool,
) -> AsyncIterator[Channels]:
    """Request a command and open its channels over WebSocket, or over SPDY if the WebSocket is refused (client-go's fallback).

    Args:
        transport: The connection to the API server.
        path: The path of the subresource, such as ``exec``.
        query: The parameters of the URL.
        stream_channels: The channels to open.
        clock: The clock of time limits.
        description: Pod and container, for messages.
        ends_input: The caller needs to end the input before the session ends.

    Returns:
        A context manager whose value is the open channels.

    Raises:
        ApiError: The server refused the request; with another code than 401 and 404, over both protocols.
        StreamError: The server chose a protocol that was not offered.
        TransportError: The connection broke, or the channels were not opened in time.
    """
    # v4 cannot end the input of a command that is still writing. SPDY can, so callers that need this use SPDY.
    protocols = (V5,) if ends_input else (V5, V4)
    async with AsyncExitStack() as stack:
        channels: Channels
        try:
            socket = await stack.enter_async_context(open_socket(transport, path, query, protocols, clock, description))
            channels = SocketChannels(socket, description)
        except (ApiError, NotUpgradedError) as refusal:
            if not may_try_other_protocol(refusal):
                raise
            channels = await stack.enter_async_context(_by_spdy(transport, path, query, stream_channels, clock, description))
        yield channels


def may_try_other_protocol(refusal: Exception) -> bool:
    """Return whether another protocol may succeed after a refusal.

    The refusal may come from the server or from a proxy in between. It may even concern permissions, because a WebSocket's GET requires
    another verb than SPDY's POST.
    """
    return not isinstance(refusal, ApiError) or refusal.status.code not in (401, 404)


@asynccontextmanager
async def _by_spdy(
    transport: Transport, path: str, query: Query, stream_channels: Sequence[StreamChannel], clock: Clock, description: str
) -> AsyncIterator[StreamChannels]:
    headers = {STREAM_PROTOCOL: f"{V5}, {V4}"}
    async with transport.upgrade("POST", path, protocol=PROTOCOL, query=query, headers=headers) as wire:
        chosen = wire.headers.get(STREAM_PROTOCOL, "")
        if chosen not in (V5, V4):
            raise StreamError(f'{description}: the server speaks "{chosen}" inside SPDY, where {V5} and {V4} were offered; it is too old')
        async with run_spdy(wire, clock, description) as connection:
            streams = await _open_streams(connection, stream_channels, description, clock)
            channels = StreamChannels(streams, chosen, description)
            reading = asyncio.ensure_future(channels.read_all())
            try:
                yield channels
            finally:
                await end_tasks(reading, logger=_LOG)


async def _open_streams(
    connection: SpdyConnection, stream_channels: Sequence[StreamChannel], description: str, clock: Clock
) -> dict[StreamChannel, SpdyStream]:
    streams: dict[StreamChannel, SpdyStream] = {}
    try:
        async with TimeLimit(clock, OPEN_TIME):
            # The error stream is opened first, so that the server can report later failures on it.
            for channel in (StreamChannel.ERROR, *stream_channels):
                streams[channel] = await connection.open({"streamtype": _NAMES[channel]})
    except TimeoutError as error:
        raise TransportError(f"{description}: the server did not accept the streams within {OPEN_TIME:g} s") from error
    except (StreamReset, OSError) as error:
        raise TransportError(f"{description}: the connection ended while its streams were opened ({error})") from error
    return streams
