"""Certificates: the authorities that the server trusts to issue those of clients, and the certificate that it presents.

Source: Kubernetes documentation, "Authenticating" (X.509 client certificates); k8s.io/apiserver pkg/authentication/request/x509.
"""

from __future__ import annotations

import logging
import ssl
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature

from kubeloop.apiserver.authentication.options import AuthenticationOptions
from kubeloop.endpoints.access import User
from kubeloop.meta.errors import ConfigError
from kubeloop.pki import CertificateAuthority
from kubeloop.pki.watched import WatchedFile
from kubeloop.serving.listener import RotatingContext, server_context


def user_of_certificate(certificate: Mapping[str, Any]) -> User:
    """Return the user of a certificate in the form of Python's ``ssl``, which requests inside the process pass."""
    parts = [part for relative in certificate.get("subject", ()) for part in relative]
    groups = tuple(value for kind, value in parts if kind == "organizationName")
    return User(next((value for kind, value in parts if kind == "commonName"), ""), groups)


class Bundle:
    """The certificates of authorities in a PEM bundle."""

    def __init__(self, pem: bytes) -> None:
        """Parse a PEM bundle. Raises ValueError if it contains no certificate, or an unreadable one."""
        self._authorities = tuple(x509.load_pem_x509_certificates(pem))
        self._known: dict[tuple[bytes, ...], bool] = {}

    def has_issued(self, chain: tuple[bytes, ...]) -> bool:
        """Return whether a certificate of the bundle is in ``chain`` or issued a certificate in it.

        ``chain`` is in DER, the client's certificate first, each issued by the next; TLS has verified it. As in Go, the bundle may contain
        the client's certificate.
        """
        known = self._known.get(chain)
        if known is None:
            if len(self._known) >= 1024:
                self._known.clear()
            certificates = [x509.load_der_x509_certificate(der) for der in chain]
            vouched = (one == authority or _issued(one, authority) for one in certificates for authority in self._authorities)
            known = self._known[chain] = any(vouched)
        return known


def _issued(certificate: x509.Certificate, authority: x509.Certificate) -> bool:
    if certificate.issuer != authority.subject:
        return False
    try:
        certificate.verify_directly_issued_by(authority)
    except (ValueError, TypeError, InvalidSignature):
        return False
    return True


# Trusted authorities: the server's own and those of --client-ca-file; for front proxies those of --requestheader-client-ca-file.
# A changed file applies to later connections and requests.


_LOG = logging.getLogger("kubeloop.apiserver.authentication")

_CLIENTS: Final = "--client-ca-file"
_PROXIES: Final = "--requestheader-client-ca-file"


class _File:
    """A bundle in a file. If a changed file cannot be read, the previous bundle stays."""

    def __init__(self, path: Path, flag: str) -> None:
        self._file = WatchedFile(path, flag)
        self._mark = self._file.mark()
        self.pem = self._file.read()
        self.bundle = _bundle(self.pem, f"{flag} {path}")

    def refresh(self) -> bool:
        """Read the file if it changed. Returns whether the bundle changed."""
        mark = self._file.mark()
        if mark == self._mark:
            return False
        self._mark = mark
        try:
            pem = self._file.read()
            bundle = _bundle(pem, f"{self._file.flag} {self._file.path}")
        except ConfigError as error:
            _LOG.warning("%s; the previous content stays in use", error)
            return False
        _LOG.info("%s %s was reloaded", self._file.flag, self._file.path)
        self.pem, self.bundle = pem, bundle
        return True


class ClientAuthorities:
    """The authorities whose certificates authenticate clients and front proxies, read again when their files change.

    Raises ConfigError when a file cannot be read at first; later it logs the error.
    """

    def __init__(self, server_ca: bytes, clients: Path | None = None, proxies: Path | None = None) -> None:
        self._own_pem = server_ca
        self._own = Bundle(server_ca)
        self._clients = _File(clients, _CLIENTS) if clients is not None else None
        self._proxies = _File(proxies, _PROXIES) if proxies is not None else None
        self._files = tuple(one for one in (self._clients, self._proxies) if one is not None)
        #: Increases with each change of a file.
        self.generation = 0
        self._listeners: list[Callable[[], None]] = []

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call ``listener`` after each change of a file. Returns a function that removes the listener."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    def refresh(self) -> int:
        """Read changed files. Returns the current generation."""
        changed = [one.refresh() for one in self._files]
        if any(changed):
            self.generation += 1
            for listener in tuple(self._listeners):
                listener()
        return self.generation

    @property
    def clients_pem(self) -> bytes:
        """Authorities of client certificates, PEM."""
        return self._own_pem + (self._clients.pem if self._clients is not None else b"")

    @property
    def proxies_pem(self) -> bytes:
        """The authorities of front proxies in PEM. If it is empty, no front proxy is trusted."""
        return self._proxies.pem if self._proxies is not None else b""

    @property
    def all_pem(self) -> bytes:
        """All authorities, PEM, for the TLS handshake."""
        return self.clients_pem + b"\n" + self.proxies_pem

    def is_client(self, chain: tuple[bytes, ...]) -> bool:
        """Return whether an authority of clients issued the chain, which TLS has verified."""
        if not self._files:
            return True  # the authority of the server is the only one
        return self._own.has_issued(chain) or (self._clients is not None and self._clients.bundle.has_issued(chain))

    def is_proxy(self, chain: tuple[bytes, ...]) -> bool:
        """Return whether an authority of front proxies issued the chain, which TLS has verified."""
        return self._proxies is not None and self._proxies.bundle.has_issued(chain)


def _bundle(pem: bytes, description: str) -> Bundle:
    try:
        return Bundle(pem)
    except ValueError:
        raise ConfigError(f"{description}: no certificates in it that can be read; PEM is wanted") from None


# The certificate that the server presents.


#: Server name (SNI) with which clients get the certificate of the server's authority even if flags name another one, as in kube-apiserver.
LOOPBACK_NAME: Final = "apiserver-loopback-client"
_NAMES: Final = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local")
_DAYS: Final = 365
#: Seconds after which the server issues its certificate again, long before it expires.
_RENEWED: Final = 90 * 24 * 3600


class ServingCertificates:
    """Builds TLS contexts. It builds new ones when a file changes or the certificate is due for renewal.

    Raises:
        ConfigError: The files of the flags contain no certificate with its key.
    """

    def __init__(
        self, authority: CertificateAuthority, addresses: Sequence[str], options: AuthenticationOptions, clients: ClientAuthorities
    ) -> None:
        """Issue the certificate and read the files of the flags.

        Args:
            authority: Issues the certificate of the server.
            addresses: Addresses for which the certificate is valid.
            options: Files with another certificate.
            clients: Authorities of client certificates.
        """
        self._authority = authority
        self._addresses = addresses
        self._clients = clients
        self._pair: tuple[WatchedFile, WatchedFile] | None = None
        if options.tls_certificate is not None and options.tls_key is not None:
            certificate = WatchedFile(options.tls_certificate, "--tls-cert-file")
            self._pair = certificate, WatchedFile(options.tls_key, "--tls-private-key-file")
        self._rotating = RotatingContext(self._make, self._mark)

    @property
    def context(self) -> ssl.SSLContext:
        """The TLS context for a listener. It stays current while the listener runs."""
        return self._rotating.context

    def _mark(self) -> Hashable:
        marks = tuple(one.mark() for one in self._pair) if self._pair is not None else ()
        return self._clients.refresh(), int(time.time() / _RENEWED), marks

    def _make(self) -> dict[str, ssl.SSLContext]:
        trusted = self._clients.all_pem
        names = (*_NAMES, LOOPBACK_NAME)
        own = self._authority.issue("kube-apiserver", dns_names=names, ip_addresses=self._addresses, server=True, days=_DAYS)
        made = server_context(own.certificate, own.key, trusted)
        if self._pair is None:
            return {"": made}
        certificate, key = self._pair
        try:
            requested = server_context(certificate.read() + b"\n", key.read(), trusted)
        except ssl.SSLError as error:
            reason = error.reason or str(error)
            raise ConfigError(f"{certificate.flag} {certificate.path} and {key.flag} {key.path} do not belong together: {reason}") from None
        return {"": requested, LOOPBACK_NAME: made}
