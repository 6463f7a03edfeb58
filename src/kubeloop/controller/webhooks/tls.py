"""TLS of a webhook server: the source of its certificate, and a context whose certificate can be changed while it serves."""

from __future__ import annotations

import ssl
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kubeloop.client import Client
from kubeloop.meta import ConfigError, tls
from kubeloop.timing import Clock


@dataclass(frozen=True, slots=True)
class Serving:
    """A serving certificate: PEM. ``authorities``: present and coming authorities of it; empty if unknown."""

    certificate: bytes
    key: bytes
    authorities: bytes = b""

    def __repr__(self) -> str:
        return f"Serving({len(self.certificate)} bytes, key hidden)"


class CertificateSource(Protocol):
    """Gives a certificate, and another one before that expires."""

    async def open(self, client: Client | None, clock: Clock) -> Serving:
        """The certificate to begin with.

        Raises:
            ConfigError: there is none, or it cannot be used; names file or Secret. ApiError, TransportError: a Secret cannot be reached.
        """

    async def keep(self, changed: Callable[[Serving], None]) -> None:
        """Call ``changed`` with each other certificate, until cancelled. What goes wrong is logged and tried again."""


def server_tls(serving: Serving, client_authorities: bytes = b"") -> ssl.SSLContext:
    """TLS 1.2 or newer. ``client_authorities`` (PEM): authorities of client certificates; every client needs one then.

    Raises:
        ConfigError: the authorities are no certificates. ssl.SSLError: the certificate is none, or the key is not its own.
    """
    context = tls.server_tls()
    if client_authorities:
        try:
            context.load_verify_locations(cadata=client_authorities.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"client_authorities are no PEM certificates: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    _load(context, serving)
    return context


def change_certificate(context: ssl.SSLContext, serving: Serving) -> None:
    """Serve new connections with ``serving``; open ones do not change.

    Raises:
        ssl.SSLError: it is no certificate with its key; nothing is changed then.
    """
    check_pair(serving)
    _load(context, serving)


def check_pair(serving: Serving) -> None:
    """Raises ssl.SSLError: no certificate, or the key is not its own."""
    _load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), serving)


def _load(context: ssl.SSLContext, serving: Serving) -> None:
    # ssl reads files only: the folder is 0700, so other users cannot read it, and it is removed at once.
    with tempfile.TemporaryDirectory(prefix="kubeloop-") as folder:
        path = Path(folder, "pair.pem")
        path.touch(mode=0o600)
        path.write_bytes(serving.certificate.rstrip() + b"\n" + serving.key)
        context.load_cert_chain(path)
