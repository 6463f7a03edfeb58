"""Port-forward: ports of a pod as sockets of this machine, and as connections within this process.

By SPDY tunnelled in a WebSocket, or where that is refused by SPDY alone, as kubectl does. Source: KEP-4006, client-go tools/portforward.
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

from kubeloop.client.streams.channels import worth_another_try
from kubeloop.client.streams.errors import StreamError
from kubeloop.client.streams.port_stream import PortStream, PortTransport, open_port
from kubeloop.client.streams.spdy_wire import Running, watch_spdy
from kubeloop.client.streams.targets import Found, Place, PortSpec, Target, Wanted, find_pod, parse_port, pod_port
from kubeloop.client.streams.websocket import WebSocket, open_socket
from kubeloop.http1.sockets import close_listening
from kubeloop.meta.errors import ApiError, KubeloopError
from kubeloop.serving.answer import Duplex
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL
from kubeloop.tasks import close_all, end_tasks
from kubeloop.transport import NotUpgradedError, Transport

if TYPE_CHECKING:
    from kubeloop.client.client import Client

_logger = logging.getLogger("kubeloop.client.streams")

_FORWARD = "portforward.k8s.io"
_TUNNEL = f"{PROTOCOL}+{_FORWARD}"
_PIECE = 64 * 1024

P = TypeVar("P", bound=asyncio.BaseProtocol)


@dataclass(frozen=True, slots=True)
class ForwardedPort:
    """A socket that listens at ``address``:``local``, and the port that it leads to, as the caller named it and as the pod knows it."""

    address: str
    local: int
    remote: str
    pod_port: int


class PortForward:
    """Made by ``client.port_forward``; ends with its block, and all connections with it.

    Guarantees
        Each connection to a local socket is one of its own in the pod. One that the pod refuses breaks off (a reset, not an end), and the
        reason is logged and kept in ``last_error``; the others go on.

    Not guaranteed
        That one connection does not hold back another: all share one connection to the server, which has no flow control of its own, so
        that a reader who stops for more than 1 MiB stops them all (as kubectl).
        A new connection to the server when that one is lost: ``wait`` says when. Make a new forward.
    """

    def __init__(self, running: Running, found: Found, where: str) -> None:
        self.where = where
        self.ports: tuple[ForwardedPort, ...] = ()
        self.last_error: KubeloopError | None = None
        self._running = running
        self._found = found
        self._numbers = itertools.count()
        self._stopped = asyncio.Event()
        self._closed = False
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._transports: list[PortTransport] = []

    @property
    def pod(self) -> str:
        """The name of the pod that all connections go to."""
        return self._found.pod.metadata.name

    def local(self, remote: int | str) -> int:
        """The local port that leads to ``remote``. Raises KeyError: none does."""
        for port in self.ports:
            if str(remote) in (port.remote, str(port.pod_port)):
                return port.local
        raise KeyError(f"port {remote} is not forwarded; these are: {', '.join(port.remote for port in self.ports) or 'none'}")

    async def connect(self, remote: int | str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection within this process, whether or not the port has a local socket. ``remote`` is a port's number or name.

        Raises:
            StreamError: there is no such port. TransportError: the connection to the pod's node is lost.
            What the pod refuses is raised where it is read: ``ForwardingError``.
        """
        reader = asyncio.StreamReader()
        transport, protocol = await self.create_connection(lambda: asyncio.StreamReaderProtocol(reader), remote)
        return reader, asyncio.StreamWriter(transport, protocol, reader, asyncio.get_running_loop())

    async def create_connection(self, factory: Callable[[], P], remote: int | str) -> tuple[PortTransport, P]:
        """As the event loop's own ``create_connection``, for clients that bring a protocol. Errors as ``connect``."""
        port = pod_port(self._found, str(remote))
        stream = await open_port(self._running, self._numbers, port, f"port {port} of {self.where}")
        protocol = factory()
        transport = PortTransport(stream, protocol, {"peername": (self.pod, port)})
        self._transports = [one for one in self._transports if not one.is_over] + [transport]
        return transport, protocol

    async def wait(self) -> None:
        """Return when ``stop`` was called.

        Raises:
            TransportError, StreamError: the connection to the pod's node was lost.
        """
        waits = [asyncio.ensure_future(self._stopped.wait()), asyncio.ensure_future(self._running.over.wait())]
        try:
            await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await end_tasks(*waits)
        if not self._stopped.is_set() and self._running.fault is not None:
            raise self._running.fault

    def stop(self) -> None:
        """Let ``wait`` return. Connections end with the block."""
        self._stopped.set()

    async def listen(self, wanted: Sequence[Wanted], address: str) -> None:
        """Open the local sockets. Raises StreamError: one cannot be had, or the pod has no such port."""
        made: list[ForwardedPort] = []
        for one in wanted:
            port = pod_port(self._found, one.remote)
            local = port if one.local < 0 else one.local
            try:
                # Serving begins with the server known: who is cancelled meanwhile would leave the port taken.
                server = await asyncio.start_server(self._handler(port), address, local, start_serving=False)
                self._servers.append(server)
                await server.start_serving()
            except OSError as error:
                raise StreamError(f"{self.where}: the local port {local} at {address} cannot be had: {error.strerror or error}") from error
            made.append(ForwardedPort(address, int(server.sockets[0].getsockname()[1]), one.remote, port))
        self.ports = tuple(made)
        self._tasks.add(asyncio.ensure_future(self._close_when_lost()))

    async def close(self) -> None:
        """End everything."""
        self._closed = True
        self._stopped.set()
        for transport in self._transports:
            transport.abort()
        await close_all(
            *(partial(close_listening, server) for server in self._servers),
            lambda: end_tasks(*self._tasks, logger=_logger),
            self._end_transports,
            *(server.wait_closed for server in self._servers),
        )

    async def _end_transports(self) -> None:
        ends = [transport.closed for transport in self._transports if transport.closed is not None]
        for error in await asyncio.gather(*ends, return_exceptions=True):
            if isinstance(error, Exception):
                _logger.error("%s: a connection could not be closed (%s)", self.where, type(error).__name__, exc_info=error)

    async def _close_when_lost(self) -> None:
        await self._running.over.wait()
        _logger.warning("%s", self._running.fault)
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
            # The pod's side has ended, and with it the connection, as with kubectl: what is still being sent would reach nobody.
            await stream.finish()
            writer.close()
            await writer.wait_closed()
        except KubeloopError as error:
            self.last_error = error
            _logger.warning("%s", error)
            _reset_on_close(writer)
        except OSError:
            pass  # the local side is gone
        finally:
            if there is not None:
                await end_tasks(there, logger=_logger)
            if stream is not None:
                await stream.close()
            writer.transport.abort()


@asynccontextmanager
async def forward_ports(
    client: Client, target: Target, specs: Sequence[PortSpec], *, namespace: str | None, address: str
) -> AsyncIterator[PortForward]:
    """See ``PodStreams.port_forward``."""
    wanted = [parse_port(spec) for spec in specs]
    found = await find_pod(client, target, namespace)
    pod = found.pod
    place = Place(pod.metadata.namespace, pod.metadata.name)
    if pod.status.phase != "Running":
        raise StreamError(f"port-forward is not possible to {place}: it is not running (phase {pod.status.phase})")
    where = str(place)
    async with AsyncExitStack() as stack:
        try:
            duplex = await stack.enter_async_context(_open(client.transport, client, place))
        except ApiError as refusal:
            raise ApiError.of(refusal.status, f"port-forward to {where}") from refusal
        running = await stack.enter_async_context(watch_spdy(duplex, client.clock, where))
        forward = PortForward(running, found, where)
        try:
            await forward.listen(wanted, address)
            yield forward
        finally:
            await forward.close()


@asynccontextmanager
async def _open(transport: Transport, client: Client, place: Place) -> AsyncIterator[Duplex]:
    """The bytes of a SPDY connection with the pod's node."""
    path, where = place.path("portforward"), f"port-forward to {place}"
    async with AsyncExitStack() as stack:
        duplex: Duplex
        try:
            duplex = _Tunnel(await stack.enter_async_context(open_socket(transport, path, None, (_TUNNEL,), client.clock, where)))
        except (ApiError, NotUpgradedError) as refusal:
            if not worth_another_try(refusal):
                raise
            headers = {STREAM_PROTOCOL: _FORWARD}
            duplex = await stack.enter_async_context(transport.upgrade("POST", path, protocol=PROTOCOL, headers=headers))
        yield duplex


class _Tunnel:
    """The bytes in a WebSocket's messages."""

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
    """Let the other side see that this is no end: half an answer must not be taken for a whole one."""
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
        pass  # the other way round hears of it too
    except OSError:
        # The local side has broken off: what nobody hears would stay open in the pod until it says something.
        stream.give_up()
