"""Event recorders as Prometheus metrics. Nothing is measured here: a scrape reads what recorders count anyway.

One collector for a registry, one series for a component and API: recorders of one component are added up.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from kubeloop.controller.events.recorder import EventRecorder

LABELS = ("component", "api")
_Labels = tuple[str, ...]


@dataclass
class _Totals:
    recorded: Counter[_Labels] = field(default_factory=Counter)
    sent: Counter[_Labels] = field(default_factory=Counter)
    counted: Counter[_Labels] = field(default_factory=Counter)
    dropped: Counter[_Labels] = field(default_factory=Counter)
    waiting: Counter[_Labels] = field(default_factory=Counter)

    def add(self, recorder: EventRecorder) -> None:
        for api, counts in recorder.counts:
            labels = (recorder.component, api)
            self.recorded[labels] += counts.recorded
            self.sent[labels] += counts.sent
            self.counted[labels] += counts.counted
            for why, number in counts.dropped.items():
                self.dropped[(*labels, why)] += number

    def copy(self) -> _Totals:
        return _Totals(self.recorded.copy(), self.sent.copy(), self.counted.copy(), self.dropped.copy(), self.waiting.copy())


class EventMetrics(Collector):
    """All recorders that one registry shows.

    Guarantees
        Counters do not fall when a recorder ends: what it counted stays. May be scraped in any thread.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._open: dict[int, EventRecorder] = {}
        self._closed = _Totals()
        self._registered = False

    def add(self, recorder: EventRecorder) -> None:
        """Show it from now on; once, however often it is added."""
        if not self._registered:
            self._registry.register(self)
            self._registered = True
        self._open[id(recorder)] = recorder

    def remove(self, recorder: EventRecorder) -> None:
        """It has ended: what it counted stays."""
        if self._open.pop(id(recorder), None) is not None:
            self._closed.add(recorder)

    def describe(self) -> Iterable[Metric]:
        """The metrics without a value: what the registry checks for duplicates when this is registered."""
        return _families(_Totals())

    def collect(self) -> Iterable[Metric]:
        totals = self._closed.copy()
        for recorder in list(self._open.values()):
            totals.add(recorder)
            totals.waiting[(recorder.component, "")] += recorder.waiting
        return _families(totals)


def metrics_of(registry: CollectorRegistry | None) -> EventMetrics:
    """The collector of a registry, None for prometheus_client's default one."""
    registry = REGISTRY if registry is None else registry
    found = _COLLECTORS.get(registry)
    if found is None:
        found = _COLLECTORS[registry] = EventMetrics(registry)
    return found


# Belongs to the registries, which have no place for it: several recorders can be shown by one registry only through one collector.
_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, EventMetrics] = weakref.WeakKeyDictionary()


def _families(totals: _Totals) -> Iterator[Metric]:
    recorded = "Events that were asked for; those with an empty api could not become any."
    yield _counter("kubeloop_events_recorded", recorded, LABELS, totals.recorded)
    yield _counter("kubeloop_events_sent", "Requests that created or changed an event.", LABELS, totals.sent)
    yield _counter("kubeloop_events_counted", "Events that only raised a count kept here until it is written.", LABELS, totals.counted)
    yield _counter("kubeloop_events_dropped", "Events that were given up.", (*LABELS, "reason"), totals.dropped)
    waiting = GaugeMetricFamily("kubeloop_events_waiting", "Events that are still to be sent.", labels=LABELS[:1])
    for labels, number in totals.waiting.items():
        waiting.add_metric(labels[:1], number)
    yield waiting


def _counter(name: str, text: str, labels: _Labels, values: Counter[_Labels]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for each, number in values.items():
        family.add_metric(each, number)
    return family
