"""One host's server from the Ingresses that name the host."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace

from examples.ingress_nginx.annotations.auth import bind_host
from examples.ingress_nginx.annotations.parsed import Canary
from examples.ingress_nginx.ingress.backends import BackendTable
from examples.ingress_nginx.ingress.certificates import CertificateError
from examples.ingress_nginx.ingress.records import IngressRecord, Key, PathRecord, ServiceRef, expressions
from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    DEFAULT_BACKEND,
    Certificate,
    ClientAuth,
    Condition,
    Location,
    PathMatch,
    Rewrite,
    Route,
    Server,
    Settings,
    Source,
    Target,
    order_locations,
)
from examples.ingress_nginx.model.policy import Policy, Redirect

#: The Ingress, the reason and the text of a problem.
HostProblem = tuple[Key, str, str]


@dataclass(slots=True)
class BuiltServer:
    """A server with everything that it uses. ``backends``: a name for each use."""

    server: Server
    backends: list[str] = field(default_factory=list)
    certificates: dict[str, Certificate] = field(default_factory=dict)
    problems: list[HostProblem] = field(default_factory=list)


@dataclass(slots=True)
class _Rule:
    """A path with the oldest Ingress that defines it, and the canary Ingress of the same path."""

    record: IngressRecord
    path: PathRecord
    canary: tuple[IngressRecord, PathRecord] | None = None


class ServerBuilder:
    """Builds the server of a host.

    Args:
        backends: Table of backends; each use is counted there.
        certificate: Returns the certificate of a Secret.
        certificate_for: Chooses the certificate of a host, and returns the problems of the Secrets that it passes over.
        settings: Defaults of redirects to https:// and of Strict-Transport-Security.
    """

    def __init__(
        self,
        backends: BackendTable,
        certificate: Callable[[Key], Certificate | CertificateError | None],
        certificate_for: Callable[[str], tuple[Certificate | None, list[HostProblem]]],
        settings: Settings,
    ) -> None:
        self._backends = backends
        self._certificate = certificate
        self._certificate_for = certificate_for
        self._ssl_redirect = settings.ssl_redirect
        self._hsts = settings.strict_transport_security

    def build(self, host: str, records: list[IngressRecord], rival: Callable[[str, str], str]) -> BuiltServer:
        """Return the server of a host.

        Args:
            host: The host.
            records: Its Ingresses, the oldest first.
            rival: Returns what else has a name that the host claims as an alias or redirect; empty: nothing.
        """
        built = BuiltServer(Server(host))
        certificate, found = self._certificate_for(host) if host != CATCH_ALL else (None, [])
        built.problems += found
        if certificate is not None:
            built.certificates[certificate.name] = certificate
        # As in ingress-nginx, a host in spec.tls whose Secret is missing has the default certificate, and redirects to https://.
        secure = certificate is not None or (host != CATCH_ALL and any(record.wants_tls(host) for record in records))
        rules = self._rules(records, host, built)
        locations = self._locations(rules, records, secure, built)
        self._default_location(locations, records, secure, built)
        self._app_root(locations, records, secure, built)
        # Expressions are in their order already, with all other paths of the host among them.
        expressions_first = any(location.match is PathMatch.REGEX for location in locations)
        ordered = tuple(locations) if expressions_first else order_locations(locations)
        aliases, redirects = self._names(host, records, rival, built)
        built.server = Server(
            host,
            ordered,
            certificate=certificate.name if certificate is not None else "",
            aliases=aliases,
            redirect_from=redirects,
            client_auth=self._client_auth(records, built),
        )
        return built

    def _rules(self, records: list[IngressRecord], host: str, built: BuiltServer) -> list[_Rule]:
        rules: dict[tuple[str, PathMatch], _Rule] = {}
        canaries: list[IngressRecord] = []
        for record in records:
            if record.annotations.canary is not None:
                canaries.append(record)
                continue
            for path in record.hosts[host]:
                first = rules.setdefault((path.path, path.match), rule := _Rule(record, path))
                if first is not rule and first.record is not record:
                    text = f"host {host!r} and path {path.path!r} is already defined in {first.record.origin}, which is older"
                    built.problems.append((record.key, "Conflict", text))
        for record in canaries:
            for path in record.hosts[host]:
                # A canary need not repeat the annotation that makes the path of its main Ingress an expression.
                main = rules.get((path.path, path.match)) or rules.get((path.path, PathMatch.REGEX))
                if main is None:
                    text = f"canary: no other Ingress defines host {host!r} and path {path.path!r}"
                elif main.canary is not None and main.canary[0] is not record:
                    text = f"canary: {main.canary[0].origin} is already the canary of host {host!r} and path {path.path!r}"
                else:
                    main.canary = main.canary or (record, path)
                    continue
                built.problems.append((record.key, "Conflict", text))
        return list(rules.values())

    def _locations(self, rules: list[_Rule], records: list[IngressRecord], secure: bool, built: BuiltServer) -> list[Location]:
        policies = {record.key: self._policy(record, built.server.host, secure, built) for record in records}
        if any(rule.path.match is PathMatch.REGEX for rule in rules):
            texts = expressions(rule.path for rule in rules)
            place = {path: number for number, path in enumerate(texts)}
            rules.sort(key=lambda rule: place[rule.path])
        else:
            texts = {rule.path: rule.path for rule in rules}
        return [
            Location(texts[rule.path].path, texts[rule.path].match, self._routes(rule, policies[rule.record.key], built)) for rule in rules
        ]

    def _routes(self, rule: _Rule, policy: Policy, built: BuiltServer) -> tuple[Route, ...]:
        record, path = rule.record, rule.path
        rewrite = Rewrite(record.annotations.rewrite_target) if record.annotations.rewrite_target else None
        target = self._target(record, path.service, built)
        usual = Route((Target(target),), policy, rewrite=rewrite, origin=record.origin)
        if rule.canary is None:
            return (usual,)
        other, other_path = rule.canary
        share = other.annotations.canary
        assert share is not None
        if other.balancing.affinity is None:
            # Clients keep their endpoint, of the main backend or of the canary.
            other = replace(other, balancing=other.balancing._replace(affinity=record.balancing.affinity))
        name = self._target(other, other_path.service, built)
        found = self._backends.get(name)
        if found is None or not found.endpoints:
            # As in ingress-nginx, the main backend serves all requests.
            return (usual,)
        canary = replace(usual, targets=(Target(name),), origin=other.origin)
        return tuple(_canary_routes(share, usual, canary))

    def _target(self, record: IngressRecord, service: ServiceRef | None, built: BuiltServer) -> str:
        """Return the name of the backend for a service of an Ingress, or of the backend that replaces it."""
        if service is None:
            return DEFAULT_BACKEND
        backend = self._backends.acquire(service, record)
        built.backends.append(backend.name)
        if problem := self._backends.problem(backend.name):
            built.problems.append((record.key, "NoEndpoints", problem))
        if not backend.endpoints and (name := record.annotations.default_backend):
            replacement = self._first_port(record, name, built)
            return replacement or backend.name
        return backend.name

    def _first_port(self, record: IngressRecord, name: str, built: BuiltServer) -> str:
        ref = self._backends.first_port(record.key[0], name)
        if ref is None:
            built.problems.append(
                (record.key, "NoEndpoints", f"default-backend: service {record.key[0]}/{name} does not exist or has no port")
            )
            return ""
        backend = self._backends.acquire(ref, record)
        built.backends.append(backend.name)
        return backend.name

    def _policy(self, record: IngressRecord, host: str, secure: bool, built: BuiltServer) -> Policy:
        """Return the policy of an Ingress's locations. ``secure``: clients of the host use TLS."""
        annotations = record.annotations
        policy = bind_host(annotations.policy, host)
        redirects = annotations.ssl_redirect if annotations.ssl_redirect is not None else self._ssl_redirect
        changes: dict[str, object] = {}
        if (secure and redirects) or annotations.force_ssl_redirect:
            changes["https_redirect"] = 308
        if secure and self._hsts and not policy.hsts:
            changes["hsts"] = self._hsts
        if policy.intercept:
            name = self._first_port(record, annotations.default_backend, built) if annotations.default_backend else ""
            changes["error_backend"] = name or DEFAULT_BACKEND
        if annotations.denied or (host == CATCH_ALL and annotations.client_auth is not None):
            changes["status"] = 503
        for name in (policy.backend_tls.client_certificate, policy.backend_tls.authority):
            if name:
                self._use_certificate(record, name, built)
        return replace(policy, **changes) if changes else policy  # type: ignore[arg-type]

    def _default_location(self, locations: list[Location], records: list[IngressRecord], secure: bool, built: BuiltServer) -> None:
        """Add ``/`` for the default backend of the oldest Ingress that has one, unless a rule defines that path."""
        if any(location.path in ("/", "(?-i)/") and location.match is not PathMatch.EXACT for location in locations):
            return
        for record in records:
            if record.default is not None and record.annotations.canary is None:
                route = Route(
                    (Target(self._target(record, record.default, built)),),
                    self._policy(record, built.server.host, secure, built),
                    origin=record.origin,
                )
                regex = any(location.match is PathMatch.REGEX for location in locations)
                locations.append(Location("(?-i)/" if regex else "/", PathMatch.REGEX if regex else PathMatch.PREFIX, (route,)))
                return

    def _app_root(self, locations: list[Location], records: list[IngressRecord], secure: bool, built: BuiltServer) -> None:
        """Let ``/`` be redirected to the app-root of the oldest Ingress with one, also if no path of a rule serves ``/``."""
        record = next((found for found in records if found.annotations.policy.app_root and found.annotations.canary is None), None)
        if record is None or any(location.path in ("/", "(?-i)/", r"(?-i)/\z") for location in locations):
            return
        policy = self._policy(record, built.server.host, secure, built)
        route = Route(policy=replace(policy, redirect=Redirect(url=policy.app_root, status=302)), origin=record.origin)
        regex = any(location.match is PathMatch.REGEX for location in locations)
        locations.insert(0, Location(r"(?-i)/\z" if regex else "/", PathMatch.REGEX if regex else PathMatch.EXACT, (route,)))

    def _names(
        self, host: str, records: list[IngressRecord], rival: Callable[[str, str], str], built: BuiltServer
    ) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the aliases of a host and the names that redirect to it, without names that others have."""
        aliases: dict[str, None] = {}
        redirects: dict[str, None] = {}
        for record in records:
            for name in claimed_names(record, host):
                is_alias = name in record.annotations.server_aliases
                if text := rival(name, host):
                    if is_alias or not text.startswith("an Ingress defines"):
                        built.problems.append((record.key, "Conflict", f"{'server-alias' if is_alias else 'from-to-www-redirect'}: {text}"))
                elif is_alias:
                    aliases[name] = None
                else:
                    redirects[name] = None
        return tuple(aliases), tuple(name for name in redirects if name not in aliases)

    def _client_auth(self, records: Iterable[IngressRecord], built: BuiltServer) -> ClientAuth | None:
        for record in records:
            if (wanted := record.annotations.client_auth) is not None:
                if built.server.host == CATCH_ALL:
                    text = "auth-tls-secret: clients of rules without a host cannot be authenticated; requests get 503"
                    built.problems.append((record.key, "AnnotationParsingFailed", text))
                    continue
                self._use_certificate(record, wanted.authority, built)
                return wanted
        return None

    def _use_certificate(self, record: IngressRecord, name: str, built: BuiltServer) -> None:
        namespace, _, secret = name.partition("/")
        found = self._certificate((namespace, secret))
        if isinstance(found, Certificate):
            built.certificates[name] = found
        else:
            built.problems.append((record.key, "InvalidCertificate", str(found) if found else f"secret {name} does not exist"))


def claimed_names(record: IngressRecord, host: str) -> tuple[str, ...]:
    """Return the names besides a host that an Ingress wants for it: aliases, and the name with or without ``www.``."""
    if host == CATCH_ALL:
        return ()
    annotations = record.annotations
    www = host[4:] if host.startswith("www.") else f"www.{host}"
    redirect = (www,) if annotations.from_to_www and not host.startswith("*.") else ()
    return tuple(dict.fromkeys((*annotations.server_aliases, *redirect)))


def _canary_routes(canary: Canary, usual: Route, other: Route) -> Iterable[Route]:
    """Yield the routes of a path with a canary: by header, then by cookie, then by weight."""
    if canary.header:
        if canary.header_value or canary.header_pattern:
            value = canary.header_value or canary.header_pattern
            yield replace(other, conditions=(Condition(Source.HEADER, canary.header, value, regex=not canary.header_value),))
        else:
            yield replace(other, conditions=(Condition(Source.HEADER, canary.header, "always"),))
            yield replace(usual, conditions=(Condition(Source.HEADER, canary.header, "never"),))
    if canary.cookie:
        yield replace(other, conditions=(Condition(Source.COOKIE, canary.cookie, "always"),))
        yield replace(usual, conditions=(Condition(Source.COOKIE, canary.cookie, "never"),))
    share = min(canary.weight, canary.weight_total)
    targets = (*(replace(target, weight=canary.weight_total - share) for target in usual.targets),)
    if share:
        targets += (*(replace(target, weight=share) for target in other.targets),)
    yield replace(usual, targets=tuple(target for target in targets if target.weight))
