"""All annotations of an Ingress: known ones become typed values, all others become problems."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from examples.ingress_nginx.annotations import auth, traffic, values
from examples.ingress_nginx.annotations.parsed import Annotations, Objects
from examples.ingress_nginx.annotations.reader import AnnotationReader
from examples.ingress_nginx.model.policy import DEFAULT_POLICY, Policy

#: Annotations of ingress-nginx that this controller does not follow, by the beginning of their names, and what helps instead.
UNSUPPORTED: Mapping[str, str] = {
    "configuration-snippet": "text of an Ingress never becomes NGINX's configuration; use the annotation for what the snippet does",
    "server-snippet": "text of an Ingress never becomes NGINX's configuration; use the annotation for what the snippet does",
    "stream-snippet": "text of an Ingress never becomes NGINX's configuration",
    "auth-snippet": "text of an Ingress never becomes NGINX's configuration; use auth-response-headers",
    "enable-modsecurity": "NGINX has no firewall for requests here; put one in front of the controller",
    "enable-owasp": "NGINX has no firewall for requests here; put one in front of the controller",
    "modsecurity": "NGINX has no firewall for requests here; put one in front of the controller",
    "mirror": "requests are not mirrored; use a service mesh",
    "enable-opentelemetry": "requests are not traced; trace them in the backends, which get X-Request-ID",
    "opentelemetry": "requests are not traced; trace them in the backends, which get X-Request-ID",
    "enable-opentracing": "requests are not traced; trace them in the backends, which get X-Request-ID",
    "ssl-passthrough": "TLS ends in NGINX; use backend-protocol: HTTPS, or a TCP load balancer in front of NGINX",
    "auth-tls-match-cn": "names of client certificates are not compared; the backend can (auth-tls-pass-certificate-to-upstream)",
    "global-rate-limit": "limits are counted in each replica; use limit-rps",
}
#: Annotations whose effect is a protection: without it, requests get 503.
_PROTECTIONS = (
    *("configuration-snippet", "server-snippet", "auth-", "enable-modsecurity", "enable-owasp"),
    *("modsecurity", "global-rate-limit"),
)
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
    message = f"not supported: {advice}" if advice else "not known to this controller; remove it, or look for its name in the documentation"
    reader.refuse(name, message, denies=bool(advice) and name.startswith(_PROTECTIONS))
