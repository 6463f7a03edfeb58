"""Reads the objects of the cluster from the caches of a controller."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from kubeloop.api.core.v1 import ConfigMap, Namespace, Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressClass
from kubeloop.cache import Lister
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)

#: Name of the index of EndpointSlices by the namespace and name of their service.
BY_SERVICE = "service"


class CachedObjects:
    """The cluster's objects, as the caches have them now.

    Args:
        lister: Returns the lister of a kind.
    """

    def __init__(self, lister: Callable[[type[Any]], Lister[Any]]) -> None:
        self._lister = lister

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        found: R | None = self._lister(kind).get(name, namespace or None)
        return found

    def list(self, kind: type[R]) -> list[R]:
        found: list[R] = self._lister(kind).list()
        return found

    def ingresses(self) -> Iterable[Ingress]:
        return self.list(Ingress)

    def ingress(self, namespace: str, name: str) -> Ingress | None:
        return self.get(Ingress, namespace, name)

    def ingress_class(self, name: str) -> IngressClass | None:
        return self.get(IngressClass, "", name)

    def service(self, namespace: str, name: str) -> Service | None:
        return self.get(Service, namespace, name)

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        return [found for found in self._lister(EndpointSlice).by_index(BY_SERVICE, service) if found.metadata.namespace == namespace]

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self.get(Secret, namespace, name)

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self.get(ConfigMap, namespace, name)

    def namespace(self, name: str) -> Namespace | None:
        return self.get(Namespace, "", name)
