"""From a service to an address that can be dialled: one of its ready endpoints.

kube-apiserver dials the cluster IP unless --enable-aggregator-routing is set; nothing routes cluster IPs to this server, so it always
does what that flag asks for. Source: k8s.io/apiserver pkg/util/proxy (ResolveEndpoint, ResolveCluster).
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

from kubeloop.apiserver.outbound.failure import CallFailed
from kubeloop.apiserver.outbound.target import ServiceName
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import prefix_end
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.types import JSONObject

_SERVICES: Final = GroupVersionResource("", "v1", "services")
_ENDPOINTS: Final = GroupVersionResource("", "v1", "endpoints")
_SLICES: Final = GroupVersionResource("discovery.k8s.io", "v1", "endpointslices")
_OWNER: Final = "kubernetes.io/service-name"


class ServiceResolver:
    """Resolves services by what is stored: EndpointSlices, else Endpoints. An ExternalName is dialled as it stands."""

    def __init__(self, registry: Registry, objects: Objects) -> None:
        self._registry = registry
        self._objects = objects

    async def resolve(self, wanted: ServiceName) -> tuple[str, int]:
        """Host and port.

        Raises:
            CallFailed: no such service, port or ready endpoint.
        """
        service = await self._get(_SERVICES, wanted.namespace, wanted.name)
        if service is None:
            raise CallFailed(f'service "{wanted.name}" not found')
        spec = service.get("spec") or {}
        if spec.get("type") == "ExternalName":
            return str(spec.get("externalName", "")), wanted.port
        port = next((one for one in spec.get("ports") or () if one["port"] == wanted.port), None)
        if port is None and spec.get("clusterIP") != "None":
            raise CallFailed(f'no service port {wanted.port} found for service "{wanted.name}"')
        found = await self._ready(wanted, (port or {}).get("name") or "")
        if found:
            return random.choice(found)
        if spec.get("clusterIP") == "None":
            raise CallFailed('cannot route to service with ClusterIP "None"')
        raise CallFailed(f'no endpoints available for service "{wanted.name}"')

    async def _ready(self, wanted: ServiceName, port: str) -> list[tuple[str, int]]:
        slices = await self._all(_SLICES, wanted.namespace)
        own = [one for one in slices if (one["metadata"].get("labels") or {}).get(_OWNER) == wanted.name]
        if own:
            return [address for one in own for address in _of_slice(one, port)]
        return list(_of_endpoints(await self._get(_ENDPOINTS, wanted.namespace, wanted.name) or {}, port))

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


def _of_slice(found: JSONObject, name: str) -> Iterator[tuple[str, int]]:
    ports = [one["port"] for one in found.get("ports") or () if (one.get("name") or "") == name and one.get("port")]
    for endpoint in found.get("endpoints") or ():
        if (endpoint.get("conditions") or {}).get("ready", True) and endpoint.get("addresses"):
            yield from ((endpoint["addresses"][0], port) for port in ports)


def _of_endpoints(found: JSONObject, name: str) -> Iterator[tuple[str, int]]:
    for subset in found.get("subsets") or ():
        ports = [one["port"] for one in subset.get("ports") or () if (one.get("name") or "") == name]
        for address in subset.get("addresses") or ():
            yield from ((address["ip"], port) for port in ports)
