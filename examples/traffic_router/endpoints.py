"""The addresses of the pods behind Services, from the EndpointSlices of an API server."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from kubeloop import InformerFactory
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cache import ByLabel

#: An IP address, and a port.
Address = tuple[str, int]
_SERVICE_LABEL = "kubernetes.io/service-name"


class ServiceAddresses:
    """Returns the ready addresses of a Service, each time with another one first.

    Args:
        informers: The informer of the EndpointSlices is theirs.
        namespace: Namespace of the Services.
    """

    def __init__(self, informers: InformerFactory, namespace: str) -> None:
        self._slices = informers.for_kind(EndpointSlice, namespace=namespace, indexes={"service": ByLabel(_SERVICE_LABEL)})
        #: Addresses by Service, read at this version of the cache.
        self._known: dict[str, list[Address]] = {}
        self._version = ""
        self._turns: defaultdict[str, int] = defaultdict(int)

    def __call__(self, service: str) -> Sequence[Address]:
        """Return all addresses in the order in which to try them; none if no pod is ready."""
        if self._version != self._slices.resource_version:
            self._version = self._slices.resource_version
            self._known.clear()
        if (addresses := self._known.get(service)) is None:
            addresses = self._known[service] = self._read(service)
        if not addresses:
            return addresses
        turn = self._turns[service] % len(addresses)
        self._turns[service] = turn + 1
        return addresses[turn:] + addresses[:turn]

    def _read(self, service: str) -> list[Address]:
        """Return the addresses with the first port of their slice: the Services of this example have one port."""
        return sorted(
            {
                (address, found.ports[0].port)
                for found in self._slices.lister.by_index("service", service)
                if found.ports and found.ports[0].port
                for endpoint in found.endpoints
                if endpoint.conditions.ready is not False
                for address in endpoint.addresses
            }
        )
