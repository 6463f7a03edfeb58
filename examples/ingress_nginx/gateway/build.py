"""Builds servers, backends, certificates and statuses from the objects of the Gateway API. No input and no output."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from typing import TypeVar

from examples.ingress_nginx.gateway.attach import Attachment, attach
from examples.ingress_nginx.gateway.backends import BackendResolver
from examples.ingress_nginx.gateway.grants import GrantTable
from examples.ingress_nginx.gateway.listeners import ListenerState, mark_conflicts, read_listeners
from examples.ingress_nginx.gateway.objects import GROUP, AnyRoute, GatewayObjects, GatewayOptions, Key, age_of, key_of
from examples.ingress_nginx.gateway.records import RouteRecord
from examples.ingress_nginx.gateway.reports import ConditionState, ParentReport, Report, RouteReport
from examples.ingress_nginx.gateway.routes import read_route
from examples.ingress_nginx.gateway.servers import GatewayServers
from examples.ingress_nginx.gateway.summaries import class_report, gateway_report, rejection
from examples.ingress_nginx.gateway.types import Gateway, GatewayClass, GRPCRoute, HTTPRoute, ReferenceGrant
from examples.ingress_nginx.model.configuration import Backend, Certificate, Configuration, Listener, Server, ServerKey
from kubeloop.meta import Resource

_R = TypeVar("_R", bound=Resource)
_HTTP1_PORT = (
    "NGINX before 1.25.1 serves either HTTP/1.1 or HTTP/2 without TLS on a port, and HTTPRoutes or Ingresses use the port; attach the "
    "route to an HTTPS listener or to a listener with another port"
)


@dataclass(frozen=True, slots=True)
class GatewayResult:
    """What the Gateway API objects of a cluster amount to.

    Attributes:
        servers, backends, certificates: Parts of the configuration.
        reports: The status of each GatewayClass, Gateway and route of this controller.
        secrets, services: Namespace and name of all objects that were read or looked for, so that their changes cause a new build.
    """

    servers: dict[ServerKey, Server] = field(default_factory=dict)
    backends: dict[str, Backend] = field(default_factory=dict)
    certificates: dict[str, Certificate] = field(default_factory=dict)
    reports: tuple[Report, ...] = ()
    secrets: frozenset[Key] = frozenset()
    services: frozenset[Key] = frozenset()

    def add_to(self, configuration: Configuration) -> None:
        """Add the parts to a configuration."""
        configuration.servers.update(self.servers)
        configuration.backends.update(self.backends)
        configuration.certificates.update(self.certificates)


class GatewayBuilder:
    """Builds the whole configuration of the Gateway API front end from a snapshot of the cluster.

    Args:
        options: Options of the front end.
        crd_versions: ``gateway.networking.k8s.io/bundle-version`` of each CRD in the cluster; empty text: the annotation is absent. An
            empty mapping: not known. The caller may replace the attribute at any time.

    Example:
        >>> builder = GatewayBuilder()
        >>> builder.options.controller_name
        'kubeloop.dev/ingress-controller'
    """

    def __init__(self, options: GatewayOptions | None = None, *, crd_versions: Mapping[str, str] | None = None) -> None:
        self.options = options or GatewayOptions()
        self.crd_versions: Mapping[str, str] = crd_versions or {}
        #: Whether NGINX serves HTTP/1.1 and HTTP/2 without TLS on one port. If not, HTTPRoutes take a port from GRPCRoutes.
        self.http2_beside_http1 = True
        #: Where NGINX listens for Ingresses without TLS.
        self.http1_sockets: frozenset[Listener] = frozenset()
        #: Records of the last build: a route that a cache has not replaced is not read again.
        self._records: dict[tuple[str, str, str], RouteRecord] = {}

    def build(self, objects: GatewayObjects) -> GatewayResult:
        """Return the configuration and the statuses for the present objects."""
        classes = [entry for entry in _living(objects.list(GatewayClass)) if entry.spec.controller_name == self.options.controller_name]
        class_reports = [class_report(entry, self.crd_versions, http2_beside_http1=self.http2_beside_http1) for entry in classes]
        accepted = {report.object.metadata.name for report in class_reports if report.conditions[0].holds}
        gateways = [gateway for gateway in _living(objects.list(Gateway)) if gateway.spec.gateway_class_name in accepted]
        gateways.sort(key=age_of)
        grants = GrantTable(objects.list(ReferenceGrant))
        addresses = {} if self.options.pool is None else self.options.pool.assign(gateways)
        listeners = self._listeners(gateways, addresses, objects, grants)

        resolver = BackendResolver(objects, grants, external_names=self.options.external_names)
        servers = GatewayServers(resolver)
        attachments: list[Attachment] = []
        route_reports = []
        http1 = set(self.http1_sockets)
        routes: list[AnyRoute] = [*_living(objects.list(HTTPRoute)), *_living(objects.list(GRPCRoute))]
        known, self._records = self._records, {}
        for route in routes:
            record = self._record(route, known)
            report, attached = self._attach(record, listeners, servers, objects, http1)
            attachments += attached
            if record.kind == "HTTPRoute":
                http1.update(attachment.listener.socket for attachment in attached)
            if report.parents or self._has_entry(record):
                route_reports.append(report)

        gateway_reports = [
            gateway_report(gateway, listeners[key_of(gateway)], addresses.get(key_of(gateway), ""), self.options) for gateway in gateways
        ]
        states = [state for group in listeners.values() for state in group]
        if not self.http2_beside_http1:
            _reserve_http2(states, attachments)
        built = servers.build(states, attachments)
        return GatewayResult(
            built,
            resolver.backends,
            {certificate.name: certificate for state in states if state.serves for certificate in state.certificates},
            (*class_reports, *gateway_reports, *route_reports),
            frozenset(key for state in states for key in state.secrets),
            frozenset(resolver.services),
        )

    def _listeners(
        self, gateways: Sequence[Gateway], addresses: Mapping[Key, str], objects: GatewayObjects, grants: GrantTable
    ) -> dict[Key, list[ListenerState]]:
        listeners = {key_of(gateway): read_listeners(gateway, addresses.get(key_of(gateway), ""), objects, grants) for gateway in gateways}
        for gateway in gateways:
            # A Gateway without an address must not listen on those of others.
            lacks_address = self.options.pool is not None and key_of(gateway) not in addresses
            for state in listeners[key_of(gateway)]:
                if rejection(gateway) is not None:
                    state.waits = "the Gateway is not accepted"
                elif lacks_address:
                    state.waits = "the Gateway has no address"
        mark_conflicts([state for state in states if not state.waits] for states in listeners.values())
        return listeners

    def _attach(
        self,
        record: RouteRecord,
        listeners: Mapping[Key, list[ListenerState]],
        servers: GatewayServers,
        objects: GatewayObjects,
        http1: AbstractSet[Listener],
    ) -> tuple[RouteReport, list[Attachment]]:
        attached: list[Attachment] = []
        parents: list[ParentReport] = []
        rest: tuple[ConditionState, ...] | None = None
        for index, parent in enumerate(record.parents):
            states = listeners.get((parent.namespace, parent.name)) if (parent.group, parent.kind) == (GROUP, "Gateway") else None
            if states is None:
                continue
            if rest is None:
                rest = _route_conditions(record, servers)
            made, accepted = attach(record, parent, states, objects)
            if record.kind == "GRPCRoute" and accepted.holds and not self.http2_beside_http1:
                made = [attachment for attachment in made if attachment.listener.socket.tls or attachment.listener.socket not in http1]
                if not made:
                    accepted = ConditionState("Accepted", False, "UnsupportedValue", _HTTP1_PORT)
            problems = [rule.problem for rule in record.rules if rule.problem]
            if accepted.holds and problems and len(problems) == len(record.rules):
                made, accepted = [], ConditionState("Accepted", False, "UnsupportedValue", problems[0])
            partial = [entry for entry in rest if entry.type != "PartiallyInvalid" or accepted.holds]
            parents.append(ParentReport(index, (accepted, *partial)))
            attached += made
            for attachment in made:
                attachment.listener.routes.add((record.kind, *record.key))
        return RouteReport(record.object, tuple(parents)), attached

    def _record(self, route: AnyRoute, known: Mapping[tuple[str, str, str], RouteRecord]) -> RouteRecord:
        key = (route.kind, *key_of(route))
        record = known.get(key)
        if record is None or record.object is not route:
            record = read_route(route)
        self._records[key] = record
        return record

    def _has_entry(self, record: RouteRecord) -> bool:
        status = record.object.status
        return status is not None and any(parent.controller_name == self.options.controller_name for parent in status.parents)


def _reserve_http2(states: Iterable[ListenerState], attachments: Iterable[Attachment]) -> None:
    """Let NGINX speak HTTP/2 at the sockets without TLS that have GRPCRoutes only; the other GRPCRoutes there are not attached."""
    sockets = {attachment.listener.socket for attachment in attachments if attachment.record.kind == "GRPCRoute"}
    for state in states:
        if state.socket in sockets and not state.socket.tls:
            state.socket = replace(state.socket, http2_only=True)


def _living(objects: Iterable[_R]) -> list[_R]:
    return [obj for obj in objects if obj.metadata.deletion_timestamp is None]


def _route_conditions(record: RouteRecord, servers: GatewayServers) -> tuple[ConditionState, ...]:
    """Return the conditions of a route that do not depend on the parent: ResolvedRefs and PartiallyInvalid."""
    problem = servers.problem(record)
    if problem is None:
        resolved = ConditionState("ResolvedRefs", True, "ResolvedRefs", "all references are resolved")
    else:
        resolved = ConditionState("ResolvedRefs", False, problem.reason, str(problem))
    dropped = [f"rules[{number}] ({rule.problem})" for number, rule in enumerate(record.rules) if rule.problem]
    if not dropped or len(dropped) == len(record.rules):
        return (resolved,)
    # The message begins as the specification demands. The requests of a dropped rule get 500, never another rule's answer.
    return (resolved, ConditionState("PartiallyInvalid", True, "UnsupportedValue", f"Dropped Rule {', '.join(dropped)}"))
