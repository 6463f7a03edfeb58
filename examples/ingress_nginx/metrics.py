"""Metrics under the names and with the labels of ingress-nginx, so that its dashboards and alerts work."""

from __future__ import annotations

import contextlib
import hashlib
import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Protocol, TypeVar

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import NameOID
from prometheus_client import CollectorRegistry, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from examples.ingress_nginx.controller import SyncReport
from examples.ingress_nginx.ingress.classes import CONTROLLER
from examples.ingress_nginx.model.configuration import Backend, Certificate, Changes, Configuration
from examples.ingress_nginx.nginx.lua_server import RequestCount
from examples.ingress_nginx.nginx.server import NginxError
from examples.ingress_nginx.webhook import AdmissionReport
from kubeloop.timing import Clock
from kubeloop.version import VERSION

K = TypeVar("K")

PREFIX: Final = "nginx_ingress_controller"
#: Seconds between two reads of NGINX's connection counters.
POLL_SECONDS: Final = 10.0
_REPLICA = ("controller_namespace", "controller_class", "controller_pod")
_CERTIFICATE = ("namespace", "class", "host", "secret_name", "identifier")
_CERTIFICATE_INFO = (*_CERTIFICATE, "issuer_organization", "issuer_common_name", "serial_number", "public_key_algorithm")
_STATUS = re.compile(rb"Active connections: (\d+)\s+server accepts handled requests\s+(\d+) (\d+) (\d+)\s+")
_STATES = re.compile(rb"Reading: (\d+) Writing: (\d+) Waiting: (\d+)")
_KEY_ALGORITHMS = ((rsa.RSAPublicKey, "RSA"), (ec.EllipticCurvePublicKey, "ECDSA"), (ed25519.Ed25519PublicKey, "Ed25519"))


@dataclass(frozen=True, slots=True)
class ReplicaName:
    """The labels that all metrics of a replica have."""

    namespace: str = ""
    controller_class: str = CONTROLLER
    pod: str = ""

    @property
    def labels(self) -> tuple[str, str, str]:
        return (self.namespace, self.controller_class, self.pod)


@dataclass(frozen=True, slots=True)
class ConnectionCounts:
    """NGINX's own counters: connections by state, and requests."""

    active: int
    accepted: int
    handled: int
    requests: int
    reading: int
    writing: int
    waiting: int

    @staticmethod
    def parse(text: bytes) -> ConnectionCounts:
        """Read the page of NGINX's module ngx_http_stub_status_module; raises NginxError."""
        counts, states = _STATUS.search(text), _STATES.search(text)
        if counts is None or states is None:
            raise NginxError("the page of NGINX's counters has an unknown format; is its location stub_status?")
        return ConnectionCounts(*(int(number) for number in (*counts.groups(), *states.groups())))


class RequestLabels(NamedTuple):
    """Labels of ``nginx_ingress_controller_requests``, apart from those of the replica."""

    host: str
    path: str
    namespace: str
    ingress: str
    service: str
    canary: str
    method: str
    status: str


class CounterSource(Protocol):
    """Reads the counters of an NGINX."""

    async def connection_page(self) -> bytes:
        """Return the page of stub_status. Raises NginxError."""

    async def request_counts(self) -> list[RequestCount]:
        """Return how many requests of each route NGINX has answered. Raises NginxError."""


class ConfigurationHash:
    """A number that two replicas share if and only if they serve the same configuration.

    It is the exclusive or of the digests of all parts, so that a change costs no more than the changed parts.
    """

    def __init__(self) -> None:
        self._digests: dict[tuple[str, object], int] = {}
        self.value = 0

    def update(self, configuration: Configuration, changes: Changes) -> None:
        """Take over the changed parts of a configuration."""
        self._replace("servers", configuration.servers, changes.servers)
        self._replace("backends", configuration.backends, changes.backends)
        self._replace("certificates", configuration.certificates, changes.certificates)
        self._replace("settings", {"": configuration.settings}, [""])

    def _replace(self, kind: str, parts: Mapping[K, object], names: Iterable[K]) -> None:
        for name in names:
            part = parts.get(name)
            self.value ^= self._digests.pop((kind, name), 0)
            if part is not None:
                # Six bytes: a float, which metrics are, holds 53 bits. The representation of a certificate has no key, but its chain.
                digest = hashlib.blake2b(f"{kind} {name!r} {part!r}".encode(), digest_size=6).digest()
                self._digests[kind, name] = int.from_bytes(digest, "big")
                self.value ^= self._digests[kind, name]


@dataclass(slots=True)
class MetricSources:
    """Where the values that are computed for each scrape come from.

    Attributes:
        configuration: Returns the configuration of the replica.
        leading: Reports whether this replica is the leader; None: there is no election.
        election: Name of the Lease.
        service_exists: Reports whether a Service exists, by namespace and name.
    """

    configuration: Callable[[], Configuration]
    leading: Callable[[], bool] | None = None
    election: str = ""
    service_exists: Callable[[str, str], bool] = lambda _namespace, _name: True


@dataclass(slots=True)
class _Totals:
    reloads: int = 0
    errors: int = 0
    checks: Counter[tuple[str, str]] = field(default_factory=Counter)
    check_errors: Counter[tuple[str, str]] = field(default_factory=Counter)
    successful: bool = False
    successful_at: float = 0.0
    check_seconds: float = 0.0


class IngressMetrics(Collector):
    """Metrics of one replica.

    Counters such as ``nginx_ingress_controller_success`` have no suffix ``_total``, as in the original, and are untyped for that reason:
    the text format of prometheus_client adds the suffix to each counter. Queries work alike.

    Guarantees:
        ``config_last_reload_successful`` is 1 again after the next sync that succeeds, whether it needs a reload or not.

    Args:
        registry: Gets the metrics.
        replica: Labels of the replica.
        sources: Where values of a scrape come from.
        now: Returns seconds since 1970.
    """

    def __init__(
        self, registry: CollectorRegistry, replica: ReplicaName, sources: MetricSources, *, now: Callable[[], float] = time.time
    ) -> None:
        self._replica = replica
        self._sources = sources
        self._now = now
        self._totals = _Totals()
        self._hash = ConfigurationHash()
        self._connections: ConnectionCounts | None = None
        self._requests: Mapping[RequestLabels, int] = {}
        self._certificates: dict[str, tuple[Certificate, tuple[str, ...]]] = {}
        seconds = Histogram(
            f"{PREFIX}_sync_duration_seconds", "Time from the start of a sync until NGINX serves it.", _REPLICA, registry=None
        )
        self._seconds = seconds.labels(*replica.labels)
        registry.register(self)
        registry.register(seconds)

    def observe_sync(self, report: SyncReport) -> None:
        """Record a sync."""
        totals = self._totals
        self._seconds.observe(report.seconds)
        if report.error:
            totals.errors += 1
            totals.successful = False
            return
        totals.successful = True
        self._hash.update(self._sources.configuration(), report.changes)
        if report.applied.reloaded or report.applied.reason == "start":
            totals.reloads += 1
            totals.successful_at = self._now()

    def observe_admission(self, report: AdmissionReport) -> None:
        """Record a decision of the webhook."""
        (self._totals.checks if report.allowed else self._totals.check_errors)[report.namespace, report.name] += 1
        self._totals.check_seconds = report.seconds

    def observe_connections(self, counts: ConnectionCounts | None) -> None:
        """Record NGINX's counters. None: they are unknown, and are left out until they are known."""
        self._connections = counts

    def observe_requests(self, totals: Mapping[RequestLabels, int]) -> None:
        """Record the numbers of requests since the start of NGINX."""
        self._requests = totals

    async def poll(self, nginx: CounterSource, clock: Clock) -> None:
        """Read NGINX's counters every ten seconds, until the task is cancelled."""
        while True:
            try:
                self.observe_connections(ConnectionCounts.parse(await nginx.connection_page()))
            except NginxError:
                self.observe_connections(None)
            with contextlib.suppress(NginxError):
                backends = self._sources.configuration().backends
                self.observe_requests({_labels_of(count, backends): count.count for count in await nginx.request_counts()})
            await clock.sleep(POLL_SECONDS)

    def describe(self) -> Iterable[Metric]:
        """Return no metrics: they depend on the state, and the registry need not compare their names."""
        return ()

    def collect(self) -> Iterator[Metric]:
        build = _gauge(f"{PREFIX}_build_info", "1, with the version of the controller.", (*_REPLICA, "release"))
        build.add_metric((*self._replica.labels, VERSION), 1)
        yield build
        yield from self._sync_metrics()
        yield from self._check_metrics()
        yield from self._certificate_metrics()
        yield self._orphans()
        yield from self._nginx_metrics()
        if self._sources.leading is not None:
            leader = _gauge(f"{PREFIX}_leader_election_status", "1: this replica is the leader.", (*_REPLICA, "name"))
            leader.add_metric((*self._replica.labels, self._sources.election), float(self._sources.leading()))
            yield leader

    def _sync_metrics(self) -> Iterator[Metric]:
        totals, labels = self._totals, self._replica.labels
        yield _count(f"{PREFIX}_success", "Reloads of NGINX, its start included.", _REPLICA, [(labels, totals.reloads)])
        yield _count(f"{PREFIX}_errors", "Syncs that NGINX refused.", _REPLICA, [(labels, totals.errors)])
        gauges = {
            "config_hash": ("Hash of the served configuration; 0 after an error.", self._hash.value if totals.successful else 0),
            "config_last_reload_successful": ("1: the last sync succeeded.", float(totals.successful)),
            "config_last_reload_successful_timestamp_seconds": ("Time of the last successful reload.", totals.successful_at),
        }
        for name, (text, value) in gauges.items():
            gauge = _gauge(f"{PREFIX}_{name}", text, _REPLICA)
            gauge.add_metric(labels, value)
            yield gauge

    def _check_metrics(self) -> Iterator[Metric]:
        labels, names = self._replica.labels, (*_REPLICA, "namespace", "ingress")
        for name, text, counts in (
            ("check_success", "Ingresses that the webhook allowed.", self._totals.checks),
            ("check_errors", "Ingresses that the webhook refused.", self._totals.check_errors),
        ):
            yield _count(f"{PREFIX}_{name}", text, names, [((*labels, *key), count) for key, count in counts.items()])
        tested = _gauge(f"{PREFIX}_admission_tested_ingresses", "Ingresses of the last decision of the webhook.", _REPLICA)
        tested.add_metric(labels, float(bool(self._totals.checks or self._totals.check_errors)))
        yield tested
        for name in ("admission_tested_duration", "admission_roundtrip_duration"):
            duration = _gauge(f"{PREFIX}_{name}", "Seconds of the last decision of the webhook.", _REPLICA)
            duration.add_metric(labels, self._totals.check_seconds)
            yield duration

    def _certificate_metrics(self) -> Iterator[Metric]:
        expiry = _gauge(f"{PREFIX}_ssl_expire_time_seconds", "Seconds from 1970 to the expiry of a host's certificate.", _CERTIFICATE)
        info = _gauge(f"{PREFIX}_ssl_certificate_info", "The certificate of a host.", _CERTIFICATE_INFO)
        configuration = self._sources.configuration()
        for server in configuration.servers.values():
            certificate = configuration.certificates.get(server.certificate)
            if certificate is not None and certificate.chain:
                secret = certificate.name.rpartition("/")[2]
                identity = self._certificate_labels(certificate)
                labels = (self._replica.namespace, self._replica.controller_class, server.host, secret)
                expiry.add_metric((*labels, identity[0]), certificate.not_after)
                info.add_metric((*labels, *identity), 1)
        for name in self._certificates.keys() - configuration.certificates.keys():
            del self._certificates[name]
        yield expiry
        yield info

    def _certificate_labels(self, certificate: Certificate) -> tuple[str, ...]:
        known = self._certificates.get(certificate.name)
        if known is None or known[0] != certificate:
            known = self._certificates[certificate.name] = (certificate, _identity_of(certificate))
        return known[1]

    def _orphans(self) -> Metric:
        orphans = _gauge(
            f"{PREFIX}_orphan_ingress", "1: an Ingress has a backend without endpoints.", (*_REPLICA, "namespace", "ingress", "type")
        )
        configuration = self._sources.configuration()
        found: set[tuple[str, str, str]] = set()
        for server in configuration.servers.values():
            for route in (route for location in server.locations for route in location.routes):
                for target in route.targets:
                    backend = configuration.backends.get(target.backend)
                    if backend is not None and not backend.endpoints and route.origin.startswith("Ingress "):
                        namespace, _, name = route.origin.removeprefix("Ingress ").partition("/")
                        service = backend.origin.rpartition(":")[0].partition("/")
                        exists = self._sources.service_exists(service[0], service[2])
                        found.add((namespace, name, "no-endpoint" if exists else "no-service"))
        for labels in sorted(found):
            orphans.add_metric((*self._replica.labels, *labels), 1)
        return orphans

    def _nginx_metrics(self) -> Iterator[Metric]:
        labels, counts = self._replica.labels, self._connections
        if counts is not None:
            total = CounterMetricFamily(f"{PREFIX}_nginx_process_connections_total", "Connections by state.", labels=(*_REPLICA, "state"))
            for state in ("active", "accepted", "handled"):
                total.add_metric((*labels, state), getattr(counts, state))
            yield total
            current = _gauge(f"{PREFIX}_nginx_process_connections", "Open connections by state.", (*_REPLICA, "state"))
            for state in ("reading", "writing", "waiting"):
                current.add_metric((*labels, state), getattr(counts, state))
            yield current
            requests = CounterMetricFamily(f"{PREFIX}_nginx_process_requests_total", "Requests of clients.", labels=_REPLICA)
            requests.add_metric(labels, counts.requests)
            yield requests
        names = (*_REPLICA, *RequestLabels._fields)
        samples = [((*labels, *key), number) for key, number in self._requests.items()]
        yield _count(f"{PREFIX}_requests", "Requests of clients by Ingress.", names, samples)


def _gauge(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=labels)


def _count(name: str, text: str, labels: tuple[str, ...], samples: Iterable[tuple[tuple[str, ...], float]]) -> Metric:
    """Return a counter whose name has no suffix."""
    metric = Metric(name, text, "unknown")
    for values, number in samples:
        metric.add_sample(name, dict(zip(labels, values, strict=True)), number)
    return metric


def _identity_of(certificate: Certificate) -> tuple[str, ...]:
    """Return the values of the labels from ``identifier`` on."""
    first = x509.load_pem_x509_certificate(certificate.chain.encode())
    names = {
        oid: "".join(str(found.value) for found in first.issuer.get_attributes_for_oid(oid))
        for oid in (NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME)
    }
    serial = str(first.serial_number)
    algorithm = next((name for kind, name in _KEY_ALGORITHMS if isinstance(first.public_key(), kind)), "unknown")
    return (f"{certificate.name}-{serial}", names[NameOID.ORGANIZATION_NAME], names[NameOID.COMMON_NAME], serial, algorithm)


def _labels_of(count: RequestCount, backends: Mapping[str, Backend]) -> RequestLabels:
    """Return the labels of a route's requests."""
    namespace, _, ingress = count.origin.removeprefix("Ingress ").partition("/")
    path = count.path or ("/" if count.origin else "")
    backend = backends.get(count.backend)
    # The origin is NAMESPACE/SERVICE:PORT. A backend that is gone has its name only.
    service = count.backend if backend is None else backend.origin.rpartition(":")[0].partition("/")[2]
    return RequestLabels(count.host, path, namespace, ingress, service, "", count.method, str(count.status))
