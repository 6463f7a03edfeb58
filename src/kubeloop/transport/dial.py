"""Makes connections: TCP or TLS, directly or through a proxy's tunnel, with sockets that notice a dead peer."""

from __future__ import annotations

import asyncio
import base64
import os
import socket
import ssl
from collections.abc import Mapping
from urllib.parse import SplitResult, unquote, urlsplit

from kubeloop.transport.http1 import Wire

CONNECT_TIMEOUT = 30.0
_HANDSHAKE_TIMEOUT = 10.0


class ProxyRefusedError(Exception):
    """A proxy did not open a tunnel."""


class Dialer:
    """Knows one server and how to get there."""

    def __init__(self, server: str, proxy: str, server_name: str) -> None:
        self._server = urlsplit(server)
        self._secure = self._server.scheme == "https"
        self.host = self._server.hostname or ""
        self.port = self._server.port or (443 if self._secure else 80)
        self._server_name = server_name or self.host
        self.proxy = proxy or _proxy_of_environment(self._server)
        self._proxy = urlsplit(self.proxy)
        self.base = self._server.path.rstrip("/")
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = f"{shown}:{self.port}" if self._server.port else shown
        self.tunnel = f"{shown}:{self.port}"

    @property
    def target_prefix(self) -> str:
        """What stands before the path in a request line: a proxy of plain HTTP wants the whole URL (RFC 9112, section 3.2.2)."""
        return f"http://{self.authority}{self.base}" if self._proxy.hostname and not self._secure else self.base

    @property
    def proxy_headers(self) -> Mapping[str, str]:
        """For requests that a proxy of plain HTTP passes on."""
        return self._credentials() if self._proxy.hostname and not self._secure else {}

    async def connect(self, tls: ssl.SSLContext | None) -> Wire:
        """A new connection.

        Raises:
            OSError, ssl.SSLError, TimeoutError, ProxyRefusedError: there is none.
        """
        async with asyncio.timeout(CONNECT_TIMEOUT):
            if self._proxy.hostname:
                return await self._through_proxy(tls)
            return await _open(self.host, self.port, tls, self._server_name)

    async def _through_proxy(self, tls: ssl.SSLContext | None) -> Wire:
        secure = self._proxy.scheme == "https"
        name = self._proxy.hostname or ""
        wire = await _open(name, self._proxy.port or (443 if secure else 80), ssl.create_default_context() if secure else None, name)
        if tls is None:
            return wire
        try:
            lines = [
                f"CONNECT {self.tunnel} HTTP/1.1",
                f"Host: {self.tunnel}",
                *(f"{key}: {value}" for key, value in self._credentials().items()),
            ]
            status, _ = await wire.exchange("CONNECT", "\r\n".join([*lines, "", ""]).encode("latin-1"), None)
            if not 200 <= status < 300:
                raise ProxyRefusedError(f"the proxy {self._proxy.scheme}://{name} refused: HTTP status {status}")
            assert wire.transport is not None
            inner = Wire()
            made = await asyncio.get_running_loop().start_tls(
                wire.transport, inner, tls, server_hostname=self._server_name, ssl_handshake_timeout=_HANDSHAKE_TIMEOUT
            )
            assert made is not None
            inner.connection_made(made)
        except BaseException:
            wire.abort()
            raise
        return inner

    def _credentials(self) -> Mapping[str, str]:
        if not self._proxy.username:
            return {}
        pair = f"{unquote(self._proxy.username)}:{unquote(self._proxy.password or '')}"
        return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


async def _open(host: str, port: int, tls: ssl.SSLContext | None, server_name: str) -> Wire:
    transport, wire = await asyncio.get_running_loop().create_connection(
        Wire,
        host,
        port,
        ssl=tls,
        server_hostname=server_name if tls is not None else None,
        ssl_handshake_timeout=_HANDSHAKE_TIMEOUT if tls is not None else None,
        happy_eyeballs_delay=0.25,
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


def _proxy_of_environment(server: SplitResult) -> str:
    """``HTTPS_PROXY`` and the like, minus ``NO_PROXY``; never for loopback, as in Go."""
    host = server.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return ""
    if not any(name.lower().endswith("_proxy") for name in os.environ):
        return ""
    # Dear to import, and rarely needed.
    from urllib.request import getproxies_environment, proxy_bypass

    proxy = getproxies_environment().get(server.scheme, "")
    return "" if not proxy or proxy_bypass(host) else proxy
