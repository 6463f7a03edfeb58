"""Requests to webhooks as Prometheus metrics, under controller-runtime's names: label ``webhook`` is the path."""

from __future__ import annotations

import weakref

from prometheus_client import REGISTRY, CollectorRegistry, Counter, Gauge, Histogram

#: controller-runtime's begin at 10 ns; below 100 us nothing is answered here.
_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class WebhookMetrics:
    """What the webhook servers of one registry count."""

    def __init__(self, registry: CollectorRegistry) -> None:
        prefix = "controller_runtime_webhook_"
        self._latency = Histogram(
            prefix + "latency_seconds", "From a request's head to its answer.", ["webhook"], buckets=_BUCKETS, registry=registry
        )
        self._requests = Counter(prefix + "requests_total", "Requests by HTTP status code.", ["webhook", "code"], registry=registry)
        self._in_flight = Gauge(prefix + "requests_in_flight", "Requests being answered.", ["webhook"], registry=registry)
        self._panics = Counter(prefix + "panics_total", "Hooks that raised what they should not.", registry=registry)

    def begun(self, path: str) -> None:
        self._in_flight.labels(path).inc()

    def ended(self, path: str, code: int, seconds: float, *, panic: bool) -> None:
        self._in_flight.labels(path).dec()
        self._latency.labels(path).observe(seconds)
        self._requests.labels(path, str(code)).inc()
        if panic:
            self._panics.inc()


def metrics_of(registry: CollectorRegistry | None) -> WebhookMetrics:
    """The metrics of a registry, None for prometheus_client's default one; made once, however many servers count in it."""
    registry = REGISTRY if registry is None else registry
    found = _METRICS.get(registry)
    if found is None:
        found = _METRICS[registry] = WebhookMetrics(registry)
    return found


# Belongs to the registries, which have no place for it.
_METRICS: weakref.WeakKeyDictionary[CollectorRegistry, WebhookMetrics] = weakref.WeakKeyDictionary()
