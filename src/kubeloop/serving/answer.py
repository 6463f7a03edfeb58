"""Responses: the return values of handlers, before they are encoded.

``Answer`` has a JSON object (encoded as negotiated) or finished bytes; ``StreamingResponse`` is a stream (a watch, a log);
``Hijack`` upgrades the connection to any protocol, and ``SocketTakeover`` to a WebSocket.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from kubeloop.types import JSONObject


@dataclass(slots=True)
class Answer:
    """A complete response. Exactly one of ``object`` and ``body`` is set.

    ``object`` (a JSON tree) is encoded as ``content_type``, or if that is empty, in the media type that the request negotiated. ``body``
    has the media type ``content_type``; it may be indented and compressed unless ``verbatim`` is set. ``headers`` may repeat a name
    (Warning).
    """

    status: int = 200
    object: JSONObject | None = None
    body: bytes | None = None
    content_type: str = ""
    headers: list[tuple[str, str]] = field(default_factory=list)
    #: ``body`` is sent as it is: neither indented, nor ended with a newline, nor compressed.
    verbatim: bool = False
    #: Seconds without reading from the connection, because clients may ignore Retry-After.
    hold: float = 0.0


class Aborted(Exception):
    """Raised by the ``chunks`` of a ``StreamingResponse`` whose body stays incomplete, so that the connection is cut."""


class FrameWriter(Protocol):
    """Writes the frames of a ``StreamingResponse`` that pushes them."""

    def encode(self, frame: bytes) -> bytes:
        """Return a frame as the connection transfers it, for ``push`` and ``write``. All chunked connections encode a frame alike."""

    @property
    def chunked(self) -> bool:
        """Whether ``encode`` writes a chunk of a chunked body."""

    def push(self, encoded: bytes) -> bool:
        """Write at once and return True; return False if the client has not read earlier bytes, or has disconnected."""

    async def write(self, encoded: bytes) -> None:
        """Write, and return when more may be written. Raises OSError if the client has disconnected."""

    async def drained(self) -> None:
        """Return when more may be written. Raises OSError if the client has disconnected."""


@dataclass(slots=True)
class StreamingResponse:
    """A streamed response: ``chunks`` yields whole frames; it is closed (``aclose``) when the client disconnects or the server stops.

    It is sent chunked, unless ``headers`` have a Content-Length. ``close`` is always called once at the end.

    ``push`` sends the same frames without a task per frame, for sources that write one frame to many clients. A connection that supports
    it calls ``push`` and does not read ``chunks``.
    """

    chunks: AsyncIterator[bytes]
    content_type: str = "application/json"
    headers: list[tuple[str, str]] = field(default_factory=list)
    status: int = 200
    close: Callable[[], None] = lambda: None
    push: Callable[[FrameWriter], Awaitable[None]] | None = None


class Duplex(Protocol):
    """A byte stream in both directions. At most one task may read, and one may write, at a time."""

    async def read(self) -> bytes:
        """Return the bytes received since the last call, or wait for bytes. Return empty bytes at the end of the peer's stream."""

    async def write(self, data: bytes) -> None:
        """Write bytes, and return when more may be written. Raises OSError if the peer has disconnected."""


@dataclass(slots=True)
class Hijack:
    """A 101 response with ``headers``, after which ``serve`` uses the connection (RFC 9110, section 7.8).

    The connection is closed when ``serve`` returns. ``close`` is always called at the end, even if the client disconnected before ``serve``
    began.
    """

    serve: Callable[[Duplex], Awaitable[None]]
    headers: list[tuple[str, str]] = field(default_factory=list)
    close: Callable[[], None] = lambda: None


class Socket(Protocol):
    """A WebSocket, messages in both directions (RFC 6455)."""

    @property
    def protocol(self) -> str:
        """The negotiated subprotocol, or an empty text if there is none."""

    async def receive(self) -> bytes | str | None:
        """Return the next message, or None once the peer has closed the WebSocket."""

    async def send(self, message: bytes | str) -> None:
        """Send a message. Raises OSError when the peer has disconnected."""


@dataclass(slots=True)
class SocketTakeover:
    """A response that upgrades to a WebSocket. For ``serve`` and ``close`` see ``Hijack``.

    The subprotocol is the first of the client's subprotocols that is among ``protocols``.

    When ``serve`` returns, the socket is closed with 1000 (normal).
    """

    serve: Callable[[Socket], Awaitable[None]]
    protocols: tuple[str, ...] = ()
    close: Callable[[], None] = lambda: None


Reply = Answer | StreamingResponse | Hijack | SocketTakeover
