"""Reads and signs certificate signing requests (PKCS #10).

Source: Kubernetes pkg/controller/certificates/authority (PermissiveSigningPolicy); RFC 2986, RFC 5280.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID, ObjectIdentifier

from kubeloop.pki.authority import CertificateAuthority

#: Certificates begin this long before now, for clocks that lag behind.
_BACKDATE = timedelta(minutes=5)
#: Certificates with at least this lifetime end earlier by ``_BACKDATE``, so that the whole validity has the requested length.
_SHORT = timedelta(hours=8)

#: The attributes of a subject in the order of Go's crypto/x509/pkix.
_SUBJECT: Final = (
    NameOID.COUNTRY_NAME,
    NameOID.ORGANIZATION_NAME,
    NameOID.ORGANIZATIONAL_UNIT_NAME,
    NameOID.LOCALITY_NAME,
    NameOID.STATE_OR_PROVINCE_NAME,
    NameOID.STREET_ADDRESS,
    NameOID.POSTAL_CODE,
    NameOID.COMMON_NAME,
    NameOID.SERIAL_NUMBER,
)

_KEY_USAGES: Final = {
    "signing": "digital_signature",
    "digital signature": "digital_signature",
    "content commitment": "content_commitment",
    "key encipherment": "key_encipherment",
    "key agreement": "key_agreement",
    "data encipherment": "data_encipherment",
    "cert sign": "key_cert_sign",
    "crl sign": "crl_sign",
    "encipher only": "encipher_only",
    "decipher only": "decipher_only",
}
_EXTENDED: Final = {
    "any": ExtendedKeyUsageOID.ANY_EXTENDED_KEY_USAGE,
    "server auth": ExtendedKeyUsageOID.SERVER_AUTH,
    "client auth": ExtendedKeyUsageOID.CLIENT_AUTH,
    "code signing": ExtendedKeyUsageOID.CODE_SIGNING,
    "email protection": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "s/mime": ExtendedKeyUsageOID.EMAIL_PROTECTION,
    "ipsec end system": ObjectIdentifier("1.3.6.1.5.5.7.3.5"),
    "ipsec tunnel": ObjectIdentifier("1.3.6.1.5.5.7.3.6"),
    "ipsec user": ObjectIdentifier("1.3.6.1.5.5.7.3.7"),
    "timestamping": ExtendedKeyUsageOID.TIME_STAMPING,
    "ocsp signing": ExtendedKeyUsageOID.OCSP_SIGNING,
    "microsoft sgc": ObjectIdentifier("1.3.6.1.4.1.311.10.3.3"),
    "netscape sgc": ObjectIdentifier("2.16.840.1.113730.4.1"),
}


class SigningRefused(ValueError):
    """A certificate signing request was refused; the text says why."""


def read_request(pem: bytes) -> x509.CertificateSigningRequest:
    """Parse a request. Raises SigningRefused if it is not the PEM of a request, or was not signed with its own key."""
    try:
        request = x509.load_pem_x509_csr(pem)
        signed = request.is_signature_valid
    except ValueError as error:
        raise SigningRefused(f"unable to parse certificate request: {error}") from None
    if not signed:
        raise SigningRefused("unable to verify certificate request signature")
    return request


def alternative_names(request: x509.CertificateSigningRequest) -> x509.SubjectAlternativeName:
    """Return the subject alternative names of the request; empty if it has none."""
    try:
        return request.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return x509.SubjectAlternativeName([])
    except ValueError as error:
        raise SigningRefused(f"unable to parse certificate request: {error}") from None


def sign(
    authority: CertificateAuthority, request: x509.CertificateSigningRequest, usages: Iterable[str], lifetime: timedelta, now: datetime
) -> bytes:
    """Issue a certificate (PEM) with the request's subject, key and names; never the certificate of an authority.

    The certificate does not outlive the authority's certificate. Other extensions of the request are left out.

    Args:
        authority: Signs the certificate.
        request: The request; its signature was checked by ``read_request``.
        usages: Key usages by their Kubernetes names, such as ``client auth``.
        lifetime: Validity from ``now``.
        now: The present time (aware).

    Returns:
        The certificate as PEM.

    Raises:
        SigningRefused: A usage is unknown, the key is neither RSA, EC nor Ed25519, or the authority has expired.
    """
    key = request.public_key()
    if not isinstance(key, rsa.RSAPublicKey | ec.EllipticCurvePublicKey | ed25519.Ed25519PublicKey):
        raise SigningRefused("the request's key is neither RSA nor EC nor Ed25519")
    if now >= authority.expires:
        raise SigningRefused(f"the signer has expired: NotAfter={authority.expires:%Y-%m-%dT%H:%M:%SZ}")
    flags, extended = _usages(usages)
    end = now + lifetime - (_BACKDATE if lifetime >= _SHORT else timedelta())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_subject(request))
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATE)
        .not_valid_after(min(end, authority.expires))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    )
    if flags:
        every = {name: name in flags for name in _KEY_USAGES.values()}
        builder = builder.add_extension(x509.KeyUsage(**every), critical=True)
    if extended:
        builder = builder.add_extension(x509.ExtendedKeyUsage(extended), critical=False)
    names = alternative_names(request)
    if list(names):
        # Without a subject the certificate is identified only by its names, so clients must not ignore them (RFC 5280, 4.2.1.6).
        builder = builder.add_extension(names, critical=not list(_subject(request)))
    return authority.certify(builder)


def _subject(request: x509.CertificateSigningRequest) -> x509.Name:
    """Return a request's subject as Go's pkix.Name writes it: all values of an attribute in one set, and only attributes that it knows."""
    result = []
    for oid in _SUBJECT:
        attributes = request.subject.get_attributes_for_oid(oid)
        if oid in (NameOID.COMMON_NAME, NameOID.SERIAL_NUMBER):
            attributes = [one for one in attributes if one.value][-1:]
        if attributes:
            # A set holds a value once.
            result.append(x509.RelativeDistinguishedName(list(dict.fromkeys(attributes))))
    return x509.Name(result)


def _usages(requested: Iterable[str]) -> tuple[set[str], list[ObjectIdentifier]]:
    flags: set[str] = set()
    extended: list[ObjectIdentifier] = []
    unknown = []
    for usage in requested:
        if usage in _KEY_USAGES:
            flags.add(_KEY_USAGES[usage])
        elif usage in _EXTENDED:
            if _EXTENDED[usage] not in extended:
                extended.append(_EXTENDED[usage])
        else:
            unknown.append(usage)
    if unknown:
        shown = " ".join(f'"{one}"' for one in unknown)
        raise SigningRefused(f"unrecognized usage values: [{shown}]")
    if flags & {"encipher_only", "decipher_only"} and "key_agreement" not in flags:
        raise SigningRefused('"encipher only" and "decipher only" need the usage "key agreement", which is not requested')
    return flags, extended
