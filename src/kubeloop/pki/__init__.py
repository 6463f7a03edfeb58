"""Keys and certificates for loopback servers and their clients: EC P-256, PEM in and out, nothing written to disk here."""

from kubeloop.pki.authority import CertificateAuthority, IssuedCertificate
from kubeloop.pki.token_keys import SignatureInvalid, SigningKey, VerifyingKey, legacy_token, verifying_keys

__all__ = [
    "CertificateAuthority",
    "IssuedCertificate",
    "SignatureInvalid",
    "SigningKey",
    "VerifyingKey",
    "legacy_token",
    "verifying_keys",
]
