"""Certificates from Secrets, and the choice of one for a host."""

from __future__ import annotations

from collections.abc import Iterable

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from examples.ingress_nginx.model.configuration import Certificate
from kubeloop.api.core.v1 import Secret


class CertificateError(Exception):
    """A Secret does not hold the certificate that it should; the text names the key of the Secret, never its content."""


def certificate_of(secret: Secret) -> Certificate:
    """Return the certificate, key and authorities of a Secret: ``tls.crt`` with ``tls.key``, ``ca.crt``, or both.

    Raises:
        CertificateError: A part is missing or cannot be read, or the key is not that of the certificate.
    """
    name = f"{secret.metadata.namespace}/{secret.metadata.name}"
    chain, key, authorities = (secret.data.get(part, b"") for part in ("tls.crt", "tls.key", "ca.crt"))
    if not chain and not key:
        if not authorities:
            raise CertificateError(f"secret {name} has neither tls.crt and tls.key nor ca.crt")
        _read_chain(name, "ca.crt", authorities)
        return Certificate(name, authorities=authorities.decode())
    if not chain or not key:
        raise CertificateError(f"secret {name} has no {'tls.key' if chain else 'tls.crt'}")
    first = _read_chain(name, "tls.crt", chain)[0]
    try:
        private = load_pem_private_key(key, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        raise CertificateError(f"secret {name}: tls.key is not a private key in PEM without a password") from None
    encoded = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if private.public_key().public_bytes(*encoded) != first.public_key().public_bytes(*encoded):
        raise CertificateError(f"secret {name}: tls.key is not the key of the certificate in tls.crt")
    if authorities:
        _read_chain(name, "ca.crt", authorities)
    return Certificate(
        name,
        chain=chain.decode(),
        key=key.decode(),
        authorities=authorities.decode(),
        not_after=first.not_valid_after_utc.timestamp(),
        names=_names(first),
    )


def is_valid_for(certificate: Certificate, host: str) -> bool:
    """Report whether a certificate names a host, or a wildcard of its domain (RFC 6125: the star is one label)."""
    parent = host.partition(".")[2]
    return host in certificate.names or (bool(parent) and f"*.{parent}" in certificate.names)


def _read_chain(name: str, part: str, data: bytes) -> list[x509.Certificate]:
    try:
        found = x509.load_pem_x509_certificates(data)
        data.decode("ascii")
    except ValueError:
        raise CertificateError(f"secret {name}: {part} holds no certificates in PEM") from None
    return found


def _names(certificate: x509.Certificate) -> tuple[str, ...]:
    try:
        alternative = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (x509.ExtensionNotFound, ValueError):
        return ()
    names: Iterable[str] = alternative.get_values_for_type(x509.DNSName)
    return tuple(sorted({name.lower() for name in names}))
