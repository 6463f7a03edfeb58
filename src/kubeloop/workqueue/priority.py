"""A work queue that returns the most important item first, so that changes overtake the objects of a restart or a resync."""

from __future__ import annotations

import heapq
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import TypeVar

from kubeloop.timing import Clock
from kubeloop.workqueue.base import BaseQueue
from kubeloop.workqueue.limiter import ExponentialLimiter, Limiter, RateCap
from kubeloop.workqueue.order import FairOrder
from kubeloop.workqueue.protocol import QueueMetrics, QueueStats

T = TypeVar("T", bound=Hashable)

#: Priority of objects of the first list and of resyncs. Source: controller-runtime pkg/handler, LowPriority.
LOW_PRIORITY = -100

#: Empty levels are removed when they outnumber those in use by this many.
_SLACK = 64


class PriorityQueue(BaseQueue[T]):
    """Work queue that returns keys of the highest priority first; within a priority in the order of addition. The default priority is 0.

    Guarantees
        One entry per item. An item that is added again keeps the highest priority and the earliest due time of all additions; its
        priority never falls. An item whose priority rises goes to the end of its new level.
        An item in work is not returned a second time. If it is added meanwhile, ``get`` returns it once more after ``done``, from the place
        in its level that this addition gave it.
        An item whose delay ends, or that is added without delay before that, is appended to its level.
        After ``shut_down`` additions are ignored and ``get`` raises at once: ready items are dropped. During ``drain`` ready items are
        still returned (controller-runtime's ShutDownWithDrain does not do that).

    Not guaranteed
        Progress of low levels while higher ones always have items.

    Cost
        About a microsecond for ``add``, ``get`` and ``done`` together, however many items and however many priorities in use.

    For one event loop, not thread-safe. Semantics of controller-runtime's pkg/controller/priorityqueue.

    Args:
        limiter: Delays of retries. None: 5 ms doubling to 1000 s per item, without a rate limit of all items.
        clock: Clock of delays. None: the system's monotonic clock.
        tenant: Returns the tenant of an item. Tenants take turns within each level (``FairOrder``). None: no tenants.
        cap: Limits the rate of all queues that share it. None: no limit.
        metrics: Receives the waiting and working times of items (``QueueTimes``). None: times are not measured.

    Example:
        >>> queue = PriorityQueue[str]()
        >>> queue.add("resync", priority=LOW_PRIORITY)
        >>> queue.add("changed")
        >>> key = await queue.get()
        >>> key
        'changed'
        >>> queue.done(key)
    """

    # Behaviours R212-R215, X12.

    __slots__ = ("_draining", "_heap", "_held", "_later", "_levels", "_processing", "_ready", "_tenant")

    def __init__(
        self,
        limiter: Limiter[T] | None = None,
        clock: Clock | None = None,
        *,
        tenant: Callable[[T], Hashable] | None = None,
        cap: RateCap | None = None,
        metrics: QueueMetrics | None = None,
    ) -> None:
        super().__init__(limiter or ExponentialLimiter(), clock, cap, metrics)
        self._tenant = tenant
        self._ready: dict[T, int] = {}  # Items that wait for a worker, with their priority.
        self._processing: dict[T, tuple[int, float]] = {}  # Items in work, with the priority and (with metrics) time of their get.
        self._held: set[T] = set()  # Items that are in work and wait again: not returned before ``done``.
        self._later: dict[T, int] = {}  # Items that are not due yet, with their priority; none of them is ready.
        self._levels: dict[int, OrderedDict[T, float] | FairOrder[T]] = {}  # Ready items by level, with (for metrics) the time of addition.
        self._heap: list[int] = []  # Heap of the negated levels; removed levels stay in it until they are popped.
        self._draining = False

    def add(self, item: T, *, priority: int = 0) -> None:
        """Add ``item``; if it waits already, at the higher of the two priorities."""
        if self._stopped:
            return
        if self._later and item in self._later:
            priority = max(priority, self._later.pop(item))
            self._delays.discard(item)
        self._make_ready(item, priority)

    def add_after(self, item: T, seconds: float, *, priority: int = 0) -> None:
        """Add ``item`` after ``seconds``, immediately if ``seconds`` is not above zero.

        After several calls for an item, the earliest time applies. An item that is ready stays ready, at the higher of both priorities.
        """
        if self._stopped:
            return
        if seconds <= 0:
            self.add(item, priority=priority)
            return
        self._delayed_adds += 1
        if item in self._ready:
            self._make_ready(item, priority)
        else:
            self._delays.put(item, seconds)
            self._later[item] = max(priority, self._later.get(item, priority))

    async def get(self) -> T:
        """Remove and return the item of the highest priority that has waited longest. Wait for an item if there is none.

        Raises:
            QueueShutDown: the queue was shut down; or it was drained, and nothing is left.
        """
        if self._stopped or self._cap is not None or len(self._ready) == len(self._held):
            await self._until_available()
        heap, levels = self._heap, self._levels
        while not (level := levels.get(-heap[0])):
            levels.pop(-heapq.heappop(heap), None)
        item, added = self._first_free() if self._held else level.popitem(last=False)
        priority = self._ready.pop(item)
        metrics = self._metrics
        if metrics is None:
            self._processing[item] = (priority, 0.0)
        else:
            now = self._clock.now()
            self._processing[item] = (priority, now)
            metrics.waited(now - added)
        return item

    def done(self, item: T) -> None:
        """Mark the work on ``item`` as ended. If it was added meanwhile, it becomes available again.

        Raises:
            ValueError: ``item`` was not being worked on: two workers may be running on it.
        """
        try:
            _, started = self._processing.pop(item)
        except KeyError:
            raise ValueError(f"done({item!r}) without a get of it") from None
        if self._metrics is not None:
            self._metrics.worked(self._clock.now() - started)
        if self._held and item in self._held:
            self._held.discard(item)
            self._wake_one()
        elif self._draining and self._idle:
            self._end_drain()

    def priority_of(self, item: T) -> int:
        """Return the priority with which ``item``, which is in work, was taken.

        Raises:
            ValueError: ``item`` is not being worked on.
        """
        try:
            return self._processing[item][0]
        except KeyError:
            raise ValueError(f"priority_of({item!r}) without a get of it") from None

    def shut_down(self) -> None:
        """Accept no more items, and return none. A ``drain`` in progress ends immediately. May be called again."""
        self._draining = False
        super().shut_down()

    async def drain(self) -> None:
        """Ignore further additions; return when all ready items have been taken and all taken items are done.

        Workers must continue to take items. ``shut_down`` in another task ends it early. After ``shut_down`` it returns immediately.
        """
        if self._stopped and not self._draining:
            return
        self._draining = True
        await super().drain()

    @property
    def stats(self) -> QueueStats:
        return QueueStats(len(self._ready), len(self._processing), len(self._later), self._adds, self._retries)

    def __len__(self) -> int:
        """Return the number of ready items, including items that were added again while in work (as in controller-runtime).

        Items that are not due yet do not count.
        """
        return len(self._ready)

    def _release(self, item: T) -> None:
        self._make_ready(item, self._later.pop(item))

    def _available(self) -> bool:
        return len(self._ready) > len(self._held) and (not self._stopped or self._draining)

    @property
    def _idle(self) -> bool:
        return not self._ready and not self._processing

    def _stop(self) -> None:
        super()._stop()
        self._later.clear()

    def _depths(self) -> dict[int, int]:
        return {priority: len(level) for priority, level in list(self._levels.items())}

    def _started(self) -> list[float]:
        return [since for _, since in list(self._processing.values())]

    def _make_ready(self, item: T, priority: int) -> None:
        ready = self._ready
        known = ready.get(item)
        tenant: Hashable = None
        if known is None:
            added = 0.0 if self._metrics is None else self._clock.now()
        elif priority > known:
            tenant, added = self._leave(item, known)
        else:
            return
        level = self._levels.get(priority)
        if level is None:
            level = self._levels[priority] = OrderedDict() if self._tenant is None else FairOrder(self._tenant)
            heapq.heappush(self._heap, -priority)
        if known is not None and isinstance(level, FairOrder):
            level.put(item, added, tenant)
        else:
            level[item] = added  # First, because it calls the caller's ``tenant``, which may raise.
        ready[item] = priority
        if known is None:
            self._adds += 1
        if self._processing and item in self._processing:
            self._held.add(item)
        elif self._waiters and known is None:
            self._wake_one()

    def _leave(self, item: T, priority: int) -> tuple[Hashable, float]:
        """Remove a waiting item. Return its tenant, if there are tenants, and the time at which it was added."""
        level = self._levels[priority]
        tenant = level.tenant_of(item) if isinstance(level, FairOrder) else None
        added = level.pop(item)
        if not level:
            del self._levels[priority]
            if len(self._heap) > 2 * len(self._levels) + _SLACK:
                self._heap = [-each for each in self._levels]
                heapq.heapify(self._heap)
        return tenant, added

    def _first_free(self) -> tuple[T, float]:
        """Remove and return the next item that is not in work. There must be one."""
        for priority in sorted(self._levels, reverse=True):
            level = self._levels[priority]
            for item in level:
                if item not in self._held:
                    if isinstance(level, FairOrder):
                        level.end_turn(item)
                    return item, level.pop(item)
        raise AssertionError("every item that is ready is held")
