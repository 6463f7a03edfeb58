"""Answers: what a handler returns, before it is bytes on a socket.

``Answer`` carries a JSON object (encoded as the request negotiated) or finished bytes; ``StreamingResponse`` is a stream (a watch, a log);
``Hijack`` and ``SocketTakeover`` change the protocol, to anything and to WebSocket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kubeloop.types import JSONObject


@dataclass(slots=True)
class Answer:
    """One whole answer.

    Exactly one of ``object`` and ``body`` is meant: ``object`` (a JSON tree) is encoded in the media type that the request
    negotiated (JSON or YAML) when ``content_type`` is empty; ``body`` is sent as it is, under ``content_type``.
    ``headers`` may repeat a name (Warning).
    """

    status: int = 200
    object: JSONObject | None = None
    body: bytes | None = None
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    #: ``body`` goes out as it is: neither indented, nor ended with a newline, nor compressed.
    verbatim: bool = False
    #: Seconds for which nothing more is read from the connection: its client was asked to wait, and some do not.
    hold: float = 0.0


class Aborted(Exception):
    """Raised by the chunks of ``StreamingResponse``: the body is incomplete, so the connection is cut."""


@dataclass(slots=True)
class StreamingResponse:
    """A stream: ``chunks`` yields whole frames; it is closed (``aclose``) as soon as the client goes or the server stops.

    It goes out chunked, unless ``headers`` hold a Content-Length. ``close`` is called at the end in any case, once.
    """

    chunks: AsyncIterator[bytes]
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200
    close: Callable[[], None] = lambda: None


class Duplex(Protocol):
    """Bytes both ways, in order. One task reads, one writes."""

    async def read(self) -> bytes:
        """What has come since the last call, or the next piece; empty when the peer has ended."""

    async def write(self, data: bytes) -> None:
        """Returns when more may be written. Raises OSError when the peer has gone."""


@dataclass(slots=True)
class Hijack:
    """101 with ``headers``; ``serve`` has the connection until it returns, and then the connection ends (RFC 9110, section 7.8).

    ``close`` is called at the end in any case, also if the client went before ``serve`` could begin.
    """

    serve: Callable[[Duplex], Awaitable[None]]
    headers: list[tuple[str, str]] = field(default_factory=list)
    close: Callable[[], None] = lambda: None


class Socket(Protocol):
    """A WebSocket, messages both ways (RFC 6455)."""

    @property
    def protocol(self) -> str:
        """The subprotocol that was agreed on; empty if none."""

    async def receive(self) -> bytes | str | None:
        """The next message; None when the peer has ended."""

    async def send(self, message: bytes | str) -> None:
        """Raises OSError when the peer has gone."""


@dataclass(slots=True)
class SocketTakeover:
    """A WebSocket with the first of the client's subprotocols that is among ``protocols``; ``serve`` and ``close`` as in ``Hijack``.

    When ``serve`` returns, the socket is closed with 1000 (normal).
    """

    serve: Callable[[Socket], Awaitable[None]]
    protocols: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None


Reply = Answer | StreamingResponse | Hijack | SocketTakeover
