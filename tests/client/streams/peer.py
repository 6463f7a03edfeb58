"""A server that a test plays itself: it answers upgrade requests as configured, and speaks WebSocket or SPDY behind them."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Self

from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side

from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.serving.spdy import SpdyConnection, SpdyStream
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import Transport

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
SUCCESS = b'{"metadata":{},"status":"Success"}'


class UpgradeRequest:
    """One request, and the connection that it came on."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: str) -> None:
        first, *lines = head.split("\r\n")
        self.method, self.target, _ = first.split(" ")
        self.headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
        self.reader = reader
        self.writer = writer
        self.frames = Protocol(Side.SERVER, max_size=None)
        self._events: list[Frame] = []

    def say(self, status: str, body: bytes = b"", headers: Mapping[str, str] | None = None, **more: str) -> None:
        """A whole answer, or with 101 the head of a change."""
        fields = {**(headers or {}), **more}
        lines = [f"HTTP/1.1 {status}", *(f"{name.replace('_', '-')}: {value}" for name, value in fields.items())]
        lines += [] if status.startswith("101") else [f"Content-Length: {len(body)}"]
        self.writer.write("\r\n".join([*lines, "", ""]).encode() + body)

    def accept(self, protocol: str, **more: str) -> None:
        """The handshake's answer."""
        key = self.headers["sec-websocket-key"].encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID).digest()).decode()
        headers = {"Sec_WebSocket_Accept": accept, "Sec_WebSocket_Protocol": protocol, **more}
        self.say("101 Switching Protocols", headers=headers, Upgrade="websocket", Connection="Upgrade")

    def send(self, *messages: bytes) -> None:
        for message in messages:
            self.frames.send_binary(message)
        self.flush()

    def end(self, code: int = 1000) -> None:
        self.frames.send_close(code)
        self.flush()

    def flush(self) -> None:
        self.writer.write(b"".join(self.frames.data_to_send()))

    async def frame(self) -> Frame | None:
        """The next frame of any kind; None at the end."""
        while not self._events:
            data = await self.reader.read(1 << 16)
            if not data:
                return None
            self.frames.receive_data(data)
            self._events += [one for one in self.frames.events_received() if isinstance(one, Frame)]
            self.flush()
        return self._events.pop(0)

    async def message(self) -> bytes | None:
        """The next binary message."""
        while (frame := await self.frame()) is not None and frame.opcode is not Opcode.CLOSE:
            if frame.opcode is Opcode.BINARY:
                return bytes(frame.data)
        return None

    # A duplex, for SPDY.
    async def read(self) -> bytes:
        return await self.reader.read(1 << 16)

    async def write(self, data: bytes) -> None:
        self.writer.write(data)
        await self.writer.drain()


Serve = Callable[[UpgradeRequest], Awaitable[None]]


class Peer:
    """``async with``; each request is given to ``serve``, and its connection ends with it."""

    def __init__(self, serve: Serve, clock: Clock | None = None) -> None:
        self._serve = serve
        self._clock = clock or SystemClock()
        self._tasks: set[asyncio.Task[None]] = set()
        self.calls: list[UpgradeRequest] = []

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._one, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        self.client = Client(Transport(ClusterConfig(server=f"http://127.0.0.1:{port}")), clock=self._clock)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.client.close()
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            call = UpgradeRequest(reader, writer, head[:-4].decode())
            self.calls.append(call)
            await self._serve(call)
            await writer.drain()
            writer.close()
            await writer.wait_closed()
        except (OSError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.transport.abort()


async def serve_spdy(
    call: UpgradeRequest, expected: int, answer: Callable[[dict[str, SpdyStream]], Awaitable[None]], protocol: str
) -> None:
    """SPDY behind an upgrade: ``answer`` runs once as many streams are open."""
    call.say("101 Switching Protocols", Upgrade="SPDY/3.1", Connection="Upgrade", X_Stream_Protocol_Version=protocol)
    streams: dict[str, SpdyStream] = {}
    complete = asyncio.Event()

    async def accept(stream: SpdyStream) -> None:
        streams[stream.headers["streamtype"]] = stream
        if len(streams) == expected:
            complete.set()

    running = asyncio.ensure_future(SpdyConnection(call, client=False, accept=accept).run())
    try:
        await complete.wait()
        await answer(streams)
        await asyncio.wait((running,))
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
