"""One request and one answer, as they pass between the transport and whoever sends: its connections, or a server in this process."""

from __future__ import annotations

from typing import Protocol

import msgspec

from kubeloop.http1.headers import Headers
from kubeloop.transport.describe import describe


class OutgoingRequest(msgspec.Struct):
    """One try of a request, ready to be sent.

    ``upgrade`` names a protocol to change to: such a request has a connection of its
    own and may be answered 101. ``patience``: the longest time in seconds without any byte of the head; None: no limit.
    """

    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes | None
    upgrade: str = ""
    patience: float | None = None

    @property
    def asked(self) -> str:
        """What is asked, in words, for messages."""
        path, _, query = self.target.partition("?")
        return describe(self.method, path, {"watch": True} if "watch=true" in query.split("&") else None)

    def __repr__(self) -> str:
        return f"OutgoingRequest({self.asked})"


class Answer(Protocol):
    """The head of an answer, its body still to be read. ``close`` must be called, and may be called twice."""

    status: int
    headers: Headers

    async def read(self, limit: int) -> bytes:
        """The whole body, unpacked. Raises TransportError: it broke off, or is larger than ``limit`` bytes."""

    async def chunk(self, patience: float | None = None) -> bytes:
        """What has come since the last call, or the next piece; empty at the end.

        Raises TransportError: it broke off, or nothing came for ``patience`` seconds.
        """

    async def write(self, data: bytes) -> None:
        """Send to the protocol that was changed to."""

    def close(self) -> None:
        """Leave the answer; what was not read of it is not wanted."""


class Sender(Protocol):
    """What carries requests to the server. ``send`` may run any number of times at once."""

    async def send(self, request: OutgoingRequest) -> Answer:
        """Send and give the answer when its head is there.

        Raises:
            TransportError: no answer. ValueError: the request cannot be sent as it is.
        """

    async def close(self) -> None:
        """End everything; what runs ends with TransportError."""
