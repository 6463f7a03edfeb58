"""Hosts, paths, conditions, backends and certificates: what the front ends build and the renderers read."""

from __future__ import annotations

import functools
import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeVar

from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy

K = TypeVar("K")
V = TypeVar("V")

#: Host of the server that answers for all other hosts.
CATCH_ALL = "_"
#: Name of the backend that answers where nothing else does.
DEFAULT_BACKEND = "upstream-default-backend"


class PathMatch(StrEnum):
    """How a location's path is compared with that of a request.

    PREFIX compares whole elements: ``/foo`` matches ``/foo`` and ``/foo/bar``, never ``/foobar``. REGEX: a case-insensitive regular
    expression that must match at the start of the path.
    """

    EXACT = "exact"
    PREFIX = "prefix"
    REGEX = "regex"


class Source(StrEnum):
    """The part of a request that a condition compares."""

    HEADER = "header"
    COOKIE = "cookie"
    QUERY = "query"
    METHOD = "method"


@dataclass(frozen=True, slots=True)
class Condition:
    """A comparison with a part of a request. ``regex``: ``value`` is a regular expression for all of it. ``negate``: it must differ."""

    source: Source
    name: str
    value: str
    regex: bool = False
    negate: bool = False


@dataclass(frozen=True, slots=True)
class Target:
    """A backend and its share of the requests: its weight, divided by the sum of the weights of a route.

    ``policy``: replaces the route's policy where a backend of a route has filters; None: the route's.
    """

    backend: str
    weight: int = 1
    policy: Policy | None = None


@dataclass(frozen=True, slots=True)
class Rewrite:
    """A new path for the backend.

    ``replacement`` is literal text for an EXACT or PREFIX location: the whole new path, or (``prefix`` true) the text in place of the
    matched prefix. For a REGEX location it may contain ``$1`` to ``$9``, the groups of the location's expression, and no other variable.
    """

    replacement: str
    prefix: bool = False


@dataclass(frozen=True, slots=True)
class Route:
    """Where requests go that fulfil all conditions. Without targets ``policy`` says the answer (a status or a redirect).

    ``origin``: the object and rule that it comes from, for explanations: ``Ingress shop/web``.
    """

    targets: tuple[Target, ...] = ()
    policy: Policy = DEFAULT_POLICY
    conditions: tuple[Condition, ...] = ()
    rewrite: Rewrite | None = None
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Location:
    """A path of a host.

    The first route whose conditions hold gets the request. If none does, the next location that matches the path is compared (Gateway
    API: a less specific match of another rule), and the answer is 404 if there is none.
    """

    path: str
    match: PathMatch
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class ClientAuth:
    """Certificates that clients must present. ``authority``: name of a certificate in the model, whose authorities sign them.

    ``verify``: on, optional, optional_no_ca. ``error_page``: URL for clients without one. ``pass_certificate``: the backend gets it.
    """

    authority: str
    verify: str = "on"
    depth: int = 1
    error_page: str = ""
    pass_certificate: bool = False


@dataclass(frozen=True, slots=True)
class Listener:
    """An address and a port on which NGINX listens.

    Attributes:
        address: Empty: all addresses.
        port: The port.
        tls: Clients use TLS.
        http2_only: Without TLS: all clients use HTTP/2, as gRPC's do. NGINX before 1.25.1 cannot serve HTTP/1.1 on the same port.
    """

    address: str
    port: int
    tls: bool = False
    http2_only: bool = False


@dataclass(frozen=True, slots=True)
class Server:
    """A host.

    Attributes:
        host: A name in lower case, ``*.example.com``, or ``CATCH_ALL``.
        locations: In the order in which they are compared: exact ones, then the longest path first, ties by path descending.
        listeners: Where it is served; empty: the default listeners of the settings.
        certificate: Name of a certificate in the model; empty: the default certificate.
        aliases: Further names of it.
        redirect_from: Names whose requests are redirected to ``host`` (from-to-www-redirect).
        one_label: A wildcard stands for one label (Ingress); false: for one or more (Gateway API).
    """

    host: str
    locations: tuple[Location, ...] = ()
    listeners: tuple[Listener, ...] = ()
    certificate: str = ""
    aliases: tuple[str, ...] = ()
    redirect_from: tuple[str, ...] = ()
    client_auth: ClientAuth | None = None
    one_label: bool = True

    @property
    def key(self) -> ServerKey:
        return (self.listeners, self.host)


ServerKey = tuple[tuple[Listener, ...], str]


@dataclass(frozen=True, slots=True)
class Affinity:
    """A cookie that leads the requests of a client to one endpoint. ``expires`` and ``max_age`` in seconds; None: a session cookie."""

    cookie: str = "INGRESSCOOKIE"
    path: str = "/"
    domain: str = ""
    max_age: int | None = None
    expires: int | None = None
    same_site: str = ""
    secure: bool | None = None
    change_on_failure: bool = False


class Balance(StrEnum):
    """How a backend chooses an endpoint."""

    ROUND_ROBIN = "round_robin"
    LEAST_CONNECTIONS = "least_conn"


@functools.lru_cache(4096)
def is_address(text: str) -> bool:
    """Return whether a text is an IP address, not a DNS name."""
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, slots=True, order=True)
class Endpoint:
    """An address that answers requests: an IP address or, for an ExternalName service, a DNS name."""

    address: str
    port: int

    @property
    def has_address(self) -> bool:
        """Whether it has an IP address; else it has a DNS name."""
        return is_address(self.address)


@dataclass(frozen=True, slots=True)
class Backend:
    """The endpoints of one port of a service. Without endpoints it answers 503.

    ``hash_by``: variables (names without the dollar sign) and literal text (with a leading ``=``) whose value chooses the endpoint.
    """

    name: str
    endpoints: tuple[Endpoint, ...] = ()
    balance: Balance = Balance.ROUND_ROBIN
    affinity: Affinity | None = None
    hash_by: tuple[str, ...] = ()
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM documents. ``key`` never appears in a representation. ``authorities``: for the verification of clients or backends.

    ``not_after``: seconds since 1970. ``names``: DNS names that it is valid for, in lower case.
    """

    name: str
    chain: str = ""
    key: str = field(default="", repr=False)
    authorities: str = ""
    not_after: float = 0
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all servers. Most have a key of the controller's ConfigMap (annotations/settings.py).

    Attributes:
        http, https: Where servers listen that name no listeners.
        worker_processes: 0: one for each processor.
        keepalive: Seconds for which a client's connection stays open.
        upstream_keepalive: Largest number of open connections to backends in each worker.
        default_certificate: Name of the certificate for hosts without one.
        shutdown_seconds: Longest time for requests in progress when NGINX stops.
        use_forwarded_headers: A proxy in front of NGINX sets X-Forwarded-*, so that they are believed.
        trusted_proxies: Networks whose X-Forwarded-For is believed, if ``use_forwarded_headers`` is set.
        ssl_redirect: Redirect http:// of hosts with TLS, unless an annotation decides.
        hsts, hsts_max_age, hsts_subdomains, hsts_preload: Whether hosts with TLS send Strict-Transport-Security, and its parts.
    """

    http: Listener = Listener("", 80)
    https: Listener = Listener("", 443, tls=True)
    worker_processes: int = 0
    keepalive: int = 75
    server_tokens: bool = False
    access_log: bool = True
    upstream_keepalive: int = 320
    ssl_protocols: tuple[str, ...] = ("TLSv1.2", "TLSv1.3")
    default_certificate: str = ""
    http2: bool = True
    shutdown_seconds: int = 240
    use_forwarded_headers: bool = False
    trusted_proxies: tuple[str, ...] = ("0.0.0.0/0", "::/0")
    ssl_redirect: bool = True
    hsts: bool = True
    hsts_max_age: int = 31_536_000
    hsts_subdomains: bool = True
    hsts_preload: bool = False

    @property
    def strict_transport_security(self) -> str:
        """The value of the header Strict-Transport-Security; empty: no such header."""
        parts = (f"max-age={self.hsts_max_age}", *(["includeSubDomains"] * self.hsts_subdomains), *(["preload"] * self.hsts_preload))
        return "; ".join(parts) if self.hsts else ""


@dataclass(slots=True)
class Configuration:
    """Everything that NGINX serves. Parts are replaced, never changed: two configurations share the parts that are equal."""

    servers: dict[ServerKey, Server] = field(default_factory=dict)
    backends: dict[str, Backend] = field(default_factory=dict)
    certificates: dict[str, Certificate] = field(default_factory=dict)
    settings: Settings = Settings()


@dataclass(slots=True)
class Changes:
    """Names of the parts of a configuration that differ from those of an earlier one: added, replaced and removed ones."""

    servers: set[ServerKey] = field(default_factory=set)
    backends: set[str] = field(default_factory=set)
    certificates: set[str] = field(default_factory=set)
    settings: bool = False

    def __bool__(self) -> bool:
        return bool(self.servers or self.backends or self.certificates or self.settings)

    def merge(self, other: Changes) -> None:
        self.servers |= other.servers
        self.backends |= other.backends
        self.certificates |= other.certificates
        self.settings |= other.settings


def order_locations(locations: Iterable[Location]) -> tuple[Location, ...]:
    """Return the locations in the order in which they are compared with a request."""
    exact = [location for location in locations if location.match is PathMatch.EXACT]
    others = [location for location in locations if location.match is not PathMatch.EXACT]
    exact.sort(key=lambda location: location.path)
    others.sort(key=lambda location: (len(location.path), location.path), reverse=True)
    return (*exact, *others)


def changes_between(old: Configuration, new: Configuration) -> Changes:
    """Compare two whole configurations."""
    return Changes(
        _differing(old.servers, new.servers),
        _differing(old.backends, new.backends),
        _differing(old.certificates, new.certificates),
        old.settings != new.settings,
    )


def _differing(old: Mapping[K, V], new: Mapping[K, V]) -> set[K]:
    return {key for key in old.keys() | new.keys() if old.get(key) != new.get(key)}
