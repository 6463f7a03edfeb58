"""A cluster as tables, and short functions that make its objects."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeVar

from examples.ingress_nginx.ingress.builder import ObjectRef
from kubeloop.api.core.v1 import ConfigMap, Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.api.networking.v1 import Ingress, IngressClass
from kubeloop.meta import Resource
from kubeloop.pki import CertificateAuthority

R = TypeVar("R", bound=Resource)

AUTHORITY = CertificateAuthority.create("tests")


class ClusterTable:
    """The objects of a cluster by kind, namespace and name."""

    def __init__(self, *objects: Resource) -> None:
        self._objects: dict[ObjectRef, Resource] = {}
        self.set(ingress_class("kubeloop"), *objects)

    def set(self, *objects: Resource) -> list[ObjectRef]:
        """Store objects, and return what an informer would report."""
        for found in objects:
            self._objects[type(found).__name__, found.metadata.namespace or "", found.metadata.name] = found
        return [_reported(found) for found in objects]

    def delete(self, kind: type[Resource], namespace: str, name: str) -> list[ObjectRef]:
        return [_reported(self._objects.pop((kind.__name__, namespace, name)))]

    def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        found = self._objects.get((kind.__name__, namespace, name))
        return found if isinstance(found, kind) else None

    def all(self, kind: type[R]) -> list[R]:
        return [found for found in self._objects.values() if isinstance(found, kind)]

    def ingresses(self) -> Iterable[Ingress]:
        return self.all(Ingress)

    def ingress(self, namespace: str, name: str) -> Ingress | None:
        return self.get(Ingress, namespace, name)

    def ingress_class(self, name: str) -> IngressClass | None:
        return self.get(IngressClass, "", name)

    def service(self, namespace: str, name: str) -> Service | None:
        return self.get(Service, namespace, name)

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]:
        return [
            found
            for found in self.all(EndpointSlice)
            if found.metadata.namespace == namespace and found.metadata.labels.get("kubernetes.io/service-name") == service
        ]

    def secret(self, namespace: str, name: str) -> Secret | None:
        return self.get(Secret, namespace, name)

    def config_map(self, namespace: str, name: str) -> ConfigMap | None:
        return self.get(ConfigMap, namespace, name)


def _reported(resource: Resource) -> ObjectRef:
    metadata = resource.metadata
    name = metadata.labels["kubernetes.io/service-name"] if isinstance(resource, EndpointSlice) else metadata.name
    return type(resource).__name__, metadata.namespace or "", name


def ingress(
    name: str,
    *rules: str,
    age: int = 0,
    ingress_class_name: str | None = "kubeloop",
    tls: Iterable[str] = (),
    default: str = "",
    **annotations: Any,
) -> Ingress:
    """Return an Ingress of the namespace shop.

    Args:
        name: Its name.
        rules: Rules as ``HOST PATH SERVICE:PORT``, with ``=`` before an exact path and ``~`` before an expression; host ``*``: none.
        age: Seconds after midnight at which it was created.
        ingress_class_name: Its class.
        tls: Entries as ``SECRET HOST HOST``.
        default: Default backend as ``SERVICE:PORT``.
        annotations: Annotations without prefix, with underscores in place of dashes.
    """
    hosts: dict[str, list[dict[str, Any]]] = {}
    for rule in rules:
        host, path, service = rule.split(" ")
        kind = {"=": "Exact", "~": "ImplementationSpecific"}.get(path[0], "Prefix")
        hosts.setdefault(host, []).append({"path": path.lstrip("=~"), "pathType": kind, "backend": _backend(service)})
    spec: dict[str, Any] = {
        "ingressClassName": ingress_class_name,
        "rules": [{**({} if host == "*" else {"host": host}), "http": {"paths": paths}} for host, paths in hosts.items()],
        "tls": [{"secretName": entry.split(" ")[0], "hosts": entry.split(" ")[1:]} for entry in tls],
    }
    if default:
        spec["defaultBackend"] = _backend(default)
    prefixed = {f"nginx.ingress.kubernetes.io/{name.replace('_', '-')}": value for name, value in annotations.items()}
    created = f"2026-01-01T{age // 3600:02}:{age // 60 % 60:02}:{age % 60:02}Z"
    metadata = {"name": name, "namespace": "shop", "creationTimestamp": created, "annotations": prefixed}
    return Ingress.from_dict({"metadata": metadata, "spec": spec})


def _backend(text: str) -> dict[str, Any]:
    name, _, port = text.partition(":")
    return {"service": {"name": name, "port": {"number": int(port)} if port.isdigit() else {"name": port}}}


def ingress_class(name: str, controller: str = "kubeloop.dev/ingress-controller") -> IngressClass:
    return IngressClass.from_dict({"metadata": {"name": name}, "spec": {"controller": controller}})


def service(name: str, port: int = 80, **spec: Any) -> Service:
    ports = [{"name": "http", "port": port, "targetPort": 8080}]
    return Service.from_dict({"metadata": {"name": name, "namespace": "shop"}, "spec": {"ports": ports, "clusterIP": "10.96.0.9", **spec}})


def slice_of(name: str, *addresses: str, port: int = 8080, ready: bool | None = None, suffix: str = "1") -> EndpointSlice:
    endpoints = [{"addresses": [address], "conditions": {} if ready is None else {"ready": ready}} for address in addresses]
    labels = {"kubernetes.io/service-name": name}
    metadata = {"name": f"{name}-{suffix}", "namespace": "shop", "labels": labels}
    ports = [{"name": "http", "port": port, "protocol": "TCP"}]
    return EndpointSlice.from_dict({"metadata": metadata, "addressType": "IPv4", "endpoints": endpoints, "ports": ports})


def tls_secret(name: str, *hosts: str) -> Secret:
    issued = AUTHORITY.issue(hosts[0], dns_names=hosts, server=True)
    found = Secret.from_dict({"metadata": {"name": name, "namespace": "shop"}, "type": "kubernetes.io/tls"})
    found.data = {"tls.crt": issued.certificate, "tls.key": issued.key}
    return found
