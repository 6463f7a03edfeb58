"""Accepts the clients of a tap: directly, or through CONNECT requests of a forward proxy, whose TLS it terminates.

A failed handshake is reported, because it tells that the client does not trust the tap's authority.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable, Coroutine
from typing import Any

from kubeloop.http1.server_heads import end_of_head
from kubeloop.http1.tls_layer import secure_accepted
from kubeloop.meta.errors import ConfigError
from kubeloop.serving.connection import ServerConnection
from kubeloop.serving.listener import host_and_port
from kubeloop.tap.certificates import TapCertificates
from kubeloop.tap.relay import ClientSession, RelayClock
from kubeloop.tap.traffic import ConnectionFailed, ConnectionOpened, Observe
from kubeloop.tap.upstream import UpstreamServer, UpstreamServers
from kubeloop.tasks import SupervisedTask, Supervisor, end_tasks
from kubeloop.timing import TimeLimit

_LOG = logging.getLogger("kubeloop.tap")

HOST = "127.0.0.1"
#: Seconds and bytes for a CONNECT request.
_HEAD_TIME = 30.0
_HEAD_SIZE = 16 << 10
#: Seconds without accepting after an error, such as a process that is out of files.
_PAUSE = 1.0

_ESTABLISHED = b"HTTP/1.1 200 Connection established\r\n\r\n"
_NOT_CONNECT = "this proxy serves CONNECT only: the server's URL must begin with https://"


class TapListener:
    """Listens on 127.0.0.1 and gives each client a ``ClientSession``.

    Guarantees:
        After ``close`` no connection, task or socket remains.
    """

    def __init__(
        self,
        destination: UpstreamServer | UpstreamServers,
        certificates: TapCertificates,
        observe: Observe,
        time: RelayClock,
        *,
        port: int = 0,
    ) -> None:
        """Create the listener; ``bind`` opens its address.

        Args:
            destination: The server of all clients; or ``UpstreamServers``: clients name theirs by CONNECT.
            certificates: Issues the certificates that clients see.
            observe: Gets the facts about connections and requests.
            time: The time and the numbers of connections.
            port: The port; 0 for a free one.
        """
        self._destination = destination
        self._certificates = certificates
        self._observe = observe
        self._time = time
        self.port = port
        self._socket: socket.socket | None = None
        self._opening: set[asyncio.Task[None]] = set()
        self._connections: set[ServerConnection] = set()

    def bind(self) -> None:
        """Open the address. Connections wait until ``serve``.

        Raises:
            ConfigError: The port is in use or not allowed.
        """
        # asyncio turns Nagle's algorithm off only where the protocol is named; with it, each response would take 40 ms.
        listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind((HOST, self.port))
            listening.listen(128)
        except OSError as error:
            listening.close()
            address = host_and_port(HOST, self.port)
            raise ConfigError(
                f"cannot listen on {address}: {error.strerror or error}; choose another port, or 0 for any that is free"
            ) from None
        listening.setblocking(False)
        self._socket, self.port = listening, listening.getsockname()[1]

    def serve(self, supervisor: Supervisor) -> SupervisedTask:
        """Start to accept connections; return the task, which must end before ``close``."""
        return supervisor.start(self._accept, name="tap-listener")

    async def close(self) -> None:
        """Close all connections, when the task of ``serve`` has ended."""
        if self._socket is not None:
            self._socket.close()
        for connection in list(self._connections):
            connection.abort()
        tasks = [connection.task for connection in self._connections]
        await end_tasks(*self._opening, *tasks, expected=(OSError,), logger=_LOG)

    async def _accept(self) -> None:
        assert self._socket is not None
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(self._socket)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                _LOG.error("no connection can be accepted for %g s: %s", _PAUSE, error)
                await self._time.clock.sleep(_PAUSE)
                continue
            accepted.setblocking(False)
            task = loop.create_task(self._open(accepted), name="tap-connection")
            self._opening.add(task)
            task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket) -> None:
        """Do the handshakes of a connection; its requests run in the task of the ``ServerConnection``."""
        number, server = next(self._time.connections), ""
        try:
            upstream, name = await self._upstream_of(accepted)
            server = upstream.authority
            session = ClientSession(number, upstream, self._observe, self._time)
            protocol = ServerConnection(session.handle, _unowned, self._on_open(session, server))
            await secure_accepted(accepted, protocol, self._certificates.context(name))
        except (OSError, ValueError, ConfigError) as error:
            self._observe(ConnectionFailed(self._time.now(), number, server, handshake_error(error)))
            accepted.close()
        except BaseException:
            accepted.close()
            raise

    def _on_open(self, session: ClientSession, server: str) -> Callable[[ServerConnection], None]:
        def opened(connection: ServerConnection) -> None:
            secured = connection.extra_info("ssl_object")
            version = (secured.version() if isinstance(secured, ssl.SSLObject) else "") or ""
            self._observe(ConnectionOpened(self._time.now(), session.number, server, version))
            self._connections.add(connection)

            def closed(_: asyncio.Future[None]) -> None:
                self._connections.discard(connection)
                session.close()

            assert connection.task is not None
            connection.task.add_done_callback(closed)

        return opened

    async def _upstream_of(self, accepted: socket.socket) -> tuple[UpstreamServer, str]:
        """Return the upstream server of a connection, and the name for the certificate.

        Raises:
            ValueError: The client did not send a valid CONNECT request.
            OSError: The connection broke.
        """
        if isinstance(self._destination, UpstreamServer):
            return self._destination, HOST
        loop = asyncio.get_running_loop()
        head = bytearray()
        async with TimeLimit(self._time.clock, _HEAD_TIME):
            while end_of_head(head, 0) < 0:
                part = await loop.sock_recv(accepted, _HEAD_SIZE)
                head += part
                if not part or len(head) > _HEAD_SIZE:
                    raise ValueError("the client sent no CONNECT request")
        try:
            host, port = connect_target(bytes(head))
            upstream = self._destination.server(host, port)
        except (ValueError, ConfigError) as error:
            text = f"{error}\n".encode()
            refusal = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\nConnection: close\r\nContent-Length: %d\r\n\r\n" % len(text)
            await loop.sock_sendall(accepted, refusal + text)
            raise
        await loop.sock_sendall(accepted, _ESTABLISHED)
        return upstream, host


async def _unowned(work: Coroutine[Any, Any, None]) -> None:
    """Run the work of a stream in the task of its connection, which ``TapListener.close`` ends."""
    await work


def connect_target(head: bytes) -> tuple[str, int]:
    """Return host and port of a CONNECT request (RFC 9110, section 9.3.6).

    Raises:
        ValueError: The request is another one; the message is for the client.
    """
    line = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    if len(line) != 3 or line[0] != "CONNECT":
        raise ValueError(_NOT_CONNECT)
    if end_of_head(bytearray(head), 0) != len(head):
        raise ValueError("the client sent bytes before the response to its CONNECT request")
    host, colon, port = line[1].rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not colon or not (port.isascii() and port.isdigit()) or not 0 < int(port) < 65536 or not host.isprintable():
        raise ValueError(f"CONNECT {line[1]}: not HOST:PORT")
    return host, int(port)


#: OpenSSL's names of the alerts by which clients refuse a certificate.
_DISTRUST = ("UNKNOWN_CA", "BAD_CERTIFICATE", "CERTIFICATE_UNKNOWN")


def handshake_error(error: Exception) -> str:
    """Return why a connection ended before its first request, with the remedy if the client does not trust the tap."""
    if isinstance(error, ssl.SSLError):
        reason = error.reason or str(error)
        text = reason.replace("_", " ").lower()
        if any(word in reason for word in _DISTRUST):
            return f"the client does not trust the certificate of the tap ({text})"
        return f"the TLS handshake failed: {text}"
    if isinstance(error, TimeoutError):
        return "the client sent no request in time"
    if isinstance(error, ConnectionError):
        return "the client closed the connection during the TLS handshake; does it trust the certificate of the tap?"
    return str(error)
