"""Port-forward: ports of a pod as local sockets, and as connections within this process.

It uses SPDY tunnelled in a WebSocket; if that is refused, plain SPDY, as kubectl does. Source: KEP-4006, client-go tools/portforward.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import socket
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from kubeloop.client.streams.channels import may_try_other_protocol
from kubeloop.client.streams.errors import StreamError
from kubeloop.client.streams.port_stream import PortStream, PortTransport, open_port
from kubeloop.client.streams.spdy_wire import SpdySession, watch_spdy
from kubeloop.client.streams.targets import ContainerLocation, PortRequest, PortSpec, Target, TargetPod, find_pod, parse_port, pod_port
from kubeloop.client.streams.websocket import WebSocket, open_socket
from kubeloop.http1.sockets import close_listening
from kubeloop.meta.errors import ApiError, KubeloopError
from kubeloop.serving.answer import Duplex
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL
from kubeloop.tasks import close_all, end_tasks
from kubeloop.transport import NotUpgradedError, Transport

if TYPE_CHECKING:
    from kubeloop.client.client import Client

_LOG = logging.getLogger("kubeloop.client.streams")

_FORWARD = "portforward.k8s.io"
_TUNNEL = f"{PROTOCOL}+{_FORWARD}"
_PIECE = 64 * 1024

P = TypeVar("P", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """A local socket and the pod's port behind it, as the caller named it (``remote``) and as a number (``pod_port``).

    >>> str(ForwardedPort(address="127.0.0.1", local=8080, remote="http", pod_port=80))
    "ForwardedPort(address='127.0.0.1', local=8080, remote='http', pod_port=80)"
    """

    address: str
    local: int
    remote: str
    pod_port: int


class PortForward:
    """The forwarded ports of a pod. ``async with client.pods.port_forward(...)`` creates it, and closes all connections at its end.

    >>> from kubeloop.testing import ScriptedKubelet
    >>> async with ScriptedKubelet(client, namespace=client.namespace) as kubelet:
    ...     pod = await kubelet.run_pod("web-0")
    ...     async with client.pods.port_forward("web-0", ":80") as forward:
    ...         print(forward.pod, forward.ports[0].pod_port)
    web-0 80

    Guarantees
        Each connection to a local socket becomes one connection in the pod. If the pod refuses it, it is reset, and the reason is logged
        and stored in ``last_error``; other connections continue.

    Not guaranteed
        Connections may delay each other: all share one connection to the server, which has no flow control per connection. A
        reader that leaves more than 1 MiB unread stops all of them, as with kubectl.
        There is no reconnection to the server: ``wait`` raises when the connection is lost. Then create another forward.
    """

    def __init__(self, running: SpdySession, target: TargetPod, description: str) -> None:
        self.where = description
        self.ports: tuple[ForwardedPort, ...] = ()
        self.last_error: KubeloopError | None = None
        self._running = running
        self._found = target
        self._numbers = itertools.count()
        self._stopped = asyncio.Event()
        self._closed = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: list[PortTransport] = []

    @property
    def pod(self) -> str:
        """The name of the pod."""
        return self._found.pod.metadata.name

    def local(self, remote: int | str) -> int:
        """Return the local port that is forwarded to ``remote``. Raises KeyError if ``remote`` is not forwarded."""
        for port in self.ports:
            if str(remote) in (port.remote, str(port.pod_port)):
                return port.local
        raise KeyError(f"port {remote} is not forwarded; these are: {', '.join(port.remote for port in self.ports) or 'none'}")

    async def connect(self, remote: int | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a connection within this process, even to a port without a local socket. ``remote`` is a port's number or name.

        Raises:
            StreamError: The pod has no such port.
            TransportError: The connection to the pod's node is lost.
            ForwardingError: The pod refuses the connection. The reader raises it, not this call.
        """
        reader = asyncio.StreamReader()
        transport, protocol = await self.create_connection(lambda: asyncio.StreamReaderProtocol(reader), remote)
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())

    async def create_connection(self, factory: Callable[[], P], remote: int | str) -> tuple[PortTransport, P]:
        """Open a connection for a protocol, like the event loop's ``create_connection``. Raises the errors of ``connect``."""
        port = pod_port(self._found, str(remote))
        stream = await open_port(self._running, self._numbers, port, f"port {port} of {self.where}")
        protocol = factory()
        transport = PortTransport(stream, protocol, {"peername": (self.pod, port)})
        self._transports = [one for one in self._transports if not one.is_over] + [transport]
        return transport, protocol

    async def wait(self) -> None:
        """Wait until ``stop`` is called.

        Raises:
            TransportError, StreamError: The connection to the pod's node was lost.
        """
        waits = [asyncio.ensure_future(self._stopped.wait()), asyncio.ensure_future(self._running.over.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(*waits)
        if not self._stopped.is_set() and self._running.fault is not None:
            raise self._running.fault

    def stop(self) -> None:
        """Make ``wait`` return. Connections end with the block."""
        self._stopped.set()

    async def listen(self, requests: Sequence[PortRequest], address: str) -> None:
        """Open the local sockets. Raises StreamError: a local port is in use, or the pod has no such port."""
        made: list[ForwardedPort] = []
        for one in requests:
            port = pod_port(self._found, one.remote)
            local = port if one.local < 0 else one.local
            try:
                # The server is stored before it starts to serve. Otherwise a cancellation in between would leave the port in use.
                server = await asyncio.start_server(self._handler(port), address, local, start_serving=False)
                self._servers.append(server)
                await server.start_serving()
            except OSError as error:
                raise StreamError(f"{self.where}: cannot listen on local port {local} at {address}: {error.strerror or error}") from error
            made.append(ForwardedPort(address, int(server.sockets[0].getsockname()[1]), one.remote, port))
        self.ports = tuple(made)
        self._tasks.add(asyncio.ensure_future(self._close_when_lost()))

    async def close(self) -> None:
        """Close all sockets and connections."""
        self._closed = True
        self._stopped.set()
        for transport in self._transports:
            transport.abort()
        await close_all(
            *(partial(close_listening, server) for server in self._servers),
            lambda: end_tasks(*self._tasks, logger=_LOG),
            self._end_transports,
            *(server.wait_closed for server in self._servers),
        )

    async def _end_transports(self) -> None:
        ends = [transport.closed for transport in self._transports if transport.closed is not None]
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(error, Exception):
                _LOG.error("%s: a connection could not be closed (%s)", self.where, type(error).__name__, exc_info=error)

    async def _close_when_lost(self) -> None:
        await self._running.over.wait()
        _LOG.warning("%s", self._running.fault)
        for server in self._servers:
            await close_listening(server)

    def _handler(self, port: int) -> Callable[[asyncio.StreamReader, asyncio.StreamWriter], None]:
        def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            if self._closed:  # it was accepted some turns of the loop ago
                writer.transport.abort()
                return
            task = asyncio.ensure_future(self._serve(reader, writer, port))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

        return accept

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, port: int) -> None:
        stream: PortStream | None = None
        there: asyncio.Task[None] | None = None
        try:
            stream = await open_port(self._running, self._numbers, port, f"port {port} of {self.where}")
            there = asyncio.ensure_future(_to_pod(reader, stream))
            while data := await stream.read():
                writer.write(data)
                await writer.drain()
            # The pod's side has ended, and with it the connection, as with kubectl: nothing in the pod would read the rest.
            await stream.finish()
            writer.close()
            await writer.wait_closed()
        except KubeloopError as error:
            self.last_error = error
            _LOG.warning("%s", error)
            _reset_on_close(writer)
        except OSError:
            pass  # the local side is gone
        finally:
            if there is not None:
                await end_tasks(there, logger=_LOG)
            if stream is not None:
                await stream.close()
            writer.transport.abort()


@asynccontextmanager
async def forward_ports(
    client: Client, target: Target, specs: Sequence[PortSpec], *, namespace: str | None, address: str
) -> AsyncIterator[PortForward]:
    """Forward ports of a pod; the implementation of ``PodVerbs.port_forward``."""
    wanted = [parse_port(spec) for spec in specs]
    found = await find_pod(client, target, namespace)
    pod = found.pod
    place = ContainerLocation(pod.metadata.namespace, pod.metadata.name)
    if pod.status.phase != "Running":
        raise StreamError(f"port-forward is not possible to {place}: it is not running (phase {pod.status.phase})")
    where = str(place)
    async with AsyncExitStack() as stack:
        try:
            duplex = await stack.enter_async_context(_open(client.transport, client, place))
        except ApiError as refusal:
            raise ApiError.from_status(refusal.status, f"port-forward to {where}") from refusal
        running = await stack.enter_async_context(watch_spdy(duplex, client.clock, where))
        forward = PortForward(running, found, where)
        try:
            await forward.listen(wanted, address)
            yield forward
        finally:
            await forward.close()


@asynccontextmanager
async def _open(transport: Transport, client: Client, place: ContainerLocation) -> AsyncIterator[Duplex]:
    """Open the byte stream of a SPDY connection with the pod's node."""
    path, where = place.path("portforward"), f"port-forward to {place}"
    async with AsyncExitStack() as stack:
        duplex: Duplex
        try:
            duplex = _Tunnel(await stack.enter_async_context(open_socket(transport, path, None, (_TUNNEL,), client.clock, where)))
        except (ApiError, NotUpgradedError) as refusal:
            if not may_try_other_protocol(refusal):
                raise
            headers = {STREAM_PROTOCOL: _FORWARD}
            duplex = await stack.enter_async_context(transport.upgrade("POST", path, protocol=PROTOCOL, headers=headers))
        yield duplex


class _Tunnel:
    """A byte stream in the messages of a WebSocket."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while (message := await self._socket.receive()) is not None:
            if message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)


def _reset_on_close(writer: asyncio.StreamWriter) -> None:
    """Close the socket with a reset, so that the peer does not take an incomplete response for a complete one."""
    made = writer.get_extra_info("socket")
    if made is not None:
        with contextlib.suppress(OSError):
            made.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


async def _to_pod(reader: asyncio.StreamReader, stream: PortStream) -> None:
    try:
        while data := await reader.read(_PIECE):
            await stream.write(data)
        await stream.write_eof()
    except KubeloopError:
        pass  # reading from the stream raises the same error
    except OSError:
        # The local side was reset: without this, the pod's connection would stay open until the pod sends something.
        stream.give_up()
