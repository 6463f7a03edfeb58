"""Opens connections: TCP or TLS, directly or through a proxy's tunnel, with sockets that detect a dead peer."""

from __future__ import annotations

import asyncio
import base64
import ipaddress
import socket
import ssl
from collections.abc import Callable, Mapping
from urllib.parse import unquote, urlsplit

from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.errors import ConnectionEnded, ProtocolError, ProxyRefusedError
from kubeloop.http1.progress import CONNECTED, SECURED, reach
from kubeloop.http1.proxies import Proxy, proxy_for
from kubeloop.http1.sockets import connect
from kubeloop.http1.tls_layer import secure
from kubeloop.meta.tls import client_tls
from kubeloop.timing import Clock, SystemClock, TimeLimit


def credentials(proxy: Proxy) -> Mapping[str, str]:
    """Return the authentication header for the proxy, which is empty if the proxy's URL has no user."""
    if not proxy.url.username:
        return {}
    pair = f"{unquote(proxy.url.username)}:{unquote(proxy.url.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}"}


async def ask_for_tunnel(wire: ClientConnection, proxy: Proxy, target: str) -> None:
    """Open a tunnel through a proxy to ``target`` (``HOST:PORT``). Later writes reach the target.

    Raises:
        ProxyRefusedError: The proxy refuses.
        ConnectionEnded, ProtocolError, OSError: The proxy sent no response.
    """
    lines = [
        f"CONNECT {target} HTTP/1.1",
        f"Host: {target}",
        *(f"{key}: {value}" for key, value in credentials(proxy).items()),
    ]
    status, _ = await wire.exchange("CONNECT", "\r\n".join([*lines, "", ""]).encode("latin-1"), None)
    if 200 <= status < 300:
        return
    hint = "allow it there, or leave this server out by NO_PROXY"
    if status == 407:
        hint = f"write user and password into the URL of {proxy.origin}: http://USER:PASSWORD@HOST:PORT"
    raise ProxyRefusedError(f"the proxy {proxy.shown} refused: HTTP status {status} to CONNECT {target}; {hint}")


# SOCKS 5 on a new TCP connection: ask the proxy to connect to the server (RFC 1928), with user and password if required (RFC 1929).
#
# The proxy resolves names, for both ``socks5://`` and ``socks5h://``, as in Go.


PORT = 1080
_VERSION, _PASSWORD_VERSION = 5, 1
_OPEN, _PASSWORD, _NONE = 0x00, 0x02, 0xFF
_CONNECT = 1
_IPV4, _NAME, _IPV6 = 1, 3, 4
_MOST = 255
_FAULTS = {
    1: "general failure",
    2: "its rules do not allow it",
    3: "the network cannot be reached",
    4: "the host cannot be reached, or its name not be resolved",
    5: "nothing listens there",
    6: "the connection took too long",
    7: "it does not support CONNECT",
    8: "it does not support this kind of address",
}


async def connect_through(sock: socket.socket, proxy: Proxy, host: str, port: int) -> None:
    """Connect ``sock`` to ``host`` through a SOCKS proxy. It reads no byte beyond the SOCKS protocol.

    Args:
        sock: A socket connected to the proxy.
        proxy: The proxy.
        host: The server's name or address.
        port: The server's port.

    Raises:
        ProxyRefusedError: The proxy refuses.
        OSError, EOFError: The connection to the proxy broke.
    """
    user, password = (unquote(part or "").encode() for part in (proxy.url.username, proxy.url.password))
    if len(user) > _MOST or len(password) > _MOST:
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not accept a user or password above {_MOST} bytes; see {proxy.origin}")
    methods = bytes((_OPEN, _PASSWORD)) if user else bytes((_OPEN,))
    await _send(sock, bytes((_VERSION, len(methods))) + methods)
    version, method = await _read(sock, 2)
    if version != _VERSION:
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not speak SOCKS 5; should {proxy.origin} begin with http:// ?")
    if method == _PASSWORD and user:
        await _send(sock, bytes((_PASSWORD_VERSION, len(user))) + user + bytes((len(password),)) + password)
        _, status = await _read(sock, 2)
        if status:
            raise ProxyRefusedError(f"the proxy {proxy.shown} does not accept the user and password in the URL of {proxy.origin}")
    elif method != _OPEN:
        raise ProxyRefusedError(
            f"the proxy {proxy.shown} requires another authentication method; write user and password into the URL of {proxy.origin}: "
            "socks5://USER:PASSWORD@HOST:PORT"
        )
    await _send(sock, bytes((_VERSION, _CONNECT, 0)) + _address(host) + port.to_bytes(2, "big"))
    version, reply, _, kind = await _read(sock, 4)
    if version != _VERSION or kind not in (_IPV4, _NAME, _IPV6):
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not speak SOCKS 5; should {proxy.origin} begin with http:// ?")
    if reply:
        raise ProxyRefusedError(f"the proxy {proxy.shown} does not connect to {host}:{port}: {_FAULTS.get(reply, f'reply {reply}')}")
    # The proxy's own address is useless, but precedes the server's first byte.
    length = {_IPV4: 4, _IPV6: 16}.get(kind) or (await _read(sock, 1))[0]
    await _read(sock, length + 2)


def _address(host: str) -> bytes:
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        try:
            name = host.encode("idna")
        except UnicodeError:  # an empty or too long part
            name = b""
        if not 0 < len(name) <= _MOST:
            raise ProxyRefusedError(f'no host can have the name "{host[:80]}"; correct server') from None
        return bytes((_NAME, len(name))) + name
    return bytes((_IPV4 if address.version == 4 else _IPV6,)) + address.packed


async def _send(sock: socket.socket, data: bytes) -> None:
    await asyncio.get_running_loop().sock_sendall(sock, data)


async def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await asyncio.get_running_loop().sock_recv(sock, size - len(data))
        if not part:
            raise EOFError("it ended the connection")
        data += part
    return data


CONNECT_TIMEOUT = 30.0
HANDSHAKE_TIMEOUT = 10.0


class Dialer:
    """Connects to one server, directly or through its proxy."""

    def __init__(
        self,
        server: str,
        proxy: str,
        server_name: str,
        source: str = "configuration",
        *,
        authorities: Callable[[], bytes] | None = None,
        resolved: Callable[[float], None] | None = None,
        clock: Clock | None = None,
    ) -> None:
        """Create a dialer for one server.

        Args:
            server: The server's URL.
            proxy: URL of the configured proxy. Empty: that of the environment, or none.
            server_name: The name to verify. Empty: the host of ``server``.
            source: The setting of ``proxy``, for messages.
            authorities: Returns the cluster's authorities, PEM, for a TLS proxy.
            resolved: Called with the seconds of each name lookup.

        Raises:
            ConfigError: The environment names an unusable proxy.
        """
        self._server = urlsplit(server)
        self._secure = self._server.scheme == "https"
        self._authorities = authorities
        self._resolved = resolved
        self._clock: Clock = clock or SystemClock()
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
        """The prefix of the path in a request line: a plain HTTP proxy requires the whole URL (RFC 9112, section 3.2.2)."""
        return f"http://{self.authority}{self.base}" if self._forwarding else self.base

    @property
    def proxy_headers(self) -> Mapping[str, str]:
        """Headers for requests through a plain HTTP proxy."""
        return credentials(self.proxy) if self.proxy is not None and self._forwarding else {}

    @property
    def _forwarding(self) -> bool:
        return self.proxy is not None and not self.proxy.socks and not self._secure

    async def connect(self, tls: ssl.SSLContext | None) -> ClientConnection:
        """Return a new connection.

        Raises:
            OSError, ssl.SSLError, TimeoutError, ProxyRefusedError: the connection failed.
        """
        async with TimeLimit(self._clock, CONNECT_TIMEOUT):
            if self.proxy is None:
                return await open_wire(self.host, self.port, tls, self._server_name, self._resolved, self._clock)
            if self.proxy.socks:
                return await self._through_socks(self.proxy, tls)
            return await self._through_proxy(self.proxy, tls)

    async def _through_socks(self, proxy: Proxy, tls: ssl.SSLContext | None) -> ClientConnection:
        made: socket.socket | None = None
        try:
            made = await connect(proxy.url.hostname or "", proxy.url.port or PORT, self._resolved, self._clock)
            await connect_through(made, proxy, self.host, self.port)
        except BaseException as error:
            if made is not None:
                made.close()
            if isinstance(error, OSError | EOFError) and not _is_our_deadline(error):
                raise _unreachable(proxy, error) from error
            raise
        return await _wire_on(made, tls, self._server_name, self._clock)

    async def _through_proxy(self, proxy: Proxy, tls: ssl.SSLContext | None) -> ClientConnection:
        secure = proxy.url.scheme == "https"
        name = proxy.url.hostname or ""
        wire: ClientConnection | None = None
        try:
            wire = await open_wire(
                name, proxy.url.port or (443 if secure else 80), self._proxy_tls() if secure else None, name, self._resolved, self._clock
            )
            if tls is None:
                return wire
            await ask_for_tunnel(wire, proxy, self.tunnel)
        except BaseException as error:
            if wire is not None:
                wire.abort()
            if isinstance(error, OSError | ConnectionEnded | ProtocolError) and not _is_our_deadline(error):
                raise _unreachable(proxy, error) from error
            raise
        return await self._inside(wire, tls)

    def _proxy_tls(self) -> ssl.SSLContext:
        """Return the TLS settings for the proxy: it trusts the system's authorities and the cluster's. The proxy is always verified."""
        context = client_tls()
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        if self._authorities is not None and (found := self._authorities()):
            context.load_verify_locations(cadata=found.decode("ascii", "replace"))
        return context

    async def _inside(self, outer: ClientConnection, tls: ssl.SSLContext) -> ClientConnection:
        """Do the TLS handshake with the server inside the tunnel."""
        assert outer.transport is not None
        inner = ClientConnection(self._clock)
        await secure(outer.transport, inner, tls, self._server_name, HANDSHAKE_TIMEOUT)
        return inner


async def open_wire(
    host: str,
    port: int,
    tls: ssl.SSLContext | None,
    server_name: str,
    resolved: Callable[[float], None] | None = None,
    clock: Clock | None = None,
) -> ClientConnection:
    """Connect directly to a server.

    Args:
        host: The server's name or address.
        port: Its port.
        tls: TLS settings. None: without TLS.
        server_name: The name to verify. Empty: ``host``.
        resolved: Called with the seconds of the name lookup.

    Returns:
        The connection.

    Raises:
        OSError, ssl.SSLError, TimeoutError: the connection failed.
    """
    made = await connect(host, port, resolved, clock)
    reach(CONNECTED)
    return await _wire_on(made, tls, server_name, clock)


async def _wire_on(made: socket.socket, tls: ssl.SSLContext | None, server_name: str, clock: Clock | None) -> ClientConnection:
    _watch_over(made)
    if tls is None:
        _, wire = await asyncio.get_running_loop().create_connection(lambda: ClientConnection(clock), sock=made)
        return wire
    wire = ClientConnection(clock)
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
    """Configure the kernel to detect within 45 s that the peer is unreachable, even while a watch receives nothing.

    Client-go's HTTP/2 health check takes the same time: 30 s without a byte, and 15 s for a reply (behaviour K154).
    """
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in LIVENESS.items():
        if hasattr(socket, option):  # other or no name outside Linux
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
