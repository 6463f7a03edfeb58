"""The target of a webhook call: the address, server name and trusted authorities that a ``clientConfig`` describes.

Source: admissionregistration.k8s.io/v1 WebhookClientConfig; k8s.io/apiserver pkg/util/webhook/client.go.
"""

from __future__ import annotations

import base64
import posixpath
import random
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from kubeloop.apiserver.outbound.failure import CallFailed, NotCallable
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.tls import client_tls
from kubeloop.types import JSONObject

_HTTPS = 443


@dataclass(frozen=True, slots=True)
class ServiceName:
    """A service of the cluster, to be resolved at each call."""

    namespace: str
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """The server of a webhook.

    ``authority`` is host and port as in URLs and the Host header. ``host`` is the name that the certificate must be valid for.
    ``ca`` is the PEM bundle of trusted authorities; if it is empty, the authorities of the system are trusted.
    """

    authority: str
    host: str
    port: int
    path: str
    ca: bytes
    service: ServiceName | None = None

    @property
    def url(self) -> str:
        return f"https://{self.authority}{self.path}"


def trust(bundle: bytes) -> ssl.SSLContext:
    """Return a TLS context that trusts the authorities of a PEM bundle, or those of the system if the bundle is empty.

    Loading certificates is slow, so callers cache the context.

    Raises:
        NotCallable: The bundle holds no certificate.
    """
    context = client_tls()
    if not bundle:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise NotCallable("unable to load root certificates: unable to parse bytes as PEM block") from None
    return context


def target_of(config: JSONObject) -> Target:
    """Return the target of a ``clientConfig``. The configuration was validated when it was written.

    Raises:
        NotCallable: The configuration names neither a URL nor a service.
    """
    ca = base64.b64decode(config.get("caBundle") or "").strip()
    service = config.get("service")
    if service is not None:
        port = service.get("port") or _HTTPS
        host = f"{service.get('name')}.{service.get('namespace')}.svc"
        where = ServiceName(service.get("namespace", ""), service.get("name", ""), port)
        return Target(f"{host}:{port}", host, port, _clean(service.get("path") or ""), ca, where)
    url = urlsplit(config.get("url") or "")
    if not url.hostname:
        raise NotCallable("webhook configuration must have either service or URL")
    return Target(url.netloc, url.hostname, url.port or _HTTPS, _clean(url.path), ca)


def _clean(path: str) -> str:
    """Return the path as Go's path.Join normalizes it."""
    return posixpath.normpath("/" + path.lstrip("/"))


# From a service to an address that can be dialled: one of its ready endpoints.
#
# kube-apiserver dials the cluster IP unless --enable-aggregator-routing is set; nothing routes cluster IPs to this server, so it always
# does what that flag asks for. Source: k8s.io/apiserver pkg/util/proxy (ResolveEndpoint, ResolveCluster).


_SERVICES: Final = GroupVersionResource("", "v1", "services")
_ENDPOINTS: Final = GroupVersionResource("", "v1", "endpoints")
_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
_OWNER: Final = "kubernetes.io/service-name"


class ServiceResolver:
    """Resolves services by their stored EndpointSlices, or else by their Endpoints. An ExternalName is dialled as it is written."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def resolve(self, service_name: ServiceName) -> tuple[str, int]:
        """Return the host and port of one ready endpoint, chosen at random.

        Raises:
            CallFailed: The service does not exist, or it has no such port or no ready endpoint.
        """
        service = await self._get(_SERVICES, service_name.namespace, service_name.name)
        if service is None:
            raise CallFailed(f'service "{service_name.name}" not found')
        spec = service.get("spec") or {}
        if spec.get("type") == "ExternalName":
            return str(spec.get("externalName", "")), service_name.port
        port = next((one for one in spec.get("ports") or () if one["port"] == service_name.port), None)
        if port is None and spec.get("clusterIP") != "None":
            raise CallFailed(f'no service port {service_name.port} found for service "{service_name.name}"')
        found = await self._ready(service_name, (port or {}).get("name") or "")
        if found:
            return random.choice(found)
        if spec.get("clusterIP") == "None":
            raise CallFailed('cannot route to service with ClusterIP "None"')
        raise CallFailed(f'no endpoints available for service "{service_name.name}"')

    async def _ready(self, service_name: ServiceName, port: str) -> list[tuple[str, int]]:
        slices = await self._all(_SLICES, service_name.namespace)
        own = [one for one in slices if (one["metadata"].get("labels") or {}).get(_OWNER) == service_name.name]
        if own:
            return [address for one in own for address in _of_slice(one, port)]
        return list(_of_endpoints(await self._get(_ENDPOINTS, service_name.namespace, service_name.name) or {}, port))

    def _resource(self, gvr: GroupVersionResource) -> ServedResource:
        found = self._registry.get(gvr)
        if found is None:
            raise LookupError(f"the registry does not serve {gvr}")
        return found

    async def _get(self, gvr: GroupVersionResource, namespace: str, name: str) -> JSONObject | None:
        found = await self._objects.get(self._resource(gvr), namespace, name)
        return None if found is None else found.obj

    async def _all(self, gvr: GroupVersionResource, namespace: str) -> list[JSONObject]:
        resource = self._resource(gvr)
        prefix = self._objects.prefix(resource, namespace)
        found = await self._objects.storage.range(prefix, prefix_end(prefix))
        return [self._objects.tree(resource, kv) for kv in found.items]


def _of_slice(endpoint_slice: JSONObject, name: str) -> Iterator[tuple[str, int]]:
    ports = [one["port"] for one in endpoint_slice.get("ports") or () if (one.get("name") or "") == name and one.get("port")]
    for endpoint in endpoint_slice.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready", True) and endpoint.get("addresses"):
            yield from ((endpoint["addresses"][0], port) for port in ports)


def _of_endpoints(endpoints: JSONObject, name: str) -> Iterator[tuple[str, int]]:
    for subset in endpoints.get("subsets") or ():
        ports = [one["port"] for one in subset.get("ports") or () if (one.get("name") or "") == name]
        for address in subset.get("addresses") or ():
            yield from ((address["ip"], port) for port in ports)
