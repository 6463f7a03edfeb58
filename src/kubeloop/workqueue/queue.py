"""The queue between event handlers and reconcilers: waiting items, items in work, and items that are not due yet.

It never returns one item to two workers at a time, and does not lose a change that arrives while its item is in work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from kubeloop.timing import Clock, SystemClock
from kubeloop.workqueue.base import BaseQueue
from kubeloop.workqueue.limiter import Limiter, RateCap, default_limiter
from kubeloop.workqueue.order import FairOrder
from kubeloop.workqueue.protocol import QueueMetrics, QueueStats

T = TypeVar("T", bound=Hashable)


class WorkQueue(BaseQueue[T]):
    """First-in, first-out work queue of keys. Every ``get`` must be followed by one ``done`` for the same item.

    Guarantees
        An item that is added several times before it is taken is returned once, in the order of its first addition.
        An item in work is not returned a second time. If it is added meanwhile, ``get`` returns it exactly once more after ``done``.
        After ``shut_down`` additions are ignored; workers still get every ready item, and only then ``QueueShutDown``.
        The queue drops its reference to an item after ``done``.

    Not guaranteed
        Which of several waiting workers gets an item. Items that are not due when the queue shuts down: they are dropped.
        Priorities: they are ignored. ``PriorityQueue`` has them.

    Cost
        Under a microsecond for ``add``, ``get`` and ``done`` together while items wait. One timer for all delays.

    For one event loop, not thread-safe. Semantics of client-go's util/workqueue.

    Args:
        limiter: Delays of retries. None: client-go's default, 5 ms doubling to 1000 s per item and 10 per second over all items.
        clock: Clock of delays. None: the system's monotonic clock.
        tenant: Returns the tenant of an item. Tenants take turns (``FairOrder``). None: no tenants.
        cap: Limits the rate of all queues that share it, during the shutdown too. None: no limit.
        metrics: Receives the waiting and working times of items (``QueueTimes``). None: times are not measured.

    Example:
        >>> queue = WorkQueue[str]()
        >>> queue.add("shop/web")
        >>> key = await queue.get()
        >>> queue.done(key)
        >>> queue.shut_down()
        >>> await queue.get()
        Traceback (most recent call last):
        QueueShutDown: ...
    """

    __slots__ = ("_again", "_order", "_waiting", "_working")

    def __init__(
        self,
        limiter: Limiter[T] | None = None,
        clock: Clock | None = None,
        *,
        tenant: Callable[[T], Hashable] | None = None,
        cap: RateCap | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        clock = clock or SystemClock()
        super().__init__(limiter or default_limiter(clock), clock, cap, metrics)
        self._order: deque[T] | FairOrder[T] = deque() if tenant is None else FairOrder(tenant)
        # Waiting items, items in work, and items that were added while in work; with metrics, the time of each.
        self._waiting: dict[T, float] = {}
        self._working: dict[T, float] = {}
        self._again: dict[T, float] = {}

    def add(self, item: T, *, priority: int = 0) -> None:  # noqa: ARG002  # ignored, so that both queues are called alike
        """Add ``item``, unless it waits already."""
        waiting = self._waiting
        if item in waiting or self._stopped:
            return
        if self._working and item in self._working:
            if item in self._again:
                return
            self._again[item] = 0.0 if self._metrics is None else self._clock.now()
            self._adds += 1
            return
        self._order.append(item)  # First, because it calls the caller's ``tenant``, which may raise.
        waiting[item] = 0.0 if self._metrics is None else self._clock.now()
        self._adds += 1
        if self._waiters:
            self._wake_one()

    async def get(self) -> T:
        """Remove and return the item that has waited longest. Wait for an item if there is none.

        Raises:
            QueueShutDown: the queue was shut down, and nothing is left.
        """
        if not self._order or self._cap is not None:
            await self._until_available()
        item = self._order.popleft()
        added = self._waiting.pop(item)
        metrics = self._metrics
        if metrics is None:
            self._working[item] = 0.0
        else:
            self._working[item] = now = self._clock.now()
            metrics.waited(now - added)
        return item

    def done(self, item: T) -> None:
        """Mark the work on ``item`` as ended. If it was added meanwhile, it waits again, at the end.

        Raises:
            ValueError: ``item`` was not being worked on: two workers may be running on it.
        """
        try:
            started = self._working.pop(item)
        except KeyError:
            raise ValueError(f"done({item!r}) without a get of it") from None
        if self._metrics is not None:
            self._metrics.worked(self._clock.now() - started)
        if self._again and item in self._again:
            self._waiting[item] = self._again.pop(item)
            self._order.append(item)
            if self._waiters:
                self._wake_one()
        elif self._drained and self._idle:
            self._end_drain()

    def priority_of(self, item: T) -> int:  # noqa: ARG002  # this queue has no priorities
        """Return 0, since this queue has no priorities."""
        return 0

    def add_after(self, item: T, seconds: float, *, priority: int = 0) -> None:  # noqa: ARG002  # ignored, so that both queues are called alike
        """Add ``item`` after ``seconds``, immediately if ``seconds`` is not above zero. After several calls, the earliest time applies.

        Source: client-go util/workqueue/delaying_queue.go.
        """
        if self._stopped:
            return
        self._delayed_adds += 1
        if seconds <= 0:
            self.add(item)
        else:
            self._delays.put(item, seconds)

    @property
    def stats(self) -> QueueStats:
        return QueueStats(len(self._order), len(self._working), len(self._delays), self._adds, self._retries)

    def __len__(self) -> int:
        """Return the number of waiting items. Items in work (added again or not) and items that are not due yet do not count."""
        return len(self._order)

    def _release(self, item: T) -> None:
        self.add(item)

    def _depths(self) -> int:
        return len(self._order) + len(self._again)

    def _started(self) -> list[float]:
        return list(self._working.values())

    def _available(self) -> bool:
        return bool(self._order)

    @property
    def _idle(self) -> bool:
        return not self._order and not self._working
