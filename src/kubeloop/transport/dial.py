"""Makes connections: TCP or TLS, directly or through a proxy's tunnel, with sockets that notice a dead peer."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import unquote, urlsplit

from kubeloop.transport.head import ProtocolError
from kubeloop.transport.http1 import ConnectionEndedError, Wire
from kubeloop.transport.proxy import Proxy, proxy_for
from kubeloop.transport.sockets import connect

CONNECT_TIMEOUT = 30.0
HANDSHAKE_TIMEOUT = 10.0


class ProxyRefusedError(Exception):
    """A proxy could not be reached or did not open a tunnel. The text names the proxy, where it is set, and the way out."""


class Dialer:
    """Knows one server and how to get there."""

    def __init__(self, server: str, proxy: str, server_name: str, source: str = "configuration") -> None:
        """``source`` says where ``proxy`` was named, for messages.

        Raises:
            ConfigError: the environment names a proxy that cannot be used.
        """
        self._server = urlsplit(server)
        self._secure = self._server.scheme == "https"
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
        return f"http://{self.authority}{self.base}" if self.proxy and not self._secure else self.base

    @property
    def proxy_headers(self) -> Mapping[str, str]:
        """For requests that a proxy of plain HTTP passes on."""
        return self._credentials() if self.proxy and not self._secure else {}

    async def connect(self, tls: ssl.SSLContext | None) -> Wire:
        """A new connection.

        Raises:
            OSError, ssl.SSLError, TimeoutError, ProxyRefusedError: there is none.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT):
            if self.proxy is not None:
                return await self._through_proxy(self.proxy, tls)
            return await open_wire(self.host, self.port, tls, self._server_name)

    async def _through_proxy(self, proxy: Proxy, tls: ssl.SSLContext | None) -> Wire:
        secure = proxy.url.scheme == "https"
        name = proxy.url.hostname or ""
        wire: Wire | None = None
        try:
            wire = await open_wire(name, proxy.url.port or (443 if secure else 80), ssl.create_default_context() if secure else None, name)
            if tls is None:
                return wire
            await self._ask_for_tunnel(wire, proxy)
        except (OSError, ConnectionEndedError, ProtocolError) as error:
            if wire is not None:
                wire.abort()
            fault = (error.strerror if isinstance(error, OSError) else None) or str(error) or type(error).__name__
            raise ProxyRefusedError(f"the proxy {proxy.shown} cannot be reached: {fault}; it is set by {proxy.origin}") from error
        except BaseException:
            if wire is not None:
                wire.abort()
            raise
        return await self._inside(wire, tls)

    async def _ask_for_tunnel(self, wire: Wire, proxy: Proxy) -> None:
        lines = [
            f"CONNECT {self.tunnel} HTTP/1.1",
            f"Host: {self.tunnel}",
            *(f"{key}: {value}" for key, value in self._credentials().items()),
        ]
        status, _ = await wire.exchange("CONNECT", "\r\n".join([*lines, "", ""]).encode("latin-1"), None)
        if 200 <= status < 300:
            return
        way_out = "allow it there, or leave this server out by NO_PROXY"
        if status == 407:
            way_out = f"write user and password into the URL of {proxy.origin}: http://USER:PASSWORD@HOST:PORT"
        raise ProxyRefusedError(f"the proxy {proxy.shown} refused: HTTP status {status} to CONNECT {self.tunnel}; {way_out}")

    async def _inside(self, outer: Wire, tls: ssl.SSLContext) -> Wire:
        """TLS with the server within the tunnel."""
        assert outer.transport is not None
        inner = Wire()
        try:
            made = await asyncio.get_running_loop().start_tls(
                outer.transport, inner, tls, server_hostname=self._server_name, ssl_handshake_timeout=HANDSHAKE_TIMEOUT
            )
        except BaseException:
            outer.abort()
            raise
        assert made is not None
        inner.connection_made(made)
        return inner

    def _credentials(self) -> Mapping[str, str]:
        if self.proxy is None or not self.proxy.url.username:
            return {}
        pair = f"{unquote(self.proxy.url.username)}:{unquote(self.proxy.url.password or '')}"
        return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


async def open_wire(host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> Wire:
    """A connection straight to ``host``; ``tls`` None: without TLS.

    Raises:
        OSError, ssl.SSLError, TimeoutError: there is none.
    """
    transport, wire = await asyncio.get_running_loop().create_connection(
        Wire,
        sock=await connect(host, port),
        ssl=tls,
        server_hostname=server_name if tls is not None else None,
        ssl_handshake_timeout=HANDSHAKE_TIMEOUT if tls is not None else None,
    )
    _watch_over(transport.get_extra_info("socket"))
    return wire


def _watch_over(made: socket.socket | None) -> None:
    """Have the kernel find out within about a minute that the other side is gone, also while a watch is silent."""
    if made is None:
        return
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        if hasattr(socket, option):  # named differently, or missing, outside Linux
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
