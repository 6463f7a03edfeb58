"""The usage that kubelets measure: their text, rates between measurements, and restarts of containers."""

from __future__ import annotations

import pytest

from kubeloop.controlplane.metrics.kubelet_usage import Sample, Usage, UsageHistory, parse_resource_metrics, pod_usage

TEXT = """# HELP container_cpu_usage_seconds_total [STABLE] Cumulative cpu time consumed by the container in core-seconds
# TYPE container_cpu_usage_seconds_total counter
container_cpu_usage_seconds_total{container="a",namespace="shop",pod="web"} 12.5 1700000000500
# TYPE container_memory_working_set_bytes gauge
container_memory_working_set_bytes{container="a",namespace="shop",pod="web"} 1.048576e+06 1700000000500
# TYPE container_start_time_seconds gauge
container_start_time_seconds{container="a",namespace="shop",pod="web"} 1699999990
# TYPE node_cpu_usage_seconds_total counter
node_cpu_usage_seconds_total 100 1700000000500
# TYPE node_memory_working_set_bytes gauge
node_memory_working_set_bytes 2.097152e+06 1700000000500
# TYPE pod_cpu_usage_seconds_total counter
pod_cpu_usage_seconds_total{namespace="shop",pod="web"} 12.5 1700000000500
# TYPE resource_scrape_error gauge
resource_scrape_error 0
"""
KEY = ("shop", "web", "a")


def test_the_text_of_a_kubelet_is_read() -> None:
    assert parse_resource_metrics(TEXT, 0) == {
        KEY: Sample(1700000000.5, 12.5, 1048576, 1699999990),
        ("", "", ""): Sample(1700000000.5, 100, 2097152),
    }


@pytest.mark.parametrize("text", ["container_cpu_usage_seconds_total{", 'container_cpu_usage_seconds_total{pod="x"} 1', "node_cpu x"])
def test_a_text_that_makes_no_sense_is_an_error(text: str) -> None:
    with pytest.raises((ValueError, KeyError)):
        parse_resource_metrics(text, 0)


@pytest.mark.parametrize(
    ("samples", "expected"),
    [
        pytest.param([Sample(110, 5, 64, 100)], Usage(0.5, 64, 10, 110), id="a new container is measured since its start"),
        pytest.param([Sample(110, 5, 1, 100), Sample(120, 15, 64, 100)], Usage(1, 64, 10, 120), id="the rate between two measurements"),
        pytest.param([Sample(110, 5, 1, 100), Sample(120, 1, 64, 115)], Usage(0.2, 64, 5, 120), id="a restarted container since its start"),
        pytest.param([Sample(110, 5, 64, 100), Sample(110, 5, 64, 100)], Usage(0.5, 64, 10, 110), id="the same measurement again"),
        pytest.param([Sample(110, 5, 64)], None, id="one measurement without a start says nothing"),
        pytest.param([Sample(110, 5, 64), Sample(120, 3, 64)], None, id="a counter that went back says nothing"),
    ],
)
def test_usage_is_computed_from_two_measurements(samples: list[Sample], expected: Usage | None) -> None:
    history = UsageHistory()
    for sample in samples:
        history.add({KEY: sample})
    assert history.usages.get(KEY) == expected


def test_a_pod_has_the_usage_of_its_containers() -> None:
    containers = [("a", Usage(0.25, 1 << 20, 10, 1700000000)), ("b", Usage(0.001, 2048, 10, 1700000001))]
    assert pod_usage({"name": "web", "labels": {"app": "web"}}, "shop", containers) == {
        "metadata": {"name": "web", "namespace": "shop", "labels": {"app": "web"}, "creationTimestamp": "2023-11-14T22:13:20Z"},
        "timestamp": "2023-11-14T22:13:20Z",
        "window": "10.000s",
        "containers": [
            {"name": "a", "usage": {"cpu": "250000000n", "memory": "1024Ki"}},
            {"name": "b", "usage": {"cpu": "1000000n", "memory": "2Ki"}},
        ],
    }
