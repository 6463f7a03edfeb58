"""The endpoints of a port of a Service."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from examples.ingress_nginx.model.configuration import Endpoint
from kubeloop.api.core.v1 import Service, ServicePort
from kubeloop.api.discovery.v1 import EndpointPort, EndpointSlice

SERVICE_LABEL = "kubernetes.io/service-name"

#: RFC 1123 names of at least two labels, as those of other machines have.
_DNS_NAME = re.compile(r"(?=.{1,253}\Z)(?:[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.)+[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?\.?\Z")


class EndpointError(Exception):
    """A Service has no usable endpoints, for a reason that its author can change."""


def service_port(service: Service, port: int | str) -> ServicePort | None:
    """Return the port of a service by its number, its name, or its target port; None: it has no such port."""
    for found in service.spec.ports:
        if port in (found.port, found.name):
            return found
    return next((found for found in service.spec.ports if found.target_port is not None and str(found.target_port) == str(port)), None)


def endpoints_of(
    service: Service, port: int | str, slices: Iterable[EndpointSlice], *, external_names: bool = True, cluster_ip: bool = False
) -> tuple[Endpoint, ...]:
    """Return the ready endpoints of a service's port, sorted, each once.

    Args:
        service: The Service.
        port: Number or name of one of its ports, or a target port.
        slices: Its EndpointSlices, in any order.
        external_names: Allow services of type ExternalName.
        cluster_ip: Return the service's cluster IP as the only endpoint (annotation service-upstream).

    Raises:
        EndpointError: The service has no such port, or its external name is not allowed.
    """
    if service.spec.type == "ExternalName":
        return (_external(service, port, allowed=external_names),)
    found = service_port(service, port)
    if found is None:
        raise EndpointError(f"service {service.metadata.namespace}/{service.metadata.name} has no port {port!r}")
    if cluster_ip and service.spec.cluster_ip not in (None, "", "None"):
        return (Endpoint(service.spec.cluster_ip, found.port),)
    endpoints = set()
    for piece in slices:
        if piece.address_type == "FQDN":
            continue
        number = _number(piece.ports, found)
        if number is None:
            continue
        for endpoint in piece.endpoints:
            # "ready" unknown (None) counts as ready: discovery.k8s.io/v1, EndpointConditions.
            if endpoint.conditions.ready is not False and endpoint.addresses:
                # All addresses of an endpoint are fungible; consumers use the first: discovery.k8s.io/v1, Endpoint.addresses.
                endpoints.add(Endpoint(endpoint.addresses[0], number))
    return tuple(sorted(endpoints))


def _number(ports: Iterable[EndpointPort] | None, target: ServicePort) -> int | None:
    """Return the number of the slice's port for a service port: slices name their ports as the service does."""
    for port in ports or ():
        if (port.protocol or "TCP") == (target.protocol or "TCP") and (port.name or "") == (target.name or ""):
            return port.port
    return None


def _external(service: Service, port: int | str, *, allowed: bool) -> Endpoint:
    name = (service.spec.external_name or "").lower()
    full = f"service {service.metadata.namespace}/{service.metadata.name}"
    if not allowed:
        raise EndpointError(f"{full} is of type ExternalName, which this controller does not allow (--disable-external-names)")
    found = service_port(service, port)
    target = found.target_port if found is not None else port
    number = target if isinstance(target, int) and target else found.port if found is not None else None
    if number is None:
        raise EndpointError(f"{full} is of type ExternalName: its port must be a number, not {port!r}")
    try:
        address = ipaddress.ip_address(name)
    except ValueError:
        if name.rstrip(".") == "localhost" or name.rstrip(".").endswith(".localhost") or not _DNS_NAME.match(name):
            raise EndpointError(f"{full}: {name!r} is not the name of another machine") from None
    else:
        if address.is_loopback or address.is_unspecified or address.is_link_local:
            raise EndpointError(f"{full}: {name} is not the address of another machine")
    return Endpoint(name.rstrip("."), number)
