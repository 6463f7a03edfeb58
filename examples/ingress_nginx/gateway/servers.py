"""Servers from attached routes: the order of matches, and the targets of each rule."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from examples.ingress_nginx.gateway.attach import Attachment, intersection
from examples.ingress_nginx.gateway.backends import BackendResolver, UnresolvedBackend
from examples.ingress_nginx.gateway.listeners import ListenerState
from examples.ingress_nginx.gateway.precedence import Places, locations_of, merge_layers, names_of
from examples.ingress_nginx.gateway.records import FilterSet, RouteMatch, RouteRecord, RouteRule
from examples.ingress_nginx.model.configuration import CATCH_ALL, Listener, PathMatch, Route, Server, ServerKey, Target
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Mirror, Policy, Protocol

_FAILURE, _UNAVAILABLE = Policy(status=500), Policy(status=503)
#: Records by host name, and by kind, namespace and name.
_Records = dict[str, dict[tuple[str, str, str], RouteRecord]]
#: The place of a route at its location: first the rank of its match, then the age of its object, then its place in the object.
_Order = tuple[tuple[bool, int, int], tuple[str, str, str], int, int]


class GatewayServers:
    """Builds the servers of all listeners.

    Args:
        backends: Resolves the backends of rules.
    """

    def __init__(self, backends: BackendResolver) -> None:
        self._backends = backends

    def build(self, listeners: Iterable[ListenerState], attachments: Iterable[Attachment]) -> dict[ServerKey, Server]:
        """Return the servers. A listener has at least a server for its host name: it answers 404 where no route attaches."""
        served = [listener for listener in listeners if listener.serves]
        siblings: dict[Listener, list[ListenerState]] = defaultdict(list)
        for listener in served:
            siblings[listener.socket].append(listener)
        hosts = {listener: {listener.hostname or CATCH_ALL: None} for listener in served}
        names: dict[ListenerState, _Records] = {listener: defaultdict(dict) for listener in served}
        for attachment in attachments:
            if (listener := attachment.listener).serves:
                for name in attachment.record.hostnames or ("",):
                    names[listener][name][attachment.record.kind, *attachment.record.key] = attachment.record
                for host in attachment.hosts:
                    if not _belongs_to_another(host, listener, siblings[listener.socket]):
                        hosts[listener][host] = None
        servers = [self._server(listener, host, names[listener]) for listener in served for host in hosts[listener]]
        return {server.key: server for server in servers}

    def problem(self, record: RouteRecord) -> UnresolvedBackend | None:
        """Return the first problem of a route's references to backends; None: all are resolved."""
        for rule in record.rules:
            try:
                for reference in rule.backends:
                    self._backends.resolve(record, reference)
                    self._resolve_mirrors(record, reference.filters)
                self._resolve_mirrors(record, rule.filters)
            except UnresolvedBackend as error:
                return error
        return None

    def _resolve_mirrors(self, record: RouteRecord, filters: FilterSet) -> None:
        for mirror in filters.mirrors:
            self._backends.resolve_copies(record, mirror.reference)

    def _server(self, listener: ListenerState, host: str, names: _Records) -> Server:
        layers = [self._places(listener, names[name].values()) for name in names_of(host) if name in names]
        return Server(
            host,
            locations_of(merge_layers(layers)),
            listeners=(listener.socket,),
            certificate=listener.certificate_for(host) if listener.socket.tls else "",
            one_label=False,
        )

    def _places(self, listener: ListenerState, records: Iterable[RouteRecord]) -> Places:
        places: dict[tuple[PathMatch, str], list[tuple[_Order, Route]]] = defaultdict(list)
        for record in records:
            for number, rule in enumerate(record.rules):
                made = self._route(record, number, rule, listener)
                for index, match in enumerate(rule.matches):
                    order = (_reversed(match), record.age, number, index)
                    route = replace(made, conditions=match.conditions) if match.conditions else made
                    places[match.match, _path(match)].append((order, route))
        return {place: [route for _, route in sorted(entries, key=lambda entry: entry[0])] for place, entries in places.items()}

    def _route(self, record: RouteRecord, number: int, rule: RouteRule, listener: ListenerState) -> Route:
        origin = f"{record.origin} rules[{number}]"
        # A gRPC client reads 503 as UNAVAILABLE, which the specification demands; 500 would be UNKNOWN.
        failure = _UNAVAILABLE if record.kind == "GRPCRoute" else _FAILURE
        if rule.problem:
            return Route(policy=failure, origin=origin)
        policy = DEFAULT_POLICY
        if rule.timeouts != policy.timeouts or rule.retries != policy.retries:
            policy = replace(policy, timeouts=rule.timeouts, retries=rule.retries)
        policy = rule.filters.apply(policy, listener.socket.port, tls=listener.socket.tls)
        if policy.redirect is not None:
            return Route(policy=policy, origin=origin)
        policy = self._with_mirrors(policy, record, rule.filters)
        targets = self._targets(record, rule, policy, listener, failure)
        if not targets:
            return Route(policy=failure, origin=origin)
        targets, policy = _shared(targets, policy)
        return Route(targets, policy, rewrite=rule.filters.rewrite, origin=origin)

    def _targets(
        self, record: RouteRecord, rule: RouteRule, policy: Policy, listener: ListenerState, failure: Policy
    ) -> tuple[Target, ...]:
        targets = []
        for reference in rule.backends:
            if reference.weight <= 0:
                continue
            try:
                name, protocol = self._backends.resolve(record, reference)
            except UnresolvedBackend:
                targets.append(Target("", reference.weight, failure))
                continue
            own = reference.filters.apply(policy, listener.socket.port, tls=listener.socket.tls)
            own = self._with_mirrors(own, record, reference.filters)
            targets.append(Target(name, reference.weight, _with_protocol(own, protocol)))
        return tuple(targets)

    def _with_mirrors(self, policy: Policy, record: RouteRecord, filters: FilterSet) -> Policy:
        """Add the backends that get copies of requests, without unresolved backends; the condition ResolvedRefs names those."""
        mirrors = []
        for mirror in filters.mirrors:
            with contextlib.suppress(UnresolvedBackend):
                name = self._backends.resolve_copies(record, mirror.reference)
                mirrors.append(Mirror(name, mirror.numerator, mirror.denominator))
        return replace(policy, mirrors=(*policy.mirrors, *mirrors)) if mirrors else policy


def _with_protocol(policy: Policy, protocol: Protocol) -> Policy:
    return policy if policy.protocol is protocol else replace(policy, protocol=protocol)


def _shared(targets: tuple[Target, ...], policy: Policy) -> tuple[tuple[Target, ...], Policy]:
    """Return the targets and the policy of their route: that of the first backend, so that most targets need no policy."""
    common = next((target.policy for target in targets if target.backend and target.policy is not None), policy)
    return tuple(replace(target, policy=None) if target.policy == common else target for target in targets), common


def _belongs_to_another(host: str, listener: ListenerState, siblings: Iterable[ListenerState]) -> bool:
    """Report whether a listener of the same port with a narrower host name serves a host: the most specific listener gets requests."""
    if host == CATCH_ALL:
        return False
    narrower = (sibling.hostname for sibling in siblings if sibling.hostname != listener.hostname)
    return any(intersection(listener.hostname, name) == name and intersection(name, host) == host for name in narrower)


def _reversed(match: RouteMatch) -> tuple[bool, int, int]:
    """Return a rank that sorts the match with a method, and with more headers and parameters, first."""
    method, headers, queries = match.rank
    return (not method, -headers, -queries)


def _path(match: RouteMatch) -> str:
    """Return the path of a match; a prefix with and without a slash at its end is the same."""
    return (match.path.rstrip("/") or "/") if match.match is PathMatch.PREFIX else match.path
