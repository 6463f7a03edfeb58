"""nginx.conf and documents for an NGINX with Lua: hosts, paths, backends and certificates are documents, and need no reload.

nginx.conf has a server block for each set of listeners, with one location for each distinct policy (routing_blocks.py). Lua's router
chooses among them. Requests for the most frequent policy stay in ``location /``.
"""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from examples.ingress_nginx.model.configuration import Certificate, Changes, Configuration, Server, ServerKey
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy
from examples.ingress_nginx.nginx.binary import NginxBinary
from examples.ingress_nginx.nginx.conf_file import conf_file
from examples.ingress_nginx.nginx.documents import (
    backend_document,
    certificate_document,
    encode,
    redirect_document,
    server_document,
)
from examples.ingress_nginx.nginx.quoting import UnsafeText
from examples.ingress_nginx.nginx.routing_blocks import (
    VARIABLES,
    PolicyUse,
    RoutingGroup,
    RoutingShape,
    RoutingText,
    arrange,
    used_certificates,
)

#: Key of the default certificate.
_DEFAULT_CERTIFICATE = "c:"
#: Bytes of shared memory for a byte of documents: the dictionary rounds sizes up, and needs room for a new document beside the old one.
_MEMORY_FACTOR = 3
#: MiB of the dictionary of documents, at least.
LEAST_MEMORY = 32
_STATUS_LOCATIONS = (
    VARIABLES,
    "client_max_body_size 64m;",
    "client_body_buffer_size 4m;",
    'location = /documents { content_by_lua_block { require("configuration").serve() } }',
    'location = /metrics-data { content_by_lua_block { require("requests").show() } }',
)
_SHARED = RoutingGroup((), None)

_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DynamicConfiguration:
    """nginx.conf with its files, and the documents that differ from the last ones.

    Attributes:
        text: nginx.conf.
        files: Files beside it.
        put: New and changed documents by key.
        delete: Keys of the removed ones.
        reason: Why nginx.conf differs from NGINX's present one; empty: it is equal.
    """

    text: str
    files: dict[str, bytes]
    put: dict[str, str]
    delete: set[str]
    reason: str


@dataclass(frozen=True, slots=True)
class _ServerEntry:
    """What a server has contributed: its group, the keys of its documents, and the names of its policies."""

    server: Server
    group: RoutingGroup
    keys: frozenset[str]
    policies: frozenset[str]


class PolicyNames:
    """Gives each distinct policy a name, which is that of a location. It stays as long as this object."""

    def __init__(self) -> None:
        self.policies: dict[str, Policy] = {}
        self._by_value: dict[Policy, str] = {}
        # Hashing a policy takes longer than this lookup. The policy stays in the entry, so that its identity is not used again.
        self._by_identity: dict[int, tuple[Policy, str]] = {}

    def name(self, policy: Policy) -> str:
        """Return the name of a policy."""
        if (known := self._by_identity.get(id(policy))) is not None:
            return known[1]
        name = self._by_value.get(policy)
        if name is None:
            name = self._by_value[policy] = f"@policy_{len(self.policies)}"
            self.policies[name] = policy
        if len(self._by_identity) >= 50_000:
            self._by_identity.clear()
        self._by_identity[id(policy)] = (policy, name)
        return name


class DynamicRenderer:
    """Renders configurations, and after a change only the documents that differ.

    Call ``delivered`` after NGINX got what ``render`` returned.

    Args:
        binary: The program that reads nginx.conf.
        fallback: The certificate where the cluster has no default certificate.
        resolvers: Addresses of DNS servers.

    Cost:
        1,000 servers with ten paths each take less than 150 ms the first time, and less than a millisecond after a change of one.
    """

    def __init__(self, binary: NginxBinary, fallback: Certificate, resolvers: Sequence[str] = ()) -> None:
        self._binary = binary
        self._fallback = fallback
        self._resolvers = resolvers
        #: All documents by key.
        self.documents: dict[str, str] = {}
        #: Names of policies whose locations answer 503, because NGINX refuses their directives.
        self.excluded: set[str] = set()
        self._size = 0
        self._names = PolicyNames()
        self._default_policy = self._names.name(DEFAULT_POLICY)
        self._numbers: dict[RoutingGroup, str] = {}
        self._servers: dict[ServerKey, _ServerEntry] = {}
        self._members: dict[RoutingGroup, dict[ServerKey, _ServerEntry]] = {_SHARED: {}}
        self._uses: Counter[PolicyUse] = Counter()
        self._named_backends = False
        #: The shape of the nginx.conf that NGINX has, and the policies to which its documents refer.
        self._live = RoutingShape()
        self._live_uses: frozenset[PolicyUse] = frozenset()
        #: The last rendered ones, with their text.
        self._shape = RoutingShape()
        self._used: frozenset[PolicyUse] = frozenset()
        self._rendered: tuple[str, dict[str, bytes]] = ("", {})

    def render(self, configuration: Configuration, changes: Changes | None = None) -> DynamicConfiguration:
        """Return nginx.conf and the changed documents.

        Args:
            configuration: The whole configuration.
            changes: How it differs from the one of the last call; None: render all, and return all documents.
        """
        new: dict[str, str] = {}
        old: set[str] = set() if changes is not None else set(self.documents)
        keys = changes.servers if changes is not None else self._servers.keys() | configuration.servers.keys()
        for key in keys:
            old |= self._forget_server(key)
            if (server := configuration.servers.get(key)) is not None:
                new |= self._render_server(key, server)
        self._render_backends(configuration, changes, new, old)
        self._render_certificates(configuration, changes, new, old)
        put = {key: text for key, text in new.items() if changes is None or self.documents.get(key) != text}
        delete = {key for key in old - new.keys() if key in self.documents}
        self._store(put, delete)
        self._render_text(configuration)
        text, files = self._rendered
        return DynamicConfiguration(text, files, put, delete, self._reason())

    def delivered(self) -> None:
        """Note that NGINX has the last rendered configuration and its documents."""
        self._live = self._shape
        self._live_uses = self._used

    # -- documents

    def _forget_server(self, key: ServerKey) -> frozenset[str]:
        """Remove a server, and return the keys of its documents."""
        entry = self._servers.pop(key, None)
        if entry is None:
            return frozenset()
        del self._members[entry.group][key]
        if not self._members[entry.group] and entry.group != _SHARED:
            del self._members[entry.group]
        for name in entry.policies:
            use = (entry.group.client_auth, name)
            self._uses[use] -= 1
            if not self._uses[use]:
                del self._uses[use]
        return entry.keys

    def _render_server(self, key: ServerKey, server: Server) -> dict[str, str]:
        group = RoutingGroup(server.listeners, server.client_auth)
        prefix = f"s:{self._number(group)}:"
        used: set[str] = set()

        def name_of(policy: Policy) -> str:
            name = self._names.name(policy)
            used.add(name)
            return name

        text = encode(server_document(server, name_of, _logger.warning))
        found = {prefix + name: text for name in (server.host, *server.aliases)}
        if server.redirect_from:
            try:
                redirect = encode(redirect_document(server.host))
                found |= {prefix + name: redirect for name in server.redirect_from}
            except UnsafeText as error:
                _logger.warning("names that redirect to %.80r are not served: %s", server.host, error)
        entry = _ServerEntry(server, group, frozenset(found), frozenset(used))
        self._servers[key] = entry
        self._members.setdefault(group, {})[key] = entry
        self._uses.update((group.client_auth, name) for name in used)
        return found

    def _render_backends(self, configuration: Configuration, changes: Changes | None, new: dict[str, str], old: set[str]) -> None:
        for name in configuration.backends if changes is None else changes.backends:
            old.add(f"b:{name}")
            if (backend := configuration.backends.get(name)) is None:
                continue
            try:
                new[f"b:{name}"] = encode(backend_document(backend))
            except UnsafeText as error:
                _logger.warning("backend %.80s answers 503: %s", name, error)
                new[f"b:{name}"] = "{}"
            if not self._named_backends and not all(endpoint.has_address for endpoint in backend.endpoints):
                self._named_backends = True

    def _render_certificates(self, configuration: Configuration, changes: Changes | None, new: dict[str, str], old: set[str]) -> None:
        certificates = configuration.certificates
        for name in certificates if changes is None else changes.certificates:
            old.add(f"c:{name}")
            if (found := certificates.get(name)) is not None and found.chain:
                new[f"c:{name}"] = encode(certificate_document(found))
        old.add(_DEFAULT_CERTIFICATE)
        default = certificates.get(configuration.settings.default_certificate)
        if default is not None and default.chain:
            new[_DEFAULT_CERTIFICATE] = encode(certificate_document(default))

    def _store(self, put: dict[str, str], delete: Iterable[str]) -> None:
        for key in delete:
            self._size -= len(self.documents.pop(key))
        for key, text in put.items():
            self._size += len(text) - len(self.documents.get(key, ""))
        self.documents |= put

    def _number(self, group: RoutingGroup) -> str:
        return self._numbers.setdefault(group, str(len(self._numbers)))

    # -- nginx.conf

    def _render_text(self, configuration: Configuration) -> None:
        shape = self._make_shape(configuration)
        if shape == self._shape:
            return
        policies, default = self._names.policies, self._default_policy
        routing = RoutingText(shape, self._binary, policies, default_policy=default, fallback=self._fallback)
        lines = routing.lines()
        text = conf_file(
            self._binary,
            shape.settings,
            lines,
            status_locations=_STATUS_LOCATIONS,
            resolvers=self._resolvers,
            request_id="$kubeloop_id",
        )
        self._shape, self._rendered = shape, (text, routing.parts.files)

    def _make_shape(self, configuration: Configuration) -> RoutingShape:
        live, find = self._live, self._names.policies.__getitem__
        needed = frozenset(self._uses) | {(group.client_auth, self._default_policy) for group in self._members}
        self._used = needed
        # Documents change after nginx.conf: locations to which the old ones refer stay until the next reload.
        policies = live.policies if needed <= live.policies else needed | self._live_uses
        groups = {group: (self._number(group), self._named_servers(group)) for group in self._members}
        certificates = used_certificates(policies, find)
        further_backends = {found for _, name in policies for found in find(name).further_backends}
        return RoutingShape(
            configuration.settings,
            arrange(groups, configuration.settings),
            policies,
            live.inline if policies == live.policies else self._choose_inline(policies),
            self._named_backends,
            frozenset(further_backends & configuration.backends.keys()),
            tuple((name, configuration.certificates.get(name)) for name in sorted(certificates)),
            self._memory(),
            frozenset(self.excluded),
        )

    def _named_servers(self, group: RoutingGroup) -> list[Server]:
        """Return the servers of a group whose names nginx.conf must have; see ``arrange``."""
        if group.client_auth is not None:
            return [entry.server for entry in self._members[group].values()]
        guarded = tuple(
            host[1:]
            for other, members in self._members.items()
            if other.client_auth is not None and other.listeners == group.listeners
            for _, host in members
            if host.startswith("*.")
        )
        if not guarded:
            return []
        servers = [entry.server for entry in self._members[group].values()]
        return [
            server for server in servers if any(name.endswith(guarded) for name in (server.host, *server.aliases, *server.redirect_from))
        ]

    def _choose_inline(self, policies: Iterable[PolicyUse]) -> tuple[PolicyUse, ...]:
        """Choose for each authentication of clients the policy that most locations have."""
        chosen: dict[object, PolicyUse] = {}
        for use in sorted(policies, key=lambda use: use[1]):
            auth, name = use
            # The location's own error page, for 418, must not meet answers of backends.
            possible = not self._names.policies[name].intercept
            best = chosen.get(auth)
            if possible and (best is None or self._uses[use] > self._uses[best]):
                chosen[auth] = use
        return tuple(chosen.values())

    def _memory(self) -> tuple[int, int]:
        needed = math.ceil(self._size * _MEMORY_FACTOR / (1 << 20))
        size, _ = self._live.memory
        if size >= max(needed, LEAST_MEMORY):
            return self._live.memory
        new = LEAST_MEMORY
        while new < needed:
            new *= 2
        return new, size

    def _reason(self) -> str:
        live, shape = self._live, self._shape
        if shape == live:
            return ""
        if not live.blocks:
            return "the first configuration"
        new_policies = len(shape.policies - live.policies)
        differences = {
            "settings changed": shape.settings != live.settings,
            "listeners or the authentication of clients changed": shape.blocks != live.blocks,
            f"{new_policies} new polic{'ies' if new_policies > 1 else 'y'}": bool(new_policies),
            "the first backend with a DNS name": shape.named_backends != live.named_backends,
            "a backend for errors or copies appeared or vanished": shape.further_backends != live.further_backends,
            "a certificate of a policy changed": shape.certificates != live.certificates,
            f"documents need {shape.memory[0]} MiB": shape.memory != live.memory,
            "NGINX refuses a policy": shape.excluded != live.excluded,
        }
        return ", ".join(reason for reason, differs in differences.items() if differs) or "a policy is not used any more"
