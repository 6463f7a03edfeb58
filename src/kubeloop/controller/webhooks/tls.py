"""TLS of a webhook server: the source of its certificate, and a context whose certificate can be changed while it serves."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from kubeloop.client import Client
from kubeloop.meta import ConfigError, tls
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context


@dataclass(frozen=True, slots=True)
class ServingCertificate:
    """A serving certificate with its key, as PEM. ``authorities``: its present and future certificate authorities; empty if unknown.

    Example:
        >>> serving = ServingCertificate(certificate=b"-----BEGIN CERTIFICATE-----...", key=b"-----BEGIN PRIVATE KEY-----...")
        >>> serving.authorities
        b''
    """

    certificate: bytes
    key: bytes
    authorities: bytes = b""

    def __repr__(self) -> str:
        return f"Serving({len(self.certificate)} bytes, key hidden)"


class CertificateSource(Protocol):
    """Provides a serving certificate, and its successor before it expires."""

    async def open(self, client: Client | None, clock: Clock) -> ServingCertificate:
        """Return the first certificate.

        Raises:
            ConfigError: there is no certificate, or it cannot be used; the message names file or Secret.
            ApiError, TransportError: a Secret cannot be reached.
        """

    async def watch(self, changed: Callable[[ServingCertificate], None]) -> None:
        """Call ``changed`` with each new certificate, until cancelled. Failures are logged and retried."""


def server_tls(serving: ServingCertificate, client_authorities: bytes = b"") -> ssl.SSLContext:
    """Return a TLS context (TLS 1.2 or newer) of a server.

    If ``client_authorities`` (PEM) are given, every client needs a certificate that one of them signed.

    Raises:
        ConfigError: the authorities are not certificates.
        ssl.SSLError: the certificate is invalid, or the key does not belong to it.
    """
    context = tls.server_tls()
    if client_authorities:
        try:
            context.load_verify_locations(cadata=client_authorities.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"client_authorities are not PEM certificates: {error}") from None
        context.verify_mode = ssl.CERT_REQUIRED
    tls.load_pair(context, serving.certificate, serving.key)
    return context


def change_certificate(context: ssl.SSLContext, serving: ServingCertificate) -> None:
    """Serve new connections with the certificate ``serving``; open connections continue.

    Raises:
        ssl.SSLError: the certificate or its key is invalid; nothing is changed then.
    """
    check_pair(serving)
    tls.load_pair(context, serving.certificate, serving.key)


def check_pair(serving: ServingCertificate) -> None:
    """Check a certificate and its key. Raises ssl.SSLError if the certificate is invalid, or the key does not belong to it."""
    tls.load_pair(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), serving.certificate, serving.key)


_LOG = logger_with_context("kubeloop.controller.webhooks")


class CertificateFiles:
    """Reads the certificate of a webhook server from the files of a folder, and again every ``period`` seconds.

    Guarantees
        A certificate and key that do not match, for example while files are being replaced, are ignored and logged once: the previous
        certificate stays in use, even if the files vanish.

    Args:
        folder: The folder, such as a mounted Secret.
        certificate: File of the certificate, within the folder or absolute.
        key: File of the private key.
        authorities: File of the certificate authority; it may be missing.
        period: Seconds between two reads.

    Example:
        >>> certificates = CertificateFiles("/etc/webhook-tls", period=60)
    """

    def __init__(
        self,
        folder: Path | str,
        *,
        certificate: str = "tls.crt",
        key: str = "tls.key",
        authorities: str = "ca.crt",
        period: float = 10.0,
    ) -> None:
        self._certificate = Path(folder, certificate)
        self._key = Path(folder, key)
        self._authorities = Path(folder, authorities)
        self._period = period
        self._clock: Clock = SystemClock()
        self._served: ServingCertificate | None = None
        self._told = ""

    async def open(self, client: Client | None, clock: Clock) -> ServingCertificate:  # noqa: ARG002 - files need no client
        self._clock = clock
        self._served = self._read()
        return self._served

    async def watch(self, changed: Callable[[ServingCertificate], None]) -> None:
        while True:
            await self._clock.sleep(self._period)
            try:
                found = self._read()
            except ConfigError as error:
                if self._told != str(error):
                    _LOG.warning("%s; the previous certificate stays in use", error)
                self._told = str(error)
                continue
            self._told = ""
            if found != self._served:
                self._served = found
                _LOG.info("serving with the new certificate of %s", self._certificate)
                changed(found)

    def _read(self) -> ServingCertificate:
        try:
            pair = self._certificate.read_bytes(), self._key.read_bytes()
            authorities = self._authorities.read_bytes() if self._authorities.exists() else b""
        except OSError as error:
            raise ConfigError(f"cannot read {error.filename}: {error.strerror}; is the certificate's Secret mounted there?") from None
        found = ServingCertificate(*pair, authorities)
        try:
            check_pair(found)
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(f"{self._certificate} and {self._key} are not a certificate and its key: {error}") from None
        return found
