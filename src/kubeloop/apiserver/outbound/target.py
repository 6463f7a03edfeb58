"""Where a webhook is: what a ``clientConfig`` says, read into an address, a name and whom to trust.

Source: admissionregistration.k8s.io/v1 WebhookClientConfig; k8s.io/apiserver pkg/util/webhook/client.go.
"""

from __future__ import annotations

import base64
import posixpath
import ssl
from dataclasses import dataclass
from urllib.parse import urlsplit

from kubeloop.apiserver.outbound.failure import NotCallable
from kubeloop.meta.tls import client_tls
from kubeloop.types import JSONObject

_HTTPS = 443


@dataclass(frozen=True, slots=True)
class ServiceName:
    """A service of the cluster, to be resolved at each call."""

    namespace: str
    name: str
    port: int


@dataclass(frozen=True, slots=True)
class Target:
    """``authority`` is what URLs and the Host header show; ``host`` what the certificate must be valid for. ``ca`` empty: the system's."""

    authority: str
    host: str
    port: int
    path: str
    ca: bytes
    service: ServiceName | None = None

    @property
    def url(self) -> str:
        return f"https://{self.authority}{self.path}"


def trust(bundle: bytes) -> ssl.SSLContext:
    """A context that trusts the authorities of a PEM bundle, or the system's if it is empty. Loads certificates: keep it.

    Raises:
        NotCallable: the bundle holds no certificate.
    """
    context = client_tls()
    if not bundle:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return context
    try:
        context.load_verify_locations(cadata=bundle.decode("ascii", "replace"))
    except (ssl.SSLError, ValueError):
        raise NotCallable("unable to load root certificates: unable to parse bytes as PEM block") from None
    return context


def target_of(config: JSONObject) -> Target:
    """Read a ``clientConfig``, which has been validated when it was written.

    Raises:
        NotCallable: it names neither a URL nor a service.
    """
    ca = base64.b64decode(config.get("caBundle") or "").strip()
    service = config.get("service")
    if service is not None:
        port = service.get("port") or _HTTPS
        host = f"{service.get('name')}.{service.get('namespace')}.svc"
        where = ServiceName(service.get("namespace", ""), service.get("name", ""), port)
        return Target(f"{host}:{port}", host, port, _clean(service.get("path") or ""), ca, where)
    url = urlsplit(config.get("url") or "")
    if not url.hostname:
        raise NotCallable("webhook configuration must have either service or URL")
    return Target(url.netloc, url.hostname, url.port or _HTTPS, _clean(url.path), ca)


def _clean(path: str) -> str:
    """As Go's path.Join leaves a path."""
    return posixpath.normpath("/" + path.lstrip("/"))
