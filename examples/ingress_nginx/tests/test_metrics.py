"""The metrics: names, labels and values as a scrape shows them."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import pytest
from cryptography.x509 import load_pem_x509_certificate
from prometheus_client import CollectorRegistry, generate_latest

from examples.ingress_nginx.controller import SyncReport
from examples.ingress_nginx.ingress.builder import IngressBuilder
from examples.ingress_nginx.metrics import (
    POLL_SECONDS,
    ConfigurationHash,
    ConnectionCounts,
    IngressMetrics,
    MetricSources,
    ReplicaName,
    RequestLabels,
)
from examples.ingress_nginx.model.configuration import Changes
from examples.ingress_nginx.nginx.lua_server import RequestCount
from examples.ingress_nginx.nginx.server import ApplyResult, NginxError
from examples.ingress_nginx.tests.objects import ClusterTable, ingress, service, slice_of, tls_secret
from examples.ingress_nginx.webhook import AdmissionReport
from kubeloop.meta import Resource
from kubeloop.timing import FakeClock

REPLICA = 'controller_class="kubeloop.dev/ingress-controller",controller_namespace="ingress",controller_pod="pod-1"'
STUB_STATUS = b"Active connections: 7 \nserver accepts handled requests\n 40 39 101 \nReading: 1 Writing: 2 Waiting: 4 \n"
RELOADED, APPLIED, STARTED = ApplyResult(reloaded=True), ApplyResult(reloaded=False), ApplyResult(reloaded=False, reason="start")


class MetricsStage:
    """Metrics of a configuration that the test makes of objects."""

    def __init__(self, *objects: Resource) -> None:
        self.cluster = ClusterTable(*objects)
        self.builder = IngressBuilder(self.cluster)
        self.changes = self.builder.rebuild()
        self.leading = False
        self.registry = CollectorRegistry()
        sources = MetricSources(
            lambda: self.builder.configuration,
            leading=lambda: self.leading,
            election="ingress-leader",
            service_exists=lambda namespace, name: self.cluster.service(namespace, name) is not None,
        )
        self.metrics = IngressMetrics(self.registry, ReplicaName("ingress", pod="pod-1"), sources, now=lambda: 1000.0)

    def sync(self, applied: ApplyResult, error: str = "") -> None:
        self.metrics.observe_sync(SyncReport(self.changes, applied, 0.5, error=error))

    def value(self, metric: str, **labels: str) -> float | None:
        """Return the value of a metric with the labels of the replica."""
        replica = {"controller_class": "kubeloop.dev/ingress-controller", "controller_namespace": "ingress", "controller_pod": "pod-1"}
        return self.registry.get_sample_value(metric, {**replica, **labels})

    def lines(self, name: str) -> list[str]:
        return [line for line in generate_latest(self.registry).decode().splitlines() if line.startswith(f"{name}{{")]


def test_syncs_are_counted_and_a_success_after_an_error_shows() -> None:
    stage = MetricsStage()
    shown = []
    for applied, error in ((STARTED, ""), (RELOADED, ""), (RELOADED, "refused"), (APPLIED, "")):
        stage.sync(applied, error)
        names = ("success", "errors", "config_last_reload_successful", "config_last_reload_successful_timestamp_seconds")
        shown.append([stage.value(f"nginx_ingress_controller_{name}") for name in names])
    assert shown == [[1, 0, 1, 1000], [2, 0, 1, 1000], [2, 1, 0, 1000], [2, 1, 1, 1000]]
    assert stage.value("nginx_ingress_controller_sync_duration_seconds_count") == 4
    assert stage.value("nginx_ingress_controller_sync_duration_seconds_sum") == 2


def test_a_counter_has_the_name_of_the_original_without_a_suffix() -> None:
    stage = MetricsStage()
    stage.sync(RELOADED)
    assert stage.lines("nginx_ingress_controller_success") == [f"nginx_ingress_controller_success{{{REPLICA}}} 1.0"]


def test_the_hash_is_that_of_the_configuration_however_it_came_about() -> None:
    old, new = (
        MetricsStage(service("web"), slice_of("web", *ips), ingress("web", "a.test / web:80")) for ips in (["10.0.0.1"], ["10.0.0.2"])
    )
    by_steps, at_once = ConfigurationHash(), ConfigurationHash()
    by_steps.update(old.builder.configuration, old.changes)
    before = by_steps.value
    by_steps.update(new.builder.configuration, Changes(backends={"shop-web-80"}))
    at_once.update(new.builder.configuration, new.changes)
    assert by_steps.value == at_once.value != before
    by_steps.update(MetricsStage().builder.configuration, new.changes)
    at_once = ConfigurationHash()
    at_once.update(MetricsStage().builder.configuration, Changes(servers={((), "_")}))
    assert by_steps.value == at_once.value


def test_the_hash_is_0_after_an_error() -> None:
    stage = MetricsStage()
    stage.sync(STARTED)
    assert stage.value("nginx_ingress_controller_config_hash")
    stage.sync(RELOADED, "refused")
    assert stage.value("nginx_ingress_controller_config_hash") == 0


def test_certificates_have_their_expiry_and_their_issuer() -> None:
    secret = tls_secret("cert", "a.test")
    stage = MetricsStage(service("web"), ingress("web", "a.test / web:80", "b.test / web:80", tls=["cert a.test"]), secret)
    certificate = stage.builder.configuration.certificates["shop/cert"]
    labels = {"namespace": "ingress", "class": "kubeloop.dev/ingress-controller", "host": "a.test", "secret_name": "cert"}
    labels["identifier"] = f"shop/cert-{load_pem_x509_certificate(certificate.chain.encode()).serial_number}"
    assert stage.registry.get_sample_value("nginx_ingress_controller_ssl_expire_time_seconds", labels) == certificate.not_after
    (line,) = stage.lines("nginx_ingress_controller_ssl_certificate_info")
    assert 'issuer_common_name="tests"' in line
    assert 'public_key_algorithm="ECDSA"' in line
    assert "PRIVATE" not in line


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        pytest.param([], "no-service", id="an Ingress without its service"),
        pytest.param([service("web"), slice_of("web", "10.0.0.1", ready=False)], "no-endpoint", id="an Ingress without ready endpoints"),
        pytest.param([service("web"), slice_of("web", "10.0.0.1")], None, id="an Ingress with an endpoint is no orphan"),
    ],
)
def test_an_orphan(objects: list[Resource], expected: str | None) -> None:
    stage = MetricsStage(ingress("web", "a.test / web:80"), *objects)
    found = [
        kind
        for kind in ("no-service", "no-endpoint")
        if stage.value("nginx_ingress_controller_orphan_ingress", namespace="shop", ingress="web", type=kind)
    ]
    assert found == ([expected] if expected else [])


def test_decisions_of_the_webhook_are_counted() -> None:
    stage = MetricsStage()
    for allowed in (True, True, False):
        stage.metrics.observe_admission(AdmissionReport("shop", "web", allowed, 0.25))
    assert stage.value("nginx_ingress_controller_check_success", namespace="shop", ingress="web") == 2
    assert stage.value("nginx_ingress_controller_check_errors", namespace="shop", ingress="web") == 1
    assert stage.value("nginx_ingress_controller_admission_roundtrip_duration") == 0.25


def test_the_leader_shows() -> None:
    stage = MetricsStage()
    assert stage.value("nginx_ingress_controller_leader_election_status", name="ingress-leader") == 0
    stage.leading = True
    assert stage.value("nginx_ingress_controller_leader_election_status", name="ingress-leader") == 1


def test_the_counters_of_nginx_show_while_they_are_known() -> None:
    stage = MetricsStage()
    assert stage.value("nginx_ingress_controller_nginx_process_requests_total") is None
    stage.metrics.observe_connections(ConnectionCounts.parse(STUB_STATUS))
    totals = [
        stage.value("nginx_ingress_controller_nginx_process_connections_total", state=state) for state in ("active", "accepted", "handled")
    ]
    current = [
        stage.value("nginx_ingress_controller_nginx_process_connections", state=state) for state in ("reading", "writing", "waiting")
    ]
    assert (totals, current, stage.value("nginx_ingress_controller_nginx_process_requests_total")) == ([7, 40, 39], [1, 2, 4], 101)
    stage.metrics.observe_connections(None)
    assert stage.value("nginx_ingress_controller_nginx_process_requests_total") is None


def test_another_page_is_an_error() -> None:
    with pytest.raises(NginxError, match="unknown format"):
        ConnectionCounts.parse(b"<html>")


def test_requests_have_the_labels_of_the_original() -> None:
    stage = MetricsStage()
    labels = RequestLabels("a.test", "/", "shop", "web", "web", "", "GET", "200")
    stage.metrics.observe_requests({labels: 3})
    assert stage.value("nginx_ingress_controller_requests", **labels._asdict()) == 3


@dataclass
class ScriptedCounters:
    """Counters of an NGINX that returns one page after the other."""

    pages: list[bytes]

    async def connection_page(self) -> bytes:
        return self.pages.pop(0)

    async def request_counts(self) -> list[RequestCount]:
        return [RequestCount(7, 200, "Ingress shop/web", "a.test", "", "shop-web-80", "GET")]


async def test_nginx_is_asked_every_ten_seconds_and_an_error_hides_its_counters() -> None:
    stage, clock = MetricsStage(ingress("web", "a.test / web:80"), service("web")), FakeClock()
    nginx = ScriptedCounters([STUB_STATUS, b"<html>", STUB_STATUS])
    shown = []
    task = asyncio.create_task(stage.metrics.poll(nginx, clock))
    for _ in range(2):
        await asyncio.sleep(0)
        shown.append(stage.value("nginx_ingress_controller_nginx_process_requests_total"))
        await clock.advance(POLL_SECONDS)
    shown.append(stage.value("nginx_ingress_controller_nginx_process_requests_total"))
    task.cancel()
    assert (shown, nginx.pages) == ([101, None, 101], [])
    labels = {"host": "a.test", "path": "/", "namespace": "shop", "ingress": "web", "service": "web", "method": "GET", "status": "200"}
    assert stage.value("nginx_ingress_controller_requests", **labels, canary="") == 7
