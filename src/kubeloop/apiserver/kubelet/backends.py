"""Connections to what stands behind the server: kubelets, and the ends of proxied requests. Faults in kube-apiserver's words."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass

from kubeloop.apiserver.egress_policy import DestinationNotAllowed, EgressPolicy
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.dial import open_wire
from kubeloop.http1.errors import ConnectionEnded, ProtocolError
from kubeloop.serving.answer import StreamingResponse

#: Seconds for a connection with its TLS handshake (kube-apiserver dials for 30 s; handshakes get 10).
DIAL_TIMEOUT = 30.0

#: OpenSSL's X509_V_ERR_* codes for a chain that ends nowhere (openssl/x509_vfy.h).
_UNKNOWN_AUTHORITY = (18, 19, 20, 21)

#: Characters that Go leaves as they are in a path.
SAFE = "/$&+,:;=@-_.~"

#: What a backend's connection raises for reasons outside this program.
FAULTS = (OSError, ConnectionEnded, ProtocolError)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request goes. ``tls`` None: plain HTTP. ``path`` is percent-encoded and may be empty, ``query`` is without its mark.

    ``server_name``: what the certificate must be valid for, if it is not the host. ``reach``: what may be dialled at all.
    """

    host: str
    port: int
    tls: ssl.SSLContext | None
    path: str = ""
    query: str = ""
    server_name: str = ""
    reach: EgressPolicy | None = None

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def target(self) -> str:
        """What stands in the request line."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    @property
    def url(self) -> str:
        return f"{'https' if self.tls is not None else 'http'}://{self.authority}{self.target}"

    async def connect(self) -> ClientConnection:
        """Raises one of ``FAULTS``."""
        try:
            async with asyncio.timeout(DIAL_TIMEOUT):
                name = self.server_name or self.host
                if self.reach is not None:
                    return await self.reach.open(self.host, self.port, self.tls, name)
                return await open_wire(self.host, self.port, self.tls, name)
        except OSError:  # among them certificates that are not trusted, which are ValueErrors as well
            raise
        except (ValueError, OverflowError) as fault:  # no name and no port that there could be, as a node's status may hold
            raise OSError(str(fault)) from None


class WireBytes:
    """A connection after 101 as a ``Duplex``: whatever ends it is an end."""

    def __init__(self, wire: ClientConnection) -> None:
        self._wire = wire

    async def read(self) -> bytes:
        try:
            return await self._wire.chunk()
        except FAULTS:
            return b""

    async def write(self, data: bytes) -> None:
        try:
            await self._wire.write(data)
        except (ConnectionEnded, ProtocolError) as fault:
            raise ConnectionResetError(str(fault)) from None


def dial_fault(fault: BaseException, place: Place) -> str:
    """Why there is no connection or answer, as Go's net package says it where it has words for it."""
    where = f"dial tcp {place.authority}"
    if isinstance(fault, DestinationNotAllowed):
        return f"{where}: {fault}"
    if isinstance(fault, ConnectionRefusedError):
        return f"{where}: connect: connection refused"
    if isinstance(fault, ssl.SSLCertVerificationError):
        why = "certificate signed by unknown authority" if fault.verify_code in _UNKNOWN_AUTHORITY else fault.verify_message
        return f"tls: failed to verify certificate: x509: {why}"
    if isinstance(fault, socket.gaierror):
        return f"dial tcp: lookup {place.host}: no such host"
    if isinstance(fault, TimeoutError):
        return f"{where}: i/o timeout"
    if isinstance(fault, ConnectionEnded):
        return "EOF"
    if isinstance(fault, ConnectionResetError):
        return f"read tcp {place.authority}: connection reset by peer"
    if isinstance(fault, ProtocolError):
        return f"malformed HTTP response: {fault}"
    if isinstance(fault, ssl.SSLError):
        return f"tls: {(fault.reason or str(fault)).replace('_', ' ').lower()}"
    if isinstance(fault, OSError):
        known = {errno.EHOSTUNREACH: "no route to host", errno.ENETUNREACH: "network is unreachable"}
        return f"{where}: connect: {known.get(fault.errno or 0, fault.strerror or str(fault))}"
    return str(fault) or type(fault).__name__


def request_head(method: str, target: str, headers: list[tuple[str, str]]) -> bytes:
    """The head of a request whose headers came through this server's own parser, or were made here."""
    lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape")


def whole(status: int, body: bytes, content_type: str, headers: list[tuple[str, str]]) -> StreamingResponse:
    """A backend's whole answer, which this server neither encodes nor compresses anew."""

    async def once() -> AsyncIterator[bytes]:
        yield body

    rest = [(name, value) for name, value in headers if name.lower() not in ("content-length", "content-type")]
    return StreamingResponse(once(), content_type, [*rest, ("Content-Length", str(len(body)))], status)
