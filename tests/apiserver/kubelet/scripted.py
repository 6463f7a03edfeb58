"""A kubelet for tests: serves logs, exec, attach and port-forward as a node does, over TLS, by SPDY/3.1 and WebSocket.

Commands run as processes of this machine, so that kubectl's own (``tar`` for ``cp``) work; every request is kept for the test to look at.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer, Duplex, Frames, Reply, Socket, SocketTakeover, Takeover
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL, Connection, SpdyError, Stream, StreamReset

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
WEBSOCKETS = "ExtendWebSocketsToKubelet"


@dataclass
class Terminal:
    """What a command has of its client: three streams and the sizes of the window, whatever carries them."""

    stdin: asyncio.Queue[bytes | None] = field(default_factory=asyncio.Queue)
    sizes: asyncio.Queue[bytes] = field(default_factory=asyncio.Queue)
    write: Callable[[str, bytes], Awaitable[None]] = field(init=False)

    async def input(self) -> bytes:
        """Empty at the end, and from then on."""
        data = await self.stdin.get()
        if data is None:
            self.stdin.put_nowait(None)
        return data or b""


Command = Callable[[list[str], Terminal], Awaitable[int]]


@dataclass
class Seen:
    """One request, as the kubelet saw it."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    certificate: str
    body: bytes = b""
    protocols: list[str] = field(default_factory=list)


async def run_process(command: list[str], terminal: Terminal, cwd: Path | None = None) -> int:
    """The command as a process; its exit code."""
    process = await asyncio.create_subprocess_exec(
        *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE, cwd=cwd
    )
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None

    async def feed(stdin: asyncio.StreamWriter) -> None:
        try:
            while data := await terminal.input():
                stdin.write(data)
                await stdin.drain()
            stdin.close()
        except ConnectionError:
            pass

    async def copy(reader: asyncio.StreamReader, name: str) -> None:
        while data := await reader.read(1 << 16):
            await terminal.write(name, data)

    copying = [asyncio.ensure_future(copy(process.stdout, "stdout")), asyncio.ensure_future(copy(process.stderr, "stderr"))]
    feeding = asyncio.ensure_future(feed(process.stdin))
    try:
        await asyncio.gather(*copying)
        return await process.wait()
    finally:
        await _to_the_end(_ended(process, feeding, *copying))


async def _ended(process: asyncio.subprocess.Process, *tasks: asyncio.Future[None]) -> None:
    """Nothing of the process is left. A reader has one user at a time, and what nobody has read keeps its pipe open."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    if process.returncode is None:
        process.kill()
    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdin.close()
    await asyncio.gather(process.stdout.read(), process.stderr.read(), process.wait())


async def _to_the_end(ending: Coroutine[Any, Any, None]) -> None:
    """However often whoever waits is cancelled: a server that closes does it more than once."""
    task, cancelled = asyncio.ensure_future(ending), False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            cancelled = True
    task.result()
    if cancelled:
        raise asyncio.CancelledError


class ScriptedKubelet:
    """``async with``; then ``port`` serves. A test sets ``log``, ``read_log``, ``command``, ``attached`` and ``refusal`` as it likes."""

    def __init__(self, *, cwd: Path | None = None, client_authority: bytes = b"") -> None:
        authority = CertificateAuthority.create("kubelet-ca")
        own = authority.issue("kubelet", ip_addresses=("127.0.0.1",), server=True)
        self.authority = authority.certificate
        self._listener = Listener(
            self._serve, server_context(own.certificate, own.key, client_authority or authority.certificate), host="0.0.0.0"
        )
        self.requests: list[Seen] = []
        self.log: list[bytes] = [b"one\n", b"two\n"]
        self.log_goes_on = asyncio.Event()
        self.read_log: Callable[[dict[str, list[str]]], AsyncIterator[bytes]] | None = None
        self.refusal: Answer | None = None
        self.refuses_websockets = False
        self.command: Command = lambda command, terminal: run_process(command, terminal, cwd)
        self.attached: Command = self._echo
        self.spdy_protocol = V4
        self.resets_streams = False
        self.streams: list[dict[str, str]] = []

    async def __aenter__(self) -> Self:
        await self._listener.bind()
        await self._listener.serve()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.log_goes_on.set()
        # kube-apiserver leaves connections open that were not upgraded, and would not answer to a polite end.
        self._listener.abort()
        await self._listener.close()

    def die(self) -> None:
        """Every connection breaks off, and no more are taken."""
        self._listener.abort()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def last(self) -> Seen:
        return self.requests[-1]

    async def _serve(self, request: Request) -> Reply:
        names = dict(pair[0] for pair in (request.peer_certificate or {}).get("subject", ()))
        offered = request.headers.getall("X-Stream-Protocol-Version", []) if hasattr(request.headers, "getall") else []
        seen = Seen(
            request.method,
            request.path,
            request.query,
            {name.lower(): value for name, value in request.headers.items()},
            names.get("commonName", ""),
            await request.read_body(1 << 30),
            list(offered),
        )
        self.requests.append(seen)
        if self.refuses_websockets and request.header("Upgrade").lower() == "websocket":
            return Answer(403, body=b"no WebSockets here", content_type="text/plain")
        if self.refusal is not None:
            return Answer(self.refusal.status, body=self.refusal.body, content_type=self.refusal.content_type)
        action = request.path.split("/")[1]
        if action == "containerLogs":
            log = self.read_log(request.query) if self.read_log is not None else self._lines("follow" in request.query)
            return Frames(log, content_type="text/plain")
        if action in ("exec", "attach"):
            return self._run(request, self.command if action == "exec" else self.attached)
        if action == "portForward":
            return self._forward(request)
        told = {"path": request.path, "query": request.query_string, "method": request.method, "body": seen.body.decode("latin-1")}
        return Answer(200, body=json.dumps(told).encode(), content_type="application/json", headers=[("X-From", "kubelet")])

    async def _lines(self, follow: bool) -> AsyncIterator[bytes]:
        for line in self.log:
            yield line
        if follow:
            await self.log_goes_on.wait()
            yield b"later\n"

    @staticmethod
    async def _echo(command: list[str], terminal: Terminal) -> int:
        await terminal.write("stdout", b"attached\n")
        while data := await terminal.input():
            await terminal.write("stdout", data.upper())
        return 0

    def _run(self, request: Request, run: Command) -> Reply:
        query = request.query
        command = query.get("command", [])
        if request.header("Upgrade").lower() == "websocket":
            return SocketTakeover(lambda socket: _over_socket(socket, command, run), (V5, V4))
        wanted = {"error", *(to for name, to in (("input", "stdin"), ("output", "stdout"), ("error", "stderr")) if name in query)}
        if "tty" in query:
            wanted = (wanted - {"stderr"}) | {"resize"}
        headers = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL), (STREAM_PROTOCOL, self.spdy_protocol)]
        return Takeover(lambda duplex: self._over_spdy(duplex, command, run, wanted), headers)

    async def _over_spdy(self, duplex: Duplex, command: list[str], run: Command, wanted: set[str]) -> None:
        streams: dict[str, Stream] = {}
        complete = asyncio.Event()

        async def accept(stream: Stream) -> None:
            streams[stream.headers["streamtype"]] = stream
            self.streams.append(dict(stream.headers))
            if set(streams) == wanted:
                complete.set()

        connection = Connection(duplex, client=False, accept=accept)
        reading = asyncio.ensure_future(connection.run())
        terminal = Terminal()

        async def write(name: str, data: bytes) -> None:
            if name in streams:
                await streams[name].write(data)

        terminal.write = write
        side: list[asyncio.Future[Any]] = []
        try:
            await complete.wait()
            for name, queue in (("stdin", terminal.stdin), ("resize", terminal.sizes)):
                if name in streams:
                    side.append(asyncio.ensure_future(_into(streams[name], queue)))
                elif name == "stdin":
                    terminal.stdin.put_nowait(None)
            code = await run(command, terminal)
            await streams["error"].write(_status(code))
            for stream in streams.values():
                # Real kubelets end their half of no stream: they reset all of them, and end the connection.
                await (stream.reset() if self.resets_streams else stream.close())
            if self.resets_streams:
                return
            await connection.close()
            await asyncio.wait((reading,), timeout=5)
        except StreamReset:
            pass
        finally:
            for task in (reading, *side):
                task.cancel()
            await asyncio.gather(reading, *side, return_exceptions=True)

    def _forward(self, request: Request) -> Reply:
        if request.header("Upgrade").lower() == "websocket":
            return SocketTakeover(lambda socket: self._ports(_Messages(socket)), (TUNNEL,))
        headers = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL), (STREAM_PROTOCOL, "portforward.k8s.io")]
        return Takeover(self._ports, headers)

    async def _ports(self, duplex: Duplex) -> None:
        """Each data stream is a connection to that port of this machine; what goes wrong is said on the error stream."""
        errors: dict[str, Stream] = {}
        tasks: set[asyncio.Task[None]] = set()

        async def accept(stream: Stream) -> None:
            self.streams.append(dict(stream.headers))
            if stream.headers["streamtype"] == "error":
                errors[stream.headers["requestid"]] = stream
            else:
                tasks.add(asyncio.create_task(_forwarded(stream, errors[stream.headers["requestid"]])))

        try:
            await Connection(duplex, client=False, accept=accept).run()
        except (SpdyError, OSError):
            pass
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


async def _into(stream: Stream, queue: asyncio.Queue[Any]) -> None:
    try:
        while data := await stream.read():
            queue.put_nowait(data)
    except StreamReset:
        pass
    queue.put_nowait(None)


async def _over_socket(socket: Socket, command: list[str], run: Command) -> None:
    terminal = Terminal()
    channels = {"stdout": 1, "stderr": 2}

    async def write(name: str, data: bytes) -> None:
        await socket.send(bytes([channels[name]]) + data)

    async def read() -> None:
        while (message := await socket.receive()) is not None:
            data = message if isinstance(message, bytes) else message.encode()
            if data[:1] == b"\x00":
                terminal.stdin.put_nowait(data[1:] or None)
            elif data[:1] == b"\x04":
                terminal.sizes.put_nowait(data[1:])
            elif data == b"\xff\x00":
                terminal.stdin.put_nowait(None)
        terminal.stdin.put_nowait(None)

    terminal.write = write
    reading = asyncio.ensure_future(read())
    try:
        code = await run(command, terminal)
        await socket.send(b"\x03" + _status(code))
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)


async def _forwarded(stream: Stream, errors: Stream) -> None:
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", int(stream.headers["port"]))
    except OSError as fault:
        await errors.write(f"an error occurred forwarding: {fault.strerror}".encode())
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


def _status(code: int) -> bytes:
    if code == 0:
        return b'{"metadata":{},"status":"Success"}'
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    tree = {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(tree).encode()


class _Messages:
    """A WebSocket's binary messages as bytes."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (message := await self._socket.receive()) is not None:
            if isinstance(message, bytes) and message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
