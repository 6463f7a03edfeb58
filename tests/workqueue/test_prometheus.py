"""Queues in a Prometheus registry, under client-go's names (behaviour H118)."""

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from kubeloop.timing import FakeClock
from kubeloop.workqueue import LOW_PRIORITY, PriorityQueue, QueueTimes, WorkQueue
from kubeloop.workqueue.prometheus import metrics_of


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


async def test_a_scrape_shows_client_gos_metrics(registry: CollectorRegistry) -> None:
    clock = FakeClock()
    queue: PriorityQueue[str] = PriorityQueue(clock=clock, metrics=QueueTimes())
    metrics_of(registry).add("foo", queue)
    for item in "ab":
        queue.add(item)
    queue.add("c", priority=LOW_PRIORITY)
    queue.add_rate_limited("d")
    await clock.advance(0.001)
    for _ in range(2):
        await queue.get()
    await clock.advance(0.002)
    queue.done("a")

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"name": "foo", "controller": "foo", **labels})

    assert value("workqueue_depth", priority="0") == 0
    assert value("workqueue_depth", priority="-100") == 1
    assert value("workqueue_adds_total") == 3
    assert value("workqueue_retries_total") == 1
    assert value("workqueue_unfinished_work_seconds") == pytest.approx(0.002)
    assert value("workqueue_longest_running_processor_seconds") == pytest.approx(0.002)
    assert value("workqueue_queue_duration_seconds_count") == 2
    assert value("workqueue_queue_duration_seconds_sum") == pytest.approx(0.002)
    assert value("workqueue_queue_duration_seconds_bucket", le="0.01") == 2
    assert value("workqueue_work_duration_seconds_count") == 1
    assert value("workqueue_work_duration_seconds_sum") == pytest.approx(0.002)


async def test_a_queue_without_priorities_has_an_empty_label_and_counts_what_comes_back(registry: CollectorRegistry) -> None:
    queue: WorkQueue[str] = WorkQueue(clock=FakeClock())
    metrics_of(registry).add("queue", queue, controller="foo")
    queue.add("a")
    await queue.get()
    queue.add("a")
    queue.add("b")
    assert registry.get_sample_value("workqueue_depth", {"name": "queue", "controller": "foo", "priority": ""}) == 2
    assert b"work_duration_seconds_count" not in generate_latest(registry)


def test_one_registry_shows_many_queues_and_none_twice(registry: CollectorRegistry) -> None:
    metrics = metrics_of(registry)
    assert metrics is metrics_of(registry)
    for name in ("a", "b"):
        metrics.add(name, WorkQueue[str](clock=FakeClock()))
    with pytest.raises(ValueError, match="another name"):
        metrics.add("a", WorkQueue[str](clock=FakeClock()))
    with pytest.raises(ValueError, match="name"):
        metrics.add("", WorkQueue[str](clock=FakeClock()))
    metrics.remove("a")
    metrics.add("a", WorkQueue[str](clock=FakeClock()))
    for name in ("a", "b", "never there"):
        metrics.remove(name)
    assert b"workqueue" not in generate_latest(registry)
