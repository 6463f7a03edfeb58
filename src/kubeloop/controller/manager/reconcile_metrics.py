"""Results and durations of reconciles by controller, collected by every manager."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

#: Values of the label ``result``, and bounds of the histogram buckets in seconds, as in controller-runtime.
RESULTS = ("success", "error", "requeue", "requeue_after")
BOUNDS = (
    0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
    1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
)  # fmt: skip


class _ReconcileMetrics:
    __slots__ = ("counts", "results", "total")

    def __init__(self) -> None:
        self.results = dict.fromkeys(RESULTS, 0)
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0


class ReconcileFigures:
    """Counts results and times of reconciles by controller; controllers get it as ``RunnableContext.observe``."""

    def __init__(self) -> None:
        self._figures: dict[str, _ReconcileMetrics] = {}

    def __call__(self, controller: str, seconds: float, result: str) -> None:
        figures = self._figures.get(controller)
        if figures is None:
            figures = self._figures[controller] = _ReconcileMetrics()
        figures.results[result] += 1
        figures.counts[bisect_left(BOUNDS, seconds)] += 1
        figures.total += seconds

    def results(self, controller: str) -> Mapping[str, int]:
        """Return the number of reconciles of a controller by result, including results that did not occur."""
        return self._figures.get(controller, _NOTHING).results

    def seconds(self, controller: str) -> tuple[Sequence[int], float]:
        """Return the number of reconciles in each bucket of ``BOUNDS`` (not cumulative, the last unbounded), and the sum of seconds."""
        figures = self._figures.get(controller, _NOTHING)
        return figures.counts, figures.total


_NOTHING = _ReconcileMetrics()
