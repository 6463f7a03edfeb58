"""The HTTP library behind a transport: one session, its sockets and TLS. Imported at the first request, since it is dear to import."""

from __future__ import annotations

import asyncio
import io
import logging
import socket
import weakref
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import aiohttp
import yarl

from kubeloop.config import Authenticator, ClusterConfig
from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock
from kubeloop.transport.failure import failure_of

_logger = logging.getLogger("kubeloop.transport")

CONNECT_TIMEOUT = 30.0
# A frame of a watch is some kilobytes: with the library's 64 KiB the socket would be paused and resumed all the time.
READ_BUFFER = 1 << 20
_LARGE_BODY = 1 << 19
# TLS says goodbye to the other side; half a second is enough for whoever is there.
_CLOSE_TURN, _CLOSE_TURNS = 0.001, 500
# client-go re-reads certificate files as often (transport/cert_rotation.go).
CERTIFICATE_PERIOD = 300.0


class Answer:
    """The head of an answer whose body is still to be read. ``close`` must be called; at the body's end that keeps the socket."""

    def __init__(self, response: aiohttp.ClientResponse, config: ClusterConfig, request: str) -> None:
        self._response = response
        self._config = config
        self._request = request
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers

    def values(self, header: str) -> list[str]:
        """All values of a header that may repeat."""
        return self._response.headers.getall(header, [])

    async def read(self) -> bytes:
        """The whole body, decompressed."""
        try:
            return await self._response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise failure_of(error, self._config, self._request) from error

    async def chunk(self) -> bytes:
        """What has come since the last call, or the next piece; empty at the end."""
        try:
            return await self._response.content.readany()
        except (aiohttp.ClientError, OSError) as error:
            raise failure_of(error, self._config, self._request) from error

    def close(self) -> None:
        if self._response.content.at_eof():
            self._response.release()
            return
        # Not in TLS' polite way, which waits for the other side: whoever leaves a watch wants its socket back now.
        connection = self._response.connection
        if connection is not None and connection.transport is not None:
            connection.transport.abort()
        self._response.close()


class Connection:
    """Sends one request at a time per call, without retries. For one event loop."""

    def __init__(self, config: ClusterConfig, authenticator: Authenticator, clock: Clock, user_agent: str) -> None:
        self._config = config
        self._authenticator = authenticator
        self._clock = clock
        self._proxy = config.proxy_url or _proxy_of_environment(config.server)
        self._tls: Any = None
        self._certificate: tuple[bytes, bytes] | None = None
        self._files: tuple[bytes, ...] = ()
        self._checked = clock.now()
        self._sockets: weakref.WeakSet[socket.socket] = weakref.WeakSet()
        self._session = aiohttp.ClientSession(
            # Watches hold connections for as long as they live: a limit would let them starve requests.
            connector=aiohttp.TCPConnector(limit=0, socket_factory=self._socket, keepalive_timeout=60),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"User-Agent": user_agent},
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_TIMEOUT),
            read_bufsize=READ_BUFFER,
        )
        # The library would send PUT and DELETE again after a reset; only reads may be repeated without asking (see Transport).
        self._session._retry_connection = False

    async def send(self, method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes | None, request: str) -> Answer:
        """Send and give the answer when its head is there. ``request`` says in words what is asked.

        Raises:
            TransportError: no answer.
        """
        tls = await self._tls_context() if self._config.secure else None
        try:
            response = await self._session.request(
                method,
                yarl.URL(self._config.server + target, encoded=True),
                headers=list(headers),
                # In pieces, if large: one write of megabytes would hold the loop.
                data=io.BytesIO(body) if body is not None and len(body) > _LARGE_BODY else body,
                ssl=tls if tls is not None else True,
                server_hostname=self._config.tls_server_name or None,
                proxy=self._proxy or None,
                # A redirect would carry the credentials elsewhere; API servers do not answer with one.
                allow_redirects=False,
            )
        except (aiohttp.ClientError, OSError) as error:
            raise failure_of(error, self._config, request) from error
        return Answer(response, self._config, request)

    async def close(self) -> None:
        """Close all sockets, used or idle. Returns when they are closed, or after half a second."""
        await self._session.close()
        # The library only starts closing; a loop that ends at once would leave sockets behind.
        for _ in range(_CLOSE_TURNS):
            if not any(one.fileno() >= 0 for one in self._sockets):
                return
            await asyncio.sleep(_CLOSE_TURN)

    def _socket(self, address: tuple[Any, ...]) -> socket.socket:
        made = _socket(address)
        self._sockets.add(made)
        return made

    async def _tls_context(self) -> Any:
        certificate = await self._authenticator.client_certificate()
        now = self._clock.now()
        if self._tls is None:
            self._files = self._read_files()
        elif certificate != self._certificate:
            self._tls = None
        elif now - self._checked >= CERTIFICATE_PERIOD:
            self._checked = now
            self._renew()
        if self._tls is None:
            self._tls = self._config.ssl_context(certificate)
            self._certificate = certificate
        return self._tls

    def _renew(self) -> None:
        """Use changed certificate files for new connections; a broken file leaves the old ones in use."""
        try:
            files = self._read_files()
            if files != self._files:
                self._tls = self._config.ssl_context(self._certificate)
                self._files = files
        except ConfigError as error:
            _logger.warning("certificates stay as they were: %s", error)

    def _read_files(self) -> tuple[bytes, ...]:
        user = self._config.credentials
        return tuple(pem.read() for pem in (self._config.ca, user.client_certificate, user.client_key) if pem is not None and not pem.data)


def _socket(address: tuple[Any, ...]) -> socket.socket:
    """A socket that finds out within about a minute that the other side is gone, also while a watch is silent."""
    family, kind, protocol = address[:3]
    made = socket.socket(family, kind, protocol)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 60_000)):
        if hasattr(socket, option):  # named differently, or missing, outside Linux
            made.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
    return made


def _proxy_of_environment(server: str) -> str:
    """``HTTPS_PROXY`` and the like, minus ``NO_PROXY``; never for loopback, as in Go."""
    url = urlsplit(server)
    host = url.hostname or ""
    if host in ("localhost", "::1") or host.startswith("127."):
        return ""
    proxy = getproxies().get(url.scheme, "")
    return "" if not proxy or proxy_bypass(host) else proxy
