"""A TCP proxy on loopback whose faults a test commands. It knows neither TLS nor HTTP: what is cut is cut in mid-record and mid-frame."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Self
from urllib.parse import urlsplit

import msgspec

from kubeloop.config import ClusterConfig
from kubeloop.http1.sockets import close_listening

_CHUNK = 64 * 1024
_LINGER_ZERO = struct.pack("ii", 1, 0)


class FaultProxy:
    """``async with FaultProxy(server_url) as proxy``; clients use ``proxy.config(...)``.

    Guarantees
        The port is the proxy's until the end, also while it refuses. Leaving the block closes every connection and leaves no task.
        A fault that has been commanded is in effect when the call returns.

    Not guaranteed
        Where in a frame a cut falls, other than: not before as many bytes have been forwarded as was said.
    """

    def __init__(self, server: str) -> None:
        parts = urlsplit(server)
        self._scheme = parts.scheme
        self._target = (parts.hostname or "127.0.0.1", parts.port or 443)
        self._listening: asyncio.Server | None = None
        self._reserved: socket.socket | None = None
        self._connections: set[_Connection] = set()
        self._transports: set[asyncio.WriteTransport] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._cuts: list[_Cut] = []
        self._accepted_most: int | None = None
        #: Seconds by which each piece is late, in both directions.
        self.delay = 0.0
        #: Connections taken so far, bytes forwarded to clients so far.
        self.accepted = 0
        self.forwarded = 0
        self.port = 0

    @property
    def url(self) -> str:
        return f"{self._scheme}://127.0.0.1:{self.port}"

    @property
    def open(self) -> int:
        """Connections that are open now."""
        return len(self._connections)

    def config(self, config: ClusterConfig) -> ClusterConfig:
        """The same cluster, by way of this proxy."""
        return msgspec.structs.replace(config, server=self.url)

    # -------------------------------------------------------------------------------------------------------------- faults

    def cut(self) -> int:
        """Close every connection now, properly (FIN) as far as TCP is concerned; returns how many there were."""
        return sum(one.close() for one in list(self._connections))

    def reset(self) -> int:
        """Reset every connection now (RST): what was under way is lost at both ends; returns how many there were."""
        return sum(one.reset() for one in list(self._connections))

    def half_close(self) -> int:
        """End the direction to the client (FIN), while what clients send still arrives; returns how many connections there were."""
        return sum(one.end_down() for one in list(self._connections))

    def cut_after(self, size: int, *, times: int = 1) -> None:
        """Cut the next ``times`` connections that bring their client ``size`` bytes more, in the middle of whatever it is."""
        self._cuts += [_Cut(size, {}) for _ in range(times)]

    def freeze(self) -> None:
        """Forward nothing, close nothing, answer nothing: a black hole, for open connections and new ones, until ``thaw``."""
        self._flowing.clear()

    def thaw(self) -> None:
        """Forward what was held up, and go on."""
        self._flowing.set()

    def lose(self) -> int:
        """Open connections stay open, but nothing comes through them any more, ever; new ones work. Returns how many there were."""
        lost = [one for one in self._connections if not one.lost]
        for one in lost:
            one.lost = True
        return len(lost)

    async def refuse(self) -> None:
        """Nothing listens any more, until ``accept``: new connections are refused. Open ones go on."""
        if self._listening is not None:
            await close_listening(self._listening)
            self._listening = None
            self._reserved = _bound(self.port)  # bound without listening: nobody else takes the port meanwhile
            await asyncio.sleep(0)

    async def accept(self) -> None:
        """Listen again, and as many connections as come."""
        self._accepted_most = None
        if self._listening is None:
            reserved, self._reserved = self._reserved, None
            self._listening = await asyncio.start_server(self._serve, sock=reserved or _bound(self.port), backlog=500)

    def drop_after(self, connections: int) -> None:
        """Take so many more connections; later ones are closed as soon as they are open, until ``accept``."""
        self._accepted_most = self.accepted + connections

    # ------------------------------------------------------------------------------------------------------------ the proxy

    async def __aenter__(self) -> Self:
        sock = _bound(0)
        self.port = sock.getsockname()[1]
        self._listening = await asyncio.start_server(self._serve, sock=sock, backlog=500)
        return self

    async def __aexit__(self, *error: object) -> None:
        if self._listening is not None:
            await close_listening(self._listening)
        if self._reserved is not None:
            self._reserved.close()
        for _ in range(4):  # connections that are just being made come to light within some turns
            for task in self._tasks:
                task.cancel()
            for transport in self._transports:
                transport.abort()  # also of what was closed: what a client does not read keeps the socket
            await asyncio.sleep(0)
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self.accepted += 1
        connection = _Connection(writer)
        self._keep(writer)
        self._connections.add(connection)
        try:
            if self._accepted_most is not None and self.accepted > self._accepted_most:
                return
            await self._flowing.wait()
            with contextlib.suppress(OSError):
                up_reader, connection.up = await asyncio.open_connection(*self._target)
                self._keep(connection.up)
                async with asyncio.TaskGroup() as both:
                    both.create_task(self._up(reader, connection.up, connection))
                    both.create_task(self._down(up_reader, writer, connection))
        except (ExceptionGroup, asyncio.CancelledError):
            pass  # a connection that broke or was broken, or the proxy ends
        finally:
            self._connections.discard(connection)
            for cut in self._cuts:
                cut.brought.pop(connection, None)
            connection.close()
            self._tasks.discard(task)

    def _keep(self, writer: asyncio.StreamWriter) -> None:
        self._transports = {one for one in self._transports if one.get_extra_info("socket").fileno() >= 0}
        self._transports.add(writer.transport)

    async def _up(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection) -> None:
        while data := await reader.read(_CHUNK):
            await self._hold()
            if not connection.lost:
                writer.write(data)
                await writer.drain()
        if connection.lost:
            connection.close()
        else:
            writer.write_eof()

    async def _down(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: _Connection) -> None:
        while data := await reader.read(_CHUNK):
            await self._hold()
            if connection.lost:
                continue
            left = self._until_cut(connection, len(data))
            if not connection.down_ended:
                writer.write(data[:left])
                self.forwarded += left
                await writer.drain()
            if left < len(data):
                connection.close()
                return
        # The server has ended its answer, and with it the connection: HTTP/1.1 servers do not go on listening.
        if not connection.lost:
            connection.close()

    async def _hold(self) -> None:
        if self.delay:
            await asyncio.sleep(self.delay)
        await self._flowing.wait()

    def _until_cut(self, connection: _Connection, size: int) -> int:
        """How many of ``size`` bytes may pass."""
        for cut in self._cuts:
            brought = cut.brought.get(connection, 0)
            if brought + size > cut.after:
                self._cuts.remove(cut)
                return cut.after - brought
            cut.brought[connection] = brought + size
        return size


@dataclass(eq=False)
class _Cut:
    after: int
    brought: dict[_Connection, int]


class _Connection:
    def __init__(self, down: asyncio.StreamWriter) -> None:
        self.down = down
        self.up: asyncio.StreamWriter | None = None
        self.down_ended = False
        self.lost = False

    def _writers(self) -> Iterator[asyncio.StreamWriter]:
        yield self.down
        if self.up is not None:
            yield self.up

    def close(self) -> int:
        open_ = not self.down.transport.is_closing()
        for writer in self._writers():
            writer.close()
        return int(open_)

    def reset(self) -> int:
        open_ = not self.down.transport.is_closing()
        for writer in self._writers():
            sock = writer.get_extra_info("socket")
            with contextlib.suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)
            writer.transport.abort()
        return int(open_)

    def end_down(self) -> int:
        if self.down_ended or self.down.transport.is_closing():
            return 0
        self.down_ended = True
        with contextlib.suppress(OSError):  # the client was faster
            self.down.write_eof()
        return 1


def _bound(port: int) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(("127.0.0.1", port))
    sock.setblocking(False)
    return sock
