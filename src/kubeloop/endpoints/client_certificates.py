"""Client certificates: the user that a certificate names.

The common name is the user, the organizations are the groups.
Source: Kubernetes documentation, "Authenticating" (X.509 client certificates); k8s.io/apiserver pkg/authentication/request/x509.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.endpoints.access import User

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
