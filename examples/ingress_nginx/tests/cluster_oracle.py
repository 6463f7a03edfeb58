"""Predicts how an ingress controller answers, from the text of the Kubernetes documentation, and makes random changes of a cluster.

The oracle reads the objects as plain data and decides each request alone: it has no tables, no order of building, and no code of the
controller. The rules are those of https://kubernetes.io/docs/concepts/services-networking/ingress/ (path types, multiple matches, host
wildcards, default backend, TLS, class), and, where that page says nothing, of the controller's documentation: the older Ingress wins, a
service without ready endpoints is 503, the most specific host alone decides, and http:// is redirected where a host has a certificate.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from examples.ingress_nginx.tests.objects import ingress, ingress_class, service, slice_of, tls_secret
from kubeloop.api.core.v1 import Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressBackend, IngressClass
from kubeloop.meta import Resource

#: The controller's class, and the class that tests give to others and back.
CONTROLLER = "kubeloop.dev/ingress-controller"
HOSTS = ("a.test", "b.test", "*.wild.test", "x.wild.test", "*")
INGRESSES = 6
SERVICES = ("red", "green", "blue")
#: Paths of rules: ``=`` before exact ones.
RULE_PATHS = ("/", "/a", "/a/", "/a/b", "/ab", "=/", "=/a", "=/a/", "=/a/b/c")
REQUESTED_HOSTS = ("a.test", "b.test", "x.wild.test", "y.wild.test", "z.y.wild.test", "other.test")
REQUESTED_PATHS = ("/", "/a", "/a/", "/a/b", "/a/b/c", "/abc", "/ab/c", "/b")
SECRETS = {"cert-a": ("a.test",), "cert-wild": ("*.wild.test", "x.wild.test")}


@dataclass(frozen=True)
class Expected:
    """The answer to one request: a status, and the backends of which one answers if it is 200."""

    status: int
    backends: frozenset[str] = frozenset()


NOT_FOUND, UNAVAILABLE = Expected(404), Expected(503)


@dataclass
class ClusterOracle:
    """The objects of the namespace shop as the API server has them, and the answers that follow from them.

    ``backends``: name of the backend at each address.
    """

    backends: dict[str, str]
    objects: dict[tuple[type[Resource], str], Resource] = field(default_factory=dict)

    def of(self, kind: type[Any]) -> dict[str, Any]:
        return {name: found for (other, name), found in self.objects.items() if other is kind}

    def expect(self, host: str, path: str, *, https: bool) -> Expected:
        """Return the answer to a request."""
        served = self._served()
        chosen = self._host_of(host, served)
        if chosen is None:
            return NOT_FOUND
        owners = [found for found in served if any(rule.host == chosen for rule in found.spec.rules)]
        secure = chosen != "*" and any(not entry.hosts or chosen in entry.hosts for found in owners for entry in found.spec.tls)
        if not https and secure and self._decides(chosen, path, served) is not None:
            return Expected(308)
        decided = self._decides(chosen, path, served)
        return NOT_FOUND if decided is None else self._service(decided)

    def certificate(self, host: str) -> bytes | None:
        """Return the certificate that a client of a host sees; None: the default one."""
        served = self._served()
        chosen = self._host_of(host, served)
        if chosen is None or chosen == "*":
            return None
        for found in served:
            if not any(rule.host == chosen for rule in found.spec.rules):
                continue
            for entry in found.spec.tls:
                secret = self.objects.get((Secret, entry.secret_name or ""))
                if chosen in entry.hosts and isinstance(secret, Secret) and "tls.key" in secret.data:
                    return bytes(secret.data["tls.crt"])
        return None

    def _served(self) -> list[Ingress]:
        """Return the Ingresses of the controller's classes, the oldest first."""
        classes = {name for name, item in self.of(IngressClass).items() if item.spec.controller == CONTROLLER}
        mine = [found for found in self.of(Ingress).values() if found.spec.ingress_class_name in classes]
        return sorted(mine, key=lambda ingress: (str(ingress.metadata.creation_timestamp), ingress.metadata.name))

    @staticmethod
    def _host_of(host: str, served: list[Ingress]) -> str | None:
        """Return the most specific host of a rule that is equal to a host or covers it: a wildcard covers one label."""
        hosts = {rule.host or "*" for found in served for rule in found.spec.rules}
        if any(found.spec.default_backend is not None and not found.spec.rules for found in served):
            hosts.add("*")
        wildcard = "*." + host.partition(".")[2]
        return next((candidate for candidate in (host, wildcard, "*") if candidate in hosts), None)

    @staticmethod
    def _decides(host: str, path: str, served: list[Ingress]) -> tuple[str, Any] | None:
        """Return service and port of the path that gets a request: an exact one, else the longest prefix, else a default backend."""
        best: tuple[tuple[bool, int], tuple[str, Any]] | None = None
        for found in served:
            for rule in found.spec.rules:
                for item in rule.http.paths if (rule.host or "*") == host and rule.http is not None else ():
                    exact = item.path_type == "Exact"
                    elements = [element for element in (item.path or "/").split("/") if element]
                    wanted = [element for element in path.split("/") if element]
                    if (item.path == path) if exact else (wanted[: len(elements)] == elements):
                        rank = (exact, len(elements))
                        # Strictly better: of two equal paths the one of the older Ingress stays.
                        if best is None or rank > best[0]:
                            best = (rank, _named(item.backend))
        if best is not None:
            return best[1]
        for found in served:
            concerned = any((rule.host or "*") == host for rule in found.spec.rules) or (host == "*" and not found.spec.rules)
            if concerned and found.spec.default_backend is not None:
                return _named(found.spec.default_backend)
        return None

    def _service(self, backend: tuple[str, Any]) -> Expected:
        name, port = backend
        found = self.objects.get((Service, name))
        if not isinstance(found, Service) or not any(port in (each.port, each.name) for each in found.spec.ports):
            return UNAVAILABLE
        ready = {
            self.backends[endpoint.addresses[0]]
            for piece in self.of(EndpointSlice).values()
            if piece.metadata.labels["kubernetes.io/service-name"] == name
            for endpoint in piece.endpoints
            if endpoint.conditions.ready is not False
        }
        return Expected(200, frozenset(ready)) if ready else UNAVAILABLE


@dataclass
class RandomCluster:
    """Draws changes of a cluster from a seed. ``addresses``: those of the backends. ``port``: their port."""

    seed: int
    addresses: list[str]
    port: int

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def changes(self, count: int) -> Iterator[Resource | tuple[type[Resource], str]]:
        """Yield a cluster that serves its hosts, then so many changes.

        A change is an object to create or replace, or the kind and name of an object to delete.
        """
        yield from (service(name, clusterIP=None) for name in SERVICES)
        yield from (self._slice(name, number) for name in SERVICES for number in (1, 2))
        yield ingress_class("own", CONTROLLER)
        yield from (self._ingress(f"ing-{number}") for number in range(INGRESSES))
        for _ in range(count):
            yield self._change()

    def _change(self) -> Resource | tuple[type[Resource], str]:
        draw = self._random
        kind = draw.choices(["ingress", "slice", "service", "secret", "class"], [8, 6, 1, 2, 1])[0]
        deleted = draw.random() < 0.15
        match kind:
            case "ingress":
                name = f"ing-{draw.randrange(INGRESSES)}"
                return (Ingress, name) if deleted else self._ingress(name)
            case "slice":
                name, number = draw.choice(SERVICES), draw.randrange(1, 3)
                return (EndpointSlice, f"{name}-{number}") if deleted else self._slice(name, number)
            case "service":
                name = draw.choice(SERVICES)
                return (Service, name) if deleted else service(name, port=draw.choices([80, 81], [4, 1])[0], clusterIP=None)
            case "secret":
                name = draw.choice([*SECRETS])
                return (Secret, name) if deleted else tls_secret(name, *SECRETS[name])
            case _:
                return (IngressClass, "own") if deleted else ingress_class("own", draw.choice([CONTROLLER, CONTROLLER, "example.com/x"]))

    def _ingress(self, name: str) -> Ingress:
        draw = self._random
        hosts = draw.sample(HOSTS, draw.randrange(1, 4))
        rules = {f"{host} {path} {self._backend()}" for host in hosts for path in draw.sample(RULE_PATHS, draw.randrange(2, 6))}
        tls = []
        if draw.random() < 0.4:
            tls = [f"cert-a {' '.join(host for host in hosts if host == 'a.test')}".strip()] if "a.test" in hosts else []
            tls += [f"cert-wild {host}" for host in hosts if host.endswith("wild.test")]
        default = f"{draw.choice(SERVICES)}:80" if draw.random() < 0.2 else ""
        if default and draw.random() < 0.3:
            rules = set()
        class_name = draw.choices(["kubeloop", "own", "missing"], [4, 4, 1])[0]
        return ingress(name, *sorted(rules), ingress_class_name=class_name, tls=tls if rules else (), default=default)

    def _backend(self) -> str:
        """Return a service and its port: most exist."""
        name = self._random.choices([*SERVICES, "missing"], [5, 5, 5, 1])[0]
        return f"{name}:{self._random.choices(['80', 'http', '81'], [5, 4, 1])[0]}"

    def _slice(self, name: str, number: int) -> EndpointSlice:
        draw = self._random
        found = slice_of(name, *draw.sample(self.addresses, draw.choice([0, 1, 1, 2])), port=self.port, suffix=str(number))
        for endpoint in found.endpoints:
            endpoint.conditions.ready = draw.choice([True, None, False])
        return found


def _named(backend: IngressBackend) -> tuple[str, Any]:
    """Return the service of a backend, and the name or number of its port."""
    assert backend.service is not None
    return backend.service.name, backend.service.port.name or backend.service.port.number
