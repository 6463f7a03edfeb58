"""Makes connections: TCP or TLS, directly or through a proxy's tunnel, with sockets that notice a dead peer."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from kubeloop.config.proxies import Proxy, proxy_for
from kubeloop.meta.tls import client_tls
from kubeloop.transport.head import ProtocolError
from kubeloop.transport.http1 import ConnectionEndedError, Wire
from kubeloop.transport.observing.progress import CONNECTED, SECURED, reach
from kubeloop.transport.proxying.refused import ProxyRefusedError
from kubeloop.transport.proxying.socks5 import PORT as SOCKS_PORT
from kubeloop.transport.proxying.socks5 import connect_through
from kubeloop.transport.proxying.tunnel import ask_for_tunnel, credentials
from kubeloop.transport.sockets import connect
from kubeloop.transport.tls_layer import secure

CONNECT_TIMEOUT = 30.0
HANDSHAKE_TIMEOUT = 10.0


class Dialer:
    """Knows one server and how to get there."""

    def __init__(
        self,
        server: str,
        proxy: str,
        server_name: str,
        source: str = "configuration",
        *,
        authorities: Callable[[], bytes] | None = None,
        resolved: Callable[[float], None] | None = None,
    ) -> None:
        """``source`` says where ``proxy`` was named, for messages. ``authorities`` gives the cluster's, PEM, for a proxy that speaks TLS;
        ``resolved`` is told how long looking a name up took.

        Raises:
            ConfigError: the environment names a proxy that cannot be used.
        """
        self._server = urlsplit(server)
        self._secure = self._server.scheme == "https"
        self._authorities = authorities
        self._resolved = resolved
        self.host = self._server.hostname or ""
        self.port = self._server.port or (443 if self._secure else 80)
        self._server_name = server_name or self.host
        self.proxy = proxy_for(self._server, proxy, source)
        self.base = self._server.path.rstrip("/")
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = f"{shown}:{self.port}" if self._server.port else shown
        self.tunnel = f"{shown}:{self.port}"

    @property
    def target_prefix(self) -> str:
        """What stands before the path in a request line: a proxy of plain HTTP wants the whole URL (RFC 9112, section 3.2.2)."""
        return f"http://{self.authority}{self.base}" if self._forwarding else self.base

    @property
    def proxy_headers(self) -> Mapping[str, str]:
        """For requests that a proxy of plain HTTP passes on."""
        return credentials(self.proxy) if self.proxy is not None and self._forwarding else {}

    @property
    def _forwarding(self) -> bool:
        return self.proxy is not None and not self.proxy.socks and not self._secure

    async def connect(self, tls: ssl.SSLContext | None) -> Wire:
        """A new connection.

        Raises:
            OSError, ssl.SSLError, TimeoutError, ProxyRefusedError: there is none.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT):
            if self.proxy is None:
                return await open_wire(self.host, self.port, tls, self._server_name, self._resolved)
            if self.proxy.socks:
                return await self._through_socks(self.proxy, tls)
            return await self._through_proxy(self.proxy, tls)

    async def _through_socks(self, proxy: Proxy, tls: ssl.SSLContext | None) -> Wire:
        made: socket.socket | None = None
        try:
            made = await connect(proxy.url.hostname or "", proxy.url.port or SOCKS_PORT, self._resolved)
            await connect_through(made, proxy, self.host, self.port)
        except BaseException as error:
            if made is not None:
                made.close()
            if isinstance(error, OSError | EOFError) and not _is_our_deadline(error):
                raise _unreachable(proxy, error) from error
            raise
        return await _wire_on(made, tls, self._server_name)

    async def _through_proxy(self, proxy: Proxy, tls: ssl.SSLContext | None) -> Wire:
        secure = proxy.url.scheme == "https"
        name = proxy.url.hostname or ""
        wire: Wire | None = None
        try:
            wire = await open_wire(
                name, proxy.url.port or (443 if secure else 80), self._proxy_tls() if secure else None, name, self._resolved
            )
            if tls is None:
                return wire
            await ask_for_tunnel(wire, proxy, self.tunnel)
        except BaseException as error:
            if wire is not None:
                wire.abort()
            if isinstance(error, OSError | ConnectionEndedError | ProtocolError) and not _is_our_deadline(error):
                raise _unreachable(proxy, error) from error
            raise
        return await self._inside(wire, tls)

    def _proxy_tls(self) -> ssl.SSLContext:
        """Trust for the proxy itself: this system's authorities and the cluster's. Its certificate is checked whatever the server's is."""
        context = client_tls()
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self._authorities is not None and (found := self._authorities()):
            context.load_verify_locations(cadata=found.decode("ascii", "replace"))
        return context

    async def _inside(self, outer: Wire, tls: ssl.SSLContext) -> Wire:
        """TLS with the server within the tunnel."""
        assert outer.transport is not None
        inner = Wire()
        await secure(outer.transport, inner, tls, self._server_name, HANDSHAKE_TIMEOUT)
        return inner


async def open_wire(
    host: str, port: int, tls: ssl.SSLContext | None, server_name: str, resolved: Callable[[float], None] | None = None
) -> Wire:
    """A connection straight to ``host``; ``tls`` None: without TLS. ``resolved`` is told how long looking the name up took.

    Raises:
        OSError, ssl.SSLError, TimeoutError: there is none.
    """
    made = await connect(host, port, resolved)
    reach(CONNECTED)
    return await _wire_on(made, tls, server_name)


async def _wire_on(made: socket.socket, tls: ssl.SSLContext | None, server_name: str) -> Wire:
    _watch_over(made)
    if tls is None:
        _, wire = await asyncio.get_running_loop().create_connection(Wire, sock=made)
        return wire
    wire = Wire()
    await secure(made, wire, tls, server_name, HANDSHAKE_TIMEOUT)
    reach(SECURED)
    return wire


def _unreachable(proxy: Proxy, error: BaseException) -> ProxyRefusedError:
    fault = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
    return ProxyRefusedError(f"the proxy {proxy.shown} cannot be reached: {fault}; it is set by {proxy.origin}")


def _is_our_deadline(error: BaseException) -> bool:
    return isinstance(error, TimeoutError) and error.errno is None


#: Seconds, and milliseconds for the user timeout: 30 s without a byte, then probes for 15 s (behaviour K154).
LIVENESS = {"TCP_KEEPIDLE": 30, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3, "TCP_USER_TIMEOUT": 45_000}


def _watch_over(made: socket.socket) -> None:
    """Have the kernel find out within 45 s that the other side is gone, also while a watch is silent.

    As long as client-go's HTTP/2 health check takes: 30 s without a byte, 15 s for an answer (behaviour K154).
    """
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in LIVENESS.items():
        if hasattr(socket, option):  # named differently, or missing, outside Linux
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
