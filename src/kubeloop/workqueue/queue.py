"""The queue between event handlers and reconcilers: what is waiting, what is being worked on, what is not due yet.

It must never hand one item to two workers at a time, nor lose a change that arrives while its item is being worked on.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Hashable
from typing import Generic, NamedTuple, TypeVar

from kubeloop.meta.errors import KubeloopError
from kubeloop.timing import Clock, SystemClock
from kubeloop.workqueue.delays import Delays
from kubeloop.workqueue.limiter import Limiter, default_limiter

T = TypeVar("T", bound=Hashable)


class QueueShutDown(KubeloopError):
    """The queue was shut down and nothing is left to do."""


class QueueStats(NamedTuple):
    """``waiting`` items to be taken, ``processing`` taken and not done, ``delayed`` not due; ``adds`` and ``retries`` since the start.

    An item that is added again while it waits or is being worked on counts as one add.
    """

    waiting: int
    processing: int
    delayed: int
    adds: int
    retries: int


class WorkQueue(Generic[T]):
    """Keys to work on. Every ``get`` must be answered with one ``done`` for the same item.

    Guarantees
        An item that was added several times before it is taken is handed out once, in the order of its first addition.
        An item that is being worked on is given to nobody else; added meanwhile, it is handed out again exactly once after ``done``.
        After ``shut_down`` additions are ignored; workers still get everything that waits, and only then ``QueueShutDown``.
        The queue keeps no reference to an item after ``done``.

    Not guaranteed
        Which of several waiting workers gets an item. Items that are not due when the queue shuts down: they are dropped.

    Cost
        Under a microsecond for ``add``, ``get`` and ``done`` together while items wait. One timer for all delays.

    For one event loop, not thread-safe. Semantics of client-go's util/workqueue.
    """

    __slots__ = (
        "_adds",
        "_clock",
        "_delays",
        "_dirty",
        "_drained",
        "_limiter",
        "_order",
        "_processing",
        "_retries",
        "_stopped",
        "_waiters",
    )

    def __init__(self, limiter: Limiter[T] | None = None, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._limiter: Limiter[T] = limiter or default_limiter(self._clock)
        self._order: deque[T] = deque()  # Waiting, oldest first; every one of them is dirty.
        self._dirty: set[T] = set()  # To be handed out (again).
        self._processing: set[T] = set()
        self._delays: Delays[T] = Delays(self._clock, self.add)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._drained: list[asyncio.Future[None]] = []
        self._stopped = False
        self._adds = 0
        self._retries = 0

    def add(self, item: T) -> None:
        """Have ``item`` worked on, if it does not wait for that already."""
        dirty = self._dirty
        if item in dirty or self._stopped:
            return
        dirty.add(item)
        self._adds += 1
        if item in self._processing:
            return
        self._order.append(item)
        if self._waiters:
            self._wake_one()

    async def get(self) -> T:
        """The item that has waited longest; waits for one if need be.

        Raises:
            QueueShutDown: the queue was shut down, and nothing is left.
        """
        order = self._order
        while not order:
            if self._stopped:
                raise QueueShutDown("the work queue is shut down and empty")
            waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiters.append(waiter)
            try:
                await waiter
            except BaseException:
                # Cancelled: a wake-up that was meant for this worker must reach another one, or an item would wait with workers idle.
                if waiter.done() and not waiter.cancelled():
                    self._wake_one()
                else:
                    with contextlib.suppress(ValueError):
                        self._waiters.remove(waiter)
                raise
        item = order.popleft()
        self._processing.add(item)
        self._dirty.discard(item)
        return item

    def done(self, item: T) -> None:
        """The work on ``item`` has ended, well or badly. If it was added meanwhile it waits again, at the end of the line.

        Raises:
            ValueError: ``item`` was not being worked on: two workers may be running on it.
        """
        try:
            self._processing.remove(item)
        except KeyError:
            raise ValueError(f"done({item!r}) without a get of it") from None
        if item in self._dirty:
            self._order.append(item)
            if self._waiters:
                self._wake_one()
        elif self._stopped and self._drained and self._idle:
            self._end_drain()

    def add_after(self, item: T, seconds: float) -> None:
        """Add ``item`` when ``seconds`` have passed, at once if not above zero. Of several times for one item the earliest wins.

        Source: client-go util/workqueue/delaying_queue.go.
        """
        if self._stopped:
            return
        if seconds <= 0:
            self.add(item)
        else:
            self._delays.put(item, seconds)

    def add_rate_limited(self, item: T) -> float:
        """Count a failure of ``item`` and add it after the limiter's delay; returns that delay in seconds."""
        self._retries += 1
        delay = self._limiter.delay(item)
        self.add_after(item, delay)
        return delay

    def forget(self, item: T) -> None:
        """``item`` succeeded: its back-off starts over. It stays in the queue if it waits there."""
        self._limiter.forget(item)

    def retries(self, item: T) -> int:
        """How many failures of ``item`` have been counted since it was last forgotten."""
        return self._limiter.retries(item)

    def shut_down(self) -> None:
        """Take nothing more in. A ``drain`` under way ends at once. May be called again."""
        self._stop()
        self._end_drain()

    async def drain(self) -> None:
        """Shut down, and return when everything that waits has been taken and every item taken is done.

        It needs workers that go on taking; ``shut_down`` from elsewhere ends it before its time.
        """
        self._stop()
        if self._idle:
            return
        drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._drained.append(drained)
        await drained

    @property
    def shutting_down(self) -> bool:
        return self._stopped

    @property
    def stats(self) -> QueueStats:
        return QueueStats(len(self._order), len(self._processing), len(self._delays), self._adds, self._retries)

    def __len__(self) -> int:
        """Items that wait to be taken: not those being worked on (dirty or not), nor those not due yet."""
        return len(self._order)

    @property
    def _idle(self) -> bool:
        return not self._order and not self._processing

    def _stop(self) -> None:
        self._stopped = True
        self._delays.clear()
        while self._waiters:
            self._wake_one()

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _end_drain(self) -> None:
        while self._drained:
            drained = self._drained.pop()
            if not drained.done():
                drained.set_result(None)
