"""The protocol of the queues of controllers, and the times that a queue measures."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Mapping
from typing import Final, NamedTuple, Protocol, TypeVar

from kubeloop.meta.errors import KubeloopError

#: Upper bounds of histogram buckets in seconds: 10 ns to 1000 s. Source: component-base metrics/prometheus/workqueue.
BOUNDS: Final = tuple(float(f"1e{power}") for power in range(-8, 4))
#: Distinct values of the label ``priority``. Source: controller-runtime pkg/internal/metrics/workqueue.go, after its issue 3396.
MOST_PRIORITIES: Final = 25
EXCEEDED: Final = "exceeded_cardinality_limit"


class QueueMetrics(Protocol):
    """Receives the times of a queue's items, when an item is taken and when it is done. Its methods must be quick and must not raise."""

    def waited(self, seconds: float) -> None:
        """Record that an item was taken ``seconds`` after it was added, or after its delay or its previous work ended."""

    def worked(self, seconds: float) -> None:
        """Record that an item is done after ``seconds`` of work."""


class DurationHistogram:
    """Histogram of durations: the number of values at or below each bound, and their sum."""

    __slots__ = ("_bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...] = BOUNDS) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)  # Count of each bucket, not cumulative; the last bucket has no bound.
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self._bounds, value)] += 1
        self.total += value

    def buckets(self) -> list[tuple[str, int]]:
        """Return the bounds as Prometheus writes them, with cumulative counts."""
        found: list[tuple[str, int]] = []
        sum_ = 0
        for bound, count in zip((*map(str, self._bounds), "+Inf"), list(self.counts), strict=True):
            sum_ += count
            found.append((bound, sum_))
        return found


class QueueTimes:
    """Two histograms of client-go: ``queue_duration``, the time until an item is taken, and ``work_duration``, the time until it is done.

    Example:
        >>> from kubeloop.workqueue import WorkQueue
        >>> queue = WorkQueue[str](metrics=QueueTimes())
    """

    __slots__ = ("queue_duration", "work_duration")

    def __init__(self) -> None:
        self.queue_duration = DurationHistogram()
        self.work_duration = DurationHistogram()

    def waited(self, seconds: float) -> None:
        self.queue_duration.observe(seconds)

    def worked(self, seconds: float) -> None:
        self.work_duration.observe(seconds)


class PriorityLabels:
    """Limits the number of values of the label ``priority``, since each value is another series in the time-series database.

    Guarantees
        Each of the first 25 priorities keeps its own series, which is 0 when none of its items waits. The others share one series.
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


T = TypeVar("T", bound=Hashable)


class QueueShutDown(KubeloopError):
    """The queue was shut down and has no more items."""


class QueueStats(NamedTuple):
    """Counts of a queue: ``waiting`` items are ready, ``processing`` are in work, ``delayed`` are not due yet.

    ``adds`` and ``retries`` count since the start. An item that is added again while it waits or is in work counts as one add. ``retries``
    are calls of ``add_rate_limited``.

    Example:
        >>> from kubeloop.workqueue import WorkQueue
        >>> queue = WorkQueue[str]()
        >>> queue.add("shop/web")
        >>> queue.add("shop/web")
        >>> queue.stats
        QueueStats(waiting=1, processing=0, delayed=0, adds=1, retries=0)
    """

    waiting: int
    processing: int
    delayed: int
    adds: int
    retries: int


class QueueFigures(NamedTuple):
    """The statistics of a queue at one moment for metrics, with client-go's meanings.

    ``depths``: number of ready items, by priority where the queue has priorities. ``unfinished``: total seconds that the items in work have
    been in work; ``longest_running``: the longest of these.

    Example:
        >>> from kubeloop.workqueue import WorkQueue
        >>> queue = WorkQueue[str]()
        >>> queue.add("shop/web")
        >>> queue.figures
        QueueFigures(depths=1, adds=1, delayed_adds=0, unfinished=0, longest_running=0.0)
    """

    depths: Mapping[int, int] | int
    """Waiting items, including items that come back after ``done``; by priority, if the queue has priorities."""
    adds: int
    delayed_adds: int
    """Calls of ``add_after`` and ``add_rate_limited``, which the metric calls retries; only those with a delay, if there are priorities."""
    unfinished: float
    """Seconds of work so far on all items that are being worked on. 0 for a queue without metrics, as is ``longest_running``."""
    longest_running: float


class Queue(Protocol[T]):
    """Protocol of work queues that controllers take keys from.

    For one event loop, not thread-safe: from another thread use ``loop.call_soon_threadsafe(queue.add, item)``.
    """

    def add(self, item: T, *, priority: int = 0) -> None:
        """Add ``item``, unless it waits already. Ignored after ``shut_down``."""

    def add_after(self, item: T, seconds: float, *, priority: int = 0) -> None:
        """Add ``item`` after ``seconds``, immediately if that is not above zero. After several calls, the earliest time applies."""

    def add_rate_limited(self, item: T, *, priority: int = 0) -> float:
        """Count a failure of ``item``, add it after the limiter's delay, and return that delay in seconds."""

    async def get(self) -> T:
        """Remove and return the next item. Wait for an item if there is none.

        Raises:
            QueueShutDown: the queue was shut down, and returns no more items.
        """

    def done(self, item: T) -> None:
        """Mark the work on ``item`` as ended. If it was added meanwhile, it waits again.

        Raises:
            ValueError: ``item`` was not being worked on: two workers may be running on it.
        """

    def priority_of(self, item: T) -> int:
        """Return the priority with which ``item``, which is in work, was taken; 0 if the queue has no priorities.

        Raises:
            ValueError: ``item`` is not being worked on (queues with priorities).
        """

    def forget(self, item: T) -> None:
        """Reset the back-off of ``item`` after a success. The item stays in the queue if it waits there."""

    def retries(self, item: T) -> int:
        """Return the number of failures of ``item`` since it was last forgotten."""

    def shut_down(self) -> None:
        """Accept no more items. A ``drain`` in progress ends immediately. May be called again."""

    async def drain(self) -> None:
        """Shut down, and return when all waiting items have been taken and all taken items are done."""

    @property
    def shutting_down(self) -> bool: ...

    @property
    def stats(self) -> QueueStats: ...

    @property
    def figures(self) -> QueueFigures: ...

    @property
    def metrics(self) -> QueueMetrics | None:
        """Receiver of the times of items; None if they are not measured."""

    def __len__(self) -> int: ...
