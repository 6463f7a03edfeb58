"""The common part of the queues: waiting workers, delays and retries, stopping and draining. Subclasses define the order of items."""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import itertools
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Mapping
from typing import Generic, TypeVar

from kubeloop.timing import Clock, SystemClock, Timer
from kubeloop.workqueue.limiter import Limiter, RateCap
from kubeloop.workqueue.protocol import QueueFigures, QueueMetrics, QueueShutDown, QueueStats

T = TypeVar("T", bound=Hashable)

#: Obsolete entries are removed when they outnumber the valid ones by this many.
_SLACK = 64


class Delays(Generic[T]):
    """Calls ``release`` for each item when it is due, in the order of time; if an item has two times, the earlier one applies."""

    __slots__ = ("_clock", "_due", "_heap", "_order", "_release", "_timer", "_timer_due")

    def __init__(self, clock: Clock, release: Callable[[T], object]) -> None:
        self._clock = clock
        self._release = release
        self._due: dict[T, float] = {}
        self._heap: list[tuple[float, int, T]] = []
        self._order = itertools.count()
        self._timer: Timer | None = None
        self._timer_due = 0.0

    def __len__(self) -> int:
        return len(self._due)

    def put(self, item: T, seconds: float) -> None:
        """Schedule ``item`` for release after ``seconds``.

        Raises:
            ValueError: ``seconds`` is not a number.
        """
        if seconds != seconds:
            raise ValueError(f"the delay of {item!r} must be a number of seconds, not {seconds}")
        due = self._clock.now() + seconds
        known = self._due.get(item)
        if known is not None and known <= due:
            return
        self._due[item] = due
        heapq.heappush(self._heap, (due, next(self._order), item))
        if len(self._heap) > 2 * len(self._due) + _SLACK:
            self._heap = [entry for entry in self._heap if self._due.get(entry[2]) == entry[0]]
            heapq.heapify(self._heap)
        self._arm()

    def discard(self, item: T) -> None:
        """Remove ``item``, so that it is not released."""
        self._due.pop(item, None)

    def clear(self) -> None:
        """Remove every item; none is released."""
        self._due.clear()
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _arm(self) -> None:
        due = self._heap[0][0]
        if self._timer is not None:
            if self._timer_due <= due:
                return
            self._timer.cancel()
        self._timer_due = due
        self._timer = self._clock.call_later(max(due - self._clock.now(), 0.0), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._clock.now()
        heap, live = self._heap, self._due
        try:
            while heap and heap[0][0] <= now:
                due, _, item = heapq.heappop(heap)
                if live.get(item) == due:
                    del live[item]
                    self._release(item)
        finally:  # An item whose release fails must not block the others.
            if heap:
                self._arm()


class BaseQueue(ABC, Generic[T]):
    """Base of the queues, without an order of items. See ``protocol.Queue`` for the guarantees of the methods.

    Args:
        limiter: Delays of retries.
        clock: Clock of delays. None: the system's monotonic clock.
        cap: Limits the rate of all queues that share it. None: no limit.
        metrics: Receives the times of items. None: times are not measured.
    """

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
        "_retries",
        "_stopped",
        "_waiters",
    )

    def __init__(self, limiter: Limiter[T], clock: Clock | None, cap: RateCap | None, metrics: QueueMetrics | None) -> None:
        self._clock = clock or SystemClock()
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
        """Add ``item``."""

    @abstractmethod
    def add_after(self, item: T, seconds: float, *, priority: int = 0) -> None:
        """Add ``item`` after ``seconds``."""

    @abstractmethod
    def _release(self, item: T) -> None:
        """Make ``item`` available, because its delay has ended."""

    @abstractmethod
    def _available(self) -> bool:
        """Return whether an item is available for another worker."""

    @property
    @abstractmethod
    def _idle(self) -> bool:
        """Whether no item waits or is in work."""

    @property
    @abstractmethod
    def stats(self) -> QueueStats:
        """Counts of this queue at this moment."""

    def add_rate_limited(self, item: T, *, priority: int = 0) -> float:
        """Count a failure of ``item``, add it after the limiter's delay, and return that delay in seconds."""
        self._retries += 1
        delay = self._limiter.delay(item)
        self.add_after(item, delay, priority=priority)
        return delay

    def forget(self, item: T) -> None:
        """Reset the back-off of ``item`` after a success. The item stays in the queue if it waits there."""
        self._limiter.forget(item)

    def retries(self, item: T) -> int:
        """Return the number of failures of ``item`` since it was last forgotten."""
        return self._limiter.retries(item)

    def shut_down(self) -> None:
        """Accept no more items. A ``drain`` in progress ends immediately. May be called again."""
        self._stop()
        self._end_drain()

    async def drain(self) -> None:
        """Shut down, and return when all waiting items have been taken and all taken items are done.

        Workers must continue to take items. ``shut_down`` in another task ends it early.
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
        """The receiver of this queue's times; None if they are not measured."""
        return self._metrics

    @property
    def figures(self) -> QueueFigures:
        """The statistics for metrics. They may be read in any thread."""
        now = self._clock.now()
        ages = [now - since for since in self._started()] if self._metrics is not None else []
        return QueueFigures(self._depths(), self._adds, self._delayed_adds, sum(ages), max(ages, default=0.0))

    @abstractmethod
    def _depths(self) -> Mapping[int, int] | int:
        """Return the number of items that wait for a worker, by priority if the queue has priorities."""

    @abstractmethod
    def _started(self) -> list[float]:
        """Return the time at which each item in work was taken."""

    async def _until_available(self) -> None:
        """Wait until ``get`` can take an item and the rate cap allows it. Raises QueueShutDown if no item will follow."""
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
            # Cancelled: pass a wake-up on to another worker, or an item would wait while workers are idle.
            if waiter.done() and not waiter.cancelled():
                self._wake_one()
            else:
                with contextlib.suppress(ValueError):
                    self._waiters.remove(waiter)
            raise

    async def _line_up(self, cap: RateCap) -> bool:
        """Wait for this worker's turn at the rate cap. Return True if the turn came, False if the wait ended for another reason."""
        waiter = cap.line_up()
        self._lined_up.add(waiter)
        try:
            return await waiter
        except BaseException:
            # Cancelled: the next worker gets the turn, and the item for which this worker waited.
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
