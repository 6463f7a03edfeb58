"""Requests as Prometheus metrics, with client-go's names. Each scrape reads the counters of the transports.

A registry has one collector, and each host one series: as in client-go, the counters of several transports to one host are summed.
Source: component-base metrics/prometheus/restclient.
"""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from kubeloop.transport.instrumentation.counters import BucketCounts, RequestCounters

if TYPE_CHECKING:
    from kubeloop.config.plugins.metrics import PluginMetrics
    from kubeloop.transport.transport import Transport

_Hosts = Mapping[str, RequestCounters]


class TransportMetrics(Collector):
    """The collector of the transports of one Prometheus registry.

    Guarantees
        Counters do not decrease when a transport is closed, because its counts are retained. Any thread may scrape.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._open: dict[Transport, str] = {}
        self._closed: dict[str, RequestCounters] = {}

    def add(self, transport: Transport) -> None:
        """Include a transport; adding it twice has no effect."""
        if not self._open and not self._closed:
            self._registry.register(self)
        self._open[transport] = transport.host

    def remove(self, transport: Transport) -> None:
        """Remove a closed transport. Its counts are retained."""
        host = self._open.pop(transport, None)
        if host is not None:
            self._closed.setdefault(host, RequestCounters()).add(transport.figures)

    def describe(self) -> Iterable[Metric]:
        """Return the metrics without values, which the registry checks for duplicates at registration."""
        return _families({}, [])

    def collect(self) -> Iterable[Metric]:
        hosts: dict[str, RequestCounters] = {}
        transports = list(self._open.items())
        for host, figures in [*self._closed.items(), *((host, transport.figures) for transport, host in transports)]:
            hosts.setdefault(host, RequestCounters()).add(figures)
        return _families(hosts, transports)


def metrics_of(registry: CollectorRegistry | None) -> TransportMetrics:
    """Return the collector of a registry. None stands for prometheus_client's default registry."""
    registry = REGISTRY if registry is None else registry
    found = _COLLECTORS.get(registry)
    if found is None:
        found = _COLLECTORS[registry] = TransportMetrics(registry)
    return found


# The collector of each registry. A registry accepts only one collector of these metrics, so that all its transports share it.
_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, TransportMetrics] = weakref.WeakKeyDictionary()


def _families(hosts: _Hosts, transports: list[tuple[Transport, str]]) -> Iterator[Metric]:
    requests = CounterMetricFamily("rest_client_requests", "HTTP requests, counting each attempt.", labels=("code", "method", "host"))
    retries = CounterMetricFamily("rest_client_request_retries", "Attempts after the first.", labels=("code", "verb", "host"))
    for host, figures in hosts.items():
        for (code, method), number in list(figures.requests.items()):
            requests.add_metric((code, method, host), number)
        for (code, verb), number in list(figures.retries.items()):
            retries.add_metric((code, verb, host), number)
    yield requests
    yield retries
    prefix = "rest_client_"
    yield _by_verb(prefix + "request_duration_seconds", "Seconds of whole requests, including all attempts.", hosts, "latency")
    yield _by_verb(prefix + "rate_limiter_duration_seconds", "Seconds of waiting for this client's rate limit.", hosts, "limiter")
    yield _by_verb(prefix + "request_size_bytes", "Bytes of request bodies.", hosts, "request_size")
    yield _by_verb(prefix + "response_size_bytes", "Bytes of response bodies, uncompressed.", hosts, "response_size")
    resolver = HistogramMetricFamily(prefix + "dns_resolution_duration_seconds", "Seconds of resolving the host's name.", labels=("host",))
    reloads = "Reloads of the file of certificate authorities."
    ca_reloads = CounterMetricFamily(prefix + "transport_ca_reload", reloads, labels=("result", "reason"))
    connections = CounterMetricFamily("kubeloop_client_connections", "Connections opened.", labels=("host",))
    results: dict[tuple[str, str], int] = {}
    for host, figures in hosts.items():
        if sum(figures.resolver.counts):
            _add(resolver, (host,), figures.resolver)
        for key, number in list(figures.ca_reloads.items()):
            results[key] = results.get(key, 0) + number
        connections.add_metric((host,), figures.connections)
    for key, number in results.items():
        ca_reloads.add_metric(key, number)
    yield resolver
    yield ca_reloads
    yield GaugeMetricFamily(prefix + "transport_cache_entries", "Open transports.", value=len(transports))
    yield connections
    window = GaugeMetricFamily("kubeloop_client_window", "Requests that may run at a time; reduced after a 429.", labels=("host",))
    waiting = GaugeMetricFamily("kubeloop_client_waiting", "Requests that wait for another one to end.", labels=("host",))
    for host in dict.fromkeys(host for _, host in transports):
        places = [transport.places for transport, its in transports if its == host]
        window.add_metric((host,), sum(one.window for one in places))
        waiting.add_metric((host,), sum(one.waiting for one in places))
    yield window
    yield waiting
    yield from _plugins()


def _plugins() -> Iterator[Metric]:
    """Yield the metrics of credential plugins. They are counted per process, not per host."""
    prefix = "rest_client_exec_plugin_"
    calls = CounterMetricFamily(prefix + "call", "Runs of credential plugins.", labels=("code", "call_status"))
    policy = CounterMetricFamily(prefix + "policy_call", "Decisions of the plugin policy.", labels=("status",))
    ages = HistogramMetricFamily(prefix + "certificate_rotation_age", "Age in seconds of plugins' certificates when they were replaced.")
    ttl = math.inf
    # A program without plugins has not imported their module.
    module = sys.modules.get("kubeloop.config.plugins.metrics")
    if module is not None:
        figures: PluginMetrics = module.figures
        for (code, status), number in list(figures.calls.items()):
            calls.add_metric((str(code), status), number)
        for status, number in list(figures.policy.items()):
            policy.add_metric((status,), number)
        histogram = BucketCounts(module.AGES)
        histogram.counts, histogram.total = list(figures.ages), figures.total_age
        if sum(histogram.counts):
            _add(ages, (), histogram)
        if (soonest := figures.soonest_expiry()) is not None:
            ttl = (soonest - datetime.now(UTC)).total_seconds()
    yield calls
    yield policy
    yield ages
    yield GaugeMetricFamily(prefix + "ttl_seconds", "Seconds until the first plugin certificate expires; +Inf if there is none.", value=ttl)


def _by_verb(name: str, text: str, hosts: _Hosts, attribute: str) -> Metric:
    family = HistogramMetricFamily(name, text, labels=("verb", "host"))
    for host, figures in hosts.items():
        histograms: Mapping[str, BucketCounts] = getattr(figures, attribute)
        for verb, histogram in list(histograms.items()):
            _add(family, (verb, host), histogram)
    return family


def _add(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: BucketCounts) -> None:
    buckets: list[tuple[str, float]] = []
    total = 0
    for bound, number in zip((*histogram.bounds, None), histogram.counts, strict=True):
        total += number
        buckets.append(("+Inf" if bound is None else repr(float(bound)), total))
    family.add_metric(labels, buckets, sum_value=histogram.total)
