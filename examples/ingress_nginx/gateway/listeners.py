"""The listeners of Gateways: which are valid, what they refer to, and which conflict with others. Pure functions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from examples.ingress_nginx.gateway.grants import GrantTable
from examples.ingress_nginx.gateway.objects import GROUP, GatewayObjects, Key
from examples.ingress_nginx.gateway.reports import ConditionState, ListenerReport
from examples.ingress_nginx.gateway.types import Gateway, GatewaySpecListener
from examples.ingress_nginx.ingress.certificates import CertificateError, certificate_of, is_valid_for
from examples.ingress_nginx.model.configuration import Certificate, Listener

#: Kinds of routes that listeners accept.
ROUTE_KINDS = ("HTTPRoute", "GRPCRoute")
_PROTOCOLS = ("HTTP", "HTTPS")


@dataclass(slots=True, eq=False)
class ListenerState:
    """A listener of a Gateway while a configuration is built.

    Attributes:
        socket: Where NGINX listens for it.
        kinds: Group and kind of the routes that may attach.
        refused: Reason and message of Accepted false; None: accepted.
        unresolved: Reason and message of ResolvedRefs false; None: all references are resolved.
        conflict: Reason and message of Conflicted true; None: no conflict.
        overlap: Message of OverlappingTLSConfig; empty: no overlap.
        waits: Why NGINX does not serve it although it may be valid: the Gateway is refused, or has no address.
        certificates: Certificates of its references, in their order.
        routes: Kind, namespace and name of the accepted routes.
        secrets: Namespace and name of all Secrets that it refers to and may read.
    """

    gateway: Gateway
    spec: GatewaySpecListener
    socket: Listener
    kinds: tuple[tuple[str, str], ...] = ()
    refused: tuple[str, str] | None = None
    unresolved: tuple[str, str] | None = None
    conflict: tuple[str, str] | None = None
    overlap: str = ""
    waits: str = ""
    certificates: tuple[Certificate, ...] = ()
    routes: set[tuple[str, str, str]] = field(default_factory=set)
    secrets: set[Key] = field(default_factory=set)

    @property
    def hostname(self) -> str:
        return (self.spec.hostname or "").lower()

    @property
    def accepted(self) -> bool:
        return self.refused is None and self.conflict is None

    @property
    def valid(self) -> bool:
        """Whether NGINX could serve it: an HTTPS listener needs a certificate."""
        return self.accepted and (not self.socket.tls or bool(self.certificates))

    @property
    def serves(self) -> bool:
        """Whether NGINX serves it."""
        return self.valid and not self.waits

    def certificate_for(self, host: str) -> str:
        """Return the name of the first certificate that is valid for a host, else of the first one."""
        if not self.certificates:
            return ""
        fitting = (certificate.name for certificate in self.certificates if is_valid_for(certificate, host))
        return next(fitting, self.certificates[0].name)

    def report(self) -> ListenerReport:
        """Return the status of the listener."""
        return ListenerReport(self.spec.name, tuple(self._conditions()), self.kinds, len(self.routes))

    def _conditions(self) -> Iterable[ConditionState]:
        if self.refused is not None:
            yield ConditionState("Accepted", False, *self.refused)
        elif self.conflict is not None:
            yield ConditionState("Accepted", False, *self.conflict)
        else:
            yield ConditionState("Accepted", True, "Accepted", "the listener is accepted")
        if self.serves:
            yield ConditionState("Programmed", True, "Programmed", "NGINX serves the listener")
        elif self.waits:
            yield ConditionState("Programmed", False, "Pending", self.waits)
        else:
            yield ConditionState("Programmed", False, "Invalid", "NGINX does not serve the listener; see its other conditions")
        if self.unresolved is not None:
            yield ConditionState("ResolvedRefs", False, *self.unresolved)
        else:
            yield ConditionState("ResolvedRefs", True, "ResolvedRefs", "all references are resolved")
        if self.conflict is not None:
            yield ConditionState("Conflicted", True, *self.conflict)
        else:
            yield ConditionState("Conflicted", False, "NoConflicts", "no other listener has its port and host name")
        if self.overlap:
            yield ConditionState("OverlappingTLSConfig", True, "OverlappingHostnames", self.overlap)


def read_listeners(gateway: Gateway, address: str, objects: GatewayObjects, grants: GrantTable) -> list[ListenerState]:
    """Read the listeners of a Gateway.

    Args:
        gateway: The Gateway.
        address: Address of the Gateway on which NGINX listens; empty: all addresses.
        objects: Reads Secrets.
        grants: References to Secrets of other namespaces that are allowed.
    """
    states = []
    for spec in gateway.spec.listeners:
        state = ListenerState(gateway, spec, Listener(address, spec.port, tls=spec.protocol == "HTTPS"))
        if spec.protocol not in _PROTOCOLS:
            state.refused = ("UnsupportedProtocol", f"protocol {spec.protocol} is not supported; use HTTP or HTTPS")
        else:
            _read_kinds(state)
            if state.socket.tls:
                _read_tls(state, objects, grants)
        states.append(state)
    _find_overlaps(states)
    return states


def mark_conflicts(gateways: Iterable[list[ListenerState]]) -> None:
    """Mark listeners that conflict: within a Gateway all of them, with an older Gateway on the same address the younger one's.

    ``gateways``: the listeners of each Gateway, the oldest first.
    """
    sockets: dict[tuple[str, int], bool] = {}
    hosts: dict[tuple[Listener, str], str] = {}
    for listeners in gateways:
        candidates = [state for state in listeners if state.refused is None]
        for group in _grouped(candidates, lambda state: (state.socket.address, state.socket.port)):
            if len({state.socket.tls for state in group}) > 1:
                for state in group:
                    state.conflict = ("ProtocolConflict", f"port {state.spec.port} has listeners of different protocols")
        for group in _grouped(candidates, lambda state: (state.socket, state.hostname)):
            if len(group) > 1:
                for state in group:
                    state.conflict = state.conflict or ("HostnameConflict", "another listener has this port and host name")
        for state in candidates:
            if state.conflict is None and sockets.get((state.socket.address, state.socket.port), state.socket.tls) != state.socket.tls:
                state.conflict = ("ProtocolConflict", f"port {state.spec.port} has another protocol in an older Gateway")
            elif state.conflict is None and (owner := hosts.get((state.socket, state.hostname))) is not None:
                state.conflict = ("HostnameConflict", f"Gateway {owner} is older and has this port and host name")
        for state in candidates:
            if state.conflict is None:
                sockets[state.socket.address, state.socket.port] = state.socket.tls
                hosts[state.socket, state.hostname] = f"{state.gateway.metadata.namespace}/{state.gateway.metadata.name}"


def _grouped(states: Iterable[ListenerState], key: Callable[[ListenerState], object]) -> Iterable[list[ListenerState]]:
    groups: dict[object, list[ListenerState]] = defaultdict(list)
    for state in states:
        groups[key(state)].append(state)
    return groups.values()


def _read_kinds(state: ListenerState) -> None:
    usual = tuple((GROUP, kind) for kind in ROUTE_KINDS)
    requested = [] if state.spec.allowed_routes is None else state.spec.allowed_routes.kinds
    if not requested:
        state.kinds = usual
        return
    named = list(dict.fromkeys((kind.group, kind.kind) for kind in requested))
    state.kinds = tuple(kind for kind in named if kind in usual)
    if len(state.kinds) != len(named):
        text = ", ".join(f"{kind}.{group}" if group else kind for group, kind in named if (group, kind) not in usual)
        state.unresolved = ("InvalidRouteKinds", f"the kinds {text} are not supported")


def _read_tls(state: ListenerState, objects: GatewayObjects, grants: GrantTable) -> None:
    tls = state.spec.tls
    frontend = state.gateway.spec.tls.frontend if state.gateway.spec.tls is not None else None
    if frontend is not None and (frontend.default.validation is not None or frontend.per_port):
        # Without the validation clients would get in that the Gateway's author keeps out.
        state.refused = ("UnsupportedValue", "spec.tls.frontend: certificates of clients are not supported")
    if tls is not None and tls.mode != "Terminate":
        state.refused = ("UnsupportedValue", f"TLS mode {tls.mode} is not supported; use Terminate")
        return
    if tls is None or not tls.certificate_refs:
        state.unresolved = ("InvalidCertificateRef", "spec.listeners.tls.certificateRefs names no Secret")
        return
    certificates = []
    for reference in tls.certificate_refs:
        namespace = reference.namespace or state.gateway.metadata.namespace
        text = f"{reference.kind} {namespace}/{reference.name}"
        if (reference.group, reference.kind) != ("", "Secret"):
            state.unresolved = ("InvalidCertificateRef", f"certificate {text} is not a Secret of the core group")
        elif not grants.allow(("Gateway", state.gateway.metadata.namespace), "Secret", namespace, reference.name):
            state.unresolved = ("RefNotPermitted", f"no ReferenceGrant of namespace {namespace} allows the reference to {text}")
        else:
            state.secrets.add((namespace, reference.name))
            certificate = _certificate(state, objects, namespace, reference.name)
            if certificate is not None:
                certificates.append(certificate)
    state.certificates = tuple(certificates)


def _certificate(state: ListenerState, objects: GatewayObjects, namespace: str, name: str) -> Certificate | None:
    secret = objects.secret(namespace, name)
    if secret is None:
        state.unresolved = ("InvalidCertificateRef", f"Secret {namespace}/{name} does not exist")
        return None
    try:
        certificate = certificate_of(secret)
    except CertificateError as error:
        state.unresolved = ("InvalidCertificateRef", str(error))
        return None
    if not certificate.chain:
        state.unresolved = ("InvalidCertificateRef", f"Secret {namespace}/{name} has no tls.crt and tls.key")
        return None
    return certificate


def _find_overlaps(states: Iterable[ListenerState]) -> None:
    """Note HTTPS listeners of one port of which one has a wildcard that covers the other: browsers may share connections."""
    for group in _grouped([state for state in states if state.socket.tls], lambda state: state.socket):
        for state in group:
            for other in group:
                if other is not state and state.hostname != other.hostname and _covers(state.hostname, other.hostname):
                    text = f"host names of the listeners {state.spec.name} and {other.spec.name} overlap"
                    state.overlap = state.overlap or text
                    other.overlap = other.overlap or text


def _covers(wide: str, narrow: str) -> bool:
    return not wide or (wide.startswith("*.") and narrow.endswith(wide[1:]))
