"""Informers as Prometheus metrics. Nothing is measured here: each scrape reads the statistics that informers maintain anyway.

A registry has one collector for any number of informers, since a metric may be declared only once. Meanings and alert thresholds:
docs/observability.md. Metrics that client-go has carry client-go's names.
"""

from __future__ import annotations

import hashlib
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Protocol

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily
from prometheus_client.registry import Collector

from kubeloop.cache.diagnostics.stats import HandlerStats, InformerStats

#: Labels that identify an informer: client-go's four, and further ones.
LABELS = ("name", "cluster", "group", "version", "resource", "namespace", "selector")
#: A selector longer than this is shortened to its beginning and a hash.
LONGEST = 80
#: Number of digits of a resourceVersion that a float holds; client-go truncates to the same.
DIGITS = 15


class StatsSource(Protocol):
    """Provides the statistics of informers."""

    def measure(self) -> Sequence[InformerStats]: ...


class InformerMetrics(Collector):
    """Collector of the statistics of all informers that one registry shows.

    Guarantees
        No two series have the same labels, whatever the names of the informers. Any thread may scrape it.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._sources: dict[tuple[str, str], StatsSource] = {}

    def add(self, name: str, cluster: str, source: StatsSource) -> None:
        """Add the informers of ``source`` to the metrics.

        Raises:
            ValueError: the name is empty, or other informers of the same cluster use it.
        """
        if not name:
            raise ValueError("metrics need a name that is not empty")
        if (name, cluster) in self._sources:
            raise ValueError(
                f'metrics of informers named "{name}" of cluster "{cluster}" are in this registry already; give these another name: '
                'informers.metrics(name="...")'
            )
        if not self._sources:
            self._registry.register(self)
        self._sources[name, cluster] = source

    def remove(self, name: str, cluster: str) -> None:
        """Remove the informers with this name from the metrics. The name can then be used again."""
        if self._sources.pop((name, cluster), None) is not None and not self._sources:
            self._registry.unregister(self)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values. The registry uses them to detect duplicates."""
        return _families([])

    def collect(self) -> Iterable[Metric]:
        measured: list[tuple[tuple[str, ...], InformerStats]] = []
        for (name, _), source in list(self._sources.items()):
            measured += _labelled(name, source.measure())
        return _families(measured)


def metrics_of(registry: CollectorRegistry | None) -> InformerMetrics:
    """Return the collector of a registry; None stands for prometheus_client's default registry."""
    registry = REGISTRY if registry is None else registry
    measured = _COLLECTORS.get(registry)
    if measured is None:
        measured = _COLLECTORS[registry] = InformerMetrics(registry)
    return measured


# The collector of each registry: several informers can share a registry only through one collector.
_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, InformerMetrics] = weakref.WeakKeyDictionary()

_Rows = Sequence[tuple[tuple[str, ...], InformerStats]]
_Handlers = Sequence[tuple[tuple[str, ...], HandlerStats]]


def _labelled(name: str, stats: Sequence[InformerStats]) -> Iterator[tuple[tuple[str, ...], InformerStats]]:
    taken: set[tuple[str, ...]] = set()
    for each in stats:
        selector = _short(each.selection)
        labels = (name, each.cluster, each.group, each.version, each.resource, ",".join(each.namespaces), selector)
        number = 1
        while labels in taken:  # they differ in a property that no label shows, such as the transform
            number += 1
            labels = (*labels[:-1], f"{selector}#{number}")
        taken.add(labels)
        yield labels, each


def _short(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[: LONGEST - 9]}~{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _families(rows: _Rows) -> Iterator[Metric]:
    yield from _client_go(rows)
    yield from _cache(rows)
    yield from _watches(rows)
    yield from _handlers([((*labels, handler.name), handler) for labels, stats in rows for handler in stats.handlers])


def _client_go(rows: _Rows) -> Iterator[Metric]:
    yield _by("reflector_lists", "Full reads of all objects, as a list or a watch list.", "reason", rows, lambda stats: stats.lists)
    yield _counter("reflector_watches", "Watches that the server accepted.", rows, lambda stats: sum(feed.watches for feed in stats.feeds))
    yield _gauge("informer_queued_items", "Changes received but not yet stored.", rows, lambda stats: stats.queued)
    yield _gauge("informer_store_resource_version", f"Resource version of the cache, its last {DIGITS} digits.", rows, _version)


def _cache(rows: _Rows) -> Iterator[Metric]:
    yield _gauge("kubeloop_informer_synced", "1 if the first list is in the cache.", rows, lambda stats: int(stats.synced))
    yield _gauge("kubeloop_informer_objects", "Objects in the cache.", rows, lambda stats: stats.objects)
    yield _gauge("kubeloop_informer_stored_bytes", "Bytes of the stored objects as stored.", rows, lambda stats: stats.stored_bytes)
    yield _gauge("kubeloop_informer_raw_bytes", "Bytes of the stored objects uncompressed.", rows, lambda stats: stats.raw_bytes)
    yield _gauge("kubeloop_informer_held_bytes", "Bytes of the stored objects not compressed yet.", rows, lambda stats: stats.held_bytes)
    yield _gauge("kubeloop_informer_dictionaries", "Dictionaries trained for compression.", rows, lambda stats: stats.dictionaries)
    yield _gauge("kubeloop_informer_own_writes", "Own writes that the watch has not shown yet.", rows, lambda stats: stats.own_writes)
    yield _counter("kubeloop_informer_reads", "Queries answered from the cache.", rows, lambda stats: stats.reads)
    undecodable = "Reads that failed because an object does not fit its type."
    yield _counter("kubeloop_informer_decode_failures", undecodable, rows, lambda stats: stats.undecodable)
    transforms = "Objects stored untransformed because the transform raised."
    yield _counter("kubeloop_informer_transform_failures", transforms, rows, lambda stats: stats.transform_failures)


def _watches(rows: _Rows) -> Iterator[Metric]:
    yield _by("kubeloop_informer_events", "Events delivered to handlers.", "type", rows, lambda stats: stats.by_type)
    lag = "Seconds since the server last confirmed that the cache is current; bookmarks confirm it each minute."
    yield _gauge("kubeloop_informer_lag_seconds", lag, rows, lambda stats: stats.lag)
    watching = "Open watches."
    yield _gauge("kubeloop_informer_watches_open", watching, rows, lambda stats: sum(feed.watching for feed in stats.feeds))
    restarts = "Watches that were reopened without a list."
    yield _by("kubeloop_informer_watch_restarts", restarts, "reason", rows, lambda stats: stats.restarts)
    yield _by("kubeloop_informer_failures", "Lists and watches that failed.", "error", rows, lambda stats: stats.failures)


def _handlers(rows: _Handlers) -> Iterator[Metric]:
    prefix = "kubeloop_informer_handler_"
    labels = (*LABELS, "handler")

    def gauge(name: str, text: str, value: Callable[[HandlerStats], float]) -> Metric:
        family = GaugeMetricFamily(prefix + name, text, labels=labels)
        for row, handler in rows:
            family.add_metric(row, value(handler))
        return family

    def counter(name: str, text: str, value: Callable[[HandlerStats], float]) -> Metric:
        family = CounterMetricFamily(prefix + name, text, labels=labels)
        for row, handler in rows:
            family.add_metric(row, value(handler))
        return family

    yield gauge("synced", "1 if the handler has processed all initial objects.", lambda handler: int(handler.synced))
    yield gauge("pending", "Events waiting for the handler.", lambda handler: handler.pending)
    yield gauge("oldest_seconds", "Seconds that the oldest waiting event has waited.", lambda handler: handler.oldest)
    yield gauge("running_seconds", "Seconds that the current call has run.", lambda handler: handler.running)
    yield gauge("longest_seconds", "Seconds of the longest call so far.", lambda handler: handler.longest)
    yield counter("failures", "Calls that raised.", lambda handler: handler.failures)
    yield counter("slow", "Calls of a plain function that blocked the event loop too long.", lambda handler: handler.slow)
    yield counter("merged", "Waiting events that were merged with a later one.", lambda handler: handler.merged)
    calls = SummaryMetricFamily(prefix + "seconds", "Seconds of calls of the handler, including waits within them.", labels=labels)
    for row, handler in rows:
        calls.add_metric(row, count_value=handler.calls, sum_value=handler.seconds)
    yield calls


def _gauge(name: str, text: str, rows: _Rows, value: Callable[[InformerStats], float | None]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=LABELS)
    for labels, stats in rows:
        measured = value(stats)
        if measured is not None:
            family.add_metric(labels, measured)
    return family


def _counter(name: str, text: str, rows: _Rows, value: Callable[[InformerStats], float]) -> Metric:
    family = CounterMetricFamily(name, text, labels=LABELS)
    for labels, stats in rows:
        family.add_metric(labels, value(stats))
    return family


def _by(name: str, text: str, label: str, rows: _Rows, values: Callable[[InformerStats], Mapping[str, int]]) -> Metric:
    family = CounterMetricFamily(name, text, labels=(*LABELS, label))
    for labels, stats in rows:
        for reason, number in values(stats).items():
            family.add_metric((*labels, str(reason)), number)
    return family


def _version(stats: InformerStats) -> float | None:
    version = stats.resource_version[-DIGITS:]
    return float(version) if version.isdecimal() else None
