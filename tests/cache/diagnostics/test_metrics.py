"""Informers as Prometheus metrics: what a scrape shows, and whose series are whose."""

from __future__ import annotations

import asyncio
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.cache.diagnostics.metrics import InformerMetrics
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, status, until

DOCUMENT = Path(__file__).parents[3] / "docs" / "observability.md"


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def informers_of(api: Client, clock: FakeClock, cluster: str | None = None) -> InformerFactory:
    return InformerFactory(api, clock=clock, rng=random.Random(1), cluster=cluster)


def scrape(registry: CollectorRegistry) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Sample name to labels and values, as Prometheus would read them."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


def value(registry: CollectorRegistry, sample: str, /, **labels: str) -> float | None:
    """Of the one sample that has these labels; None if there is none."""
    found = [number for has, number in scrape(registry).get(sample, []) if labels.items() <= has.items()]
    assert len(found) <= 1, found
    return found[0] if found else None


async def test_a_scrape_shows_what_the_informer_has_and_did(
    source: Source, api: Client, clock: FakeClock, registry: CollectorRegistry
) -> None:
    for name in ("a", "b"):
        source.put(name, x="1" * 100)
    informers = informers_of(api, clock)
    informers.metrics(registry)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    assert value(registry, "kubeloop_informer_synced") == 0
    assert value(registry, "kubeloop_informer_lag_seconds") is None, "before the first list nothing is known"
    async with informers:
        registration = maps.on_event(added=lambda _: None, name="web")
        await registration.wait_synced()
        await until(lambda: source.watches == 1)
        source.put("a", x="2")
        source.delete("b")
        await until(lambda: maps.stats.events == 4)
        maps.lister.heads()
        own = {
            "name": "kubeloop",
            "cluster": "test",
            "group": "",
            "version": "v1",
            "resource": "configmaps",
            "namespace": "",
            "selector": "",
        }
        assert value(registry, "kubeloop_informer_synced", **own) == 1
        assert value(registry, "kubeloop_informer_objects") == 1
        assert value(registry, "kubeloop_informer_raw_bytes") == maps.stats.raw_bytes > 100
        assert value(registry, "kubeloop_informer_stored_bytes") == maps.stats.stored_bytes
        assert value(registry, "kubeloop_informer_events_total", type="ADDED") == 2
        assert value(registry, "kubeloop_informer_events_total", type="MODIFIED") == 1
        assert value(registry, "kubeloop_informer_events_total", type="DELETED") == 1
        assert value(registry, "kubeloop_informer_reads_total") == 1
        assert value(registry, "kubeloop_informer_watches_open") == 1
        assert value(registry, "reflector_lists_total", reason="first") == 1
        assert value(registry, "reflector_watches_total") == 1
        assert value(registry, "informer_queued_items") == 0
        assert value(registry, "informer_store_resource_version") == source.version
        assert value(registry, "kubeloop_informer_handler_seconds_count", handler="web") == 2
        assert value(registry, "kubeloop_informer_handler_synced", handler="web") == 1


async def test_lag_is_the_time_since_the_server_last_showed_that_the_cache_is_current(
    source: Source, api: Client, clock: FakeClock, registry: CollectorRegistry
) -> None:
    informers = informers_of(api, clock)
    informers.metrics(registry)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    async with informers:
        await until(lambda: source.watches == 1)
        assert value(registry, "kubeloop_informer_lag_seconds") == 0
        await clock.advance(70)
        assert value(registry, "kubeloop_informer_lag_seconds") == 70
        source.version += 1
        source.bookmark()
        await until(lambda: maps.resource_version == str(source.version))
        assert value(registry, "kubeloop_informer_lag_seconds") == 0
        await clock.advance(5)
        source.lists.clear()
        source.error_event(status(410, "Expired"))
        await until(lambda: maps.stats.lists.get("expired"))
        lag = maps.stats.lag
        assert lag is not None
        assert lag >= 5, "an error shows nothing of what the server has"
        source.lists.set()


async def test_of_several_namespaces_the_slowest_counts(api: Client, clock: FakeClock) -> None:
    maps = informers_of(api, clock).for_kind(ConfigMap, namespace=["a", "b"])
    first, second = maps._runner.feeds
    first.replace([], "1")
    assert maps.stats.lag is None
    await clock.advance(3)
    second.replace([], "1")
    assert maps.stats.lag == 3


async def test_failures_lists_and_restarts_are_counted_by_their_reason(
    source: Source, api: Client, clock: FakeClock, registry: CollectorRegistry
) -> None:
    informers = informers_of(api, clock)
    informers.metrics(registry)
    informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    source.list_faults.append(status(500, "InternalError"))
    async with informers:
        while source.watches == 0:
            await clock.advance(1)
            await asyncio.sleep(0.01)
        assert value(registry, "kubeloop_informer_failures_total", error="InternalError") == 1
        assert value(registry, "reflector_lists_total", reason="first") == 1
        assert value(registry, "reflector_lists_total", reason="internal") == 1
        await clock.advance(10)
        source.put("a")
        source.close_watches()
        await until(lambda: len(source.asked("watch", "resourceVersion")) > 1)
        assert value(registry, "kubeloop_informer_watch_restarts_total", reason="ended") == 1


async def test_a_handler_shows_what_waits_for_it_and_what_it_is_at(
    source: Source, api: Client, clock: FakeClock, registry: CollectorRegistry
) -> None:
    go = asyncio.Event()

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()
        if event.key.name == "b":
            raise ValueError("no")

    informers = informers_of(api, clock)
    informers.metrics(registry)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    for name in "abc":
        source.put(name)
    async with informers:
        maps.on_event(added=slow, name="slow")
        await until(lambda: maps.stats.handlers[0].key == "default/a")
        await clock.advance(12)
        assert value(registry, "kubeloop_informer_handler_running_seconds", handler="slow") == 12
        assert value(registry, "kubeloop_informer_handler_oldest_seconds", handler="slow") == 12
        pending = value(registry, "kubeloop_informer_handler_pending", handler="slow")
        assert pending is not None
        assert pending >= 2
        go.set()
        await until(lambda: maps.stats.handlers[0].calls == 3)
        assert value(registry, "kubeloop_informer_handler_running_seconds", handler="slow") == 0
        assert value(registry, "kubeloop_informer_handler_longest_seconds", handler="slow") == 12
        assert value(registry, "kubeloop_informer_handler_seconds_sum", handler="slow") == 12
        assert value(registry, "kubeloop_informer_handler_failures_total", handler="slow") == 1


async def test_names_are_unique_and_not_empty_and_free_again_when_their_informers_have_ended_F90(
    api: Client, clock: FakeClock, registry: CollectorRegistry
) -> None:
    with pytest.raises(ValueError, match="not empty"):
        informers_of(api, clock).metrics(registry, name="")
    async with informers_of(api, clock) as first:
        first.metrics(registry)
        first.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        async with informers_of(api, clock) as second:
            second.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
            with pytest.raises(ValueError, match=r'named "kubeloop" of cluster "test".*another name'):
                second.metrics(registry)
            second.metrics(registry, name="second")
            assert [labels["name"] for labels, _ in scrape(registry)["kubeloop_informer_objects"]] == ["kubeloop", "second"]
        assert [labels["name"] for labels, _ in scrape(registry)["kubeloop_informer_objects"]] == ["kubeloop"]
    assert scrape(registry) == {}
    async with informers_of(api, clock) as again:
        again.metrics(registry)


async def test_metrics_distinguish_clusters(api: Client, clock: FakeClock, registry: CollectorRegistry) -> None:
    async with informers_of(api, clock, cluster="east") as east, informers_of(api, clock, cluster="west") as west:
        for each in (east, west):
            each.metrics(registry)
            each.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        assert [labels["cluster"] for labels, _ in scrape(registry)["kubeloop_informer_objects"]] == ["east", "west"]


async def test_metrics_distinguish_informers_of_one_kind_by_scope(api: Client, clock: FakeClock, registry: CollectorRegistry) -> None:
    informers = informers_of(api, clock)
    informers.metrics(registry)
    long = ",".join(f"label-{number}=value" for number in range(20))
    options: list[dict[str, Any]] = [
        {},
        {"namespace": ["shop", "ops"]},
        {"label_selector": "app=web", "field_selector": "metadata.name=a"},
        {"label_selector": long},
        {"label_selector": f"{long},x=y"},
        {"transform": lambda tree: None},
        {"transform": lambda tree: None},
        {"fields": ["data"]},
        {"managed_fields": True},
    ]
    for each in options:
        informers.for_kind(ConfigMap, **{"namespace": ALL_NAMESPACES, **each})
    informers.metadata(ConfigMap, namespace=ALL_NAMESPACES)
    found = [(labels["namespace"], labels["selector"]) for labels, _ in scrape(registry)["kubeloop_informer_objects"]]
    assert len(set(found)) == len(found) == 10
    assert found[1] == ("ops,shop", "")
    assert found[2] == ("", "app=web; fields(metadata.name=a)")
    assert all(len(selector) <= 90 for _, selector in found)
    assert found[7:] == [("", "only data"), ("", "with managedFields"), ("", "metadata only")]


async def test_a_removed_informer_is_shown_no_longer(api: Client, clock: FakeClock, registry: CollectorRegistry) -> None:
    async with informers_of(api, clock) as informers:
        informers.metrics(registry)
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        assert value(registry, "kubeloop_informer_objects") == 0
        await informers.remove(maps)
        assert value(registry, "kubeloop_informer_objects") is None


async def test_another_thread_may_scrape_while_events_come(
    source: Source, api: Client, clock: FakeClock, registry: CollectorRegistry
) -> None:
    informers = informers_of(api, clock)
    informers.metrics(registry)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    async with informers:
        maps.on_event(added=lambda _: None, coalesce=True)
        await until(lambda: source.watches == 1)
        for number in range(300):
            source.put(f"n{number}")
        for _ in range(20):
            await asyncio.to_thread(generate_latest, registry)
        await until(lambda: maps.stats.objects == 300)
        assert (await asyncio.to_thread(value, registry, "kubeloop_informer_objects")) == 300


def families() -> Iterator[str]:
    return (family.name for family in InformerMetrics(CollectorRegistry()).describe())


def test_each_metric_is_declared_once_and_documented() -> None:
    names = list(families())
    assert len(set(names)) == len(names)
    text = DOCUMENT.read_text()
    assert [name for name in names if f"`{name}" not in text] == []


@pytest.mark.parametrize(
    ("version", "shown"),
    [
        pytest.param("1234", 1234.0, id="a version is a number"),
        pytest.param("91234567890123456", 234567890123456.0, id="of a long one its last 15 digits are shown, as client-go does"),
        pytest.param("", None, id="there is none before the first list"),
        pytest.param("ab-c", None, id="a version that is no number is not shown"),
    ],
)
async def test_version(api: Client, clock: FakeClock, registry: CollectorRegistry, version: str, shown: float | None) -> None:
    informers = informers_of(api, clock)
    informers.metrics(registry)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    if version:
        maps._runner.feeds[0].replace([], version)
    assert value(registry, "informer_store_resource_version") == shown


def test_neither_metrics_nor_tables_are_imported_by_who_does_not_ask_for_them() -> None:
    program = (
        "import sys, kubeloop.cache; kubeloop.cache.InformerFactory; print([n for n in ('prometheus_client', 'rich') if n in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
