"""What a queue tells about time: how long items waited, and how long the work on them took. Everything else is read from the queue itself.

Names, buckets and meaning are client-go's; ``prometheus`` shows them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from typing import Final, Protocol

#: Upper bounds of histogram buckets in seconds: 10 ns to 1000 s. Source: component-base metrics/prometheus/workqueue.
BOUNDS: Final = tuple(float(f"1e{power}") for power in range(-8, 4))
#: Distinct values of the label ``priority``. Source: controller-runtime pkg/internal/metrics/workqueue.go, after its issue 3396.
MOST_PRIORITIES: Final = 25
EXCEEDED: Final = "exceeded_cardinality_limit"


class QueueMetrics(Protocol):
    """Measures a queue's items: called when an item is taken and when it is done. Must be quick and not raise."""

    def waited(self, seconds: float) -> None:
        """An item was taken so long after it was added, or after its delay ended. Added while it was worked on, since then."""

    def worked(self, seconds: float) -> None:
        """An item is done so long after it was taken."""


class Histogram:
    """How many values lie at or below each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # Of each bucket by itself; the last one has no bound.
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, int]]:
        """Bounds as Prometheus writes them, with cumulated counts."""
        found: list[tuple[str, int]] = []
        sum_ = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), list(self.counts), strict=True):
            sum_ += count
            found.append((bound, sum_))
        return found


class QueueTimes:
    """The two histograms of client-go: ``queue_duration`` and ``work_duration``."""

    __slots__ = ("queue_duration", "waited", "work_duration", "worked")

    def __init__(self) -> None:
        self.queue_duration = Histogram()
        self.work_duration = Histogram()
        self.waited = self.queue_duration.observe
        self.worked = self.work_duration.observe


class PriorityLabels:
    """Turns depths by priority into values of a label, few enough for a time-series database.

    Guarantees
        The first 25 priorities that are shown keep their own series, 0 when none of their items waits. All others together are one series.
    """

    __slots__ = ("_exceeded", "_known")

    def __init__(self) -> None:
        self._known: dict[int, str] = {}
        self._exceeded = False

    def of(self, depths: Mapping[int, int]) -> dict[str, int]:
        rest = 0
        for priority, depth in depths.items():
            if priority not in self._known:
                if len(self._known) < MOST_PRIORITIES:
                    self._known[priority] = str(priority)
                else:
                    self._exceeded = True
                    rest += depth
        shown = {label: depths.get(priority, 0) for priority, label in self._known.items()}
        if self._exceeded:
            shown[EXCEEDED] = rest
        return shown
