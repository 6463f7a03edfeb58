"""The queue between event handlers and reconcilers: what is waiting, what is being worked on, what is not due yet.

It must never hand one item to two workers at a time, nor lose a change that arrives while its item is being worked on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable
from typing import TypeVar

from kubeloop.timing import Clock, SystemClock
from kubeloop.workqueue.base import BaseQueue
from kubeloop.workqueue.limiter import Limiter, default_limiter
from kubeloop.workqueue.order import FairOrder
from kubeloop.workqueue.protocol import QueueStats

T = TypeVar("T", bound=Hashable)


class WorkQueue(BaseQueue[T]):
    """Keys to work on. Every ``get`` must be answered with one ``done`` for the same item.

    Guarantees
        An item that was added several times before it is taken is handed out once, in the order of its first addition.
        An item that is being worked on is given to nobody else; added meanwhile, it is handed out again exactly once after ``done``.
        After ``shut_down`` additions are ignored; workers still get everything that waits, and only then ``QueueShutDown``.
        The queue keeps no reference to an item after ``done``.
        With ``tenant``, tenants take turns: see ``FairOrder``.

    Not guaranteed
        Which of several waiting workers gets an item. Items that are not due when the queue shuts down: they are dropped.
        Priorities: they are ignored. ``PriorityQueue`` has them.

    Cost
        Under a microsecond for ``add``, ``get`` and ``done`` together while items wait. One timer for all delays.

    For one event loop, not thread-safe. Semantics of client-go's util/workqueue.
    """

    __slots__ = ("_dirty", "_order", "_processing")

    def __init__(
        self, limiter: Limiter[T] | None = None, clock: Clock | None = None, *, tenant: Callable[[T], Hashable] | None = None
    ) -> None:
        clock = clock or SystemClock()
        super().__init__(limiter or default_limiter(clock), clock)
        # Waiting, the next one first; every one of them is dirty.
        self._order: deque[T] | FairOrder[T] = deque() if tenant is None else FairOrder(tenant)
        self._dirty: set[T] = set()  # To be handed out (again).
        self._processing: set[T] = set()

    def add(self, item: T, *, priority: int = 0) -> None:  # noqa: ARG002  # ignored, so that both queues are called alike
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
        if not self._order:
            await self._until_available()
        item = self._order.popleft()
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

    def priority_of(self, item: T) -> int:  # noqa: ARG002  # there are none here
        """0: this queue has no priorities."""
        return 0

    def add_after(self, item: T, seconds: float, *, priority: int = 0) -> None:  # noqa: ARG002  # ignored, so that both queues are called alike
        """Add ``item`` when ``seconds`` have passed, at once if not above zero. Of several times for one item the earliest wins.

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
        return QueueStats(len(self._order), len(self._processing), len(self._delays), self._adds, self._retries)

    def __len__(self) -> int:
        """Items that wait to be taken: not those being worked on (dirty or not), nor those not due yet."""
        return len(self._order)

    def _release(self, item: T) -> None:
        self.add(item)

    def _available(self) -> bool:
        return bool(self._order)

    @property
    def _idle(self) -> bool:
        return not self._order and not self._processing
