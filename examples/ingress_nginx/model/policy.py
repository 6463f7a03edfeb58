"""What happens to a request at a location, apart from its path and its backend: one value for all locations that behave alike.

Policies are compared and hashed: the renderers write one block of directives for each distinct policy. A policy holds parsed values only,
never text of an annotation that a parser has not accepted.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Protocol(StrEnum):
    """How NGINX talks to the endpoints of a backend."""

    HTTP = "http"
    HTTPS = "https"
    GRPC = "grpc"
    GRPCS = "grpcs"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that NGINX waits for a backend. ``total``: for the whole answer (HTTPRoute timeouts.request); 0: no limit."""

    connect: float = 5
    send: float = 60
    read: float = 60
    total: float = 0


@dataclass(frozen=True, slots=True)
class Buffering:
    """Buffers for requests and answers. Sizes in bytes; 0: NGINX's default."""

    response: bool = False
    request: bool = True
    size: int = 4096
    count: int = 4
    max_temp_file: int = -1
    client_body: int = 0


@dataclass(frozen=True, slots=True)
class Retries:
    """When NGINX asks the next endpoint: the words of proxy_next_upstream, the number of tries and a limit in seconds (0: none)."""

    on: tuple[str, ...] = ("error", "timeout")
    tries: int = 3
    timeout: float = 0


@dataclass(frozen=True, slots=True)
class Cors:
    """Cross-origin resource sharing.

    Attributes:
        origins: Exact origins, ``*``, or origins with a wildcard such as ``https://*.example.com``.
        methods, headers, expose: Names, or ``*``.
        credentials: Requests may have credentials.
        max_age: Seconds for which a browser keeps the answer.
        echo: The rules of the Gateway API: a wildcard in an origin stands for any number of labels, and with credentials the answer to a
            wildcard is what the request asks for, since browsers take ``*`` literally then. Else those of ingress-nginx: one label, ``*``.
    """

    origins: tuple[str, ...] = ("*",)
    methods: tuple[str, ...] = ("GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS")
    headers: tuple[str, ...] = (
        *("DNT", "Keep-Alive", "User-Agent", "X-Requested-With", "If-Modified-Since"),
        *("Cache-Control", "Content-Type", "Range", "Authorization"),
    )
    expose: tuple[str, ...] = ()
    credentials: bool = True
    max_age: int = 1728000
    echo: bool = False


@dataclass(frozen=True, slots=True)
class BasicAuth:
    """HTTP basic authentication. ``users``: the content of an htpasswd file; empty: every request is refused."""

    realm: str
    users: str


@dataclass(frozen=True, slots=True)
class ExternalAuth:
    """A subrequest to ``url`` decides: 2xx lets a request in, 401 leads to ``signin`` if there is one.

    ``response_headers``: headers of its answer that the backend gets. ``redirect_param``: parameter of ``signin`` with the first URL.
    """

    url: str
    method: str = ""
    signin: str = ""
    redirect_param: str = "rd"
    response_headers: tuple[str, ...] = ()
    request_redirect: str = ""
    always_set_cookie: bool = False


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits for each client address: requests a second and a minute, connections; 0: none. ``allow``: networks without limits."""

    per_second: int = 0
    per_minute: int = 0
    connections: int = 0
    burst_multiplier: int = 5
    allow: tuple[str, ...] = ()
    #: Counters are shared by the locations with the same zone: the Ingress's namespace and name.
    zone: str = ""


@dataclass(frozen=True, slots=True)
class Redirect:
    """An answer that sends the client elsewhere.

    Empty parts are those of the request; ``port`` 0: the default port of the scheme. ``url``: a whole URL in place of the parts.
    ``path``: a new whole path. ``prefix``: replaces the matched prefix, where ``replace_prefix`` is true.
    """

    status: int = 302
    url: str = ""
    scheme: str = ""
    host: str = ""
    port: int | None = None
    path: str = ""
    replace_prefix: bool = False


@dataclass(frozen=True, slots=True)
class HeaderChanges:
    """Headers that are set, added and removed, in this order: set, add, remove. Values are literal text."""

    set: tuple[tuple[str, str], ...] = ()
    add: tuple[tuple[str, str], ...] = ()
    remove: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Mirror:
    """A backend that gets copies of requests, and how many of them: ``numerator`` of ``denominator``. Its answers are dropped."""

    backend: str
    numerator: int = 1
    denominator: int = 1


@dataclass(frozen=True, slots=True)
class BackendTls:
    """TLS to the endpoints: names of certificates in the model, and whether the endpoint's certificate is verified."""

    client_certificate: str = ""
    authority: str = ""
    verify: bool = False
    depth: int = 1
    server_name: str = ""
    send_server_name: bool = False


@dataclass(frozen=True, slots=True)
class Policy:
    """All behaviour of a location that does not depend on its path and backend.

    Attributes:
        status: Answer with this status instead of a backend, such as 503; 0: no.
        https_redirect: Status of the redirect of http:// requests to https://, usually 308; 0: none.
        body_size: Largest request body in bytes; 0: no limit.
        allow, deny: Networks (CIDR). Nonempty ``allow``: all others get 403.
        upstream_vhost: The Host header for the backend; empty: that of the request.
        forwarded_prefix: Value of X-Forwarded-Prefix; empty: no such header.
        intercept: Statuses of the backend for which the default backend answers (custom-http-errors).
        error_backend: Name of the backend that answers for ``intercept``.
        app_root: Where ``/`` redirects to; empty: nowhere.
        hsts: Value of Strict-Transport-Security on https:// answers; empty: no such header.
        connection_header: Value of Connection for the backend; empty: as websockets need it.
    """

    protocol: Protocol = Protocol.HTTP
    status: int = 0
    redirect: Redirect | None = None
    https_redirect: int = 0
    body_size: int = 1 << 20
    timeouts: Timeouts = Timeouts()
    buffering: Buffering = Buffering()
    retries: Retries = Retries()
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    cors: Cors | None = None
    basic_auth: BasicAuth | None = None
    external_auth: ExternalAuth | None = None
    limits: Limits | None = None
    upstream_vhost: str = ""
    forwarded_prefix: str = ""
    intercept: tuple[int, ...] = ()
    error_backend: str = ""
    app_root: str = ""
    hsts: str = ""
    connection_header: str = ""
    request_headers: HeaderChanges = HeaderChanges()
    response_headers: HeaderChanges = HeaderChanges()
    backend_tls: BackendTls = BackendTls()
    mirrors: tuple[Mirror, ...] = ()

    @property
    def further_backends(self) -> set[str]:
        """Names of the backends that its directives name: for errors and copies of requests."""
        return {name for name in (self.error_backend, *(mirror.backend for mirror in self.mirrors)) if name}


DEFAULT_POLICY = Policy()
