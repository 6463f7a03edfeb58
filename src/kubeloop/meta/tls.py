"""TLS contexts that verify certificates as Go's crypto/x509 does, which kube-apiserver, kubectl and client-go use.

Two differences to ``ssl.create_default_context``:

- Every given authority certificate is trusted, also an intermediate authority and the peer's own certificate
  (``VERIFY_X509_PARTIAL_CHAIN``). OpenSSL alone requires a chain that ends in a self-signed certificate.
- ``VERIFY_X509_STRICT``, the default of Python 3.13 and newer, is off: it refuses authorities without a key identifier or with a basic
  constraint that is not critical, as kubeadm, cert-manager and others make them. Go accepts those.
"""

from __future__ import annotations

import os
import ssl
from pathlib import Path


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


def load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Load a certificate, with its chain, and its private key into ``context``. All are PEM.

    ``ssl`` reads keys from files only. On Linux that file is in memory, so that no key reaches a disk, and containers whose file system is
    read-only need no folder for temporary files. Elsewhere it is a temporary file with mode 0600, which is removed at once.

    Raises:
        ssl.SSLError: One of them is invalid, they do not belong together, or the key has a passphrase.
        OSError: No temporary file can be written.
    """
    pem = certificate.rstrip() + b"\n" + key
    if hasattr(os, "memfd_create"):
        with os.fdopen(os.memfd_create("kubeloop-key", os.MFD_CLOEXEC), "wb") as file:
            file.write(pem)
            file.flush()
            path = Path(f"/proc/self/fd/{file.fileno()}")
            if path.exists():  # not where /proc is not mounted
                # An encrypted key must fail instead of prompting at the terminal.
                context.load_cert_chain(path, password=lambda: b"")
                return
    import tempfile

    descriptor, name = tempfile.mkstemp(suffix=".pem")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(pem)
        context.load_cert_chain(name, password=lambda: b"")
    finally:
        Path(name).unlink()
