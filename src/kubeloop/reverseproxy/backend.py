"""Addresses of backends, connections to them, and the messages of Go's HTTP client for their errors.

A backend is a kubelet, a server behind an APIService, the target of a ``/proxy`` request, or the API server behind a proxy.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from urllib.parse import quote_plus

from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.dial import open_wire
from kubeloop.http1.errors import ConnectionEnded, ProtocolError
from kubeloop.reverseproxy.egress_policy import DestinationNotAllowed, EgressPolicy
from kubeloop.serving.answer import StreamingResponse

#: Seconds for a connection with its TLS handshake (kube-apiserver dials for 30 s; handshakes get 10).
DIAL_TIMEOUT = 30.0

#: OpenSSL's X509_V_ERR_* codes for a chain without a trusted authority (openssl/x509_vfy.h).
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)

#: Characters that Go does not escape in a path.
PATH_SAFE = "/$&+,:;=@-_.~"

#: Errors of a backend's connection that are not defects of this program.
BACKEND_ERRORS = (OSError, ConnectionEnded, ProtocolError)


@dataclass(frozen=True, slots=True)
class Backend:
    """The destination of a proxied request.

    ``tls`` None means plain HTTP. ``path`` is percent-encoded and may be empty; ``query`` comes without its question mark.
    ``server_name`` is the name that the certificate must be valid for, if it is not the host.
    ``egress_policy`` limits the addresses that may be dialled; None allows all.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: str = ""
    query: str = ""
    server_name: str = ""
    egress_policy: EgressPolicy | None = None

    @property
    def authority(self) -> str:
        """Host and port in the form of the Host header."""
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """The target of the request line: path and query."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def url(self) -> str:
        return f"{'https' if self.tls is not None else 'http'}://{self.authority}{self.target}"

    async def connect(self) -> ClientConnection:
        """Open a connection.

        Raises:
            OSError: The backend cannot be reached; ``DestinationNotAllowed`` if the egress policy forbids it.
            ConnectionEnded: The backend closed the connection.
            ProtocolError: The backend does not speak HTTP/1.1.
        """
        try:
            async with asyncio.timeout(DIAL_TIMEOUT):
                name = self.server_name or self.host
                if self.egress_policy is not None:
                    return await self.egress_policy.open(self.host, self.port, self.tls, name)
                return await open_wire(self.host, self.port, self.tls, name)
        except OSError:  # among them errors of certificates, which are ValueErrors as well
            raise
        except (ValueError, OverflowError) as error:  # an impossible name or port, which a node's status may hold
            raise OSError(str(error)) from None


class BackendStream:
    """A backend's upgraded connection as a ``Duplex``. An error of the connection ends the stream."""

    def __init__(self, wire: ClientConnection) -> None:
        self._wire = wire

    async def read(self) -> bytes:
        try:
            return await self._wire.chunk()
        except BACKEND_ERRORS:
            return b""

    async def write(self, data: bytes) -> None:
        try:
            await self._wire.write(data)
        except (ConnectionEnded, ProtocolError) as error:
            raise ConnectionResetError(str(error)) from None


def error_text(error: BaseException, backend: Backend) -> str:
    """Return the reason why a backend sent no response, with the message of Go's net package if it has one for the error."""
    dialled = f"dial tcp {backend.authority}"
    if isinstance(error, DestinationNotAllowed):
        return f"{dialled}: {error}"
    if isinstance(error, ConnectionRefusedError):
        return f"{dialled}: connect: connection refused"
    if isinstance(error, ssl.SSLCertVerificationError):
        why = "certificate signed by unknown authority" if error.verify_code in _UNKNOWN_AUTHORITY else error.verify_message
        return f"tls: failed to verify certificate: x509: {why}"
    if isinstance(error, socket.gaierror):
        return f"dial tcp: lookup {backend.host}: no such host"
    if isinstance(error, TimeoutError):
        return f"{dialled}: i/o timeout"
    if isinstance(error, ConnectionEnded):
        return "EOF"
    if isinstance(error, ConnectionResetError):
        return f"read tcp {backend.authority}: connection reset by peer"
    if isinstance(error, ProtocolError):
        return f"malformed HTTP response: {error}"
    if isinstance(error, ssl.SSLError):
        return f"tls: {(error.reason or str(error)).replace('_', ' ').lower()}"
    if isinstance(error, OSError):
        known = {errno.EHOSTUNREACH: "no route to host", errno.ENETUNREACH: "network is unreachable"}
        return f"{dialled}: connect: {known.get(error.errno or 0, error.strerror or str(error))}"
    return str(error) or type(error).__name__


def request_head(method: str, target: str, headers: list[tuple[str, str]]) -> bytes:
    """Return the request line and headers as bytes.

    The headers are not checked: they must come from the project's HTTP parser or be built by this package.
    """
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def encode_query(parameters: Iterable[tuple[str, str]]) -> str:
    """Return an encoded query string, sorted by parameter name as Go's url.Values.Encode sorts it."""
    ordered = sorted(parameters, key=lambda pair: pair[0])
    return "&".join(f"{quote_plus(name, safe='-_.~')}={quote_plus(value, safe='-_.~')}" for name, value in ordered)


def complete_response(status: int, body: bytes, content_type: str, headers: list[tuple[str, str]]) -> StreamingResponse:
    """Return a response with a backend's complete body, which the server neither encodes nor compresses again.

    Args:
        status: HTTP status code.
        body: The whole body.
        content_type: Its media type.
        headers: Headers of the backend; ``Content-Length`` and ``Content-Type`` are replaced.
    """

    async def once() -> AsyncIterator[bytes]:
        yield body

    rest = [(name, value) for name, value in headers if name.lower() not in ("content-length", "content-type")]
    return StreamingResponse(once(), content_type, [*rest, ("Content-Length", str(len(body)))], status)
