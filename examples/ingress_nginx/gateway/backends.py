"""Services of routes as backends of the model."""

from __future__ import annotations

from examples.ingress_nginx.gateway.grants import GrantTable
from examples.ingress_nginx.gateway.objects import GatewayObjects, Key
from examples.ingress_nginx.gateway.records import BackendReference, RouteRecord
from examples.ingress_nginx.ingress.endpoints import EndpointError, endpoints_of
from examples.ingress_nginx.model.configuration import Backend
from examples.ingress_nginx.model.policy import Protocol

_HTTP_PROTOCOLS = {
    "": Protocol.HTTP,
    "http": Protocol.HTTP,
    "kubernetes.io/ws": Protocol.HTTP,
    "https": Protocol.HTTPS,
    "kubernetes.io/wss": Protocol.HTTPS,
    # NGINX speaks HTTP/2 to backends in its gRPC module only, which passes other requests on as well.
    "kubernetes.io/h2c": Protocol.GRPC,
    "grpc": Protocol.GRPC,
}
_GRPC_PROTOCOLS = {
    "": Protocol.GRPC,
    "http": Protocol.GRPC,
    "grpc": Protocol.GRPC,
    "kubernetes.io/h2c": Protocol.GRPC,
    "https": Protocol.GRPCS,
    "grpcs": Protocol.GRPCS,
}


class UnresolvedBackend(Exception):
    """A reference to a backend leads nowhere. ``reason``: the reason of the condition ResolvedRefs."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class BackendResolver:
    """Resolves the references of routes to Services, and collects the backends.

    Args:
        objects: Reads Services and EndpointSlices.
        grants: References to Services of other namespaces that are allowed.
        external_names: Allow services of type ExternalName.
    """

    def __init__(self, objects: GatewayObjects, grants: GrantTable, *, external_names: bool) -> None:
        self._objects = objects
        self._grants = grants
        self._external_names = external_names
        self.backends: dict[str, Backend] = {}
        #: Namespace and name of all services that routes refer to.
        self.services: set[Key] = set()

    def resolve_copies(self, record: RouteRecord, reference: BackendReference) -> str:
        """Return the name of a backend that gets copies of requests; raises UnresolvedBackend."""
        name, protocol = self.resolve(record, reference)
        full = f"Service {reference.namespace}/{reference.name}"
        if protocol is not Protocol.HTTP:
            raise UnresolvedBackend("UnsupportedProtocol", f"{full}: NGINX sends copies of requests over HTTP only, without TLS")
        if not all(endpoint.has_address for endpoint in self.backends[name].endpoints):
            raise UnresolvedBackend("UnsupportedValue", f"{full} has a DNS name; copies of requests need a Service with endpoints")
        return name

    def resolve(self, record: RouteRecord, reference: BackendReference) -> tuple[str, Protocol]:
        """Return the name of a backend, and how NGINX talks to it.

        Raises:
            UnresolvedBackend: The reference is not permitted, or its target does not exist or is of an unknown kind or protocol.
        """
        full = f"{reference.namespace}/{reference.name}"
        if (reference.group, reference.kind) != ("", "Service"):
            raise UnresolvedBackend("InvalidKind", f"backend {full} is a {reference.kind}; only a Service of the core group is supported")
        if not self._grants.allow((record.kind, record.key[0]), "Service", reference.namespace, reference.name):
            text = f"no ReferenceGrant of namespace {reference.namespace} allows the reference to Service {full}"
            raise UnresolvedBackend("RefNotPermitted", text)
        self.services.add((reference.namespace, reference.name))
        service = self._objects.service(reference.namespace, reference.name)
        if service is None:
            raise UnresolvedBackend("BackendNotFound", f"Service {full} does not exist")
        port = next((entry for entry in service.spec.ports if entry.port == reference.port), None)
        if port is None:
            raise UnresolvedBackend("BackendNotFound", f"Service {full} has no port {reference.port}")
        protocols = _GRPC_PROTOCOLS if record.kind == "GRPCRoute" else _HTTP_PROTOCOLS
        protocol = protocols.get((port.app_protocol or "").lower())
        if protocol is None:
            raise UnresolvedBackend("UnsupportedProtocol", f"Service {full}: appProtocol {port.app_protocol} is not supported")
        # No name of a namespace or a Service has a dot: equal names are equal services.
        name = f"gateway.{reference.namespace}.{reference.name}.{reference.port}"
        if name not in self.backends:
            slices = self._objects.slices(reference.namespace, reference.name)
            try:
                endpoints = endpoints_of(service, reference.port, slices, external_names=self._external_names)
            except EndpointError as error:
                raise UnresolvedBackend("BackendNotFound", str(error)) from None
            self.backends[name] = Backend(name, endpoints, origin=f"{full}:{reference.port}")
        return name, protocol
