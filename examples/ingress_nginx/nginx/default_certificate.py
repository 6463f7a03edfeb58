"""The certificate for hosts without one, where the cluster has no default certificate: self-signed, made at each start."""

from __future__ import annotations

import datetime

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import NameOID

from examples.ingress_nginx.model.configuration import Certificate

_NAME = "ingress.local"


def self_signed_certificate() -> Certificate:
    """Return a new certificate that no client trusts, with a name that no Secret has."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Kubeloop Ingress Fake Certificate")])
    start = datetime.datetime.now(datetime.UTC) - datetime.timedelta(hours=1)
    end = start + datetime.timedelta(days=3650)
    certificate = (
        x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number(), start, end)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(_NAME)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    return Certificate(
        "self-signed", certificate.public_bytes(Encoding.PEM).decode(), private.decode(), not_after=end.timestamp(), names=(_NAME,)
    )
