"""A server of the model as a ``server`` block with natural locations.

A location with one route and one target holds its directives. Others pass the request on to a named location, with
``error_page 418 = $variable; return 418;``, which leaves path, method and body as they are.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from examples.ingress_nginx.model.configuration import (
    CATCH_ALL,
    DEFAULT_BACKEND,
    Certificate,
    Listener,
    Location,
    PathMatch,
    Route,
    Server,
    Settings,
    Target,
)
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy
from examples.ingress_nginx.nginx.conditions import choose_location, condition_variable, path_variable, split
from examples.ingress_nginx.nginx.parts import ConfigurationParts, certificate_file, digest
from examples.ingress_nginx.nginx.policy_directives import (
    DirectiveMemo,
    PolicyContext,
    PolicyDirectives,
    pass_directive,
    policy_directives,
    quote_url,
    redirect_directive,
)
from examples.ingress_nginx.nginx.quoting import UnsafeText, pcre_literal, quote
from examples.ingress_nginx.nginx.upstreams import Upstream

NOT_FOUND = 'return 404 "not found\\n";'
UNAVAILABLE = "return 503;"

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class ServerText:
    """A server in nginx.conf. ``backends`` and ``certificates``: names of the parts that its text depends on."""

    lines: list[str]
    parts: ConfigurationParts
    backends: set[str] = field(default_factory=set)
    certificates: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A route that may get a request of a location. ``path``: variable that must be ``1``; empty: its path always matches."""

    route: Route
    location: Location
    path: str = ""


class ServerBlock:
    """Builds the text of one server.

    Args:
        server: The server.
        settings: Settings of all servers.
        upstreams: Returns a backend as NGINX knows it, or None.
        certificate: Returns a certificate of the model, or None.
        listen: Returns the ``listen`` directives of a listener.
        memo: Directives of policies, for servers without client certificates; all servers share it.
    """

    def __init__(
        self,
        server: Server,
        settings: Settings,
        upstreams: Callable[[str], Upstream | None],
        certificate: Callable[[str], Certificate | None],
        listen: Callable[[Listener, bool], Iterable[str]],
        memo: DirectiveMemo,
    ) -> None:
        self._server = server
        self._settings = settings
        self._find_upstream = upstreams
        self._find_certificate = certificate
        self._listen = listen
        self._context = PolicyContext(self._certificate, self._pass_to, self._copy_to)
        self._headers = client_headers(server)
        self._memo = DirectiveMemo() if self._headers else memo
        self._text = ServerText([], ConfigurationParts())
        self._bodies: dict[tuple[int, str | None], str] = {}
        # NGINX prefers expressions to prefixes: with one expression, prefixes become expressions too, which it compares in their order.
        self._in_order = any(location.match is PathMatch.REGEX for location in server.locations)

    def build(self) -> ServerText:
        """Return the text; raises UnsafeText if a name of the server cannot be written."""
        server, text = self._server, self._text
        heads = self._head((server.host, *server.aliases))
        locations: list[str] = []
        exact = {location.path for location in server.locations if location.match is PathMatch.EXACT}
        written: set[str] = set()
        for index, location in enumerate(server.locations):
            try:
                names = self._names(location, exact)
            except UnsafeText as error:
                _logger.warning("%s: path %.60r is not served: %s", server.host, location.path, error)
                continue
            try:
                body = self._body(index, location)
            except UnsafeText as error:
                _logger.warning("%s%s answers 503: %s", server.host, location.path, error)
                body = UNAVAILABLE
            for name in names:
                if name not in written:
                    written.add(name)
                    locations.append(f"location {name} {{ {body} }}")
        if "/" not in written:
            locations.append(f"location / {{ {self._default_body()} }}")
        text.lines += [*heads, *locations, *text.parts.server, "}"]
        if server.redirect_from:
            redirect = f'return 308 "$kubeloop_scheme://{quote(server.host)[1:-1]}$request_uri";'
            text.lines += [*self._head(server.redirect_from, default=False), redirect, "}"]
        return text

    # -- the server itself

    def _head(self, names: Sequence[str], *, default: bool | None = None) -> list[str]:
        server, parts = self._server, self._text.parts
        is_default = server.host == CATCH_ALL if default is None else default
        listeners = server.listeners or (self._settings.http, self._settings.https)
        lines = ["server {", *(line for listener in listeners for line in self._listen(listener, is_default))]
        lines.append(f"server_name {' '.join(server_name(name, one_label=server.one_label) for name in names)};")
        name = server.certificate or (self._settings.default_certificate if is_default or server.client_auth is not None else "")
        found = self._certificate(name) if name else None
        # A server without ssl_certificate needs no SSL context (0.3 ms each); NGINX then answers with the default server's.
        if found is not None and found.chain and any(listener.tls for listener in listeners):
            lines.append(f"ssl_certificate {certificate_file(found.chain, parts)};")
            lines.append(f"ssl_certificate_key {certificate_file(found.key, parts)};")
        return lines + self._client_auth()

    def _client_auth(self) -> list[str]:
        auth = self._server.client_auth
        if auth is None:
            return []
        authority = self._certificate(auth.authority)
        if authority is None or not authority.authorities or auth.verify not in ("on", "optional", "optional_no_ca"):
            # Without authorities NGINX cannot verify clients, and must not let them in.
            return [UNAVAILABLE]
        lines = [
            f"ssl_client_certificate {certificate_file(authority.authorities, self._text.parts)};",
            f"ssl_verify_client {auth.verify};",
            f"ssl_verify_depth {int(auth.depth)};",
        ]
        if auth.error_page:
            lines.append("error_page 495 496 = @kubeloop_client;")
            lines.append(f"location @kubeloop_client {{ internal; return 302 {quote_url(auth.error_page)}; }}")
        return lines

    # -- locations

    def _names(self, location: Location, exact: set[str]) -> list[str]:
        """Return the names of the locations of a path: the parameters of ``location``."""
        path = location.path
        if location.match is PathMatch.REGEX:
            return [f"~* {quote('^' + path, variables=False)}"]
        if location.match is PathMatch.EXACT:
            return [f"= {quote(path, variables=False)}"]
        path = path.rstrip("/")
        if not path:
            return ["/"]
        if self._in_order:
            return [f"~ {quote(f'^{pcre_literal(path)}(?:/|$)', variables=False)}"]
        names = [quote(path + "/", variables=False)]
        return names if path in exact else [*names, f"= {quote(path, variables=False)}"]

    def _body(self, index: int, location: Location) -> str:
        routes = location.routes
        # NGINX redirects /a to the location /a/ of a pass directive: only a named location keeps "= /a/" from that.
        slash = location.match is PathMatch.EXACT and len(location.path) > 1 and location.path.endswith("/")
        if len(routes) == 1 and len(routes[0].targets) < 2 and not routes[0].conditions and not slash:
            return self._target_body(routes[0], routes[0].targets[0] if routes[0].targets else None, location)
        choices: list[tuple[Sequence[str], Sequence[tuple[str, int]], str]] = []
        parts = self._text.parts
        for candidate in self._candidates(index):
            conditions = [condition_variable(condition, parts) for condition in candidate.route.conditions]
            if candidate.path:
                conditions.append(candidate.path)
            upstreams = [self._upstream(target.backend) for target in candidate.route.targets]
            key = next((found.key for found in upstreams if found is not None and found.key), "")
            choices.append((conditions, self._named_targets(candidate), key))
        if len(choices) == 1 and not choices[0][0]:
            chosen = split(choices[0][1], parts, choices[0][2]) or self._named_location(UNAVAILABLE)
        else:
            chosen = choose_location(choices, self._named_location(self._default_body()), parts)
        return f"error_page 418 = {chosen}; return 418;"

    def _candidates(self, index: int) -> list[_Candidate]:
        """Return the routes that may get a request of a location, up to the first route without a condition.

        They are its routes, then those of the less specific locations, which follow it.
        """
        location = self._server.locations[index]
        found: list[_Candidate] = []
        for other in self._server.locations[index:]:
            if other is location:
                path: str | None = ""
            else:
                path = self._overlap(location, other)
            if path is None:
                continue
            for route in other.routes:
                found.append(_Candidate(route, other, path))
                if not route.conditions and not path:
                    return found
        return found

    def _overlap(self, location: Location, other: Location) -> str | None:
        """Return how a less specific location matches the requests of a location: always (empty), never (None), or if a variable is 1."""
        parts = self._text.parts
        if other.match is PathMatch.REGEX:
            return path_variable("^" + other.path, parts, ignore_case=True)
        prefix = other.path.rstrip("/")
        if location.match is PathMatch.REGEX:
            end = r"(?:/|\z)" if other.match is PathMatch.PREFIX else r"\z"
            path = prefix if other.match is PathMatch.PREFIX else other.path
            return path_variable(f"^{pcre_literal(path)}{end}", parts, ignore_case=False) if path else ""
        if other.match is PathMatch.EXACT:
            return "" if location.match is PathMatch.EXACT and location.path == other.path else None
        return "" if location.path.rstrip("/") == prefix or location.path.startswith(prefix + "/") else None

    def _named_targets(self, candidate: _Candidate) -> list[tuple[str, int]]:
        route, location = candidate.route, candidate.location
        if not route.targets:
            return [(self._named_location(self._target_body(route, None, location)), 1)]
        found = [
            (self._named_location(self._target_body(route, target, location)), target.weight)
            for target in route.targets
            if target.weight > 0
        ]
        return found or [(self._named_location(UNAVAILABLE), 1)]

    def _named_location(self, body: str) -> str:
        name = f"@kubeloop_{digest(body)}"
        self._text.parts.server[f"location {name} {{ {body} }}"] = None
        return name

    def _target_body(self, route: Route, target: Target | None, location: Location) -> str:
        """Return the directives for requests to a target. The caller answers 503 if they cannot be written."""
        policy = route.policy if target is None or target.policy is None else target.policy
        # Bodies that do not depend on the path are equal for all paths of an Ingress.
        key = None if route.rewrite is not None or policy.redirect is not None else (id(policy), None if target is None else target.backend)
        if key is not None and (known := self._bodies.get(key)) is not None:
            return known
        body = self._make_body(policy, route, target, location)
        if key is not None:
            self._bodies[key] = body
        return body

    def _make_body(self, policy: Policy, route: Route, target: Target | None, location: Location) -> str:
        found = self._directives(policy)
        lines = list(found.lines)
        if found.answers:
            if policy.redirect is not None and policy.redirect.replace_prefix and not policy.status:
                lines += _rest_of_path(location, policy.redirect.path)
                lines.append(redirect_directive(policy.redirect, "$kubeloop_rest"))
            return " ".join(lines)
        if self._server.client_auth is not None and self._server.client_auth.verify == "on":
            # Clients of a listener without TLS have no certificate.
            lines.append("if ($ssl_client_verify != SUCCESS) { return 403; }")
        upstream = self._upstream(target.backend) if target is not None else None
        if upstream is None or not upstream.target:
            is_default = target is not None and target.backend == DEFAULT_BACKEND
            return " ".join((*lines, NOT_FOUND if is_default else UNAVAILABLE))
        lines += upstream.before
        if route.rewrite is not None:
            lines.append(_rewrite(route.rewrite.replacement, location, prefix=route.rewrite.prefix))
        lines.append(pass_directive(policy.protocol, upstream.target))
        return " ".join(lines)

    def _default_body(self) -> str:
        found = self._upstream(DEFAULT_BACKEND)
        if found is None or not found.target:
            return NOT_FOUND
        return " ".join((*self._directives(DEFAULT_POLICY).lines, *found.before, pass_directive(DEFAULT_POLICY.protocol, found.target)))

    # -- what the text depends on

    def _directives(self, policy: Policy) -> PolicyDirectives:
        found = self._memo.find(policy, lambda: policy_directives(policy, self._context, self._headers))
        self._text.parts.merge(found.parts)
        self._text.backends |= policy.further_backends
        self._text.certificates.update(name for name in (policy.backend_tls.client_certificate, policy.backend_tls.authority) if name)
        return found

    def _certificate(self, name: str) -> Certificate | None:
        self._text.certificates.add(name)
        return self._find_certificate(name)

    def _upstream(self, name: str) -> Upstream | None:
        self._text.backends.add(name)
        return self._find_upstream(name)

    def _copy_to(self, name: str) -> str:
        found = self._upstream(name)
        # A copy shares its variables with the request: it must not set the DNS name that the request goes to.
        return found.target if found is not None and not found.before else ""

    def _pass_to(self, name: str) -> list[str]:
        found = self._upstream(name)
        return [] if found is None or not found.target else [*found.before, pass_directive(DEFAULT_POLICY.protocol, found.target)]


def server_name(name: str, *, one_label: bool) -> str:
    """Return a host as a parameter of the directive ``server_name``; raises UnsafeText."""
    if name == CATCH_ALL:
        return CATCH_ALL
    if not re.fullmatch(r"(\*\.)?[a-z0-9_]([a-z0-9_.-]{0,250}[a-z0-9_])?", name):
        raise UnsafeText(f"{name[:60]!r} is no name of a host")
    if name.startswith("*.") and one_label:
        return quote(rf"~^[^.]+{pcre_literal(name[1:])}\z", variables=False)
    return quote(name, variables=False)


def client_headers(server: Server) -> Mapping[str, str]:
    """Return the headers with a client's certificate; they also replace headers of that name that the client has sent."""
    if server.client_auth is None:
        return {}
    return {
        "ssl-client-verify": "$ssl_client_verify",
        "ssl-client-subject-dn": "$ssl_client_s_dn",
        "ssl-client-issuer-dn": "$ssl_client_i_dn",
        "ssl-client-cert": "$ssl_client_escaped_cert" if server.client_auth.pass_certificate else '""',
    }


def _rest_of_path(location: Location, replacement: str) -> list[str]:
    """Return directives that set ``$kubeloop_rest`` to the path after the location's prefix, as the client has sent it."""
    prefix = pcre_literal(location.path.rstrip("/"))
    empty = "" if replacement.rstrip("/") else "/"
    pattern = quote(f"^{prefix}(/[^?]*)", variables=False)
    return [f'set $kubeloop_rest "{empty}";', f"if ($request_uri ~ {pattern}) {{ set $kubeloop_rest $1; }}"]


def _rewrite(replacement: str, location: Location, *, prefix: bool) -> str:
    if location.match is PathMatch.REGEX:
        pieces = re.split(r"\$([1-9])", replacement)
        text = "".join(quote(piece)[1:-1] if index % 2 == 0 else f"${piece}" for index, piece in enumerate(pieces))
        # Without a slash at its start a replacement may be a whole URL, which NGINX takes for a redirect.
        if not replacement.startswith("/") and not _begins_with_slash(replacement, location.path):
            text = "/" + text
        return f'rewrite {quote(f"(?i)^{location.path}", variables=False)} "{text}" break;'
    literal = "/" + replacement.lstrip("/")
    if not prefix or location.match is PathMatch.EXACT:
        return f"rewrite ^ {quote(literal)} break;"
    old, new = pcre_literal(location.path.rstrip("/")), literal.rstrip("/")
    # Without a new prefix the rest must begin with the only slash.
    pattern, target = (f"{old}(/.*)?", f"{quote(new)[1:-1]}$1") if new else (f"{old}/?(.*)", "/$1")
    return f'rewrite {_whole(pattern)} "{target}" break;'


def _begins_with_slash(replacement: str, expression: str) -> bool:
    """Report whether a replacement begins with a group of an expression whose text begins with a slash."""
    groups = [found.end() for found in re.finditer(r"(?<!\\)\((?!\?)", expression)]
    number = int(replacement[1]) if re.match(r"\$[1-9]", replacement) else 0
    return (
        0 < number <= len(groups)
        and expression[groups[number - 1] :].startswith("/")
        and not re.match(r"/[?*|]", expression[groups[number - 1] :])
    )


def _whole(pattern: str) -> str:
    return quote(f"(?s)^{pattern}\\z", variables=False)
