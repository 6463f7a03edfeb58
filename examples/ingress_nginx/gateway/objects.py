"""The objects that the Gateway front end reads, and its options."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol, TypeVar

from examples.ingress_nginx.gateway.addresses import AddressPool
from examples.ingress_nginx.gateway.types import Gateway, GRPCRoute, HTTPRoute
from kubeloop.api.core.v1 import Namespace, Secret, Service
from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.meta import Resource

GROUP = "gateway.networking.k8s.io"
CONTROLLER_NAME = "kubeloop.dev/ingress-controller"
#: The version of the CRDs from which types.py is generated. Later patches and earlier minor versions have the same fields or fewer.
BUNDLE_VERSION = "v1.7.0"

#: A route of either kind.
AnyRoute = HTTPRoute | GRPCRoute
#: Namespace and name.
Key = tuple[str, str]
R = TypeVar("R", bound=Resource)


class GatewayObjects(Protocol):
    """Reads the objects of the cluster, from a cache or from a table of a test."""

    def list(self, kind: type[R]) -> Iterable[R]:
        """Return all objects of a kind: GatewayClass, Gateway, HTTPRoute, GRPCRoute, ReferenceGrant."""

    def namespace(self, name: str) -> Namespace | None: ...

    def service(self, namespace: str, name: str) -> Service | None: ...

    def slices(self, namespace: str, service: str) -> Iterable[EndpointSlice]: ...

    def secret(self, namespace: str, name: str) -> Secret | None: ...


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Options of the Gateway front end.

    Attributes:
        controller_name: ``spec.controllerName`` of the GatewayClasses that are served.
        pool: Addresses of Gateways, one for each. None: all Gateways share ``published``, and NGINX listens on all addresses.
        published: Addresses under which clients reach NGINX, for the statuses; IP addresses or host names.
        external_names: Allow services of type ExternalName.
    """

    controller_name: str = CONTROLLER_NAME
    pool: AddressPool | None = None
    published: tuple[str, ...] = ()
    external_names: bool = True


def key_of(obj: Resource) -> Key:
    """Return the namespace and name of an object."""
    return (obj.metadata.namespace, obj.metadata.name)


def age_of(obj: Resource) -> tuple[str, str, str]:
    """Return creation time, namespace and name: the order in which objects win conflicts, the oldest first."""
    created = obj.metadata.creation_timestamp
    return ("" if created is None else created.isoformat(), obj.metadata.namespace, obj.metadata.name)


def gateway_name(gateway: Gateway) -> str:
    """Return ``NAMESPACE/NAME``, as messages name a Gateway."""
    return f"{gateway.metadata.namespace}/{gateway.metadata.name}"
