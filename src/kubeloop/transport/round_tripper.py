"""The interface between a transport and its sender of requests: its connections, or a server in this process."""

from __future__ import annotations

from typing import Protocol

import msgspec

from kubeloop.http1.headers import Headers
from kubeloop.transport.describe import describe


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
            TransportError: there was no response.
            ValueError: the request is malformed.
        """

    async def close(self) -> None:
        """Close everything; running requests end with TransportError."""
