"""Items that are not due yet: one heap, one timer, however many wait."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from kubeloop.timing import Clock, Timer

T = TypeVar("T", bound=Hashable)

#: Entries that an earlier time made void are swept out when they outnumber the live ones by this many.
_SLACK = 64


class Delays(Generic[T]):
    """Hands each item to ``release`` once its time has come, in order of time; of two times for one item the earlier wins."""

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
        """Release ``item`` after ``seconds``.

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
        """``item`` will not be released."""
        self._due.pop(item, None)

    def clear(self) -> None:
        """Forget every item; none is released."""
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
        finally:  # An item that cannot be released must not keep the others.
            if heap:
                self._arm()
