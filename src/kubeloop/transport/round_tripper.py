"""The interface between a transport and the object that sends its requests: requests, response heads, upgraded connections."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import NamedTuple, Protocol

import msgspec

from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import TransportError

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestDescription(NamedTuple):
    """The attributes of a request: verb, resource, namespace and name.

    For a path without a resource, ``verb`` is the HTTP method, and the other attributes are empty.
    """

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def parse_request_path(method: str, path: str, query: Mapping[str, object] | None = None) -> RequestDescription:
    """Return the attributes of a request, parsed like the request info of the server."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        rest, group, version = parts[2:], "", parts[1]
    elif parts[0] == "apis" and len(parts) > 3:
        rest, group, version = parts[3:], parts[1], parts[2]
    else:
        return RequestDescription(method)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = _VERBS.get(method, method)
    if method == "GET" and not name:
        verb = "watch" if query and query.get("watch") else "list"
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    return RequestDescription(verb, group, version, rest[0], "/".join(rest[2:]), namespace, name)


def describe(method: str, path: str, query: Mapping[str, object] | None = None) -> str:
    """Return a description such as ``get pods "web-0" in namespace "shop"``, or ``GET /version`` for a path without a resource."""
    found = parse_request_path(method, path, query)
    if not found.resource:
        return f"{method} {path}"
    verb = "delete collection of" if found.verb == "deletecollection" else found.verb
    resource = f"{found.resource}.{found.group}" if found.group else found.resource
    if found.subresource:
        resource = f"{resource}/{found.subresource}"
    name = f'"{found.name}"' if found.name else ""
    return " ".join(part for part in (verb, resource, name, f'in namespace "{found.namespace}"' if found.namespace else "") if part)


class OutgoingRequest(msgspec.Struct):
    """One attempt of a request, ready to be sent.

    ``upgrade`` names the protocol to upgrade to. Such a request has its own connection and may get 101. ``patience`` is the maximum number
    of seconds without any byte of the response's head; None means no limit. ``more`` yields a body of unknown length instead of ``body``;
    such a request can be sent once.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | None
    upgrade: str = ""
    patience: float | None = None
    more: AsyncIterator[bytes] | None = None

    @property
    def description(self) -> str:
        """A description of the request, for messages."""
        path, _, query = self.target.partition("?")
        return describe(self.method, path, {"watch": True} if "watch=true" in query.split("&") else None)

    def __repr__(self) -> str:
        return f"OutgoingRequest({self.description})"


class ResponseHead(Protocol):
    """The head of a response with an unread body. The caller must call ``close``, which may be called twice."""

    status: int
    headers: Headers

    async def read(self, limit: int) -> bytes:
        """Return the whole body, decompressed. Raises TransportError if the connection broke or the body exceeds ``limit`` bytes."""

    async def chunk(self, read_timeout: float | None = None) -> bytes:
        """Return the data received since the last call, or wait for data. Return empty bytes at the end of the body.

        Raises TransportError if the connection broke or nothing arrived for ``read_timeout`` seconds.
        """

    async def write(self, data: bytes) -> None:
        """Send data over the upgraded connection."""

    def close(self) -> None:
        """Close the response and discard unread data."""


class Sender(Protocol):
    """The interface of objects that send requests to the server. Any number of ``send`` calls may run concurrently."""

    async def send(self, request: OutgoingRequest) -> ResponseHead:
        """Send a request and return its response as soon as the head has arrived.

        Raises:
            TransportError: There was no response.
            ValueError: The request is malformed.
        """

    async def close(self) -> None:
        """Close all connections. Running requests end with TransportError."""


class NotUpgradedError(TransportError):
    """The server did not upgrade the connection: the status was below 400, but not 101."""


class Upgraded:
    """An upgraded connection. ``Transport.upgrade`` creates it, and leaving the block closes it at once.

    Guarantees
        ``read`` begins with the first byte after the response's head, even if it arrived together with the head.
        ``write`` waits while the peer does not read. About 1 MiB is buffered for reading; then the peer has to wait.

    Not guaranteed
        Framing, pings and timeouts are left to the new protocol. At most one task may read, and one may write, at a time.

    Example:
        >>> from kubeloop.transport import Transport
        >>> async def open_spdy(transport: Transport, path: str) -> bytes:
        ...     async with transport.upgrade("POST", path, protocol="SPDY/3.1") as connection:
        ...         await connection.write(b"...")
        ...         return await connection.read()
    """

    def __init__(self, answer: ResponseHead) -> None:
        self._answer = answer
        self.headers: Mapping[str, str] = answer.headers
        """The headers of the response 101."""

    async def read(self) -> bytes:
        """Return the data received since the last call, or wait for data. Return empty bytes once the peer has closed the connection.

        Raises:
            TransportError: The connection broke.
        """
        return await self._answer.chunk()

    async def write(self, data: bytes) -> None:
        """Send data, and return when the peer can accept more.

        Raises:
            TransportError: The connection has ended.
        """
        await self._answer.write(data)

    def close(self) -> None:
        """Close the connection at once. Leaving the block does the same."""
        self._answer.close()
