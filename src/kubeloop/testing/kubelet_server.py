"""The server of a scripted kubelet: HTTP requests, SPDY streams and WebSockets as a node's kubelet serves them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from kubeloop.meta.errors import KubeloopError
from kubeloop.pki import CertificateAuthority
from kubeloop.serving.answer import Answer, Duplex, Hijack, Reply, Socket, SocketTakeover, StreamingResponse
from kubeloop.serving.listener import Listener, server_context
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL, SpdyConnection, SpdyError, SpdyStream, StreamReset
from kubeloop.tasks import end_tasks
from kubeloop.testing.kubelet_containers import CommandHandler, Terminal

_LOG = logging.getLogger("kubeloop.testing")
#: Exceptions of connections that the other side closes.
_ENDS = (OSError, KubeloopError)

V5, V4 = "v5.channel.k8s.io", "v4.channel.k8s.io"
TUNNEL = "SPDY/3.1+portforward.k8s.io"
#: The feature that a node declares if its kubelet supports WebSocket.
WEBSOCKETS = "ExtendWebSocketsToKubelet"


@dataclass
class KubeletRequest:
    """One request, as the kubelet received it. ``certificate`` is the common name of the client's certificate.

    Example:
        >>> request = KubeletRequest("GET", "/pods", {}, {}, certificate="kube-apiserver")
        >>> request.method, request.path
        ('GET', '/pods')
    """

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    certificate: str
    body: bytes = b""
    protocols: list[str] = field(default_factory=list)

    @property
    def target(self) -> tuple[str, str, str]:
        """Namespace, pod and container; the container is empty for port-forwards."""
        _, _, namespace, pod, *rest = [*self.path.split("/"), "", ""]
        return namespace, pod, rest[0]


class KubeletServer:
    """Serves logs, exec, attach and port-forward as a kubelet does: TLS, SPDY/3.1 and WebSocket. Subclasses define the responses.

    ``async with`` starts it; then ``port`` is open. ``requests`` has every request, oldest first.
    """

    def __init__(self, *, host: str = "127.0.0.1", client_authority: bytes = b"") -> None:
        """Make a server. ``client_authority`` (PEM) may sign clients' certificates, which are requested and recorded, but not required."""
        authority = CertificateAuthority.create("kubelet-ca")
        own = authority.issue("kubelet", ip_addresses=("127.0.0.1",), server=True)
        #: PEM, for ``--kubelet-certificate-authority``.
        self.authority = authority.certificate
        self._listener = Listener(
            self._serve, server_context(own.certificate, own.key, client_authority or authority.certificate), host=host
        )
        self.requests: list[KubeletRequest] = []
        #: Headers of the SPDY streams that clients opened, oldest first.
        self.streams: list[dict[str, str]] = []
        #: The protocol that is agreed on for exec and attach over SPDY.
        self.spdy_protocol = V4
        #: Whether a command's streams are reset at its end, as real kubelets do, instead of closed.
        self.resets_streams = False

    def answer(self, request: KubeletRequest) -> Answer | None:  # noqa: ARG002 - for subclasses
        """Return a response that replaces the requested one, such as a refusal; None to serve the request."""
        return None

    def log_of(self, request: KubeletRequest) -> AsyncIterator[bytes]:
        """Return the log of ``request.target``, by the query's ``follow``, ``tailLines``, ``sinceTime``, ``timestamps`` ..."""
        raise NotImplementedError

    def exec_of(self, request: KubeletRequest) -> CommandHandler:
        """Return the handler of an exec's command."""
        raise NotImplementedError

    def attach_of(self, request: KubeletRequest) -> CommandHandler:
        """Return the handler of an attach, for the main process of a container."""
        raise NotImplementedError

    async def connect(self, request: KubeletRequest, port: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection to a pod's port.

        Raises:
            OSError: Nothing listens there; the client gets the message.
        """
        raise NotImplementedError

    async def __aenter__(self) -> Self:
        await self._listener.bind()
        await self._listener.serve()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # kube-apiserver leaves connections without an upgrade open, and would not respond to a graceful close.
        self._listener.abort()
        await self._listener.close()

    def die(self) -> None:
        """Break every connection off and accept no more, as a node that loses power."""
        self._listener.abort()

    @property
    def port(self) -> int:
        return self._listener.port

    @property
    def last(self) -> KubeletRequest:
        """The newest request."""
        return self.requests[-1]

    async def _serve(self, request: Request) -> Reply:
        names = dict(pair[0] for pair in (request.peer_certificate or {}).get("subject", ()))
        offered = request.headers.getall("X-Stream-Protocol-Version", []) if hasattr(request.headers, "getall") else []
        seen = KubeletRequest(
            request.method,
            request.path,
            request.query,
            {name.lower(): value for name, value in request.headers.items()},
            names.get("commonName", ""),
            await request.read_body(1 << 30),
            list(offered),
        )
        self.requests.append(seen)
        if (instead := self.answer(seen)) is not None:
            return instead
        action = request.path.split("/")[1]
        if action == "containerLogs":
            return StreamingResponse(self.log_of(seen), content_type="text/plain")
        if action in ("exec", "attach"):
            return self._run(request, self.exec_of(seen) if action == "exec" else self.attach_of(seen))
        if action == "portForward":
            return self._forward(request, seen)
        told = {"path": request.path, "query": request.query_string, "method": request.method, "body": seen.body.decode("latin-1")}
        return Answer(200, body=json.dumps(told).encode(), content_type="application/json", headers=[("X-From", "kubelet")])

    def _run(self, request: Request, run: CommandHandler) -> Reply:
        query = request.query
        command = query.get("command", [])
        if request.header("Upgrade").lower() == "websocket":
            return SocketTakeover(lambda socket: _over_socket(socket, command, run), (V5, V4))
        wanted = {"error", *(to for name, to in (("input", "stdin"), ("output", "stdout"), ("error", "stderr")) if name in query)}
        if "tty" in query:
            wanted = (wanted - {"stderr"}) | {"resize"}
        headers = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL), (STREAM_PROTOCOL, self.spdy_protocol)]
        return Hijack(lambda duplex: self._over_spdy(duplex, command, run, wanted), headers)

    async def _over_spdy(self, duplex: Duplex, command: list[str], run: CommandHandler, expected_streams: set[str]) -> None:
        streams: dict[str, SpdyStream] = {}
        complete = asyncio.Event()

        async def accept(stream: SpdyStream) -> None:
            streams[stream.headers["streamtype"]] = stream
            self.streams.append(dict(stream.headers))
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
            await complete.wait()
            for name, queue in (("stdin", terminal.stdin), ("resize", terminal.sizes)):
                if name in streams:
                    side.append(asyncio.ensure_future(_into(streams[name], queue)))
                elif name == "stdin":
                    terminal.stdin.put_nowait(None)
            code = await run(command, terminal)
            await streams["error"].write(_status(code))
            for stream in streams.values():
                await (stream.reset() if self.resets_streams else stream.close())
            if self.resets_streams:
                return
            await connection.close()
            await asyncio.wait((reading,), timeout=5)
        except StreamReset:
            pass
        finally:
            await end_tasks(reading, *side, expected=_ENDS, logger=_LOG)

    def _forward(self, request: Request, seen: KubeletRequest) -> Reply:
        if request.header("Upgrade").lower() == "websocket":
            return SocketTakeover(lambda socket: self._ports(_Messages(socket), seen), (TUNNEL,))
        headers = [("Connection", "Upgrade"), ("Upgrade", PROTOCOL), (STREAM_PROTOCOL, "portforward.k8s.io")]
        return Hijack(lambda duplex: self._ports(duplex, seen), headers)

    async def _ports(self, duplex: Duplex, seen: KubeletRequest) -> None:
        """Connect each data stream to its port; write a failure to the error stream."""
        errors: dict[str, SpdyStream] = {}
        tasks: set[asyncio.Task[None]] = set()

        async def accept(stream: SpdyStream) -> None:
            self.streams.append(dict(stream.headers))
            if stream.headers["streamtype"] == "error":
                errors[stream.headers["requestid"]] = stream
            else:
                tasks.add(asyncio.create_task(self._forwarded(seen, stream, errors[stream.headers["requestid"]])))

        try:
            await SpdyConnection(duplex, client=False, accept=accept).run()
        except (SpdyError, OSError):
            pass
        finally:
            await end_tasks(*tasks, expected=_ENDS, logger=_LOG)

    async def _forwarded(self, seen: KubeletRequest, stream: SpdyStream, errors: SpdyStream) -> None:
        try:
            reader, writer = await self.connect(seen, int(stream.headers["port"]))
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
            queue.put_nowait(data)
    except StreamReset:
        pass
    queue.put_nowait(None)


async def _over_socket(socket: Socket, command: list[str], run: CommandHandler) -> None:
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
        await end_tasks(reading, expected=_ENDS, logger=_LOG)


def _status(code: int) -> bytes:
    if code == 0:
        return b'{"metadata":{},"status":"Success"}'
    causes = [{"reason": "ExitCode", "message": str(code)}]
    message = f"command terminated with non-zero exit code: exit status {code}"
    tree = {"metadata": {}, "status": "Failure", "message": message, "reason": "NonZeroExitCode", "details": {"causes": causes}}
    return json.dumps(tree).encode()


class _Messages:
    """The binary messages of a WebSocket as a stream of bytes."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (message := await self._socket.receive()) is not None:
            if isinstance(message, bytes) and message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
