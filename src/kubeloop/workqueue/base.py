"""What both queues share: workers that wait for an item, delays and retries, stopping and draining. Which item comes next is theirs."""

from __future__ import annotations

import asyncio
import contextlib
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from kubeloop.timing import Clock, SystemClock
from kubeloop.workqueue.delays import Delays
from kubeloop.workqueue.limiter import Limiter
from kubeloop.workqueue.metrics import QueueMetrics
from kubeloop.workqueue.protocol import QueueFigures, QueueShutDown, QueueStats
from kubeloop.workqueue.rate_cap import RateCap

T = TypeVar("T", bound=Hashable)


class BaseQueue(ABC, Generic[T]):
    """A queue without its order. See ``protocol.Queue`` for what the methods guarantee."""

    __slots__ = (
        "_adds",
        "_cap",
        "_clock",
        "_delayed_adds",
        "_delays",
        "_drained",
        "_limiter",
        "_lined_up",
        "_metrics",
        "_now",
        "_retries",
        "_stopped",
        "_waiters",
    )

    def __init__(self, limiter: Limiter[T], clock: Clock | None, cap: RateCap | None, metrics: QueueMetrics | None) -> None:
        self._clock = clock or SystemClock()
        self._now = self._clock.now
        self._limiter = limiter
        self._cap = cap
        self._metrics = metrics
        self._lined_up: set[asyncio.Future[bool]] = set()  # Workers of this queue that wait for the cap.
        self._delays: Delays[T] = Delays(self._clock, self._release)
        self._waiters: deque[asyncio.Future[None]] = deque()
        self._drained: list[asyncio.Future[None]] = []
        self._stopped = False
        self._adds = 0
        self._retries = 0
        self._delayed_adds = 0

    @abstractmethod
    def add(self, item: T, *, priority: int = 0) -> None:
        """Have ``item`` worked on."""

    @abstractmethod
    def add_after(self, item: T, seconds: float, *, priority: int = 0) -> None:
        """Have ``item`` worked on later."""

    @abstractmethod
    def _release(self, item: T) -> None:
        """The time of ``item`` has come."""

    @abstractmethod
    def _available(self) -> bool:
        """Whether a worker that comes now is given an item."""

    @property
    @abstractmethod
    def _idle(self) -> bool:
        """Nothing waits and nothing is being worked on."""

    @property
    @abstractmethod
    def stats(self) -> QueueStats:
        """A moment of this queue."""

    def add_rate_limited(self, item: T, *, priority: int = 0) -> float:
        """Count a failure of ``item`` and add it after the limiter's delay; returns that delay in seconds."""
        self._retries += 1
        delay = self._limiter.delay(item)
        self.add_after(item, delay, priority=priority)
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
    def metrics(self) -> QueueMetrics | None:
        """What this queue was given to tell its times to."""
        return self._metrics

    @property
    def figures(self) -> QueueFigures:
        """What metrics show of this queue now. May be asked for in any thread."""
        now = self._now()
        ages = [now - since for since in self._started()] if self._metrics is not None else []
        return QueueFigures(self._depths(), self._adds, self._delayed_adds, sum(ages), max(ages, default=0.0))

    @abstractmethod
    def _depths(self) -> Mapping[int, int] | int:
        """Items that are to be handed out (again)."""

    @abstractmethod
    def _started(self) -> list[float]:
        """When each item that is being worked on was taken."""

    async def _until_available(self) -> None:
        """Return when ``get`` can take an item without waiting, and may; raises QueueShutDown if there will be none."""
        cap = self._cap
        while True:
            if not self._available():
                if self._stopped:
                    raise QueueShutDown("the work queue is shut down")
                await self._wait()
            elif cap is None or cap.try_pass():
                return
            elif await self._line_up(cap):
                if self._available():
                    return
                cap.give_back()

    async def _wait(self) -> None:
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

    async def _line_up(self, cap: RateCap) -> bool:
        """Whether this worker's turn has come; False: something else has happened."""
        waiter = cap.line_up()
        self._lined_up.add(waiter)
        try:
            return await waiter
        except BaseException:
            # Cancelled: the turn is the next one's, and so is the item for which this worker lined up.
            if waiter.done() and not waiter.cancelled() and waiter.result():
                cap.give_back()
            else:
                cap.leave(waiter)
            self._wake_one()
            raise
        finally:
            self._lined_up.discard(waiter)

    def _wake_one(self) -> None:
        while self._waiters:
            waiter = self._waiters.popleft()
            if not waiter.done():
                waiter.set_result(None)
                return

    def _stop(self) -> None:
        self._stopped = True
        self._delays.clear()
        while self._waiters:
            self._wake_one()
        if self._cap is not None:
            for waiter in list(self._lined_up):
                self._cap.leave(waiter)

    def _end_drain(self) -> None:
        while self._drained:
            drained = self._drained.pop()
            if not drained.done():
                drained.set_result(None)
