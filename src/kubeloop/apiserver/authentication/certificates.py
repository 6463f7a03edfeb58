"""Client certificates, and the authorities that the server trusts to issue them.

The common name is the user, the organizations are the groups.
Source: Kubernetes documentation, "Authenticating" (X.509 client certificates); k8s.io/apiserver pkg/authentication/request/x509.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from kubeloop.endpoints.access import User
from kubeloop.meta.errors import ConfigError
from kubeloop.pki.watched import WatchedFile

#: Attribute of the subject with the uid of the user, defined by Kubernetes.
_UID: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class PresentedCertificate:
    """The client certificate of a connection.

    Times are in seconds since 1970. ``fault`` is the reason, in upstream's words, why the certificate does not identify a user.
    """

    name: str
    groups: tuple[str, ...]
    uid: str
    begins: float
    ends: float
    fingerprint: str
    fault: str = ""

    def is_valid_at(self, now: float) -> bool:
        """Return whether the certificate is valid at a time (seconds since 1970)."""
        return self.begins <= now <= self.ends

    @property
    def user(self) -> User | None:
        """The user that the certificate names, or None."""
        if not self.name:
            return None
        return User(self.name, self.groups, self.uid, {CREDENTIAL_ID: (f"X509SHA256={self.fingerprint}",)})


@lru_cache(maxsize=1024)
def parse_certificate(der: bytes) -> PresentedCertificate:
    """Parse a certificate. The result is cached, because all requests of a connection have the same certificate."""
    certificate = x509.load_der_x509_certificate(der)
    name, uids, groups = "", [], []
    for attribute in certificate.subject:
        value = attribute.value if isinstance(attribute.value, str) else ""
        if attribute.oid == NameOID.COMMON_NAME:
            name = value
        elif attribute.oid == NameOID.ORGANIZATION_NAME:
            groups.append(value)
        elif attribute.oid == _UID:
            uids.append(value)
    error = ""
    if len(uids) > 1:
        error = f"expected 1 UID, but found multiple: [{' '.join(uids)}]"
    elif uids == [""]:
        error = "UID cannot be an empty string"
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    fingerprint = hashlib.sha256(der).hexdigest()
    return PresentedCertificate(name, tuple(groups), uids[0] if uids else "", begins, ends, fingerprint, error)


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
