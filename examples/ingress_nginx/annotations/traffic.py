"""Annotations about the way of a request: transfer, limits, redirects, headers, balancing and canaries."""

from __future__ import annotations

import re
from collections.abc import Mapping

from examples.ingress_nginx.annotations import values
from examples.ingress_nginx.annotations.expressions import expression
from examples.ingress_nginx.annotations.parsed import Canary
from examples.ingress_nginx.annotations.reader import AnnotationReader
from examples.ingress_nginx.annotations.values import InvalidValue
from examples.ingress_nginx.model.configuration import Affinity, Balance
from examples.ingress_nginx.model.policy import BackendTls, Buffering, Cors, Limits, Protocol, Redirect, Retries, Timeouts

_PROTOCOLS: Mapping[str, Protocol] = {name: Protocol(name.lower()) for name in ("HTTP", "HTTPS", "GRPC", "GRPCS")}
_RETRY_STATUSES = (403, 404, 429, 500, 502, 503, 504)
_RETRY_WORDS = frozenset({"error", "timeout", "invalid_header", "non_idempotent", "off", *(f"http_{status}" for status in _RETRY_STATUSES)})
_VARIABLES = frozenset({"request_uri", "remote_addr", "host", "uri", "scheme", "args", "query_string", "request_method"})
_PREFIXED_VARIABLE = re.compile(r"(?:arg|http|cookie)_[a-z0-9_]{1,64}")
_HASH_PART = re.compile(r"\$\{(\w+)\}|\$(\w+)|([A-Za-z0-9 ._:/-]+)")
_SAME_SITE = {"none": "None", "lax": "Lax", "strict": "Strict"}


def read_timeouts(reader: AnnotationReader) -> Timeouts:
    """Read proxy-connect-timeout, proxy-send-timeout and proxy-read-timeout."""
    limit = values.seconds(1, 86_400)
    usual = Timeouts()
    return Timeouts(
        connect=reader.read("proxy-connect-timeout", values.seconds(1, 75), usual.connect),
        send=reader.read("proxy-send-timeout", limit, usual.send),
        read=reader.read("proxy-read-timeout", limit, usual.read),
    )


def read_buffering(reader: AnnotationReader) -> Buffering:
    """Read proxy-buffering, proxy-request-buffering and the sizes of buffers."""
    usual = Buffering()
    return Buffering(
        response=reader.read("proxy-buffering", values.switch, usual.response),
        request=reader.read("proxy-request-buffering", values.switch, usual.request),
        size=reader.read("proxy-buffer-size", values.size(1 << 10, 1 << 20), usual.size),
        count=reader.read("proxy-buffers-number", values.integer(2, 1024), usual.count),
        max_temp_file=reader.read("proxy-max-temp-file-size", values.size(0, 1 << 36), usual.max_temp_file),
        client_body=reader.read("client-body-buffer-size", values.size(1 << 10, 1 << 26), usual.client_body),
    )


def read_retries(reader: AnnotationReader) -> Retries:
    """Read proxy-next-upstream, proxy-next-upstream-tries and proxy-next-upstream-timeout."""
    usual = Retries()
    return Retries(
        on=reader.read("proxy-next-upstream", values.each(_retry_word, separator=" "), usual.on),
        tries=reader.read("proxy-next-upstream-tries", values.integer(0, 100), usual.tries),
        timeout=reader.read("proxy-next-upstream-timeout", values.seconds(0, 86_400), usual.timeout),
    )


def read_cors(reader: AnnotationReader) -> Cors | None:
    """Read enable-cors and cors-*."""
    enabled = reader.read("enable-cors", values.boolean, False)
    usual = Cors()
    cors = Cors(
        origins=reader.read("cors-allow-origin", values.each(values.origin), usual.origins),
        methods=reader.read("cors-allow-methods", values.each(values.method), usual.methods),
        headers=reader.read("cors-allow-headers", values.each(values.header_name), usual.headers),
        expose=reader.read("cors-expose-headers", values.each(values.header_name), usual.expose),
        credentials=reader.read("cors-allow-credentials", values.boolean, usual.credentials),
        max_age=reader.read("cors-max-age", values.integer(0, 1 << 31), usual.max_age),
    )
    if not enabled:
        details = ("allow-origin", "allow-methods", "allow-headers", "expose-headers", "allow-credentials", "max-age")
        reader.expect("enable-cors", *(f"cors-{name}" for name in details))
    return cors if enabled else None


def read_limits(reader: AnnotationReader, zone: str) -> Limits | None:
    """Read limit-*. ``zone``: name of the counters."""
    usual = Limits()
    limits = Limits(
        per_second=reader.read("limit-rps", values.integer(1, 1_000_000), 0, denies=True),
        per_minute=reader.read("limit-rpm", values.integer(1, 1_000_000), 0, denies=True),
        connections=reader.read("limit-connections", values.integer(1, 65_535), 0, denies=True),
        burst_multiplier=reader.read("limit-burst-multiplier", values.integer(1, 1_000), usual.burst_multiplier, denies=True),
        allow=reader.read_alias("limit-allowlist", "limit-whitelist", values.each(values.network, limit=2000), (), denies=True),
        zone=zone,
    )
    if limits.per_second or limits.per_minute or limits.connections:
        return limits
    reader.expect("limit-rps, limit-rpm or limit-connections", "limit-burst-multiplier", "limit-allowlist", "limit-whitelist", denies=True)
    return None


def read_redirect(reader: AnnotationReader) -> Redirect | None:
    """Read permanent-redirect and temporal-redirect with their codes."""
    permanent = reader.read("permanent-redirect", values.page, "")
    permanent_code = reader.read("permanent-redirect-code", values.status(300, 308), 301)
    temporal = reader.read("temporal-redirect", values.page, "")
    temporal_code = reader.read("temporal-redirect-code", values.status(300, 308), 302)
    if temporal:
        return Redirect(temporal_code, url=temporal)
    return Redirect(permanent_code, url=permanent) if permanent else None


def read_protocol(reader: AnnotationReader) -> Protocol:
    """Read backend-protocol."""
    return reader.read("backend-protocol", lambda value: values.choice(_PROTOCOLS)(value.upper()), Protocol.HTTP)


def read_backend_tls(reader: AnnotationReader) -> BackendTls:
    """Read proxy-ssl-*: TLS between NGINX and the endpoints."""
    name, _ = reader.secret("proxy-ssl-secret")
    certificate = f"{reader.namespace}/{name}" if name else ""
    verify = reader.read("proxy-ssl-verify", values.switch, False, denies=True)
    if verify and not name:
        reader.refuse("proxy-ssl-verify", "it needs proxy-ssl-secret, whose ca.crt verifies the backends", denies=True)
    return BackendTls(
        client_certificate=certificate,
        authority=certificate,
        verify=verify,
        depth=reader.read("proxy-ssl-verify-depth", values.integer(1, 100), 1, denies=True),
        server_name=reader.read("proxy-ssl-name", values.exact_host, "", denies=True),
        send_server_name=reader.read("proxy-ssl-server-name", values.switch, False),
    )


def read_affinity(reader: AnnotationReader) -> Affinity | None:
    """Read affinity and session-cookie-*."""
    kind = reader.read("affinity", values.choice({"cookie": "cookie"}), "")
    reader.read("affinity-mode", values.choice({"balanced": "balanced", "persistent": "persistent"}), "balanced")
    usual = Affinity()
    affinity = Affinity(
        cookie=reader.read("session-cookie-name", values.cookie_name, usual.cookie),
        path=reader.read("session-cookie-path", values.path, usual.path),
        domain=reader.read("session-cookie-domain", values.host, usual.domain),
        max_age=reader.read("session-cookie-max-age", values.integer(0, 1 << 31), usual.max_age),
        expires=reader.read("session-cookie-expires", values.integer(0, 1 << 31), usual.expires),
        same_site=reader.read("session-cookie-samesite", lambda value: values.choice(_SAME_SITE)(value.lower()), ""),
        secure=reader.read("session-cookie-secure", values.boolean, usual.secure),
        change_on_failure=reader.read("session-cookie-change-on-failure", values.boolean, usual.change_on_failure),
    )
    if not kind:
        details = ("name", "path", "domain", "max-age", "expires", "samesite", "secure", "change-on-failure")
        reader.expect("affinity: cookie", *(f"session-cookie-{detail}" for detail in details), "affinity-mode")
    return affinity if kind else None


def read_balance(reader: AnnotationReader) -> tuple[Balance, tuple[str, ...]]:
    """Read load-balance and upstream-hash-by."""
    words = {"round_robin": Balance.ROUND_ROBIN, "least_conn": Balance.LEAST_CONNECTIONS, "ewma": Balance.LEAST_CONNECTIONS}
    return reader.read("load-balance", values.choice(words), Balance.ROUND_ROBIN), reader.read("upstream-hash-by", _hash_parts, ())


def read_canary(reader: AnnotationReader) -> Canary | None:
    """Read canary and canary-*."""
    enabled = reader.read("canary", values.boolean, False)
    total = reader.read("canary-weight-total", values.integer(1, 1_000_000), 100)
    canary = Canary(
        header=reader.read("canary-by-header", values.header_name, ""),
        header_value=reader.read("canary-by-header-value", values.phrase, ""),
        header_pattern=reader.read("canary-by-header-pattern", expression, ""),
        cookie=reader.read("canary-by-cookie", values.cookie_name, ""),
        weight=reader.read("canary-weight", values.integer(0, total), 0),
        weight_total=total,
    )
    details = ("by-header", "by-header-value", "by-header-pattern", "by-cookie", "weight", "weight-total")
    if not enabled:
        reader.expect("canary", *(f"canary-{detail}" for detail in details))
    elif not canary.header:
        reader.expect("canary-by-header", "canary-by-header-value", "canary-by-header-pattern")
    return canary if enabled else None


def _retry_word(value: str) -> str:
    if value not in _RETRY_WORDS:
        raise InvalidValue(f"has a word that is none of {', '.join(sorted(_RETRY_WORDS))}")
    return value


def _hash_parts(value: str) -> tuple[str, ...]:
    """Return the parts of an expression such as ``$host-$arg_user``: names of variables, and literal text after ``=``."""
    parts: list[str] = []
    place = 0
    while place < len(value):
        found = _HASH_PART.match(value, place)
        if found is None:
            raise InvalidValue("has a character that is neither a letter, a digit, a space, one of . _ : / - nor a variable")
        name = found[1] or found[2]
        if name is not None and name not in _VARIABLES and not _PREFIXED_VARIABLE.fullmatch(name):
            raise InvalidValue(f"has a variable that is none of {', '.join(sorted(_VARIABLES))}, arg_NAME, http_NAME and cookie_NAME")
        parts.append(name if name is not None else f"={found[3]}")
        place = found.end()
    if not parts or len(value) > 256:
        raise InvalidValue("is empty or longer than 256 characters")
    return tuple(parts)
