"""Accepts connections of listening sockets, and limits how many TLS handshakes run at the same time."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
import ssl
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from kubeloop.http1.tls_layer import secure_accepted
from kubeloop.tasks import wait_all
from kubeloop.timing import Clock, SystemClock, Timer

_LOG = logging.getLogger("kubeloop.serving")

#: Maximum number of handshakes that run at the same time: more would end no sooner, and OpenSSL's state of each takes memory.
MAX_HANDSHAKES = 64
#: Seconds after which a handshake no longer counts towards the limit, so that clients that never complete theirs delay others only for this
#: time.
SLOW_HANDSHAKE = 2.0
#: Maximum number of accepted connections whose handshake has not begun. Each is only a socket. Further ones stay in the accept queue,
#: whose overflow clients notice as a delay of seconds or a reset connection.
MAX_WAITING = 4096
#: Length of the accept queue of each socket.
_BACKLOG = 1024
#: Seconds without accepting after an error, such as a process that is out of files or memory; as in asyncio.
_PAUSE = 1.0


class Acceptor:
    """Accepts connections, and completes the TLS handshake of each in a separate task.

    Guarantees
        At most ``max_handshakes`` handshakes that are younger than ``SLOW_HANDSHAKE`` seconds run at the same time. Further connections
        wait in the order in which they came, ``MAX_WAITING`` as bare sockets and the others in the accept queue.

    Args:
        sockets: Bound, non-blocking sockets. The acceptor closes them.
        connected: Returns the protocol of a new connection.
        context: TLS of the connections; None for plain TCP.
        max_handshakes: The limit.
        clock: Measures handshakes. None: the system's.
    """

    def __init__(
        self,
        sockets: Sequence[socket.socket],
        connected: Callable[[], asyncio.Protocol],
        context: ssl.SSLContext | None,
        *,
        max_handshakes: int = MAX_HANDSHAKES,
        clock: Clock | None = None,
    ) -> None:
        self._sockets = sockets
        self._connected = connected
        self._context = context
        self._limit = max_handshakes
        self._clock = clock or SystemClock()
        self._tasks: set[asyncio.Task[None]] = set()
        self._counted: set[asyncio.Task[None]] = set()
        self._waiting: deque[socket.socket] = deque()
        #: Tasks that accept connections, in event loops without readers (Windows).
        self._acceptances: set[asyncio.Task[None]] = set()
        self._accepting = False
        self._suspended = False
        self._ended = False

    @property
    def handshakes(self) -> int:
        """Number of connections whose handshake runs."""
        return len(self._tasks)

    @property
    def waiting(self) -> int:
        """Number of connections whose handshake has not begun."""
        return len(self._waiting)

    def start(self) -> None:
        """Listen and accept connections."""
        for listening in self._sockets:
            listening.listen(_BACKLOG)
        self._resume()

    def stop(self) -> None:
        """Accept no further connections, and close the waiting ones. Running handshakes continue."""
        self._pause()
        self._ended = True
        # A loop without readers must not see a closed socket: it is closed when its task has ended.
        for unused in (*(() if self._acceptances else self._sockets), *self._waiting):
            unused.close()
        self._waiting.clear()

    def abort(self) -> None:
        """Stop, and end all handshakes."""
        self.stop()
        # Later in the same turn: a task that is cancelled before its first step would not close its socket.
        asyncio.get_running_loop().call_soon(self._cancel)

    async def end_handshakes(self) -> None:
        """End all handshakes, and wait until their sockets are closed. Call ``stop`` before."""
        await asyncio.sleep(0)  # as in abort
        self._cancel()
        if self._tasks or self._acceptances:
            await wait_all(*self._tasks, *self._acceptances)
            await asyncio.sleep(0)  # closes their sockets

    def _cancel(self) -> None:
        for task in self._tasks:
            task.cancel()

    def _resume(self) -> None:
        if not self._accepting and not self._suspended and not self._ended:
            self._accepting = True
            for listening in self._sockets:
                self._watch(listening)

    def _watch(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        try:
            loop.add_reader(listening.fileno(), self._accept, listening)
        except NotImplementedError:  # asyncio documentation, "Platform Support": the loop of Windows has no readers.
            task = loop.create_task(self._accept_each(listening), name="accept")
            self._acceptances.add(task)
            task.add_done_callback(partial(self._forget, listening))

    def _forget(self, listening: socket.socket, task: asyncio.Task[None]) -> None:
        self._acceptances.discard(task)
        if self._ended:
            listening.close()

    def _retry(self) -> None:
        self._suspended = False
        self._resume()

    def _pause(self) -> None:
        if self._accepting:
            self._accepting = False
            for listening in self._sockets if not self._acceptances else ():
                asyncio.get_running_loop().remove_reader(listening.fileno())
            for task in self._acceptances:
                task.cancel()

    def _accept(self, listening: socket.socket) -> None:
        while self._accepting:
            try:
                connection, _ = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as fault:
                self._suspend(fault)
            else:
                self._add(connection)

    async def _accept_each(self, listening: socket.socket) -> None:
        while self._accepting:
            try:
                connection, _ = await asyncio.get_running_loop().sock_accept(listening)
            except ConnectionAbortedError:
                continue
            except OSError as fault:
                self._suspend(fault)
            else:
                self._add(connection)

    def _suspend(self, fault: OSError) -> None:
        """Accept nothing for a while: the process is out of files or memory, or the system refuses for another reason."""
        _LOG.error("no connection can be accepted for %g s: %s", _PAUSE, fault)
        self._pause()
        self._suspended = True
        self._clock.call_later(_PAUSE, self._retry)

    def _add(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        self._waiting.append(connection)
        self._begin()
        if len(self._waiting) >= MAX_WAITING:
            self._pause()

    def _begin(self) -> None:
        """Begin the handshakes of waiting connections, up to the limit."""
        while self._waiting and len(self._counted) < self._limit:
            task = asyncio.get_running_loop().create_task(self._shake_hands(self._waiting.popleft()), name="tls-handshake")
            self._tasks.add(task)
            self._counted.add(task)
            timer = self._clock.call_later(SLOW_HANDSHAKE, partial(self._release, task))
            task.add_done_callback(self._tasks.discard)
            task.add_done_callback(partial(_cancel_timer, timer))
            task.add_done_callback(self._release)

    def _release(self, task: asyncio.Task[None]) -> None:
        self._counted.discard(task)
        self._begin()
        if len(self._waiting) < MAX_WAITING:
            self._resume()

    async def _shake_hands(self, connection: socket.socket) -> None:
        # Errors are the client's: it left, speaks no TLS, or shows a certificate that is refused.
        with contextlib.suppress(OSError):
            if self._context is None:
                await asyncio.get_running_loop().connect_accepted_socket(self._connected, connection)
            else:
                await secure_accepted(connection, self._connected(), self._context)


def _cancel_timer(timer: Timer, _: asyncio.Task[None]) -> None:
    timer.cancel()
