"""Work queues as Prometheus metrics, under client-go's names.

Nothing is measured here: a scrape reads the statistics that queues maintain anyway. A registry has one collector for any number of queues.
Source: component-base metrics/prometheus/workqueue; labels ``controller`` and ``priority``: controller-runtime
pkg/internal/metrics/workqueue.go.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeloop.workqueue.protocol import PriorityLabels, Queue, QueueFigures, QueueTimes

LABELS = ("name", "controller")


class _Shown(NamedTuple):
    queue: Queue[Any]
    times: QueueTimes | None
    priorities: PriorityLabels


class QueueCollector(Collector):
    """Collector of the statistics of all queues of one registry.

    Guarantees
        Unfinished work is computed at the scrape, without a timer, so a queue that was shut down leaves no outdated value. A queue without
        ``QueueTimes`` shows no durations. Any thread may scrape it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._queues: dict[tuple[str, str], _Shown] = {}

    def add(self, name: str, queue: Queue[Any], *, controller: str = "") -> None:
        """Add a queue to the metrics; ``controller`` defaults to ``name``.

        Raises:
            ValueError: the name is empty, or another queue has it.
        """
        if not name:
            raise ValueError("metrics need a name that is not empty")
        labels = (name, controller or name)
        if labels in self._queues:
            raise ValueError(
                f'a work queue named "{name}" of controller "{labels[1]}" is in this registry already; give this one another name'
            )
        if not self._queues:
            self._registry.register(self)
        times = queue.metrics
        self._queues[labels] = _Shown(queue, times if isinstance(times, QueueTimes) else None, PriorityLabels())

    def remove(self, name: str, *, controller: str = "") -> None:
        """Remove a queue from the metrics. The name can then be used again."""
        if self._queues.pop((name, controller or name), None) is not None and not self._queues:
            self._registry.unregister(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, which the registry uses to detect duplicates."""
        return _families([])

    def collect(self) -> Iterable[Metric]:
        return _families([(labels, shown, shown.queue.figures) for labels, shown in list(self._queues.items())])


def metrics_of(registry: CollectorRegistry | None = None) -> QueueCollector:
    """Return the collector of a registry; None stands for prometheus_client's default registry."""
    registry = REGISTRY if registry is None else registry
    found = _COLLECTORS.get(registry)
    if found is None:
        found = _COLLECTORS[registry] = QueueCollector(registry)
    return found


# The collector of each registry: several queues can share a registry only through one collector.
_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, QueueCollector] = weakref.WeakKeyDictionary()

_Rows = list[tuple[tuple[str, str], _Shown, QueueFigures]]


def _families(rows: _Rows) -> Iterator[Metric]:
    depth = GaugeMetricFamily("workqueue_depth", "Items that are to be handed out, by priority.", labels=(*LABELS, "priority"))
    adds = CounterMetricFamily("workqueue_adds", "Items added; an item that waits already is not counted.", labels=LABELS)
    text = "Items added with a delay: retries after failures, and items scheduled for a time."
    retries = CounterMetricFamily("workqueue_retries", text, labels=LABELS)
    text = "Seconds of work so far on all items that are being worked on. It grows by the number of stuck workers each second."
    unfinished = GaugeMetricFamily("workqueue_unfinished_work_seconds", text, labels=LABELS)
    text = "Seconds of work so far on the item that was taken first of those being worked on."
    longest = GaugeMetricFamily("workqueue_longest_running_processor_seconds", text, labels=LABELS)
    waited = HistogramMetricFamily("workqueue_queue_duration_seconds", "How long items wait until they are taken.", labels=LABELS)
    worked = HistogramMetricFamily("workqueue_work_duration_seconds", "How long the work on an item takes.", labels=LABELS)
    for labels, shown, figures in rows:
        depths = {"": figures.depths} if isinstance(figures.depths, int) else shown.priorities.of(figures.depths)
        for priority, number in depths.items():
            depth.add_metric((*labels, priority), number)
        adds.add_metric(labels, figures.adds)
        retries.add_metric(labels, figures.delayed_adds)
        if shown.times is not None:
            unfinished.add_metric(labels, figures.unfinished)
            longest.add_metric(labels, figures.longest_running)
            waited.add_metric(labels, shown.times.queue_duration.buckets(), shown.times.queue_duration.total)
            worked.add_metric(labels, shown.times.work_duration.buckets(), shown.times.work_duration.total)
    yield from (depth, adds, retries, unfinished, longest, waited, worked)
