"""Elections as Prometheus metrics, under client-go's names. Nothing is measured here: a scrape asks the electors.

Source: component-base metrics/prometheus/clientgo/leaderelection.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING

from prometheus_client import REGISTRY, CollectorRegistry
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from kubeloop.controller.election.elector import LeaderElector


class ElectionMetrics(Collector):
    """All electors that one registry shows, one series for a name of a lease. May be scraped in any thread.

    Guarantees
        The counter does not fall when an elector is no longer shown: what it counted stays.
    """

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._electors: list[LeaderElector] = []
        self._past: dict[str, int] = {}

    def add(self, elector: LeaderElector) -> None:
        if not self._electors and not self._past:
            self._registry.register(self)
        self._electors.append(elector)

    def remove(self, elector: LeaderElector) -> None:
        if elector in self._electors:
            self._electors.remove(elector)
            name = elector.config.name
            self._past[name] = self._past.get(name, 0) + elector.slow_renewals

    def describe(self) -> Iterable[Metric]:
        """The metrics without a value: what the registry checks for duplicates when this is registered."""
        return _families({}, {})

    def collect(self) -> Iterable[Metric]:
        status: dict[str, int] = {}
        slow = dict(self._past)
        for elector in list(self._electors):
            name = elector.config.name
            status[name] = max(status.get(name, 0), int(elector.is_leader))
            slow[name] = slow.get(name, 0) + elector.slow_renewals
        return _families(status, slow)


def show(elector: LeaderElector, registry: CollectorRegistry | None) -> Callable[[], None]:
    """Show it in a registry, None for prometheus_client's default one. Returns a function that ends that."""
    registry = REGISTRY if registry is None else registry
    found = _COLLECTORS.get(registry)
    if found is None:
        found = _COLLECTORS[registry] = ElectionMetrics(registry)
    collector = found
    collector.add(elector)
    return lambda: collector.remove(elector)


# Belongs to the registries, which have no place for it: a metric may be declared once only in each.
_COLLECTORS: weakref.WeakKeyDictionary[CollectorRegistry, ElectionMetrics] = weakref.WeakKeyDictionary()


def _families(status: dict[str, int], slow: dict[str, int]) -> Iterator[Metric]:
    leading = GaugeMetricFamily(
        "leader_election_master_status", "1 if this process is the leader for the lease of that name, 0 if it stands by.", labels=("name",)
    )
    for name, value in status.items():
        leading.add_metric((name,), value)
    yield leading
    reads = CounterMetricFamily("leader_election_slowpath", "Renewals that had to read the lease first.", labels=("name",))
    for name, count in slow.items():
        reads.add_metric((name,), count)
    yield reads
