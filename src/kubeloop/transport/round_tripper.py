"""The interface between a transport and its sender of requests: requests, heads of responses, upgraded connections."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import msgspec

from kubeloop.http1.headers import Headers
from kubeloop.meta.errors import TransportError

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestDescription(NamedTuple):
    """The parts of a request. ``verb`` is Kubernetes'; for a path without a resource it is the HTTP method, and the rest is empty."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def asked(method: str, path: str, query: Mapping[str, object] | None = None) -> RequestDescription:
    """Parse a request as the server's request info does."""
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
    """Return a text such as ``get pods "web-0" in namespace "shop"``; a path without a resource stays as it is (``GET /version``)."""
    found = asked(method, path, query)
    if not found.resource:
        return f"{method} {path}"
    verb = "delete collection of" if found.verb == "deletecollection" else found.verb
    resource = f"{found.resource}.{found.group}" if found.group else found.resource
    if found.subresource:
        resource = f"{resource}/{found.subresource}"
    name = f'"{found.name}"' if found.name else ""
    return " ".join(part for part in (verb, resource, name, f'in namespace "{found.namespace}"' if found.namespace else "") if part)


class OutgoingRequest(msgspec.Struct):
    """One try of a request, ready to be sent.

    ``upgrade`` names a protocol to change to: such a request has a separate
    connection and may get 101. ``patience``: maximum seconds without any byte of the head; None: no limit.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | None
    upgrade: str = ""
    patience: float | None = None

    @property
    def asked(self) -> str:
        """The request in words, for messages."""
        path, _, query = self.target.partition("?")
        return describe(self.method, path, {"watch": True} if "watch=true" in query.split("&") else None)

    def __repr__(self) -> str:
        return f"OutgoingRequest({self.asked})"


class ResponseHead(Protocol):
    """The head of a response with an unread body. Call ``close``; calling it twice is allowed."""

    status: int
    headers: Headers

    async def read(self, limit: int) -> bytes:
        """Return the whole body, decompressed. Raises TransportError: the connection broke, or the body is larger than ``limit`` bytes."""

    async def chunk(self, patience: float | None = None) -> bytes:
        """Return the data received since the last call, or wait for more; empty at the end.

        Raises TransportError: the connection broke, or nothing arrived for ``patience`` seconds.
        """

    async def write(self, data: bytes) -> None:
        """Send data in the new protocol."""

    def close(self) -> None:
        """Close the response; unread data is discarded."""


class Sender(Protocol):
    """Sends requests to the server. ``send`` may run concurrently any number of times."""

    async def send(self, request: OutgoingRequest) -> ResponseHead:
        """Send a request and return its response as soon as the head is there.

        Raises:
            TransportError: There was no response.
            ValueError: The request is malformed.
        """

    async def close(self) -> None:
        """Close everything; running requests end with TransportError."""


class NotUpgradedError(TransportError):
    """The server did not change the protocol (a status below 400 that is not 101)."""


class Upgraded:
    """A connection after a change of protocol, made by ``Transport.upgrade``. Leaving its block closes it at once.

    Guarantees
        ``read`` begins with the first byte after the response's head, however early it arrived.
        ``write`` waits while the peer does not read. At most about 1 MiB is buffered for reading, then the peer has to wait.

    Not guaranteed
        Framing, pings and timeouts belong to the new protocol. One task reads, one writes.

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
        """Return the data received since the last call, or wait for more; empty when the peer has closed the connection.

        Raises:
            TransportError: The connection broke.
        """
        return await self._answer.chunk()

    async def write(self, data: bytes) -> None:
        """Send data; return when the peer accepts still more.

        Raises:
            TransportError: The connection has ended.
        """
        await self._answer.write(data)

    def close(self) -> None:
        """End the connection at once. The block does it too."""
        self._answer.close()
