"""What a scrape shows of requests: client-go's names, labels and buckets."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from kubeloop.meta import NotFound, TooManyRequests, TransportError
from kubeloop.timing import FakeClock, TokenBucket
from kubeloop.transport import Transport
from kubeloop.transport.instrumentation.counters import BYTES, SECONDS, RequestCounters
from kubeloop.transport.instrumentation.metrics import TransportMetrics
from tests.faults import DROP, FaultServer, Reply

DOCUMENT = Path(__file__).parents[3] / "docs" / "transport.md"


def test_the_document_names_every_metric_and_no_other() -> None:
    shown = {family.name + ("_total" if family.type == "counter" else "") for family in TransportMetrics(CollectorRegistry()).describe()}
    assert set(re.findall(r"`((?:rest|kubeloop)_client_\w+)`", DOCUMENT.read_text())) == shown


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


def scrape(registry: CollectorRegistry) -> dict[tuple[str, ...], float]:
    """Each sample: its name and label values, without the host."""
    found: dict[tuple[str, ...], float] = {}
    for family in text_string_to_metric_families(generate_latest(registry).decode()):
        for sample in family.samples:
            labels = [f"{name}={value}" for name, value in sorted(sample.labels.items()) if name != "host"]
            found[(sample.name, *labels)] = sample.value
    return found


async def test_requests_retries_durations_and_sizes_have_client_gos_names(registry: CollectorRegistry) -> None:
    clock = FakeClock()
    script = [Reply(429, headers={"Retry-After": "0"}), Reply(200, b"x" * 300), Reply(404), DROP]
    async with FaultServer(*script) as server, Transport(server.config(), clock=clock, limiter=TokenBucket(5, 10, clock)) as transport:
        transport.metrics(registry)
        await transport.request("POST", "/x", body=b"x" * 100)
        with pytest.raises(NotFound):
            await transport.request("GET", "/x")
        with pytest.raises(TransportError):
            await transport.request("PUT", "/x", body=b"")
        found = scrape(registry)
    assert found["rest_client_requests_total", "code=429", "method=POST"] == 1
    assert found["rest_client_requests_total", "code=200", "method=POST"] == 1
    assert found["rest_client_requests_total", "code=404", "method=GET"] == 1
    assert found["rest_client_requests_total", "code=<error>", "method=PUT"] == 1
    assert found["rest_client_request_retries_total", "code=200", "verb=POST"] == 1
    assert found["rest_client_request_duration_seconds_count", "verb=POST"] == 1
    assert found["rest_client_request_duration_seconds_count", "verb=PUT"] == 1
    assert found["rest_client_rate_limiter_duration_seconds_count", "verb=POST"] == 2
    assert found["rest_client_request_size_bytes_sum", "verb=POST"] == 200
    assert found["rest_client_response_size_bytes_sum", "verb=POST"] == 300
    assert found["rest_client_response_size_bytes_bucket", "le=256.0", "verb=POST"] == 0
    assert found["rest_client_response_size_bytes_bucket", "le=512.0", "verb=POST"] == 1
    assert found["rest_client_response_size_bytes_bucket", "le=+Inf", "verb=POST"] == 1
    assert found["rest_client_transport_cache_entries",] == 1
    assert found["kubeloop_client_connections_total",] == 1


async def test_streams_are_counted_as_requests_without_a_duration(registry: CollectorRegistry) -> None:
    async with FaultServer(Reply(chunks=[b"x"])) as server, Transport(server.config()) as transport:
        transport.metrics(registry)
        async with transport.stream("GET", "/api/v1/pods", query={"watch": True}):
            pass
        found = scrape(registry)
    assert found["rest_client_requests_total", "code=200", "method=GET"] == 1
    assert ("rest_client_request_duration_seconds_count", "verb=GET") not in found


async def test_transports_to_one_host_are_one_series_and_what_closed_ones_counted_stays(registry: CollectorRegistry) -> None:
    async with FaultServer(Reply()) as server:
        one, two = Transport(server.config()), Transport(server.config())
        one.metrics(registry)
        one.metrics(registry)
        two.metrics(registry)
        await asyncio.gather(one.request("GET", "/x"), two.request("GET", "/x"))
        await one.close()
        found = scrape(registry)
        assert found["rest_client_requests_total", "code=200", "method=GET"] == 2
        assert found["rest_client_transport_cache_entries",] == 1
        await two.close()
        assert scrape(registry)["rest_client_requests_total", "code=200", "method=GET"] == 2
        async with Transport(server.config()) as three:
            three.metrics(registry)
            await three.request("GET", "/x")
            assert scrape(registry)["rest_client_requests_total", "code=200", "method=GET"] == 3


async def test_the_host_is_a_label(registry: CollectorRegistry) -> None:
    async with FaultServer(Reply()) as server, Transport(server.config()) as transport:
        transport.metrics(registry)
        await transport.request("GET", "/x")
        assert f'host="127.0.0.1:{server.port}"' in generate_latest(registry).decode()


async def test_fewer_requests_at_a_time_after_429_show(registry: CollectorRegistry) -> None:
    async with FaultServer(Reply(429)) as server, Transport(server.config()) as transport:
        transport.metrics(registry)
        with pytest.raises(TooManyRequests):
            await transport.request("GET", "/x")
        found = scrape(registry)
    assert found["kubeloop_client_window",] == 50
    assert found["kubeloop_client_waiting",] == 0


async def test_a_name_that_is_looked_up_is_timed(registry: CollectorRegistry) -> None:
    async with FaultServer(Reply()) as server:
        config = server.config(server=f"https://localhost:{server.port}")
        async with Transport(config) as transport:
            transport.metrics(registry)
            await transport.request("GET", "/x")
            assert scrape(registry)["rest_client_dns_resolution_duration_seconds_count",] == 1


def test_figures_add_up() -> None:
    one, two = RequestCounters(), RequestCounters()
    for figures in (one, two):
        figures.tried(200, "GET", 0)
        figures.tried(None, "GET", 1)
        figures.latency["GET"].observe(0.3)
        figures.ca_reloads["success", "updated"] += 1
    one.add(two)
    assert dict(one.requests) == {("200", "GET"): 2, ("<error>", "GET"): 2}
    assert dict(one.retries) == {("<error>", "GET"): 2}
    assert one.latency["GET"].counts[SECONDS.index(0.5)] == 2
    assert one.latency["GET"].total == pytest.approx(0.6)
    assert one.ca_reloads["success", "updated"] == 2
    assert len(BYTES) == 11
