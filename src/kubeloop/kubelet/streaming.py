"""The streaming protocols of a kubelet's endpoint: exec, attach and port-forward over SPDY/3.1 and WebSocket.

Source: Kubernetes k8s.io/kubelet pkg/cri/streaming (remotecommand, portforward). The kubelet and ``ScriptedKubelet`` share this module.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal

from kubeloop.meta.errors import KubeloopError
from kubeloop.serving.answer import Duplex, Hijack, Reply, Socket, SocketTakeover
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL, SpdyConnection, SpdyError, SpdyStream, StreamReset
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.kubelet")
#: Exceptions that are expected when the other side closes a connection.
_ENDS = (OSError, KubeloopError)
#: Maximum number of messages of standard input that are buffered for a command; more stay in the connection.
_WAITING = 64

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
#: The WebSocket protocol before version 4: the error channel carries the text of a failure, and nothing after a success.
V1 = "channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
#: The feature that a node declares if its kubelet supports WebSocket.
WEBSOCKETS = "ExtendWebSocketsToKubelet"


@dataclass(eq=False)
class Terminal:
    """The streams of one exec or attach: standard input, output and error, and the sizes of the client's terminal.

    ``sizes`` receives JSON such as ``{"Width": 80, "Height": 24}`` for each size that the client sends.

    Example:
        >>> async def greet(terminal: Terminal) -> int:
        ...     await terminal.print("hello")
        ...     return 0
    """

    stdin: asyncio.Queue[bytes | None] = field(default_factory=lambda: asyncio.Queue(_WAITING))
    sizes: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    write: Callable[[str, bytes], Awaitable[None]] = field(init=False)

    async def print(self, text: str | bytes, stream: Literal["stdout", "stderr"] = "stdout") -> None:
        """Write to the client. Output for a stream that the client did not request is dropped."""
        await self.write(stream, text.encode() if isinstance(text, str) else text)

    async def input(self) -> bytes:
        """Return the next bytes of standard input; ``b""`` at its end and afterwards."""
        data = await self.stdin.get()
        if data is None:
            self.stdin.put_nowait(None)
        return data or b""


#: Runs a command, from the list of its program and arguments and its streams, and returns its exit code.
CommandHandler = Callable[[list[str], Terminal], Awaitable[int]]
#: Opens a connection to a port of a pod; an OSError is reported to the client.
Connector = Callable[[int], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
#: Receives the headers of each SPDY stream that a client opens.
StreamListener = Callable[[dict[str, str]], object]


@dataclass(frozen=True)
class CommandProtocol:
    """Settings for serving commands over SPDY.

    ``version`` is the negotiated protocol. If ``resets`` is true, streams are reset at the command's end instead of closed, as some
    kubelets do. ``on_stream`` receives the headers of each stream.
    """

    version: str = V4
    resets: bool = False
    on_stream: StreamListener | None = None


DEFAULT_PROTOCOL = CommandProtocol()


def serve_command(request: Request, run: CommandHandler, protocol: CommandProtocol = DEFAULT_PROTOCOL) -> Reply:
    """Return the reply to an exec or attach request, which calls ``run`` with the request's command and the client's streams."""
    query = request.query
    command = query.get("command", [])
    run = partial(_run_logged, run)
    if request.header("Upgrade").lower() == "websocket":
        return SocketTakeover(lambda socket: _over_socket(socket, command, run), (V5, V4, V1))
    wanted = {"error", *(to for name, to in (("input", "stdin"), ("output", "stdout"), ("error", "stderr")) if name in query)}
    if "tty" in query:
        wanted = (wanted - {"stderr"}) | {"resize"}
    headers = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL), (STREAM_PROTOCOL, protocol.version)]
    return Hijack(lambda duplex: _over_spdy(duplex, command, run, wanted, protocol), headers)


def serve_ports(request: Request, connect: Connector, on_stream: StreamListener | None = None) -> Reply:
    """Return the reply to a port-forward request, which connects each stream of the client to the port that its headers name."""
    if request.header("Upgrade").lower() == "websocket":
        return SocketTakeover(lambda socket: _forward_ports(_Messages(socket), connect, on_stream), (TUNNEL,))
    headers = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL), (STREAM_PROTOCOL, "portforward.k8s.io")]
    return Hijack(lambda duplex: _forward_ports(duplex, connect, on_stream), headers)


async def _run_logged(run: CommandHandler, command: list[str], terminal: Terminal) -> int:
    """Run a command, and log unexpected exceptions, because the connection then ends without reporting them."""
    try:
        return await run(command, terminal)
    except _ENDS:
        raise
    except Exception:
        _LOG.exception("a command failed")
        raise


async def _over_spdy(
    duplex: Duplex, command: list[str], run: CommandHandler, expected_streams: set[str], protocol: CommandProtocol
) -> None:
    streams: dict[str, SpdyStream] = {}
    complete = asyncio.Event()

    async def accept(stream: SpdyStream) -> None:
        streams[stream.headers["streamtype"]] = stream
        if protocol.on_stream is not None:
            protocol.on_stream(dict(stream.headers))
        if set(streams) == expected_streams:
            complete.set()

    connection = SpdyConnection(duplex, client=False, accept=accept)
    reading = asyncio.ensure_future(connection.run())
    terminal = Terminal()

    async def write(name: str, data: bytes) -> None:
        if name in streams:
            await streams[name].write(data)

    terminal.write = write
    side: list[asyncio.Future[Any]] = []
    try:
        opened = asyncio.ensure_future(complete.wait())
        side.append(opened)
        await asyncio.wait((opened, reading), return_when=asyncio.FIRST_COMPLETED)
        if not opened.done():
            return  # the client left before it had opened its streams
        for name, queue in (("stdin", terminal.stdin), ("resize", terminal.sizes)):
            if name in streams:
                side.append(asyncio.ensure_future(_into(streams[name], queue)))
            elif name == "stdin":
                terminal.stdin.put_nowait(None)
        code = await run(command, terminal)
        await streams["error"].write(exit_status(code))
        for stream in streams.values():
            await (stream.reset() if protocol.resets else stream.close())
        if protocol.resets:
            return
        await connection.close()
        await asyncio.wait((reading,), timeout=5)
    except StreamReset:
        pass
    finally:
        await end_tasks(reading, *side, expected=_ENDS, logger=_LOG)


async def _forward_ports(duplex: Duplex, connect: Connector, on_stream: StreamListener | None) -> None:
    """Connect each data stream to its port; report a failure on the error stream of the same request."""
    errors: dict[str, SpdyStream] = {}
    tasks: set[asyncio.Task[None]] = set()

    async def accept(stream: SpdyStream) -> None:
        if on_stream is not None:
            on_stream(dict(stream.headers))
        if stream.headers["streamtype"] == "error":
            errors[stream.headers["requestid"]] = stream
        else:
            task = asyncio.create_task(_forward_stream(connect, stream, errors.pop(stream.headers["requestid"])))
            tasks.add(task)
            task.add_done_callback(tasks.discard)

    try:
        await SpdyConnection(duplex, client=False, accept=accept).run()
    except (SpdyError, OSError):
        pass
    finally:
        await end_tasks(*tasks, expected=_ENDS, logger=_LOG)


async def _forward_stream(connect: Connector, stream: SpdyStream, errors: SpdyStream) -> None:
    try:
        reader, writer = await connect(int(stream.headers["port"]))
    except OSError as fault:
        await errors.write(f"an error occurred forwarding: {fault.strerror or fault}".encode())
        await errors.close()
        await stream.close()
        return

    async def there() -> None:
        while data := await stream.read():
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def back() -> None:
        while data := await reader.read(1 << 16):
            await stream.write(data)
        await stream.close()

    try:
        await asyncio.gather(there(), back())
    except (StreamReset, ConnectionError):
        pass
    finally:
        writer.close()
        with contextlib.suppress(StreamReset, ConnectionError):
            await errors.close()


async def _into(stream: SpdyStream, queue: asyncio.Queue[Any]) -> None:
    try:
        while data := await stream.read():
            await queue.put(data)
    except StreamReset:
        pass
    await queue.put(None)


async def _over_socket(socket: Socket, command: list[str], run: CommandHandler) -> None:
    terminal = Terminal()
    channels = {"stdout": 1, "stderr": 2}

    async def write(name: str, data: bytes) -> None:
        await socket.send(bytes([channels[name]]) + data)

    async def read() -> None:
        while (message := await socket.receive()) is not None:
            data = message if isinstance(message, bytes) else message.encode()
            if data[:1] == b"\x00":
                await terminal.stdin.put(data[1:] or None)
            elif data[:1] == b"\x04":
                await terminal.sizes.put(data[1:])
            elif data == b"\xff\x00":
                await terminal.stdin.put(None)
        await terminal.stdin.put(None)

    terminal.write = write
    reading = asyncio.ensure_future(read())
    try:
        code = await run(command, terminal)
        if socket.protocol in (V5, V4):
            await socket.send(b"\x03" + exit_status(code))
        elif code:
            await socket.send(b"\x03" + _exit_message(code).encode())
    finally:
        await end_tasks(reading, expected=_ENDS, logger=_LOG)


def exit_status(code: int) -> bytes:
    """Return the Status that reports a command's exit code to the client, as JSON."""
    if code == 0:
        return b'{"metadata":{},"status":"Success"}'
    causes = [{"reason": "ExitCode", "message": str(code)}]
    tree = {"metadata": {}, "status": "Failure", "message": _exit_message(code), "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(tree).encode()


def _exit_message(code: int) -> str:
    return f"command terminated with non-zero exit code: exit status {code}"


class _Messages:
    """Presents the binary messages of a WebSocket as a duplex stream of bytes."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (message := await self._socket.receive()) is not None:
            if isinstance(message, bytes) and message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
