"""Server blocks for an NGINX with Lua: a block for each set of hosts, with a location for each policy. Lua chooses the location."""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from examples.ingress_nginx.model.configuration import CATCH_ALL, DEFAULT_BACKEND, Certificate, ClientAuth, Listener, Server, Settings
from examples.ingress_nginx.model.policy import BackendTls, Policy, Protocol
from examples.ingress_nginx.nginx.binary import NginxBinary
from examples.ingress_nginx.nginx.conf_file import listen
from examples.ingress_nginx.nginx.parts import ConfigurationParts, certificate_file, digest
from examples.ingress_nginx.nginx.policy_directives import (
    PolicyContext,
    pass_directive,
    policy_directives,
    quote_url,
    redirect_directive,
)
from examples.ingress_nginx.nginx.quoting import UnsafeText, quote
from examples.ingress_nginx.nginx.server_block import NOT_FOUND, UNAVAILABLE, client_headers, server_name

#: A policy's name, with the authentication of clients that its location needs to know.
PolicyUse = tuple[ClientAuth | None, str]

#: Declares the variables that the router sets, in a location without requests: in a server block ``set`` would empty them for subrequests.
VARIABLES = "location = /variables {{ internal; {} }}".format(
    " ".join(f'set $kubeloop_{name} "";' for name in ("location", "unserved", "target", "rest", "endpoint", "cookie", "id"))
)
#: MiB of the dictionary of counts.
COUNTS_MEMORY = 16
_LUA_FOLDER = Path(__file__).with_name("lua")

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class RoutingGroup:
    """Servers with the same listeners and the same authentication of clients. Their documents have the group's number in their keys."""

    listeners: tuple[Listener, ...]
    client_auth: ClientAuth | None


@dataclass(frozen=True, slots=True)
class RoutingBlock:
    """A server block.

    Attributes:
        listeners: Its listeners.
        groups: Numbers of the groups whose hosts it serves.
        client_auth: How it authenticates clients.
        names: Parameters of ``server_name``. Without ``client_auth`` it also serves all names that other blocks do not have.
    """

    listeners: tuple[Listener, ...]
    groups: tuple[str, ...]
    client_auth: ClientAuth | None = None
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class RoutingShape:
    """Everything that nginx.conf depends on: NGINX reloads only if it differs.

    Attributes:
        settings: Settings of all servers.
        blocks: Server blocks.
        policies: Policies that have locations.
        inline: For each authentication of clients the policy in ``location /``.
        named_backends: There are backends with DNS names, which NGINX resolves.
        further_backends: Names of existing backends that directives of policies name: for errors, and for copies of requests.
        certificates: Certificates that directives refer to, by name.
        memory: MiB of the dictionary of documents, and of its predecessor; 0: none.
        excluded: Names of policies whose directives NGINX refuses; their locations answer 503.
    """

    settings: Settings = field(default_factory=Settings)
    blocks: tuple[RoutingBlock, ...] = ()
    policies: frozenset[PolicyUse] = frozenset()
    inline: tuple[PolicyUse, ...] = ()
    named_backends: bool = False
    further_backends: frozenset[str] = frozenset()
    certificates: tuple[tuple[str, Certificate | None], ...] = ()
    memory: tuple[int, int] = (0, 0)
    excluded: frozenset[str] = frozenset()


def arrange(groups: Mapping[RoutingGroup, tuple[str, Iterable[Server]]], settings: Settings) -> tuple[RoutingBlock, ...]:
    """Return the server blocks for groups.

    Args:
        groups: The number of each group, and its servers; of groups without authentication of clients only the servers below a wildcard
            host that authenticates clients: NGINX must know their names, or it takes their requests for that host's.
        settings: Settings of all servers.
    """
    defaults = (settings.http, settings.https)
    by_listener: dict[Listener, list[str]] = {}
    below: dict[Listener, list[Server]] = defaultdict(list)
    blocks: list[RoutingBlock] = []
    for group, (number, servers) in groups.items():
        listeners = group.listeners or defaults
        for listener in listeners:
            by_listener.setdefault(listener, [])
            if group.client_auth is None:
                by_listener[listener].append(number)
                below[listener] += servers
        if group.client_auth is not None and (names := tuple(_server_names(servers))):
            blocks.append(RoutingBlock(listeners, (number,), group.client_auth, names))
    alike: dict[tuple[tuple[str, ...], tuple[str, ...]], list[Listener]] = defaultdict(list)
    for listener, numbers in by_listener.items():
        alike[tuple(sorted(numbers, key=int)), tuple(_server_names(below[listener]))].append(listener)
    shared = [
        RoutingBlock(tuple(sorted(found, key=_listener_order)), numbers, names=names) for (numbers, names), found in sorted(alike.items())
    ]
    return (*shared, *sorted(blocks, key=lambda block: block.groups))


def _listener_order(listener: Listener) -> tuple[str, int, bool]:
    return (listener.address, listener.port, listener.tls)


def _server_names(servers: Iterable[Server]) -> Iterable[str]:
    """Yield the parameters of ``server_name`` for hosts that authenticate clients: NGINX must know them before Lua does."""
    names: dict[str, None] = {}
    for server in servers:
        for name in (server.host, *server.aliases, *server.redirect_from):
            try:
                names[server_name(name, one_label=server.one_label)] = None
            except UnsafeText as error:
                _logger.warning("host %.80r is not served: %s", name, error)
    return sorted(names)


class RoutingText:
    """Writes the parts of nginx.conf for Lua's router.

    Args:
        shape: What to write.
        binary: The program that reads it.
        policies: Policies by name.
        default_policy: Name of the policy for requests that no route gets.
        fallback: The certificate for clients that name no known host, if the documents have no default certificate.
    """

    def __init__(
        self,
        shape: RoutingShape,
        binary: NginxBinary,
        policies: Mapping[str, Policy],
        *,
        default_policy: str,
        fallback: Certificate,
    ) -> None:
        self._shape = shape
        self._binary = binary
        self._policies = policies
        self._default_policy = default_policy
        self._fallback = fallback
        self._certificates = dict(shape.certificates)
        self._context = PolicyContext(self._certificates.get, self._pass_to, self._upstream_of)
        self._upstreams: dict[str, str] = {}
        #: Files, and maps inside ``http``.
        self.parts = ConfigurationParts()

    def lines(self) -> list[str]:
        """Return the lines inside ``http``."""
        servers = [line for number, block in enumerate(self._shape.blocks) for line in self._server(number, block)]
        return [*self._lua(), *self._upstreams.values(), *self.parts.http, *servers]

    def _lua(self) -> list[str]:
        memory, previous = self._shape.memory
        dictionaries = [f"lua_shared_dict {_dictionary(size)} {size}m;" for size in (memory, previous) if size]
        inline = dict(self._shape.inline)
        names = {name for _, name in self._shape.policies}
        limits = ", ".join(f'["{name}"] = {int(self._policies[name].body_size) or "false"}' for name in sorted(names))
        setups = [
            f'documents.open("{_dictionary(memory)}"{f", {_dictionary(previous)!r}" if previous else ""})',
            f'router.defaults("{self._default_policy}", "{DEFAULT_BACKEND}")',
            f"router.limits({{ {limits} }})",
            *(
                f"router.block({number}, {{ {', '.join(f'{group!r}' for group in block.groups)} }}, {inline[block.client_auth]!r}, "
                f"{self._largest_body(block.client_auth) or 'false'})"
                for number, block in enumerate(self._shape.blocks)
            ),
        ]
        return [
            f"lua_package_path {quote(f'{_LUA_FOLDER}/?.lua;;', variables=False)};",
            *dictionaries,
            f"lua_shared_dict kubeloop_requests {COUNTS_MEMORY}m;",
            # Each expression of a path or condition is compiled once; the usual limit is 1,024 of them.
            "lua_regex_cache_max_entries 100000;",
            # A bound for expressions from outside that would take seconds to fail.
            "lua_regex_match_limit 100000;",
            # A request with Lua's phases needs more than the usual 4 KiB, and a second piece of memory costs 0.3 us.
            "request_pool_size 8k;",
            # Variables that a request does not need are empty.
            "uninitialized_variable_warn off;",
            "init_by_lua_block {",
            '    local documents, router = require "documents", require "router"',
            '    require "configuration"',
            # `require` at each request would cost as much as the whole search for a route.
            '    kubeloop_route, kubeloop_balance = router.route, require("balancer").balance',
            '    kubeloop_count, kubeloop_certificate = require("requests").count, require("certificates").choose',
            *(f"    {setup}" for setup in setups),
            "}",
            'init_worker_by_lua_block { require("identifiers").seed() }',
        ]

    def _server(self, number: int, block: RoutingBlock) -> list[str]:
        settings, auth = self._shape.settings, block.client_auth
        default = auth is None
        parts = ConfigurationParts()
        lines = ["server {"]
        lines += (line for listener in block.listeners for line in listen(listener, self._binary, settings, default=default))
        lines.append(f"server_name {' '.join(block.names if auth is not None else (CATCH_ALL, *block.names))};")
        if any(listener.tls for listener in block.listeners):
            lines += [
                f"ssl_certificate {certificate_file(self._fallback.chain, parts)};",
                f"ssl_certificate_key {certificate_file(self._fallback.key, parts)};",
                f"ssl_certificate_by_lua_block {{ kubeloop_certificate({number}) }}",
            ]
        if auth is not None:
            lines += self._client_auth(auth, parts)
        lines += [
            f"set_by_lua_block $kubeloop_location {{ return kubeloop_route({number}) }}",
            "log_by_lua_block { kubeloop_count() }",
            f"location @kubeloop_missing {{ {NOT_FOUND} }}",
            f"location @kubeloop_unavailable {{ {UNAVAILABLE} }}",
            "location @kubeloop_too_large { return 413; }",
            "location @kubeloop_failed { return 500; }",
            'location @kubeloop_redirect { return 308 "$kubeloop_scheme://$kubeloop_target$request_uri"; }',
        ]
        lines += self._locations(auth, parts)
        lines += [*parts.server, "}"]
        self.parts.http |= parts.http
        self.parts.files |= parts.files
        return lines

    def _client_auth(self, auth: ClientAuth, parts: ConfigurationParts) -> list[str]:
        authority = self._certificates.get(auth.authority)
        if authority is None or not authority.authorities or auth.verify not in ("on", "optional", "optional_no_ca"):
            # Without authorities NGINX cannot verify clients, and must not let them in.
            return [UNAVAILABLE]
        lines = [
            f"ssl_client_certificate {certificate_file(authority.authorities, parts)};",
            f"ssl_verify_client {auth.verify};",
            f"ssl_verify_depth {int(auth.depth)};",
        ]
        if auth.error_page:
            lines.append("error_page 495 496 = @kubeloop_client;")
            try:
                lines.append(f"location @kubeloop_client {{ return 302 {quote_url(auth.error_page)}; }}")
            except UnsafeText as error:
                _logger.warning("the page for clients without a certificate is not served: %s", error)
                lines.append("location @kubeloop_client { return 403; }")
        return lines

    def _locations(self, auth: ClientAuth | None, parts: ConfigurationParts) -> list[str]:
        headers = client_headers(Server(CATCH_ALL, client_auth=auth))
        inline = dict(self._shape.inline)[auth]
        lines = []
        for name in sorted(name for found, name in self._shape.policies if found == auth):
            lines.append(f"location {name} {{ {self._body(name, auth, headers, parts)} }}")
            if self._shape.named_backends:
                lines.append(f"location {name}_dns {{ {self._body(name, auth, headers, parts, named=True)} }}")
        # NGINX compares lengths of bodies here; Lua does it for policies with a smaller limit.
        limit = f"client_max_body_size {self._largest_body(auth)};"
        # NGINX takes "0" for false: the request stays here.
        leave = f"{limit} error_page 418 = $kubeloop_location; if ($kubeloop_location) {{ return 418; }}"
        lines.append(f"location / {{ {leave} {self._body(inline, auth, headers, parts, limit=False)} }}")
        return lines

    def _largest_body(self, auth: ClientAuth | None) -> int:
        """Return the largest limit in bytes among the policies of a block; 0: one has no limit."""
        names = {name for found, name in self._shape.policies if found == auth} - self._shape.excluded
        sizes = [int(self._policies[name].body_size) for name in names]
        return 0 if 0 in sizes else max(sizes, default=0)

    def _body(
        self,
        name: str,
        auth: ClientAuth | None,
        headers: Mapping[str, str],
        parts: ConfigurationParts,
        *,
        named: bool = False,
        limit: bool = True,
    ) -> str:
        """Return the directives of a policy's location.

        Args:
            name: Name of the policy.
            auth: Authentication of clients.
            headers: Headers with a client's certificate.
            parts: Gets the parts that are outside the location.
            named: The backend has a DNS name.
            limit: The location limits the size of bodies.
        """
        policy = self._policies[name]
        if name in self._shape.excluded:
            return UNAVAILABLE
        try:
            found = policy_directives(policy, self._context, headers)
        except UnsafeText as error:
            _logger.warning("locations of a policy answer 503: %s", error)
            return UNAVAILABLE
        parts.merge(found.parts)
        lines = [line for line in found.lines if limit or not line.startswith("client_max_body_size ")]
        if found.answers:
            if policy.redirect is not None and policy.redirect.replace_prefix and not policy.status:
                lines.append(redirect_directive(policy.redirect, "$kubeloop_rest"))
            return " ".join(lines)
        if auth is not None and auth.verify == "on":
            # Clients of a listener without TLS have no certificate.
            lines.append("if ($ssl_client_verify != SUCCESS) { return 403; }")
        lines += [
            "if ($kubeloop_unserved) { return 503; }",
            "add_header Set-Cookie $kubeloop_cookie always;",
            pass_directive(policy.protocol, "$kubeloop_target" if named else self._upstream(policy.protocol, policy.backend_tls)),
        ]
        return " ".join(lines)

    def _upstream(self, protocol: Protocol, tls: BackendTls, backend: str = "") -> str:
        """Return the name of the upstream for a protocol.

        Connections are kept by address: those of another protocol, or that another policy has verified, must not be used.
        ``backend``: name of the only backend; empty: Lua knows it for each request.
        """
        name = f"kubeloop_{protocol.value}" if tls == BackendTls() else f"kubeloop_{protocol.value}_{digest(tls)}"
        name += f"_{digest(backend)}" if backend else ""
        keepalive = self._shape.settings.upstream_keepalive
        kept = f"keepalive {int(keepalive)}; " if keepalive else ""
        balance = f"balancer_by_lua_block {{ kubeloop_balance({_lua_text(f'b:{backend}') if backend else ''}) }}"
        self._upstreams[name] = f"upstream {name} {{ server 0.0.0.1; {balance} {kept}}}"
        return name

    def _pass_to(self, name: str) -> Sequence[str]:
        upstream = self._upstream_of(name)
        return (pass_directive(Protocol.HTTP, upstream),) if upstream else ()

    def _upstream_of(self, name: str) -> str:
        return self._upstream(Protocol.HTTP, BackendTls(), name) if name in self._shape.further_backends else ""


def _lua_text(text: str) -> str:
    """Return a text as a string of Lua inside a block of nginx.conf; raises UnsafeText."""
    if not re.fullmatch(r"[A-Za-z0-9./:_-]*", text):
        raise UnsafeText(f"{text[:40]!r} has a character that Lua could read as syntax")
    return f'"{text}"'


def _dictionary(size: int) -> str:
    return f"kubeloop_documents_{size}m"


def used_certificates(uses: Iterable[PolicyUse], policies: Callable[[str], Policy]) -> set[str]:
    """Return the names of the certificates that directives of policies refer to."""
    found: set[str] = set()
    for auth, name in uses:
        tls = policies(name).backend_tls
        found |= {tls.client_certificate, tls.authority}
        if auth is not None:
            found.add(auth.authority)
    return found - {""}
