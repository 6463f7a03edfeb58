"""The identities of a proxied request: the proxy's client certificate, and the headers that name the user to the backend.

Source: k8s.io/client-go transport (NewAuthProxyRoundTripper); Kubernetes documentation, "Configure the Aggregation Layer" and
"Authenticating" (Authenticating Proxy).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from kubeloop.endpoints.access import User
from kubeloop.meta.tls import load_pair
from kubeloop.pki import CertificateAuthority, IssuedCertificate

if TYPE_CHECKING:
    from kubeloop.reverseproxy.backend import Backend

HeaderLines = list[tuple[str, str]]

#: Characters of the name of an extra that are not escaped (RFC 9110 tokens, without the percent sign).
_IN_NAMES: Final = "!#$&'*+-.^_`|~"
_BEARER_PROTOCOL: Final = "base64url.bearer.authorization.k8s.io."

#: The certificate's common name, which extension servers may require (--requestheader-allowed-names).
NAME: Final = "front-proxy-client"


class ProxyIdentity:
    """The proxy's client certificate for ``front-proxy-client``, and the authority that signs it. Both are created at the first access.

    The authority signs no other certificate, because a client with a certificate of this authority may act as any user.
    """

    def __init__(self, authority: CertificateAuthority | None = None) -> None:
        self._supplied = authority

    @property
    def authority(self) -> bytes:
        """The authority's public certificate in PEM, which extension servers have to trust."""
        return self._authority.certificate

    @cached_property
    def certificate(self) -> IssuedCertificate:
        return self._authority.issue(NAME, client=True)

    def present(self, context: ssl.SSLContext) -> None:
        """Load the certificate into a TLS context."""
        load_pair(context, self.certificate.certificate, self.certificate.key)

    @cached_property
    def _authority(self) -> CertificateAuthority:
        return self._supplied or CertificateAuthority.create("kubeloop-front-proxy-ca")


def identity_headers(user: User) -> HeaderLines:
    """Return the X-Remote-* headers that name a user to a backend.

    The keys of ``user.extra`` become header names, so characters that header names do not allow are percent-encoded.
    """
    lines = [("X-Remote-User", user.name)]
    if user.uid:
        lines.append(("X-Remote-Uid", user.uid))
    lines += [("X-Remote-Group", group) for group in user.groups]
    lines += [
        (f"X-Remote-Extra-{quote(name.lower(), safe=_IN_NAMES, errors='surrogateescape')}", value)
        for name, values in user.extra.items()
        for value in values
    ]
    return [(name, _one_line(value)) for name, value in lines]


def header_rewriter(user: User, backend: Backend, audit_id: str) -> Callable[[HeaderLines], HeaderLines]:
    """Return a function that rewrites a client's headers: it replaces the identity that the client claims by the authenticated user.

    Args:
        user: The authenticated user.
        backend: The destination.
        audit_id: The audit ID of the request. Empty: the client's Audit-Id header is forwarded.
    """
    own = [("Audit-Id", audit_id)] if audit_id else []

    def rewrite(lines: HeaderLines) -> HeaderLines:
        kept = [(name, _without_token(value) if name.lower() == "sec-websocket-protocol" else value) for name, value in lines]
        kept = [(name, value) for name, value in kept if name.lower() != "host" and not name.lower().startswith("x-remote-")]
        kept = [(name, value) for name, value in kept if not (own and name.lower() == "audit-id")]
        return [("Host", backend.authority), *kept, *own, *identity_headers(user)]

    return rewrite


def _without_token(protocols: str) -> str:
    """Return the offered subprotocols of a WebSocket without the subprotocol with which browsers send a bearer token."""
    offered = (one.strip() for one in protocols.split(","))
    return ", ".join(one for one in offered if not one.startswith(_BEARER_PROTOCOL))


def _one_line(value: str) -> str:
    """Replace control characters by spaces, because a line break in a value would begin another header."""
    return "".join(one if one == "\t" or (one >= " " and one != "\x7f") else " " for one in value)
