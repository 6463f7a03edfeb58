"""Prometheus metrics of elections, of recorded events and of requests to webhooks. Loaded only by programs that show metrics.

Names are client-go's and controller-runtime's. Elections and events are not counted here: a scrape reads the electors and the recorders.
A registry accepts each metric once, so there is one collector of each type for each registry.
Source: component-base metrics/prometheus/clientgo/leaderelection; controller-runtime pkg/webhook/internal/metrics.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from prometheus_client import REGISTRY, CollectorRegistry, Gauge, Histogram
from prometheus_client import Counter as PrometheusCounter
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector


class NamedLease(Protocol):
    """The configuration of a ``LeaderElector``."""

    @property
    def name(self) -> str: ...


class Elector(Protocol):
    """The attributes of a ``LeaderElector`` that the metrics read."""

    @property
    def config(self) -> NamedLease: ...
    @property
    def is_leader(self) -> bool: ...

    slow_renewals: int


class Counts(Protocol):
    """The counts of an ``EventRecorder`` for one API."""

    @property
    def recorded(self) -> int: ...
    @property
    def sent(self) -> int: ...
    @property
    def coalesced(self) -> int: ...
    @property
    def dropped(self) -> Mapping[Any, int]: ...


class Recorder(Protocol):
    """The attributes of an ``EventRecorder`` that the metrics read."""

    @property
    def component(self) -> str: ...
    @property
    def counts(self) -> Sequence[tuple[str, Counts]]: ...
    @property
    def waiting(self) -> int: ...


class ElectionMetrics(Collector):
    """Collects the leader electors of one registry, one series for each name of a lease. May be scraped in any thread.

    Guarantees
        The counter does not fall when an elector is no longer shown: its counts stay.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._electors: list[Elector] = []
        self._past: dict[str, int] = {}

    def add(self, elector: Elector) -> None:
        if not self._electors and not self._past:
            self._registry.register(self)
        self._electors.append(elector)

    def remove(self, elector: Elector) -> None:
        if elector in self._electors:
            self._electors.remove(elector)
            name = elector.config.name
            self._past[name] = self._past.get(name, 0) + elector.slow_renewals

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, which the registry uses to detect duplicates."""
        return _election_families({}, {})

    def collect(self) -> Iterable[Metric]:
        status: dict[str, int] = {}
        slow = dict(self._past)
        for elector in list(self._electors):
            name = elector.config.name
            status[name] = max(status.get(name, 0), int(elector.is_leader))
            slow[name] = slow.get(name, 0) + elector.slow_renewals
        return _election_families(status, slow)


def show_elector(elector: Elector, registry: CollectorRegistry | None) -> Callable[[], None]:
    """Export an elector to a registry (None: prometheus_client's default one). Return a function that ends the export."""
    registry = REGISTRY if registry is None else registry
    found = _ELECTIONS.get(registry)
    if found is None:
        found = _ELECTIONS[registry] = ElectionMetrics(registry)
    collector = found
    collector.add(elector)
    return lambda: collector.remove(elector)


# One per registry; kept here, because a registry cannot be asked for its collectors.
_ELECTIONS: weakref.WeakKeyDictionary[CollectorRegistry, ElectionMetrics] = weakref.WeakKeyDictionary()


def _election_families(status: dict[str, int], slow: dict[str, int]) -> Iterator[Metric]:
    leading = GaugeMetricFamily(
        "leader_election_master_status",
        "1 if this process is the leader for the lease of that name, 0 if it is on standby.",
        labels=("name",),
    )
    for name, value in status.items():
        leading.add_metric((name,), value)
    yield leading
    reads = CounterMetricFamily("leader_election_slowpath", "Renewals that had to read the lease first.", labels=("name",))
    for name, count in slow.items():
        reads.add_metric((name,), count)
    yield reads


LABELS = ("component", "api")
_Labels = tuple[str, ...]


@dataclass
class _Totals:
    recorded: Counter[_Labels] = field(default_factory=Counter)
    sent: Counter[_Labels] = field(default_factory=Counter)
    coalesced: Counter[_Labels] = field(default_factory=Counter)
    dropped: Counter[_Labels] = field(default_factory=Counter)
    waiting: Counter[_Labels] = field(default_factory=Counter)

    def add(self, recorder: Recorder) -> None:
        for api, counts in recorder.counts:
            labels = (recorder.component, api)
            self.recorded[labels] += counts.recorded
            self.sent[labels] += counts.sent
            self.coalesced[labels] += counts.coalesced
            for why, number in counts.dropped.items():
                self.dropped[(*labels, why)] += number

    def copy(self) -> _Totals:
        return _Totals(self.recorded.copy(), self.sent.copy(), self.coalesced.copy(), self.dropped.copy(), self.waiting.copy())


class EventMetrics(Collector):
    """Collects the event recorders of one registry, one series for each component and API. Recorders of one component are added up.

    Guarantees
        Counters do not fall when a recorder ends: its counts stay. May be scraped in any thread.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._open: dict[int, Recorder] = {}
        self._closed = _Totals()
        self._registered = False

    def add(self, recorder: Recorder) -> None:
        """Export a recorder from now on. Adding it again changes nothing."""
        if not self._registered:
            self._registry.register(self)
            self._registered = True
        self._open[id(recorder)] = recorder

    def remove(self, recorder: Recorder) -> None:
        """Remove a recorder that has ended. Its counts stay."""
        if self._open.pop(id(recorder), None) is not None:
            self._closed.add(recorder)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, which the registry uses to detect duplicates."""
        return _event_families(_Totals())

    def collect(self) -> Iterable[Metric]:
        totals = self._closed.copy()
        for recorder in list(self._open.values()):
            totals.add(recorder)
            totals.waiting[(recorder.component, "")] += recorder.waiting
        return _event_families(totals)


def event_metrics(registry: CollectorRegistry | None) -> EventMetrics:
    """Return the collector of event recorders of a registry (None: prometheus_client's default one)."""
    registry = REGISTRY if registry is None else registry
    found = _EVENTS.get(registry)
    if found is None:
        found = _EVENTS[registry] = EventMetrics(registry)
    return found


# One per registry; kept here, because a registry cannot be asked for its collectors.
_EVENTS: weakref.WeakKeyDictionary[CollectorRegistry, EventMetrics] = weakref.WeakKeyDictionary()


def _event_families(totals: _Totals) -> Iterator[Metric]:
    recorded = "Events that controllers recorded; those with an empty api were invalid."
    yield _counter("kubeloop_events_recorded", recorded, LABELS, totals.recorded)
    yield _counter("kubeloop_events_sent", "Requests that created or changed an event.", LABELS, totals.sent)
    yield _counter("kubeloop_events_counted", "Events that only increased a local count, which is written later.", LABELS, totals.coalesced)
    yield _counter("kubeloop_events_dropped", "Events that were dropped.", (*LABELS, "reason"), totals.dropped)
    waiting = GaugeMetricFamily("kubeloop_events_waiting", "Events waiting to be sent.", labels=LABELS[:1])
    for labels, number in totals.waiting.items():
        waiting.add_metric(labels[:1], number)
    yield waiting


def _counter(name: str, text: str, labels: _Labels, values: Counter[_Labels]) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for each, number in values.items():
        family.add_metric(each, number)
    return family


#: controller-runtime's buckets begin at 10 ns; here no response takes less than 100 us.
_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class WebhookMetrics:
    """Counts and latencies of webhook requests, for all webhook servers that share one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "controller_runtime_webhook_"
        self._latency = Histogram(
            prefix + "latency_seconds", "Seconds from a request's head to its response.", ["webhook"], buckets=_BUCKETS, registry=registry
        )
        self._requests = PrometheusCounter(
            prefix + "requests_total", "Requests by HTTP status code.", ["webhook", "code"], registry=registry
        )
        self._in_flight = Gauge(prefix + "requests_in_flight", "Requests being answered.", ["webhook"], registry=registry)
        self._panics = PrometheusCounter(prefix + "panics_total", "Hooks that raised an unexpected error.", registry=registry)

    def begun(self, path: str) -> None:
        self._in_flight.labels(path).inc()

    def ended(self, path: str, code: int, seconds: float, *, panic: bool) -> None:
        """Count a response.

        Args:
            path: Path of the webhook.
            code: HTTP status.
            seconds: Duration.
            panic: The hook raised an unexpected error.
        """
        self._in_flight.labels(path).dec()
        self._latency.labels(path).observe(seconds)
        self._requests.labels(path, str(code)).inc()
        if panic:
            self._panics.inc()


def webhook_metrics(registry: CollectorRegistry | None) -> WebhookMetrics:
    """Return the webhook metrics of a registry (None: prometheus_client's default one), which all webhook servers share."""
    registry = REGISTRY if registry is None else registry
    found = _METRICS.get(registry)
    if found is None:
        found = _METRICS[registry] = WebhookMetrics(registry)
    return found


# One per registry; kept here, because a registry cannot be asked for its collectors.
_METRICS: weakref.WeakKeyDictionary[CollectorRegistry, WebhookMetrics] = weakref.WeakKeyDictionary()
