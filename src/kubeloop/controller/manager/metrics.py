"""Controllers as Prometheus metrics, under controller-runtime's names. Reconciles are counted as they end; the rest is read at a scrape.

Source: controller-runtime pkg/internal/controller/metrics, for the buckets too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeloop.controller.manager.reconcile_metrics import BOUNDS, RESULTS, ReconcileFigures
from kubeloop.controller.runner.runnable import RunnerStats
from kubeloop.tasks import Supervisor

_PREFIX = "controller_runtime_"


class ControllerMetrics(Collector):
    """Collector of the controllers of one manager. Any thread may scrape it."""

    def __init__(self, stats: Callable[[], Sequence[RunnerStats]], figures: ReconcileFigures, lag: Callable[[], float]) -> None:
        self._stats = stats
        self._figures = figures
        self._lag = lag

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, which the registry uses to detect duplicates."""
        return _families([], self._figures, 0.0)

    def collect(self) -> Iterable[Metric]:
        return _families(self._stats(), self._figures, self._lag())


class TaskMetrics(Collector):
    """Collector of the background tasks of one manager, under the names that the embedded API server uses. Any thread may scrape it."""

    def __init__(self, supervisors: Callable[[], Iterable[Supervisor]]) -> None:
        self._supervisors = supervisors

    def describe(self) -> Iterable[Metric]:
        return self._families(())

    def collect(self) -> Iterable[Metric]:
        return self._families(self._supervisors())

    @staticmethod
    def _families(supervisors: Iterable[Supervisor]) -> Iterator[Metric]:
        failures, restarts = Counter[str](), Counter[str]()
        for one in supervisors:
            failures.update(dict(one.failures))
            restarts.update(dict(one.restarts))
        for name, text, counts in (
            ("failures", "Failures of background tasks, which are retried.", failures),
            ("restarts", "Restarts of background tasks after a failure.", restarts),
        ):
            family = CounterMetricFamily(f"kubeloop_background_task_{name}", text, labels=("task",))
            for task, count in counts.items():
                family.add_metric((task,), count)
            yield family


class Merged(CollectorRegistry):
    """The metrics of several registries, each metric once, as the text format requires. For scrapes only."""

    def __init__(self, *registries: CollectorRegistry) -> None:
        super().__init__(auto_describe=False)
        self._registries = registries

    def collect(self) -> Iterator[Metric]:
        families: dict[str, Metric] = {}
        for registry in self._registries:
            for family in registry.collect():
                known = families.get(family.name)
                if known is None:
                    families[family.name] = family
                else:
                    known.samples += family.samples
        yield from families.values()


def _families(stats: Sequence[RunnerStats], figures: ReconcileFigures, lag: float) -> Iterator[Metric]:
    by_result = CounterMetricFamily(f"{_PREFIX}reconcile", "Reconciles by their result.", labels=("controller", "result"))
    for one in stats:
        for result in RESULTS:
            by_result.add_metric((one.name, result), figures.results(one.name)[result])
    yield by_result
    yield _counter("reconcile_errors", "Reconciles that failed.", stats, lambda runner: runner.counts.errors)
    terminal = "Reconciles that failed with a terminal error, until the object changes."
    yield _counter("terminal_reconcile_errors", terminal, stats, lambda runner: runner.counts.terminal_errors)
    yield _counter("reconcile_panics", "Reconciles that raised a programming error.", stats, lambda runner: runner.counts.panics)
    yield _counter("reconcile_timeouts", "Reconciles that were cancelled at their timeout.", stats, lambda runner: runner.counts.timeouts)
    seconds = HistogramMetricFamily(f"{_PREFIX}reconcile_time_seconds", "Seconds of reconciles.", labels=("controller",))
    names = [*map(str, BOUNDS), "+Inf"]
    for one in stats:
        counts, total = figures.seconds(one.name)
        seconds.add_metric((one.name,), buckets=list(zip(names, accumulate(counts), strict=True)), sum_value=total)
    yield seconds
    yield _gauge("max_concurrent_reconciles", "Maximum number of concurrent reconciles.", stats, lambda runner: runner.workers)
    yield _gauge("active_workers", "Workers that are reconciling.", stats, lambda runner: runner.counts.active)
    late = GaugeMetricFamily("kubeloop_event_loop_lag_seconds", "Seconds by which an event loop timer was late, measured each second.")
    late.add_metric((), lag)
    yield late


def _counter(name: str, text: str, stats: Sequence[RunnerStats], value: Callable[[RunnerStats], float]) -> Metric:
    family = CounterMetricFamily(_PREFIX + name, text, labels=("controller",))
    for one in stats:
        family.add_metric((one.name,), value(one))
    return family


def _gauge(name: str, text: str, stats: Sequence[RunnerStats], value: Callable[[RunnerStats], float]) -> Metric:
    family = GaugeMetricFamily(_PREFIX + name, text, labels=("controller",))
    for one in stats:
        family.add_metric((one.name,), value(one))
    return family
