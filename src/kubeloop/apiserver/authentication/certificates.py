"""Client certificates: the user is the common name, the groups are the organizations.

Source: Kubernetes documentation, "Authenticating" (X.509 client certificates); k8s.io/apiserver pkg/authentication/request/x509.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.x509.oid import NameOID

from kubeloop.endpoints.access import User

#: An attribute of a subject that is the user's uid: Kubernetes' own.
_UID: Final = x509.ObjectIdentifier("1.3.6.1.4.1.57683.2")
CREDENTIAL_ID: Final = "authentication.kubernetes.io/credential-id"


@dataclass(frozen=True, slots=True)
class Presented:
    """A certificate that a client has the key of. Times in seconds since 1970. ``fault``: why it names no user, in upstream's words."""

    name: str
    groups: tuple[str, ...]
    uid: str
    begins: float
    ends: float
    fingerprint: str
    fault: str = ""

    def is_valid_at(self, now: float) -> bool:
        return self.begins <= now <= self.ends

    @property
    def user(self) -> User | None:
        """None: it names nobody."""
        if not self.name:
            return None
        return User(self.name, self.groups, self.uid, {CREDENTIAL_ID: (f"X509SHA256={self.fingerprint}",)})


@lru_cache(maxsize=1024)
def presented(der: bytes) -> Presented:
    """Each request of a connection shows the same certificate."""
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
    fault = ""
    if len(uids) > 1:
        fault = f"expected 1 UID, but found multiple: [{' '.join(uids)}]"
    elif uids == [""]:
        fault = "UID cannot be an empty string"
    begins, ends = certificate.not_valid_before_utc.timestamp(), certificate.not_valid_after_utc.timestamp()
    fingerprint = hashlib.sha256(der).hexdigest()
    return Presented(name, tuple(groups), uids[0] if uids else "", begins, ends, fingerprint, fault)


def named(certificate: Mapping[str, Any]) -> User:
    """Of a certificate as ``ssl`` shows it, where there is no connection that it could be read from: requests of the same process."""
    parts = [part for relative in certificate.get("subject", ()) for part in relative]
    groups = tuple(value for kind, value in parts if kind == "organizationName")
    return User(next((value for kind, value in parts if kind == "commonName"), ""), groups)


class Bundle:
    """Certificates of authorities, from PEM."""

    def __init__(self, pem: bytes) -> None:
        """Raises ValueError: it holds none, or one that cannot be read."""
        self._authorities = tuple(x509.load_pem_x509_certificates(pem))
        self._known: dict[tuple[bytes, ...], bool] = {}

    def has_issued(self, chain: tuple[bytes, ...]) -> bool:
        """Whether one of them is in ``chain``, or issued one of it.

        ``chain``: DER, the client's own first, each issued by the next; TLS verified it. As with Go, a bundle may hold the client's own.
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
