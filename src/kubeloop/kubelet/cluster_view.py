"""Services and endpoints of the whole cluster, which a node's service proxy and DNS server read from informers."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import AsyncExitStack

from kubeloop.api.authorization.v1 import ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec
from kubeloop.api.core.v1 import Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cache import ByLabel, Informer, InformerFactory
from kubeloop.client import Client
from kubeloop.client.mapper import ALL_NAMESPACES
from kubeloop.codec import to_dict
from kubeloop.config import ClusterConfig
from kubeloop.kubelet.dns_records import NO_PORTS, ServiceEndpoint
from kubeloop.kubelet.service_proxy import backends
from kubeloop.transport import Transport
from kubeloop.types import JSONObject

#: Pods with their addresses.
PodSource = Callable[[], Iterable[tuple[JSONObject, str]]]


def _cluster_addresses(service: Service) -> list[str]:
    return [address for address in service.spec.cluster_ips or [service.spec.cluster_ip or ""] if address not in ("", "None")]


def _endpoint_addresses(endpoint_slice: EndpointSlice) -> list[str]:
    return [address for endpoint in endpoint_slice.endpoints for address in endpoint.addresses]


class ClusterView:
    """Reads services and EndpointSlices from informers. Endpoints are those of this node's pods where EndpointSlices may not be listed.

    Args:
        services: The informer of services, made by ``watch_services``.
        pods: Returns the pods of this node with their addresses, which replace EndpointSlices that may not be listed.
    """

    def __init__(self, services: Informer[Service], pods: PodSource) -> None:
        self._services = services
        self._pods = pods
        self._slices: Informer[EndpointSlice] | None = None

    @staticmethod
    def watch_services(informers: InformerFactory) -> Informer[Service]:
        """Return an informer of services with the index by address that ``ClusterView`` reads."""
        return informers.for_kind(Service, namespace=ALL_NAMESPACES, indexes={"address": _cluster_addresses})

    async def open_slices(self, config: ClusterConfig, stack: AsyncExitStack) -> None:
        """Start the informer of EndpointSlices, if the user of a configuration may list them; the user of a node may not.

        Args:
            config: How to reach the API server, and as which user.
            stack: Stops the informer when it is closed.
        """
        client = await stack.enter_async_context(Client(Transport(config)))
        attributes = ResourceAttributes(verb="list", group="discovery.k8s.io", resource="endpointslices")
        review = await client.create(SelfSubjectAccessReview(spec=SelfSubjectAccessReviewSpec(resource_attributes=attributes)))
        if not review.status.allowed:
            return
        informers = await stack.enter_async_context(InformerFactory(client))
        by_service = ByLabel("kubernetes.io/service-name")
        slices = informers.for_kind(
            EndpointSlice, namespace=ALL_NAMESPACES, indexes={"service": by_service, "address": _endpoint_addresses}
        )
        await slices.wait_synced()
        self._slices = slices

    def services(self) -> list[JSONObject]:
        """Return all services."""
        return [to_dict(service) for service in self._services.lister.each()]

    def service(self, namespace: str, name: str) -> JSONObject | None:
        """Return a service, or None if it does not exist.

        Args:
            namespace: Its namespace.
            name: Its name.
        """
        stored = self._services.lister.get(name, namespace)
        return to_dict(stored) if stored is not None else None

    def slices(self, namespace: str, name: str) -> list[JSONObject]:
        """Return the EndpointSlices of a service; an empty list where they may not be listed.

        Args:
            namespace: The service's namespace.
            name: Its name.
        """
        if self._slices is None:
            return []
        return [to_dict(one) for one in self._slices.lister.by_index("service", name) if one.metadata.namespace == namespace]

    def endpoints(self, namespace: str, name: str) -> list[ServiceEndpoint]:
        """Return the ready endpoints of a service.

        Args:
            namespace: The service's namespace.
            name: Its name.
        """
        if self._slices is None:
            return self._local_endpoints(namespace, name)
        return [endpoint for one in self.slices(namespace, name) for endpoint in _ready(one)]

    def _local_endpoints(self, namespace: str, name: str) -> list[ServiceEndpoint]:
        service, result = self.service(namespace, name), []
        for port in (service or {}).get("spec", {}).get("ports") or ():
            for pod, address in self._pods():
                for _, number in backends(service or {}, port.get("name") or "", [(pod, address)]):
                    spec = pod["spec"]
                    hostname = spec.get("hostname") or "" if spec.get("subdomain") == name else ""
                    result.append(ServiceEndpoint(address, hostname, ((port.get("name") or "", port.get("protocol") or "TCP", number),)))
        return result

    def by_address(self, address: str) -> list[tuple[str, str, ServiceEndpoint | None]]:
        """Return namespace and name of each service with a cluster IP or a ready endpoint at an address, and that endpoint.

        Args:
            address: The address. A service that has it as its cluster IP is returned with None instead of an endpoint.
        """
        services = self._services.lister.by_index("address", address)
        result: list[tuple[str, str, ServiceEndpoint | None]] = [(one.metadata.namespace, one.metadata.name, None) for one in services]
        for one in self._slices.lister.by_index("address", address) if self._slices is not None else ():
            name = one.metadata.labels.get("kubernetes.io/service-name", "")
            matching = [endpoint for endpoint in _ready(to_dict(one)) if endpoint.address == address]
            result += [(one.metadata.namespace, name, endpoint) for endpoint in matching]
        return result


def _ready(endpoint_slice: JSONObject) -> list[ServiceEndpoint]:
    ports = tuple(
        (port.get("name") or "", port.get("protocol") or "TCP", port["port"])
        for port in endpoint_slice.get("ports") or ()
        if port.get("port")
    )
    return [
        ServiceEndpoint(address, endpoint.get("hostname") or "", ports or NO_PORTS)
        for endpoint in endpoint_slice.get("endpoints") or ()
        if (endpoint.get("conditions") or {}).get("ready") is not False
        for address in endpoint.get("addresses") or ()
    ]
