"""The backends that servers use, with the endpoints of their services."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from examples.ingress_nginx.ingress.endpoints import EndpointError, endpoints_of
from examples.ingress_nginx.ingress.records import USUAL_BALANCING, Balancing, ClusterObjects, IngressRecord, Key, ServiceRef
from examples.ingress_nginx.model.configuration import DEFAULT_BACKEND, Backend, Endpoint


@dataclass(slots=True)
class _Entry:
    backend: Backend
    service: ServiceRef
    balancing: Balancing
    problem: str


class BackendTable:
    """Backends by name, each as long as a server uses it.

    Two Ingresses with the same service, port and annotations of balancing share a backend. Its name is ``NAMESPACE-SERVICE-PORT``, with a
    digest of these annotations where they differ from the defaults.

    Args:
        objects: Reads Services and EndpointSlices.
        external_names: Allow services of type ExternalName.
        default_service: Namespace and name of the service of the default backend.
    """

    def __init__(self, objects: ClusterObjects, *, external_names: bool, default_service: Key | None) -> None:
        self._objects = objects
        self._external_names = external_names
        self._default_service = default_service
        self._entries: dict[str, _Entry] = {}
        self._names: dict[tuple[ServiceRef, Balancing], str] = {}
        self._uses: Counter[str] = Counter()
        self._of_service: dict[Key, set[str]] = defaultdict(set)
        #: Ingresses whose servers depend on the presence of endpoints: those with a default backend in place of theirs.
        self._waiting: dict[str, set[Key]] = defaultdict(set)
        self._changed: set[str] = set()
        self._default: Backend | None = None

    def get(self, name: str) -> Backend | None:
        if name == DEFAULT_BACKEND:
            return self._default
        entry = self._entries.get(name)
        return None if entry is None else entry.backend

    def problem(self, name: str) -> str:
        """Return why a backend has no endpoints although its service should have them; empty: no problem."""
        entry = self._entries.get(name)
        return "" if entry is None else entry.problem

    def acquire(self, service: ServiceRef, record: IngressRecord) -> Backend:
        """Return the backend of a service's port, and count one use of it."""
        name = self._names.get((service, record.balancing)) or self._add(service, record.balancing)
        self._uses[name] += 1
        if record.annotations.default_backend or record.annotations.canary is not None:
            self._waiting[name].add(record.key)
        return self._entries[name].backend

    def first_port(self, namespace: str, name: str) -> ServiceRef | None:
        """Return the first port of a service; None: the service does not exist or has no port."""
        service = self._objects.service(namespace, name)
        return ServiceRef(namespace, name, service.spec.ports[0].port) if service is not None and service.spec.ports else None

    def release(self, names: Iterable[str]) -> None:
        """Count one use less of each backend. Backends without uses are removed when the changes are taken."""
        self._uses.subtract(names)
        self._changed.update(names)

    def refresh(self, namespace: str, service: str) -> set[Key]:
        """Build the backends of a service again, and return the Ingresses whose servers depend on the change."""
        concerned: set[Key] = set()
        for name in self._of_service.get((namespace, service), ()):
            entry = self._entries[name]
            endpoints, problem = self._endpoints(entry.service, entry.balancing)
            if bool(endpoints) != bool(entry.backend.endpoints) or problem != entry.problem:
                concerned |= self._waiting.get(name, set())
            entry.problem = problem
            if endpoints != entry.backend.endpoints:
                entry.backend = _backend(name, entry.service, entry.balancing, endpoints)
                self._changed.add(name)
        if (namespace, service) == self._default_service:
            self.refresh_default()
        return concerned

    def refresh_default(self) -> None:
        """Build the default backend again: the first port of its service."""
        self._default = None
        if self._default_service is not None:
            ref = self.first_port(*self._default_service)
            if ref is not None:
                self._default = _backend(DEFAULT_BACKEND, ref, USUAL_BALANCING, self._endpoints(ref, USUAL_BALANCING)[0])
        self._changed.add(DEFAULT_BACKEND)

    def take_changed(self) -> set[str]:
        """Return the names of the backends that changed since the last call, and remove those without uses."""
        changed, self._changed = self._changed, set()
        for name in changed:
            if name in self._entries and self._uses[name] <= 0:
                entry = self._entries.pop(name)
                del self._uses[name], self._names[entry.service, entry.balancing]
                self._waiting.pop(name, None)
                names = self._of_service[entry.service.namespace, entry.service.name]
                names.discard(name)
                if not names:
                    del self._of_service[entry.service.namespace, entry.service.name]
        return changed

    def _add(self, service: ServiceRef, balancing: Balancing) -> str:
        name = f"{service.namespace}-{service.name}-{service.port}"
        taken = self._entries.get(name)
        if balancing != USUAL_BALANCING or (taken is not None and taken.service != service):
            # A dash may be a part of a namespace and of a service: two services may have the same text.
            name = f"{name}-{hashlib.sha256(repr((service, balancing)).encode()).hexdigest()[:10]}"
        endpoints, problem = self._endpoints(service, balancing)
        self._entries[name] = _Entry(_backend(name, service, balancing, endpoints), service, balancing, problem)
        self._names[service, balancing] = name
        self._of_service[service.namespace, service.name].add(name)
        self._changed.add(name)
        return name

    def _endpoints(self, ref: ServiceRef, balancing: Balancing) -> tuple[tuple[Endpoint, ...], str]:
        service = self._objects.service(ref.namespace, ref.name)
        if service is None:
            return (), f"service {ref.namespace}/{ref.name} does not exist"
        slices = self._objects.slices(ref.namespace, ref.name)
        try:
            found = endpoints_of(service, ref.port, slices, external_names=self._external_names, cluster_ip=balancing.cluster_ip)
        except EndpointError as error:
            return (), str(error)
        return found, ""


def _backend(name: str, service: ServiceRef, balancing: Balancing, endpoints: tuple[Endpoint, ...]) -> Backend:
    origin = f"{service.namespace}/{service.name}:{service.port}"
    return Backend(name, endpoints, balancing.balance, balancing.affinity, balancing.hash_by, origin)
