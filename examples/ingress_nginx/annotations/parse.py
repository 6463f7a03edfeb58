"""All annotations of an Ingress: known ones become typed values, all others become problems."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import replace

from examples.ingress_nginx.annotations import auth, traffic, values
from examples.ingress_nginx.annotations.parsed import Annotations, Objects
from examples.ingress_nginx.annotations.reader import AnnotationReader
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy

_NO_TEXT = "text of an Ingress never becomes NGINX's configuration"
_NO_FIREWALL = "NGINX has no firewall for requests here; put one in front of the controller"
_NO_TRACES = "requests are not traced; trace them in the backends, which get X-Request-ID"
_NO_CACHE = "each request asks the authentication server, on a connection that NGINX keeps"
_NO_HEADERS = "headers of responses are not changed; let the backend send them"
_NO_COOKIES = "cookies and redirects of backends are not rewritten; let the backend send them as clients need them"
_NO_CIPHERS = "NGINX's default ciphers are used; ssl-protocols in the ConfigMap chooses the versions of TLS"
#: Annotations of ingress-nginx that this controller does not follow, by the beginning of their names, and what helps instead.
UNSUPPORTED: Mapping[str, str] = {
    "configuration-snippet": f"{_NO_TEXT}; use the annotation for what the snippet does",
    "server-snippet": f"{_NO_TEXT}; use the annotation for what the snippet does",
    "stream-snippet": _NO_TEXT,
    "auth-snippet": f"{_NO_TEXT}; use auth-response-headers",
    "enable-modsecurity": _NO_FIREWALL,
    "enable-owasp": _NO_FIREWALL,
    "modsecurity": _NO_FIREWALL,
    "mirror": "requests are not mirrored; use a service mesh",
    "enable-opentelemetry": _NO_TRACES,
    "opentelemetry": _NO_TRACES,
    "enable-opentracing": _NO_TRACES,
    "ssl-passthrough": "TLS ends in NGINX; put a TCP load balancer in front of NGINX, which passes this host on",
    "auth-tls-match-cn": "names of client certificates are not compared; the backend can (auth-tls-pass-certificate-to-upstream)",
    "global-rate-limit": "limits are counted in each replica; use limit-rps",
    "affinity-canary-behavior": "main backend and canary have separate cookies",
    "session-cookie-conditional-samesite-none": "set session-cookie-samesite",
    "auth-cache-": _NO_CACHE,
    "auth-keepalive": _NO_CACHE,
    "auth-proxy-set-headers": "the authentication server gets the headers of the request, and no others",
    "enable-global-auth": "no authentication holds for all Ingresses; use auth-url",
    "satisfy": "each of authentication and source ranges must let a request in",
    "custom-headers": _NO_HEADERS,
    "limit-rate": "the speed of responses is not limited",
    "preserve-trailing-slash": "redirects to https:// keep the path as it is",
    "relative-redirects": "redirects of backends are passed on as they are",
    "ssl-ciphers": _NO_CIPHERS,
    "ssl-prefer-server-ciphers": _NO_CIPHERS,
    "proxy-ssl-ciphers": _NO_CIPHERS,
    "proxy-ssl-protocols": _NO_CIPHERS,
    "enable-access-log": "the ConfigMap's disable-access-log decides for all Ingresses",
    "enable-rewrite-log": "`explain` shows what becomes of a request",
    "proxy-cookie-": _NO_COOKIES,
    "proxy-redirect-": _NO_COOKIES,
    "proxy-http-version": "backends get HTTP/1.1",
    "proxy-busy-buffers-size": "it equals proxy-buffer-size",
    "upstream-hash-by-subset": "requests are hashed over all endpoints",
    "http2-push-preload": "browsers do not support HTTP/2 push any more",
    "disable-proxy-intercept-errors": "errors are intercepted only where custom-http-errors names them",
}
#: What annotations of protections begin with, also names with a mistake. Without them, requests get 503.
_PROTECTIONS = (
    *("configuration-snippet", "server-snippet", "stream-snippet", "auth-", "enable-modsecurity", "enable-owasp", "modsecurity"),
    *("global-rate-limit", "limit-", "allowlist", "whitelist", "denylist", "enable-global-auth"),
)
#: Annotations with such a name that protect nothing.
_HARMLESS = ("auth-cache-", "auth-keepalive", "auth-proxy-set-headers", "limit-rate")
#: Older names, and the names that replace them.
DEPRECATED: Mapping[str, str] = {"whitelist-source-range": "allowlist-source-range", "limit-whitelist": "limit-allowlist"}


def parse_annotations(
    annotations: Mapping[str, str], namespace: str, name: str, objects: Objects, *, prefix: str = "nginx.ingress.kubernetes.io"
) -> Annotations:
    """Parse the annotations of an Ingress.

    Args:
        annotations: All annotations of the Ingress; those without the prefix are not read.
        namespace: The Ingress's namespace, the only one whose objects it may refer to.
        name: The Ingress's name.
        objects: Where Secrets and ConfigMaps are looked up.
        prefix: In front of the slash of the annotations that are read.

    Returns:
        The values. Annotations with a mistake have their defaults, and a problem.
    """
    if not any(key.startswith(prefix) for key in annotations):
        return _NONE
    return _read(AnnotationReader(annotations, namespace, objects, prefix), name, prefix)


def supported_annotations() -> frozenset[str]:
    """Return the names of all annotations that are followed, without prefix."""
    reader = AnnotationReader({}, "", _NoObjects(), "")
    _read(reader, "", "")
    return frozenset(reader.names)


class _NoObjects:
    def secret(self, namespace: str, name: str) -> None:
        del namespace, name

    def config_map(self, namespace: str, name: str) -> None:
        del namespace, name


_NONE = Annotations()


def _read(reader: AnnotationReader, name: str, prefix: str) -> Annotations:
    balance, hash_by = traffic.read_balance(reader)
    affinity = traffic.read_affinity(reader)
    result = Annotations(
        policy=_policy(reader, f"{reader.namespace}/{name}"),
        use_regex=reader.read("use-regex", values.boolean, False),
        rewrite_target=reader.read("rewrite-target", values.template, ""),
        ssl_redirect=reader.read("ssl-redirect", values.boolean, None),
        force_ssl_redirect=reader.read("force-ssl-redirect", values.boolean, False),
        server_aliases=reader.read("server-alias", values.each(values.host), ()),
        from_to_www=reader.read("from-to-www-redirect", values.boolean, False),
        canary=traffic.read_canary(reader),
        affinity=affinity,
        hash_by=hash_by,
        balance=balance,
        service_upstream=reader.read("service-upstream", values.boolean, False),
        client_auth=auth.read_client_auth(reader),
        default_backend=reader.read("default-backend", values.service_name, ""),
    )
    for unknown in reader.unread():
        _refuse(reader, unknown)
    for old in filter(reader.has, DEPRECATED):
        reader.warnings.append(f"annotation {prefix}/{old} is deprecated; use {prefix}/{DEPRECATED[old]}")
    return replace(result, secrets=tuple(reader.secrets), problems=tuple(reader.problems), warnings=tuple(reader.warnings))


def _policy(reader: AnnotationReader, zone: str) -> Policy:
    usual = DEFAULT_POLICY
    allow, deny = auth.read_networks(reader)
    return Policy(
        protocol=traffic.read_protocol(reader),
        redirect=traffic.read_redirect(reader),
        body_size=reader.read("proxy-body-size", values.size(), usual.body_size),
        timeouts=traffic.read_timeouts(reader),
        buffering=traffic.read_buffering(reader),
        retries=traffic.read_retries(reader),
        allow=allow,
        deny=deny,
        cors=traffic.read_cors(reader),
        basic_auth=auth.read_basic_auth(reader),
        external_auth=auth.read_external_auth(reader),
        limits=traffic.read_limits(reader, zone),
        upstream_vhost=reader.read("upstream-vhost", values.authority, ""),
        forwarded_prefix=reader.read("x-forwarded-prefix", values.path, ""),
        intercept=reader.read("custom-http-errors", values.each(values.status(400, 599)), ()),
        app_root=reader.read("app-root", values.page, ""),
        connection_header=reader.read("connection-proxy-header", values.connection_options, ""),
        backend_tls=traffic.read_backend_tls(reader),
    )


def _refuse(reader: AnnotationReader, name: str) -> None:
    advice = next((text for start, text in UNSUPPORTED.items() if name.startswith(start)), "")
    known = difflib.get_close_matches(name, reader.names, n=1, cutoff=0.8)
    hint = f"did you mean {known[0]}?" if known else "remove it, or see docs/coming-from-ingress-nginx.md for the names"
    message = f"not supported: {advice}" if advice else f"not known to this controller; {hint}"
    # enable-modsecurity: "false" asks for nothing.
    asks = not (name.startswith("enable-") and reader.value(name).strip().lower() in ("false", "0", "f", ""))
    protects = name.startswith(_PROTECTIONS) and not name.startswith(_HARMLESS)
    reader.refuse(name, message, denies=protects and asks)
