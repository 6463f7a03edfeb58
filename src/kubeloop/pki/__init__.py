"""Keys and certificates for loopback servers and their clients: EC P-256, PEM in and out, nothing written to disk here."""

from kubeloop.pki.authority import CertificateAuthority, IssuedCertificate

__all__ = ["CertificateAuthority", "IssuedCertificate"]
