"""Explains which Ingress or route, backend and endpoints serve a request, and why others do not."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import unquote

from examples.ingress_nginx.ingress.builder import IngressBuilder
from examples.ingress_nginx.ingress.records import ClusterObjects, IngressRecord, PathRecord, expressions
from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    DEFAULT_BACKEND,
    Backend,
    Condition,
    Location,
    PathMatch,
    Route,
    Server,
    Target,
)
from kubeloop.api.networking.v1 import Ingress

_CASE = "(?-i)"


@dataclass(frozen=True, slots=True)
class ExplainedBackend:
    """A backend of a route. ``share``: its share of the route's requests, from 0 to 1. ``problem``: why it has no endpoints."""

    name: str
    service: str
    share: float
    endpoints: tuple[str, ...]
    balance: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ExplainedRoute:
    """Where the requests go that fulfil all conditions.

    Attributes:
        rule: The field of the Ingress that defines it.
        problems: Annotations of the Ingress that are not followed, and why.
    """

    origin: str
    rule: str
    conditions: tuple[str, ...]
    backends: tuple[ExplainedBackend, ...]
    behaviour: tuple[str, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class OtherIngress:
    """An Ingress that could be meant and does not serve the request."""

    origin: str
    reason: str


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """The answer for one host and path.

    Attributes:
        answer: What a client gets, in one sentence.
        server: Host of the server that has the request; ``_``: the one for all other hosts.
        certificate: The Secret of its certificate; empty: the default certificate.
        location: The path of the Ingress that matches; empty: none does.
        match: How it is compared.
        routes: In the order in which they are tried.
        others: Ingresses that do not serve the request, and why.
        config_map_problems: Problems of the controller's ConfigMap, which concern all requests.
        listener: Where Gateways listen that have the request, such as ``port 80``; empty: where the controller serves Ingresses.
        gateways: The answers for the same host and path at the listeners of Gateways.
    """

    host: str
    path: str
    answer: str
    server: str
    certificate: str = ""
    location: str = ""
    match: str = ""
    routes: tuple[ExplainedRoute, ...] = ()
    others: tuple[OtherIngress, ...] = field(default=())
    config_map_problems: tuple[str, ...] = ()
    listener: str = ""
    gateways: tuple[RequestExplanation, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return all parts as JSON values."""
        return asdict(self)

    def to_text(self) -> str:
        """Return a text for a terminal."""
        return "\n".join([*_lines(self), *(line for found in self.gateways for line in ("", *_lines(found)))])


def explain(builder: IngressBuilder, objects: ClusterObjects, host: str, path: str = "/") -> RequestExplanation:
    """Explain a request from the cluster's objects alone; NGINX is not asked.

    Args:
        builder: Has the configuration, the served Ingresses and the reasons against the others.
        objects: The objects that ``builder`` reads.
        host: Host of the request, with or without a port.
        path: Its path; a query does not count.
    """
    name, path = normalised(host, path)
    servers = {host: server for (_, host), server in builder.configuration.servers.items()}
    return Explainer(builder, objects, servers, name, path).explanation()


def normalised(host: str, path: str) -> tuple[str, str]:
    """Return a host in lower case without its port, and a path as NGINX compares it."""
    return host.lower().partition(":")[0].rstrip("."), _normalised(path)


def _normalised(path: str) -> str:
    """Return a path as NGINX compares it: decoded once, without its query, empty elements, ``.`` and ``..``."""
    elements: list[str] = []
    decoded = unquote(path.partition("?")[0], errors="surrogateescape")
    parts = decoded.split("/")
    for part in parts:
        if part == "..":
            elements[-1:] = []
        elif part not in ("", "."):
            elements.append(part)
    end = "/" if elements and parts[-1] in ("", ".", "..") else ""
    return f"/{'/'.join(elements)}{end}"


class Explainer:
    """Explains one request by the servers of Ingresses. Subclasses explain it by others.

    Args:
        builder: Has the configuration, the served Ingresses and the reasons against the others.
        objects: The objects that ``builder`` reads.
        servers: By host.
        host: Host of the request.
        path: Its path. Both as ``normalised`` returns them.
    """

    def __init__(self, builder: IngressBuilder, objects: ClusterObjects, servers: Mapping[str, Server], host: str, path: str) -> None:
        self._builder = builder
        self._objects = objects
        self._host = host
        self._path = path
        self._servers = servers

    def explanation(self) -> RequestExplanation:
        server, redirect = self._server()
        if redirect:
            return RequestExplanation(
                self._host,
                self._path,
                f"a redirect to {server.host}",
                server.host,
                server.certificate,
                others=tuple(self._others(server, None)),
            )
        locations = [found for found in server.locations if matches(found, self._path)]
        location = locations[0] if locations else None
        if location is None:
            answer = "the default backend answers" if self._backend(DEFAULT_BACKEND) is not None else "404: no path of the host matches"
            if server.host == CATCH_ALL:
                answer = answer.replace("of the host matches", "of an Ingress matches, and no Ingress has the host")
            return RequestExplanation(
                self._host, self._path, answer, server.host, server.certificate, others=tuple(self._others(server, None))
            )
        tried = _until_unconditional(locations)
        routes = tuple(self._route(server, found, route) for found, route in tried)
        return RequestExplanation(
            self._host,
            self._path,
            _answer(tried[-1][1], routes[-1]) if not tried[-1][1].conditions else "404: unless the conditions of a route hold",
            server.host,
            server.certificate,
            location.path,
            location.match,
            routes,
            tuple(self._others(server, location)),
        )

    def _server(self) -> tuple[Server, bool]:
        """Return the server of the host, and whether it redirects the host to its own name."""
        if (exact := self._servers.get(self._host)) is not None:
            return exact, False
        for server in self._servers.values():
            if self._host in server.aliases:
                return server, False
            if self._host in server.redirect_from:
                return server, True
        wildcards = [server for name, server in self._servers.items() if name.startswith("*.") and self._is_below(name[1:])]
        fitting = [server for server in wildcards if not server.one_label or "." not in self._host.removesuffix(server.host[1:])]
        if fitting:
            return max(fitting, key=lambda server: len(server.host)), False
        return self._servers.get(CATCH_ALL, Server(CATCH_ALL)), False

    def _is_below(self, suffix: str) -> bool:
        return self._host.endswith(suffix) and len(self._host) > len(suffix)

    def _route(self, server: Server, location: Location, route: Route) -> ExplainedRoute:
        total = sum(target.weight for target in route.targets) or 1
        backends = tuple(self._explained(target, target.weight / total) for target in route.targets)
        conditions = tuple(_condition_text(condition) for condition in route.conditions)
        ingress = self._ingress(route.origin)
        record = None if ingress is None else self._builder.records.get((ingress.metadata.namespace, ingress.metadata.name))
        said = () if record is None else (f"annotation {found.annotation}: {found.message}" for found in record.annotations.problems)
        rule = self._rule(server, location, route)
        return ExplainedRoute(route.origin, rule, conditions, backends, tuple(_behaviour(route)), tuple(said))

    def _explained(self, target: Target, share: float) -> ExplainedBackend:
        backend = self._backend(target.backend)
        if target.policy is not None and target.policy.status:
            return ExplainedBackend(
                "a backend", "", share, (), problem=f"its reference leads nowhere: NGINX answers {target.policy.status}"
            )
        if backend is None:
            return ExplainedBackend(target.backend, "", share, (), problem="no default backend is set: NGINX answers 404")
        endpoints = tuple(f"{endpoint.address}:{endpoint.port}" for endpoint in backend.endpoints)
        problem = "" if endpoints else self._problem(backend)
        balance = f"hash of {' '.join(backend.hash_by)}" if backend.hash_by else "cookie" if backend.affinity else str(backend.balance)
        return ExplainedBackend(target.backend, backend.origin, share, endpoints, balance, problem)

    def _problem(self, backend: Backend) -> str:
        namespace, _, rest = backend.origin.partition("/")
        name, _, port = rest.rpartition(":")
        if self._objects.service(namespace, name) is None:
            return f"service {namespace}/{name} does not exist"
        said = (text for problems in self._builder.problems.values() for reason, text in problems if reason == "NoEndpoints")
        stated = next((text for text in said if f"{namespace}/{name} " in text or f"{namespace}/{name}:" in text), "")
        if stated:
            return stated
        all_endpoints = [endpoint for piece in self._objects.slices(namespace, name) for endpoint in piece.endpoints]
        if not all_endpoints:
            return f"service {namespace}/{name} selects no pods"
        unready = sum(endpoint.conditions.ready is False for endpoint in all_endpoints)
        return f"no endpoint of service {namespace}/{name} is ready for port {port} ({unready} of {len(all_endpoints)} are not ready)"

    def _backend(self, name: str) -> Backend | None:
        return self._builder.configuration.backends.get(name)

    def _rule(self, server: Server, location: Location, route: Route) -> str:
        """Return the field of the Ingress that a location comes from."""
        ingress = self._ingress(route.origin)
        if ingress is None:
            return ""
        record = self._builder.records.get((ingress.metadata.namespace, ingress.metadata.name))
        for found in record.hosts.get(server.host, ()) if record is not None else ():
            if location.path in (found.path, expressions([found])[found].path):
                return _field_of(ingress, server.host, found)
        return "spec.defaultBackend" if ingress.spec.default_backend is not None else ""

    def _ingress(self, origin: str) -> Ingress | None:
        kind, _, name = origin.partition(" ")
        return self._objects.ingress(*_key(name)) if kind == "Ingress" and "/" in name else None

    # Why others do not serve the request.

    def _others(self, server: Server, location: Location | None) -> Iterator[OtherIngress]:
        serving = {route.origin for route in location.routes} if location is not None else set()
        for record in self._builder.records_of(server.host):
            yield from self._same_host(record, server, location, serving)
        for name in self._servers:
            if name != server.host and name.startswith("*.") and self._is_below(name[1:]):
                labels = "stands for one label only" if self._servers[name].one_label else "is less specific"
                reason = f"host {name}: the star {labels}" if "." in self._host.removesuffix(name[1:]) else f"host {name} is less specific"
                yield from (OtherIngress(record.origin, reason) for record in self._builder.records_of(name))
        if server.host != CATCH_ALL:
            for record in self._builder.records_of(CATCH_ALL):
                yield OtherIngress(record.origin, f"its rules have no host; {server.host} has rules")
        for key, reason in sorted(self._builder.ignored.items()):
            ingress = self._objects.ingress(*key)
            if ingress is not None and self._concerns(ingress):
                yield OtherIngress(f"Ingress {'/'.join(key)}", reason)

    def _same_host(self, record: IngressRecord, server: Server, location: Location | None, serving: set[str]) -> Iterator[OtherIngress]:
        if record.origin in serving:
            return
        for found in record.hosts[server.host]:
            own = Location(found.path, found.match, ())
            shown = f"path {found.path} ({_MATCH_NAMES[found.match]})"
            if not matches(own, self._path):
                yield OtherIngress(record.origin, f"{shown} does not match{_element_hint(own, self._path)}")
            elif location is not None and found.path == location.path and found.match is location.match:
                yield OtherIngress(record.origin, self._conflict(record, shown, sorted(serving)))
            elif location is not None:
                yield OtherIngress(record.origin, f"{shown} is less specific than {location.path}")
        problems = self._builder.problems.get(record.key, ())
        yield from (
            OtherIngress(record.origin, text) for reason, text in problems if reason in ("InvalidPath", "InvalidHost", "InvalidUid")
        )

    def _conflict(self, record: IngressRecord, shown: str, serving: Iterable[str]) -> str:
        if record.annotations.canary is not None:
            texts = (text for reason, text in self._builder.problems.get(record.key, ()) if reason == "Conflict")
            return next(texts, f"{shown}: it is a canary without a share of the requests")
        return f"{shown} is already defined in {', '.join(serving)}, which is older"

    def _concerns(self, ingress: Ingress) -> bool:
        """Report whether an Ingress names the host of the request, or has rules for all hosts."""
        hosts = [(rule.host or "").lower() for rule in ingress.spec.rules]
        if ingress.spec.default_backend is not None and not hosts:
            hosts = [""]
        return any(host in ("", self._host) or (host.startswith("*.") and self._is_below(host[1:])) for host in hosts)


def _until_unconditional(locations: Iterable[Location]) -> list[tuple[Location, Route]]:
    """Return the routes that NGINX tries, in order: the first route without conditions gets the request."""
    tried = []
    for location in locations:
        for route in location.routes:
            tried.append((location, route))
            if not route.conditions:
                return tried
    return tried


def matches(location: Location, path: str) -> bool:
    """Report whether a location's path matches that of a request, as NGINX compares them."""
    match location.match:
        case PathMatch.EXACT:
            return path == location.path
        case PathMatch.PREFIX:
            prefix = location.path.rstrip("/")
            return path == prefix or path.startswith(f"{prefix}/") or not prefix
        case PathMatch.REGEX:
            # NGINX reads an option in the middle of an expression; Python does not.
            text = location.path.removeprefix(_CASE).replace(r"\z", r"\Z")
            flags = re.NOFLAG if location.path.startswith(_CASE) else re.IGNORECASE
            try:
                return re.match(text, path, flags) is not None
            except re.error:
                return False


_MATCH_NAMES = {PathMatch.EXACT: "Exact", PathMatch.PREFIX: "Prefix", PathMatch.REGEX: "regular expression"}


def _element_hint(location: Location, path: str) -> str:
    if location.match is PathMatch.PREFIX and path.startswith(location.path):
        return ": a prefix matches whole elements between slashes"
    return ": the case differs" if location.match is not PathMatch.REGEX and location.path.lower() == path.lower() else ""


def _key(name: str) -> tuple[str, str]:
    namespace, _, rest = name.partition("/")
    return namespace, rest


def _field_of(ingress: Ingress, host: str, record: PathRecord) -> str:
    for number, rule in enumerate(ingress.spec.rules):
        if (rule.host or CATCH_ALL).lower() == host:
            for place, found in enumerate(rule.http.paths if rule.http is not None else ()):
                path = found.path or "/"
                if record.path in (path, path.rstrip("/") or "/"):
                    return f"spec.rules[{number}].http.paths[{place}]"
    return ""


def _condition_text(condition: Condition) -> str:
    name = f"{condition.source} {condition.name}".strip()
    verb = "matches" if condition.regex else "is"
    return f"{name} {verb} {'not ' if condition.negate else ''}{condition.value!r}"


def _behaviour(route: Route) -> Iterator[str]:
    """Yield what happens to a request apart from its backend."""
    policy = route.policy
    if policy.https_redirect:
        yield f"http:// is redirected to https:// ({policy.https_redirect})"
    if policy.hsts:
        yield f"https:// answers have Strict-Transport-Security: {policy.hsts}"
    if policy.status:
        reason = "an annotation asks for a protection that is not possible" if route.origin.startswith("Ingress ") else "see its conditions"
        yield f"all requests get {policy.status}: {reason}"
    if policy.redirect is not None:
        yield f"a redirect ({policy.redirect.status}) to {policy.redirect.url or 'another address'}"
    if policy.app_root:
        yield f"/ is redirected to {policy.app_root}"
    if policy.allow:
        yield f"only for {', '.join(policy.allow)}"
    if policy.deny:
        yield f"not for {', '.join(policy.deny)}"
    if policy.basic_auth is not None:
        yield "a user name and a password are required"
    if policy.external_auth is not None:
        yield f"{policy.external_auth.url} decides about each request"
    if policy.limits is not None:
        yield "the number of requests of a client is limited"
    for mirror in policy.mirrors:
        share = "copies" if mirror.numerator >= mirror.denominator else f"copies of {mirror.numerator / mirror.denominator:.4g} of them"
        yield f"{share} go to {mirror.backend}"
    if route.rewrite is not None:
        yield f"the path becomes {route.rewrite.replacement}"


def _answer(route: Route, explained: ExplainedRoute) -> str:
    if route.policy.status:
        return str(route.policy.status)
    if route.policy.redirect is not None:
        return f"a redirect ({route.policy.redirect.status})"
    if not any(backend.endpoints for backend in explained.backends):
        missing = explained.backends[0] if explained.backends else None
        return "404: no default backend is set" if missing is not None and not missing.service else "503: no backend has an endpoint"
    return f"an endpoint of {', '.join(backend.service for backend in explained.backends)}"


def _lines(explanation: RequestExplanation) -> Iterator[str]:
    at = f" at {explanation.listener}" if explanation.listener else ""
    kind = "Gateway or route" if explanation.listener else "Ingress"
    yield f"{explanation.host}{explanation.path}{at}"
    yield f"├─ answer       {explanation.answer}"
    yield from (f"├─ ConfigMap    {text}" for text in explanation.config_map_problems)
    yield f"├─ host         {f'no {kind} has it' if explanation.server == CATCH_ALL else explanation.server}"
    yield f"├─ certificate  {explanation.certificate or 'the default certificate'}"
    if explanation.location:
        yield f"├─ path         {explanation.location} ({_MATCH_NAMES[PathMatch(explanation.match)]})"
    for route in explanation.routes:
        yield f"├─ {' and '.join(f'if {text}' for text in route.conditions) or ('otherwise' if len(explanation.routes) > 1 else 'route')}"
        yield f"│  ├─ {f'{route.origin}  {route.rule}'.strip()}"
        yield from (f"│  ├─ {text}" for text in (*route.behaviour, *route.problems))
        for number, backend in enumerate(route.backends, 1):
            branch = "└─" if number == len(route.backends) else "├─"
            share = f"{backend.share:.0%} " if len(route.backends) > 1 else ""
            count = f"{len(backend.endpoints)} endpoint{'s' if len(backend.endpoints) != 1 else ''}, {backend.balance}"
            yield f"│  {branch} {share}{backend.service or backend.name}: {backend.problem or count}"
            yield from (f"│       {endpoint}" for endpoint in backend.endpoints)
    yield (
        "└─ not served by" if explanation.others else f"└─ no other {'route' if explanation.listener else 'Ingress'} has this host and path"
    )
    width = max((len(other.origin) for other in explanation.others), default=0)
    yield from (f"   {other.origin:<{width}}  {other.reason}" for other in explanation.others)
