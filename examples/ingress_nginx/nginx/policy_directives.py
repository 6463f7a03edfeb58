"""A policy as directives of a location, and the parts that it needs elsewhere in nginx.conf.

Names of zones, maps and locations hold a digest of their content, so that equal parts of two policies are one part.

Not the same as in Envoy: NGINX has no limit for a whole answer; ``timeouts.total`` bounds the waits for the backend and the retries.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from examples.ingress_nginx.model.configuration import Certificate
from examples.ingress_nginx.model.policy import (
    DEFAULT_POLICY,
    BackendTls,
    Cors,
    ExternalAuth,
    HeaderChanges,
    Limits,
    Policy,
    Protocol,
    Redirect,
)
from examples.ingress_nginx.nginx.conf_file import seconds, sent_headers, timeout_lines
from examples.ingress_nginx.nginx.parts import ConfigurationParts, certificate_file, named
from examples.ingress_nginx.nginx.quoting import (
    UnsafeText,
    header_name,
    map_regex,
    network,
    pcre_literal,
    quote,
    token,
)

#: Variables that URLs of external authentication may contain; their values are parts of the request.
URL_VARIABLES = ("host", "http_host", "scheme", "request_uri", "escaped_request_uri", "remote_addr")
#: Seconds for which the client's connection waits for the answer to a copy at most.
_LONGEST_COPY = 10.0
_RETRY_WORDS = frozenset(
    (
        *("error", "timeout", "invalid_header", "non_idempotent", "off"),
        *("http_500", "http_502", "http_503", "http_504", "http_403", "http_404", "http_429"),
    )
)


@dataclass(frozen=True, slots=True)
class PolicyContext:
    """What directives of a policy refer to.

    Attributes:
        certificate: Returns a certificate of the model, or None.
        pass_to: Returns the directives that send a request to a backend (for error pages); empty: it has no endpoints.
        upstream: Returns the name of the upstream of a backend, for copies of requests; empty: it has no endpoints, or a DNS name.
    """

    certificate: Callable[[str], Certificate | None]
    pass_to: Callable[[str], Sequence[str]]
    upstream: Callable[[str], str]


@dataclass(frozen=True, slots=True)
class PolicyDirectives:
    """Directives of a policy.

    Attributes:
        lines: Directives inside a location, in order; without the pass directive (``pass_directive``).
        answers: The policy answers each request (a status, a redirect), so that no backend is needed. Of a redirect with
            ``replace_prefix`` the last directive, ``redirect_directive``, is left to the caller.
        parts: See there.
    """

    lines: tuple[str, ...]
    answers: bool
    parts: ConfigurationParts


class DirectiveMemo:
    """Remembers the directives of policies. Most locations of an Ingress share one policy object, others have equal ones."""

    def __init__(self) -> None:
        # Hashing a policy takes longer than this lookup. The policy stays in the entry, so that its identity is not used again.
        self._by_identity: dict[int, tuple[Policy, PolicyDirectives]] = {}
        self._by_value: dict[Policy, PolicyDirectives] = {}

    def __len__(self) -> int:
        return len(self._by_identity)

    def clear(self) -> None:
        self._by_identity.clear()
        self._by_value.clear()

    def find(self, policy: Policy, make: Callable[[], PolicyDirectives]) -> PolicyDirectives:
        """Return the directives of a policy; ``make`` builds them the first time."""
        if (known := self._by_identity.get(id(policy))) is not None:
            return known[1]
        found = self._by_value.get(policy)
        if found is None:
            found = self._by_value[policy] = make()
        self._by_identity[id(policy)] = (policy, found)
        return found


def policy_directives(policy: Policy, context: PolicyContext, headers: Mapping[str, str] | None = None) -> PolicyDirectives:
    """Return the directives of a policy.

    ``headers``: further headers for the backend, by name, with values that are already parameters of nginx.conf.

    Raises:
        UnsafeText: A value cannot be written into nginx.conf.
    """
    parts = ConfigurationParts()
    lines: list[str] = []
    kind = proxy_kind(policy.protocol)
    if policy.cors is not None:
        lines += _cors(policy.cors, kind, parts)
    if policy.https_redirect:
        lines.append(f"if ($kubeloop_redirect_https) {{ return {int(policy.https_redirect)} https://$host$request_uri; }}")
    if policy.hsts:
        name = named("hsts", policy.hsts)
        parts.http[f'map $kubeloop_is_https ${name} {{ default ""; 1 {quote(policy.hsts)}; }}'] = None
        lines.append(f"add_header Strict-Transport-Security ${name} always;")
    lines += _response_headers(policy.response_headers, kind)
    if policy.status:
        return PolicyDirectives((*lines, f"return {int(policy.status)};"), True, parts)
    if policy.redirect is not None:
        # A redirect that keeps the rest of the path depends on the location: the caller appends it.
        last = () if policy.redirect.replace_prefix else (redirect_directive(policy.redirect),)
        return PolicyDirectives((*lines, *last), True, parts)
    if policy.app_root:
        lines.append(f"if ($uri = /) {{ return 302 {quote_url(policy.app_root)}; }}")
    lines += _access(policy)
    if policy.limits is not None:
        lines += _limits(policy.limits, parts)
    changed: dict[str, tuple[str, str]] = {name.lower(): (header_name(name), value) for name, value in (headers or {}).items()}
    if policy.basic_auth is not None:
        lines += _basic_auth(policy.basic_auth.realm, policy.basic_auth.users, parts)
    if policy.external_auth is not None:
        lines += _external_auth(policy.external_auth, parts, changed)
    lines += _transfer(policy, kind)
    if policy.intercept and policy.error_backend:
        lines += _intercept(policy, kind, context, parts)
    lines += _backend_tls(policy, kind, context, parts)
    lines += _mirrors(policy, context, parts, dict(changed))
    lines += _request_headers(policy, kind, parts, changed)
    return PolicyDirectives(tuple(lines), False, parts)


def proxy_kind(protocol: Protocol) -> str:
    """Return the prefix of NGINX's directives for a protocol: ``proxy`` or ``grpc``."""
    return "grpc" if protocol in (Protocol.GRPC, Protocol.GRPCS) else "proxy"


def pass_directive(protocol: Protocol, upstream: str) -> str:
    """Return the directive that sends a request to an upstream. ``upstream``: its name, or a variable with it; never text from outside."""
    return f"{proxy_kind(protocol)}_pass {protocol.value}://{upstream};"


def redirect_directive(redirect: Redirect, rest: str = "") -> str:
    """Return the ``return`` directive of a redirect. ``rest``: variable with the path after the matched prefix, for ``replace_prefix``."""
    if redirect.url:
        return f"return {int(redirect.status)} {quote_url(redirect.url)};"
    # Braces keep a variable apart from text that follows it; a path without a slash would be a part of the host.
    scheme = quote(redirect.scheme)[1:-1] if redirect.scheme else "${kubeloop_scheme}"
    host = quote(redirect.host)[1:-1] if redirect.host else "${host}"
    port = "${kubeloop_host_port}" if redirect.port is None else f":{int(redirect.port)}" if redirect.port else ""
    path = quote_url("/" + redirect.path.strip("/") if redirect.replace_prefix else "/" + redirect.path.lstrip("/"))[1:-1]
    if redirect.replace_prefix:
        target = f"{path.rstrip('/')}{rest}$is_args$args"
    else:
        target = f"{path}$is_args$args" if redirect.path else "$request_uri"
    return f'return {int(redirect.status)} "{scheme}://{host}{port}{target}";'


def quote_url(url: str, variables: Sequence[str] = ()) -> str:
    """Return a URL as a parameter. ``variables``: names after a dollar sign that stay variables."""
    pieces = re.split(r"\$(" + "|".join(sorted(variables, key=len, reverse=True)) + r")\b", url) if variables else [url]
    texts = [quote(piece)[1:-1] if index % 2 == 0 else f"${{{_url_variable(piece)}}}" for index, piece in enumerate(pieces)]
    if any(letter.isspace() for letter in url):
        raise UnsafeText(f"{url[:40]!r} is no URL: it has spaces")
    return f'"{"".join(texts)}"'


def _url_variable(name: str) -> str:
    return "kubeloop_escaped_uri" if name == "escaped_request_uri" else name


def _cors(cors: Cors, kind: str, parts: ConfigurationParts) -> list[str]:
    name = named("cors", cors)
    echo = cors.echo and cors.credentials
    labels = "[A-Za-z0-9.-]+" if cors.echo else "[A-Za-z0-9-]+"
    if "*" in cors.origins:
        origins = "default $http_origin;" if echo else 'default "*";'
    else:
        origins = 'default ""; ' + " ".join(
            f"{map_regex(_origin_pattern(origin, labels), ignore_case=True)} $http_origin;" for origin in cors.origins
        )
    parts.http[f"map $http_origin ${name} {{ {origins} }}"] = None
    # The Gateway API also has preflight requests of other origins answered, without the headers; ingress-nginx passes them on.
    asked = '"$request_method:$http_access_control_request_method:$http_origin"' if cors.echo else f'"$request_method:${name}"'
    parts.http[f'map {asked} ${name}_preflight {{ default 0; "~^OPTIONS:{"[^:]+:." if cors.echo else "."}" 1; }}'] = None
    values = {
        "Access-Control-Allow-Methods": _echoed(cors.methods, "method", echo=echo)
        or ", ".join(token(method)[1:-1] for method in cors.methods),
        "Access-Control-Allow-Headers": _echoed(cors.headers, "headers", echo=echo)
        or ", ".join(quote(header)[1:-1] for header in cors.headers),
        "Access-Control-Max-Age": str(int(cors.max_age)),
        "Access-Control-Expose-Headers": ", ".join(quote(header)[1:-1] for header in cors.expose if not (echo and header == "*")),
        "Access-Control-Allow-Credentials": "true" if cors.credentials else "",
    }
    lines = [f"add_header Access-Control-Allow-Origin ${name} always;"]
    hidden = ["Access-Control-Allow-Origin"]
    if echo or "*" not in cors.origins:
        lines.append("add_header Vary Origin always;")
    for index, (header, value) in enumerate(values.items()):
        hidden.append(header)
        if value:
            parts.http[f'map ${name} ${name}_{index} {{ default "{value}"; "" ""; }}'] = None
            lines.append(f"add_header {header} ${name}_{index} always;")
    lines += [f"{kind}_hide_header {header};" for header in hidden]
    return [*lines, f"if (${name}_preflight) {{ return 204; }}"]


def _echoed(allowed: Sequence[str], name: str, *, echo: bool) -> str:
    """Return the variable of a request's wish for CORS, if a wildcard allows everything but may not be the answer; else nothing."""
    return f"$http_access_control_request_{name}" if echo and "*" in allowed else ""


def _origin_pattern(origin: str, labels: str) -> str:
    return "^" + pcre_literal(origin).replace("\\*", labels) + r"\z"


def _access(policy: Policy) -> list[str]:
    denied = [f"deny {network(found)};" for found in policy.deny]
    return denied + ([*(f"allow {network(found)};" for found in policy.allow), "deny all;"] if policy.allow else [])


def _limits(limits: Limits, parts: ConfigurationParts) -> list[str]:
    name = named("limit", limits)
    key = "$binary_remote_addr"
    if limits.allow:
        free = " ".join(f"{network(found)} 1;" for found in limits.allow)
        parts.http[f"geo ${name}_free {{ default 0; {free} }}"] = None
        parts.http[f'map ${name}_free ${name} {{ default $binary_remote_addr; 1 ""; }}'] = None
        key = f"${name}"
    lines = []
    for count, unit in ((limits.per_second, "s"), (limits.per_minute, "m")):
        if count:
            parts.http[f"limit_req_zone {key} zone={name}_r{unit}:5m rate={int(count)}r/{unit};"] = None
            burst = int(count) * max(1, int(limits.burst_multiplier))
            lines.append(f"limit_req zone={name}_r{unit} burst={burst} nodelay;")
    if limits.connections:
        parts.http[f"limit_conn_zone {key} zone={name}_conn:5m;"] = None
        lines.append(f"limit_conn {name}_conn {int(limits.connections)};")
    return lines


def _basic_auth(realm: str, users: str, parts: ConfigurationParts) -> list[str]:
    name = f"auth/{hashlib.sha256(users.encode()).hexdigest()[:32]}"
    parts.files[name] = users.encode()
    # NGINX takes the realm "off" for a switch, also in quotes.
    return [f"auth_basic {quote('Off' if realm == 'off' else realm or 'Restricted')};", f"auth_basic_user_file {quote(name)};"]


def _external_auth(auth: ExternalAuth, parts: ConfigurationParts, changed: dict[str, tuple[str, str]]) -> list[str]:
    name = named("auth", auth)
    if urlsplit(auth.url).scheme not in ("http", "https"):
        raise UnsafeText("the URL of external authentication does not begin with http:// or https://")
    inner = [
        "internal;",
        "proxy_pass_request_body off;",
        'proxy_set_header Content-Length "";',
        *(
            f"proxy_set_header {sent} {value};"
            for key, (sent, value) in sent_headers("proxy").items()
            if key not in ("host", "connection", "upgrade")
        ),
        # The value of Host is that of the authenticating server, which $proxy_host has.
        "proxy_set_header Host $proxy_host;",
        "proxy_set_header X-Original-URL $kubeloop_scheme://$http_host$request_uri;",
        "proxy_set_header X-Original-Method $request_method;",
        f"proxy_set_header X-Auth-Request-Redirect {quote_url(auth.request_redirect or '$request_uri', URL_VARIABLES)};",
        "proxy_ssl_server_name on;",
        *([f"proxy_method {token(auth.method)};"] if auth.method else []),
        # A variable: the name is resolved for a request, so that a missing name does not make the configuration invalid.
        f"set $kubeloop_auth_url {quote_url(auth.url, URL_VARIABLES)};",
        "proxy_pass $kubeloop_auth_url;",
    ]
    parts.server[f"location = /kubeloop-internal/{name} {{ {' '.join(inner)} }}"] = None
    lines = [
        f"auth_request /kubeloop-internal/{name};",
        "auth_request_set $kubeloop_auth_cookie $upstream_http_set_cookie;",
        f"add_header Set-Cookie $kubeloop_auth_cookie{' always' if auth.always_set_cookie else ''};",
    ]
    for index, header in enumerate(auth.response_headers):
        variable = f"kubeloop_auth_header_{index}"
        lines.append(f"auth_request_set ${variable} $upstream_http_{header_name(header).lower().replace('-', '_')};")
        changed[header.lower()] = (header, f"${variable}")
    if auth.signin:
        target = quote_url(auth.signin, URL_VARIABLES)[1:-1]
        if f"{auth.redirect_param}=" not in urlsplit(auth.signin).query:
            parameter = quote_url(auth.redirect_param)[1:-1]
            target += f"{'&' if '?' in auth.signin else '?'}{parameter}=$kubeloop_scheme://$http_host$kubeloop_escaped_uri"
        parts.server[f'location @{name} {{ internal; add_header Set-Cookie $kubeloop_auth_cookie always; return 302 "{target}"; }}'] = None
        lines.append(f"error_page 401 = @{name};")
    return lines


def _transfer(policy: Policy, kind: str) -> list[str]:
    """Return sizes, timeouts, buffers and retries where they differ from the defaults, which conf_file.py writes."""
    lines = []
    default = DEFAULT_POLICY
    if policy.body_size != default.body_size:
        lines.append(f"client_max_body_size {int(policy.body_size)};")
    times = policy.timeouts
    if times != default.timeouts:
        bound = times.total or float("inf")
        lines += timeout_lines(kind, min(times.connect, bound), min(times.send, bound), min(times.read, bound))
    retries = policy.retries
    if retries.on != default.retries.on:
        if not _RETRY_WORDS.issuperset(retries.on):
            raise UnsafeText("proxy_next_upstream has a word that NGINX does not know")
        lines.append(f"{kind}_next_upstream {' '.join(retries.on) or 'off'};")
    if retries.tries != default.retries.tries:
        lines.append(f"{kind}_next_upstream_tries {int(retries.tries)};")
    if retries.timeout or times.total:
        lines.append(f"{kind}_next_upstream_timeout {seconds(retries.timeout or times.total)};")
    return lines + _buffers(policy, kind)


def _buffers(policy: Policy, kind: str) -> list[str]:
    buffering, default = policy.buffering, DEFAULT_POLICY.buffering
    lines = []
    if buffering.client_body:
        lines.append(f"client_body_buffer_size {int(buffering.client_body)};")
    size = int(buffering.size) or default.size
    if kind == "grpc":
        return lines + ([f"grpc_buffer_size {size};"] if size != default.size else [])
    if buffering.response:
        lines.append("proxy_buffering on;")
    if not buffering.request:
        lines.append("proxy_request_buffering off;")
    if (buffering.size, buffering.count) != (default.size, default.count):
        # NGINX wants two buffers or more, and busy ones of one buffer's size at least.
        lines += [
            f"proxy_buffer_size {size};",
            f"proxy_buffers {max(2, int(buffering.count) or default.count)} {size};",
            f"proxy_busy_buffers_size {size};",
        ]
    if buffering.max_temp_file >= 0:
        lines.append(f"proxy_max_temp_file_size {max(buffering.max_temp_file, size) if buffering.max_temp_file else 0};")
    return lines


def _intercept(policy: Policy, kind: str, context: PolicyContext, parts: ConfigurationParts) -> list[str]:
    passing = context.pass_to(policy.error_backend)
    if not passing:
        return []
    lines = [f"{kind}_intercept_errors on;"]
    for status in policy.intercept:
        name = named("error", policy.error_backend, status, tuple(passing))
        inner = [
            "internal;",
            f'proxy_set_header X-Code "{int(status)}";',
            "proxy_set_header X-Format $http_accept;",
            "proxy_set_header X-Original-URI $request_uri;",
            *(f"proxy_set_header {sent} {value};" for sent, value in sent_headers("proxy").values()),
            # "set" directives of the backend have no effect after "break".
            *passing,
            "rewrite ^ / break;",
        ]
        parts.server[f"location @{name} {{ {' '.join(inner)} }}"] = None
        lines.append(f"error_page {int(status)} = @{name};")
    return lines


def _mirrors(policy: Policy, context: PolicyContext, parts: ConfigurationParts, changed: dict[str, tuple[str, str]]) -> list[str]:
    if not policy.mirrors:
        return []
    # A copy that is upgraded to a WebSocket would end the client's request.
    changed |= {"upgrade": ("Upgrade", '""'), "connection": ("Connection", '""')}
    headers = _request_headers(policy, "proxy", parts, changed)
    times = policy.timeouts
    # The client's connection waits for the answer to the copy.
    bound = min(times.total or _LONGEST_COPY, _LONGEST_COPY)
    common = [
        *("internal;", "client_max_body_size 0;", *headers),
        *timeout_lines("proxy", min(times.connect, bound), min(times.send, bound), min(times.read, bound)),
        # The answer is dropped: it must not lead to another location, which NGINX would serve to a copy without its access rules.
        "proxy_ignore_headers X-Accel-Redirect X-Accel-Limit-Rate X-Accel-Buffering X-Accel-Charset X-Accel-Expires;",
    ]
    lines = []
    for mirror in policy.mirrors:
        upstream = context.upstream(mirror.backend)
        if not upstream or mirror.numerator <= 0:
            continue
        name = named("mirror", mirror, upstream, common)
        inner = list(common)
        if mirror.numerator < mirror.denominator:
            # The precision of split_clients is a hundredth of a percent, and it refuses 0 and more than 100 %.
            share = f"{min(max(100 * mirror.numerator / mirror.denominator, 0.01), 99.99):.2f}"
            parts.http[f'split_clients "${{request_id}}{name}" ${name} {{ {share}% 1; * ""; }}'] = None
            inner.append(f'if (${name} = "") {{ return 204; }}')
        inner.append(f"proxy_pass http://{upstream}$request_uri;")
        parts.server[f"location = /kubeloop-internal/{name} {{ {' '.join(inner)} }}"] = None
        lines.append(f"mirror /kubeloop-internal/{name};")
    return lines


def _backend_tls(policy: Policy, kind: str, context: PolicyContext, parts: ConfigurationParts) -> list[str]:
    tls = policy.backend_tls
    if policy.protocol not in (Protocol.HTTPS, Protocol.GRPCS) or tls == BackendTls():
        return []
    lines = []
    if tls.client_certificate:
        found = _certificate(tls.client_certificate, context)
        lines.append(f"{kind}_ssl_certificate {certificate_file(found.chain, parts)};")
        lines.append(f"{kind}_ssl_certificate_key {certificate_file(found.key, parts)};")
    if tls.authority:
        lines.append(f"{kind}_ssl_trusted_certificate {certificate_file(_certificate(tls.authority, context).authorities, parts)};")
    if tls.verify:
        if not tls.authority:
            raise UnsafeText("the certificate of the backend cannot be verified without authorities")
        lines += [f"{kind}_ssl_verify on;", f"{kind}_ssl_verify_depth {int(tls.depth)};"]
    if tls.server_name:
        lines.append(f"{kind}_ssl_name {quote(tls.server_name)};")
    if tls.send_server_name:
        lines.append(f"{kind}_ssl_server_name on;")
    return lines


def _certificate(name: str, context: PolicyContext) -> Certificate:
    if (found := context.certificate(name)) is None:
        raise UnsafeText(f"certificate {name} does not exist")
    return found


def _request_headers(policy: Policy, kind: str, parts: ConfigurationParts, changed: dict[str, tuple[str, str]]) -> list[str]:
    """Return the headers for the backend, or nothing if they are those of conf_file.py."""
    sent = sent_headers(kind)
    if policy.upstream_vhost:
        changed["host"] = ("Host", quote(policy.upstream_vhost))
    if policy.forwarded_prefix:
        changed["x-forwarded-prefix"] = ("X-Forwarded-Prefix", quote(policy.forwarded_prefix))
    if policy.connection_header and kind == "proxy":
        changed["connection"] = ("Connection", quote(policy.connection_header))
    for name, value in policy.request_headers.set:
        changed[name.lower()] = (header_name(name), quote(value))
    for name, value in policy.request_headers.add:
        variable = named("header", name.lower(), value)
        source = f"$http_{header_name(name).lower().replace('-', '_')}"
        parts.http[f'map {source} ${variable} {{ "" {quote(value)}; default "{source},{quote(value)[1:-1]}"; }}'] = None
        changed[name.lower()] = (name, f"${variable}")
    for name in policy.request_headers.remove:
        changed[name.lower()] = (header_name(name), '""')
    if not changed:
        return []
    return [f"{kind}_set_header {name} {value};" for name, value in (sent | changed).values()]


def _response_headers(changes: HeaderChanges, kind: str) -> list[str]:
    lines = []
    for name, value in changes.set:
        lines += [f"{kind}_hide_header {header_name(name)};", f"add_header {name} {quote(value)} always;"]
    lines += [f"add_header {header_name(name)} {quote(value)} always;" for name, value in changes.add]
    return lines + [f"{kind}_hide_header {header_name(name)};" for name in changes.remove]
