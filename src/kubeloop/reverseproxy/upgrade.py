"""Proxying of upgrade requests (exec, attach, port-forward, WebSockets) to a backend.

After the backend's 101 response, bytes pass in both directions unchanged.

Source: k8s.io/apimachinery pkg/util/proxy/upgradeaware.go; RFC 9110 section 7.8.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Protocol

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.responses import text
from kubeloop.http1.client_connection import ClientConnection
from kubeloop.http1.headers import Headers
from kubeloop.reverseproxy.backend import BACKEND_ERRORS, Backend, complete_response, error_text, request_head
from kubeloop.serving.answer import Duplex, Hijack, Reply, Socket, SocketTakeover, StreamingResponse
from kubeloop.serving.request import Request
from kubeloop.serving.spdy import PROTOCOL, STREAM_PROTOCOL
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.reverseproxy")

#: Limits for reading the body of a backend's refusal to upgrade: seconds and bytes.
_REFUSAL_TIME = 10.0
_REFUSAL_SIZE = 1 << 20
#: Headers that identify the client to this server: a backend must not see or trust them.
_CREDENTIALS = frozenset(
    {"authorization", "impersonate-user", "impersonate-uid", "impersonate-group", "x-remote-user", "x-remote-uid", "x-remote-group"}
)
_OF_CONNECTION = frozenset({"host", "x-forwarded-for"})
_CREDENTIAL_PREFIXES = "impersonate-extra-", "x-remote-extra-"


#: Returns the headers that a backend gets instead of the client's.
Rewrite = Callable[[list[tuple[str, str]]], list[tuple[str, str]]]


def unchanged(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return headers


def is_upgrade(request: Request) -> bool:
    return "upgrade" in request.header("Connection").lower()


def is_websocket(request: Request) -> bool:
    return is_upgrade(request) and request.header("Upgrade").lower() == "websocket"


def subprotocols(request: Request) -> list[str]:
    """Return the subprotocols that a WebSocket client offers, in the client's order of preference."""
    return [one.strip() for one in request.header("Sec-WebSocket-Protocol").split(",") if one.strip()]


def forwarded_headers(request: Request, *, without: Iterable[str] = (), credentials: bool = False) -> list[tuple[str, str]]:
    """Return a client's headers for a backend, with the client's address in X-Forwarded-For.

    Args:
        request: The client's request.
        without: Names, in lower case, of further headers to leave out.
        credentials: Whether to forward the headers by which the client authenticates and impersonates. Only for a backend that
            authenticates clients itself.
    """
    left_out = _OF_CONNECTION.union(without) if credentials else _CREDENTIALS.union(_OF_CONNECTION, without)
    prefixes = () if credentials else _CREDENTIAL_PREFIXES
    passed = [
        (name, value)
        for name, value in request.headers.items()
        if (lower := name.lower()) not in left_out and not lower.startswith(prefixes)
    ]
    before: list[str] = []
    if "X-Forwarded-For" in request.headers:
        before = [value for name, value in request.headers.items() if name.lower() == "x-forwarded-for"]
    return [("Host", request.header("Host")), *passed, ("X-Forwarded-For", ", ".join([*before, request.remote]))]


class BackendUnreachable(Exception):
    """The backend could not be reached or sent no response.

    ``why`` is the message of Go's HTTP client. ``connected`` says whether a connection existed before the failure.
    """

    def __init__(self, why: str, *, connected: bool) -> None:
        super().__init__(why)
        self.why = why
        self.connected = connected


async def proxy_upgrade(request: Request, backend: Backend, rewrite: Rewrite = unchanged, *, credentials: bool = False) -> Reply:
    """Proxy an upgrade request.

    Args:
        request: The client's request.
        backend: The destination.
        rewrite: Changes the headers that the backend gets.
        credentials: Whether to forward the client's credentials, see ``forwarded_headers``.

    Returns:
        The upgraded connection, or the backend's refusal (status 400 and above).

    Raises:
        ApiError: 500 without a reason: the backend sent no response, or its response is neither an upgrade nor a refusal.
    """
    # The forwarded request has no body, so that the backend reads the client's bytes only as the protocol that it agreed to.
    headers = forwarded_headers(request, without=("content-length", "transfer-encoding"), credentials=credentials)
    if request.method in ("POST", "PUT", "PATCH"):
        headers.append(("Content-Length", "0"))
    response = await open_upgrade(backend, request.method, rewrite(headers))
    if isinstance(response, StreamingResponse):
        return response
    wire, received = response
    return Hijack(lambda duplex: relay(duplex, wire), header_lines(received), close=wire.abort)


async def open_upgrade(
    backend: Backend, method: str, headers: list[tuple[str, str]]
) -> StreamingResponse | tuple[ClientConnection, Headers]:
    """Request an upgrade. Return the connection and the headers of the 101 response, or the backend's refusal (status 400 and above).

    Raises:
        ApiError: See ``proxy_upgrade``.
    """
    try:
        return await request_upgrade(backend, method, headers)
    except BackendUnreachable as error:
        raise api_errors.internal(error.why if error.connected else f"error dialing backend: {error.why}") from None


async def request_upgrade(
    backend: Backend, method: str, headers: list[tuple[str, str]]
) -> StreamingResponse | tuple[ClientConnection, Headers]:
    """Request an upgrade like ``open_upgrade``, for callers that have their own error message for an unreachable backend.

    Raises:
        BackendUnreachable: The backend sent no response.
        ApiError: 500: The response is neither an upgrade nor a refusal.
    """
    wire = None
    try:
        wire = await backend.connect()
        status, received = await wire.exchange(method, request_head(method, backend.target, headers), None, upgrade=True)
        if status == 101:
            return wire, received
        if status >= 400:
            return await _refusal(wire, status, received)
    except BACKEND_ERRORS as error:
        _abort(wire)
        raise BackendUnreachable(error_text(error, backend), connected=wire is not None) from None
    except BaseException:
        _abort(wire)
        raise
    _abort(wire)
    raise api_errors.internal(f"invalid upgrade response: status code {status}")


def header_lines(headers: Headers, *, without: Collection[str] = ()) -> list[tuple[str, str]]:
    """Return the header lines but for some names, in lower case; with names in the usual capitalization (``Content-Type``)."""
    return [(_capitalized(name), value) for name in headers if name not in without for value in headers.values_of(name)]


@lru_cache(maxsize=512)
def _capitalized(name: str) -> str:
    return "-".join(part.capitalize() for part in name.split("-"))


class UpgradedWire(Protocol):
    """An upgraded connection to a backend."""

    async def chunk(self) -> bytes:
        """Return the bytes received since the last call, or wait for bytes. Return empty bytes at the end."""

    async def write(self, data: bytes) -> None:
        """Write bytes, and return when more may be written."""


async def relay(client: Duplex, wire: UpgradedWire) -> None:
    """Copy bytes in both directions until one side closes the connection."""
    directions = [asyncio.ensure_future(_to_backend(client, wire)), asyncio.ensure_future(_to_client(client, wire))]
    try:
        await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)
    finally:
        await end_tasks(*directions, expected=BACKEND_ERRORS, logger=_LOG)


async def _to_backend(client: Duplex, wire: UpgradedWire) -> None:
    try:
        while data := await client.read():
            await wire.write(data)
    except BACKEND_ERRORS:
        return


async def _to_client(client: Duplex, wire: UpgradedWire) -> None:
    try:
        while data := await wire.chunk():
            await client.write(data)
    except BACKEND_ERRORS:
        return


async def _refusal(wire: ClientConnection, status: int, headers: Headers) -> StreamingResponse:
    body = b""
    try:
        async with asyncio.timeout(_REFUSAL_TIME):
            while len(body) < _REFUSAL_SIZE and (part := await wire.chunk()):
                body += part
    except BACKEND_ERRORS:
        pass  # the client gets the part that was received
    finally:
        wire.abort()
    framing = ("content-length", "transfer-encoding", "connection", "keep-alive")
    passed = [(name, value) for name, value in header_lines(headers) if name.lower() not in framing]
    return complete_response(status, body, headers.get("Content-Type", ""), passed)


def _abort(wire: ClientConnection | None) -> None:
    if wire is not None:
        wire.abort()


# Port-forward over WebSocket for backends that speak only SPDY: the messages of the WebSocket carry SPDY bytes, which pass unchanged.
#
# Source: KEP-4006; k8s.io/apiserver pkg/util/proxy (tunnelling handler).


_TUNNEL_PREFIX = f"{PROTOCOL}+"
_TUNNEL_SUFFIX = ".k8s.io"
_WEBSOCKET_HEADERS = ("sec-websocket-protocol", "sec-websocket-key", "sec-websocket-version", "sec-websocket-extensions")


def is_tunnel(request: Request) -> bool:
    """Return whether a WebSocket request asks for a tunnel that carries SPDY."""
    return bool(_tunnelled(request))


async def proxy_tunnel(request: Request, backend: Backend) -> Reply:
    """Tunnel SPDY through a WebSocket. Return the WebSocket once the backend has accepted SPDY, or the backend's refusal.

    Raises:
        ApiError: See ``proxy_upgrade``.
    """
    headers = forwarded_headers(request, without=(*_WEBSOCKET_HEADERS, "upgrade", STREAM_PROTOCOL.lower(), "content-length"))
    headers += [("Upgrade", PROTOCOL), ("Content-Length", "0"), *((STREAM_PROTOCOL, one) for one in _tunnelled(request))]
    response = await open_upgrade(backend, "POST", headers)
    if isinstance(response, StreamingResponse):
        return response
    wire, received = response
    if PROTOCOL.lower() not in received.get("Upgrade", "").lower():
        wire.abort()
        return text("unable to upgrade: missing upgrade headers in response\n", 500)
    chosen = received.get(STREAM_PROTOCOL, "").strip()
    protocols = (f"{_TUNNEL_PREFIX}{chosen}",) if chosen else ()
    return SocketTakeover(lambda socket: relay(_SocketBytes(socket), wire), protocols, close=wire.abort)


def _tunnelled(request: Request) -> list[str]:
    offered = [one for one in subprotocols(request) if one.startswith(_TUNNEL_PREFIX) and one.endswith(_TUNNEL_SUFFIX)]
    return [one.removeprefix(_TUNNEL_PREFIX) for one in offered]


class _SocketBytes:
    """A WebSocket as a ``Duplex``: the stream of the bytes in its binary messages."""

    def __init__(self, socket: Socket) -> None:
        self._socket = socket

    async def read(self) -> bytes:
        while True:
            message = await self._socket.receive()
            if not isinstance(message, bytes):
                return b""  # the WebSocket is closed, or sent a text message, which a tunnel does not allow
            if message:
                return message

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)
