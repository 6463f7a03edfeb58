"""Parses certificates and certificate requests in PEM as Kubernetes does. Source: pkg/apis/certificates helpers.go, validation.go."""

from __future__ import annotations

import base64
import binascii
import re

#: A PEM block: its type, and the text between its first and last line.
_BLOCK = re.compile(rb"-----BEGIN ([^\n]+?)-----[ \t\r]*\n(.*?)-----END \1-----", re.DOTALL)


def request_error(encoded: str | None) -> str:
    """Return why a certificate request (PEM in base64) is invalid, or an empty text if it is valid."""
    from cryptography import x509
    from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

    first = next(iter(_blocks(encoded)), None)
    if first is None or first[0] != "CERTIFICATE REQUEST":
        return "PEM block type must be CERTIFICATE REQUEST"
    try:
        request = x509.load_der_x509_csr(first[2])
        key = request.public_key()
        if request.is_signature_valid:
            return ""
    except (ValueError, UnsupportedAlgorithm, InvalidSignature):
        return "asn1: structure error: the request cannot be read"
    if isinstance(key, RSAPublicKey):
        return "crypto/rsa: verification error"
    return f"x509: {'ECDSA' if isinstance(key, EllipticCurvePublicKey) else 'Ed25519'} verification failure"


def organizations_of(encoded: str | None) -> list[str]:
    """Return the organizations in the subject of a valid request (PEM in base64), which are the groups of a client.

    Raises:
        ValueError, IndexError: The request is invalid.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    subject = x509.load_der_x509_csr(_blocks(encoded)[0][2]).subject
    return [str(one.value) for one in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


def common_name_of(encoded: str | None) -> str:
    """Return the common name in the subject of a request, which is a user name, or an empty text if it has none.

    Raises:
        ValueError: The request is invalid.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    error = request_error(encoded)
    if error:
        raise ValueError(error)
    value = x509.load_der_x509_csr(_blocks(encoded)[0][2]).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(value[0].value) if value else ""


def certificate_error(encoded: str | None) -> str:
    """Return why a list of issued certificates is invalid, or an empty text if it is valid or there are none."""
    from cryptography import x509

    if not encoded:
        return ""
    value = _blocks(encoded)
    for kind, has_headers, data in value:
        if kind != "CERTIFICATE":
            return f'only CERTIFICATE PEM blocks are allowed, found "{kind}"'
        if has_headers:
            return "no PEM block headers are permitted"
        if not data:
            return "found CERTIFICATE PEM block containing 0 certificates"
        try:
            x509.load_der_x509_certificate(data)
        except ValueError:
            return "x509: malformed certificate"
    return "" if value else "must contain at least one CERTIFICATE PEM block"


def _blocks(encoded: str | None) -> list[tuple[str, bool, bytes]]:
    """Return the type, whether there are headers, and the content of each valid PEM block."""
    result = []
    for kind, body in _BLOCK.findall(base64.b64decode(encoded or "") + b"\n"):
        headers, blank, text = body.partition(b"\n\n")
        has_headers = bool(blank) and b":" in headers
        try:
            data = base64.b64decode(b"".join((text if has_headers else body).split()), validate=True)
        except binascii.Error:
            continue
        result.append((kind.decode(errors="replace"), has_headers, data))
    return result
