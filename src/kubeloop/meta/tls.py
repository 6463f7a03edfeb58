"""TLS contexts that verify certificates as Go's crypto/x509 does, which kube-apiserver, kubectl and client-go use.

Two differences to ``ssl.create_default_context``:

- Every given authority certificate is trusted, also an intermediate authority and the peer's own certificate
  (``VERIFY_X509_PARTIAL_CHAIN``). OpenSSL alone requires a chain that ends in a self-signed certificate.
- ``VERIFY_X509_STRICT``, the default of Python 3.13 and newer, is off: it refuses authorities without a key identifier or with a basic
  constraint that is not critical, as kubeadm, cert-manager and others make them. Go accepts those.
"""

from __future__ import annotations

import ssl


def client_tls() -> ssl.SSLContext:
    """Return a context for a client: TLS 1.2 or newer; host name and certificate are verified. It trusts no authority yet."""
    return _like_go(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))


def server_tls() -> ssl.SSLContext:
    """Return a context for a server: TLS 1.2 or newer; it requests no client certificates yet."""
    return _like_go(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))


def _like_go(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT
    return context
