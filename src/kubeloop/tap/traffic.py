"""The facts that the relay reports about connections and requests, and the queue that carries them to the observer.

The relay never waits for the observer: bytes that do not fit into the queue are only counted.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

import msgspec

from kubeloop.tasks import Supervisor

_LOG = logging.getLogger("kubeloop.tap")

#: Maximum bytes of bodies that wait for the observer.
MAX_WAITING: Final = 64 << 20

HeaderLines = tuple[tuple[str, str], ...]


class TrafficFact(msgspec.Struct, frozen=True):
    """One fact. ``at`` is its time in seconds since the start of the tap."""

    at: float


class ConnectionOpened(TrafficFact, frozen=True):
    """A client has completed its TLS handshake. ``server`` is the address that it wants to reach, ``tls`` the version of TLS."""

    connection: int
    server: str
    tls: str


class ConnectionFailed(TrafficFact, frozen=True):
    """A client's connection ended before its first request. ``server`` is empty if it is unknown."""

    connection: int
    server: str
    reason: str


class ConnectionClosed(TrafficFact, frozen=True):
    connection: int


class RequestStarted(TrafficFact, frozen=True):
    """The head of a request has arrived. ``url`` is the upstream URL without its query."""

    request: int
    connection: int
    method: str
    url: str
    path: str
    query: str
    headers: HeaderLines


class RequestData(TrafficFact, frozen=True):
    """Bytes of a request's body, or what the client sends after an upgrade."""

    request: int
    data: bytes


class ResponseStarted(TrafficFact, frozen=True):
    """The head of a response has arrived. ``connected`` is the time at which a new upstream connection was ready; None: a reused one."""

    request: int
    status: int
    headers: HeaderLines
    connected: float | None = None


class ResponseData(TrafficFact, frozen=True):
    """Bytes of a response's body, or what the server sends after an upgrade."""

    request: int
    data: bytes


class DataSkipped(TrafficFact, frozen=True):
    """Bytes that did not fit into the queue."""

    request: int
    size: int
    of_response: bool


class StillWaiting(TrafficFact, frozen=True):
    """The response has not begun after ``seconds``."""

    request: int
    seconds: float


class RequestEnded(TrafficFact, frozen=True):
    """The end of a request. ``outcome`` is empty after a complete response, or else says why the response is incomplete."""

    request: int
    outcome: str = ""


class TapMessage(TrafficFact, frozen=True):
    """A message of the tap itself, such as a warning."""

    text: str


Observe = Callable[[TrafficFact], None]


class TrafficQueue:
    """Carries facts from the event loop to a handler that runs in a thread, in order.

    Guarantees:
        ``put`` never waits, and at most ``limit`` bytes of bodies wait for the handler; further ones become ``DataSkipped``.
        ``close`` returns when the handler has got all facts.

    Example:
        >>> queue = TrafficQueue(print, supervisor)
        >>> queue.put(TapMessage(0.0, "a warning"))
        >>> await queue.close()
    """

    def __init__(self, handle: Observe, supervisor: Supervisor, *, limit: int = MAX_WAITING) -> None:
        """Create the queue and start the task that empties it.

        Args:
            handle: Gets each fact, in a thread. A fact at which it raises is lost, and the first such error is logged.
            supervisor: Owns the task.
            limit: Maximum bytes of bodies in the queue.
        """
        self._handle = handle
        self._limit = limit
        self._facts: deque[TrafficFact] = deque()
        self._waiting = 0
        self._lock = threading.Lock()
        self._failed = False
        self._arrived = asyncio.Event()
        self._empty = asyncio.Event()
        self._empty.set()
        supervisor.start(self._drain, name="tap-observer")

    def put(self, fact: TrafficFact) -> None:
        """Add a fact. Call this method in the event loop."""
        if isinstance(fact, RequestData | ResponseData):
            size = len(fact.data)
            with self._lock:
                fits = self._waiting + size <= self._limit
                self._waiting += size if fits else 0
            if not fits:
                fact = DataSkipped(fact.at, fact.request, size, isinstance(fact, ResponseData))
        self._facts.append(fact)
        self._empty.clear()
        self._arrived.set()

    async def close(self) -> None:
        """Wait until the handler has got all facts. The supervisor ends the task."""
        await self._empty.wait()

    async def _drain(self) -> None:
        while True:
            if not self._facts:
                self._empty.set()
                self._arrived.clear()
                await self._arrived.wait()
            await asyncio.to_thread(self._handle_waiting)

    def _handle_waiting(self) -> None:
        while self._facts:
            fact = self._facts.popleft()
            if isinstance(fact, RequestData | ResponseData):
                with self._lock:
                    self._waiting -= len(fact.data)
            try:
                self._handle(fact)
            except Exception:  # noqa: BLE001 - a defect of an observer must not end the observation
                if not self._failed:
                    _LOG.exception("a step of the conversation cannot be shown or recorded; further such errors are not logged")
                self._failed = True
