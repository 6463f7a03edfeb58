"""Certificates made of signing requests."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.pki import CertificateAuthority
from kubeloop.pki.signing_requests import SigningRefused, read_request, sign

NOW = datetime.now(UTC).replace(microsecond=0)
AUTHORITY = CertificateAuthority.create("ca", days=30, now=NOW)
KEY = ec.generate_private_key(ec.SECP256R1())


def request(*extensions: x509.ExtensionType) -> x509.CertificateSigningRequest:
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "jane")]))
    for one in extensions:
        builder = builder.add_extension(one, critical=True)
    return builder.sign(KEY, hashes.SHA256())


def signed(
    *usages: str, lifetime: timedelta = timedelta(days=1), of: x509.CertificateSigningRequest | None = None, now: datetime = NOW
) -> x509.Certificate:
    return x509.load_pem_x509_certificate(sign(AUTHORITY, of or request(), usages, lifetime, now))


def test_it_is_the_authoritys_and_has_the_requests_name_and_key() -> None:
    found = signed("client auth")
    found.verify_directly_issued_by(x509.load_pem_x509_certificate(AUTHORITY.certificate))
    assert found.subject.rfc4514_string() == "CN=jane"
    assert found.public_key() == KEY.public_key()


@pytest.mark.parametrize(
    ("lifetime", "lasts"),
    [
        pytest.param(timedelta(minutes=10), timedelta(minutes=10), id="a short lifetime is as long as requested"),
        pytest.param(timedelta(hours=8), timedelta(hours=8, minutes=-5), id="a long one ends earlier, as it began earlier"),
        pytest.param(timedelta(days=365), timedelta(days=30), id="none is longer than the authority's"),
    ],
)
def test_it_lasts(lifetime: timedelta, lasts: timedelta) -> None:
    found = signed("client auth", lifetime=lifetime)
    assert found.not_valid_before_utc == NOW - timedelta(minutes=5)
    assert found.not_valid_after_utc == NOW + lasts


def test_usages_are_those_asked_for_each_once() -> None:
    found = signed("signing", "digital signature", "server auth", "s/mime", "email protection")
    extended = list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value)
    assert extended == [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.EMAIL_PROTECTION]
    assert found.extensions.get_extension_for_class(x509.KeyUsage).value.digital_signature


def test_a_request_to_become_an_authority_is_not_heard() -> None:
    found = signed("client auth", of=request(x509.BasicConstraints(ca=True, path_length=3)))
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize(
    ("usages", "now", "why"),
    [
        pytest.param(["flying"], NOW, 'unrecognized usage values: ["flying"]', id="a usage that there is not"),
        pytest.param(["decipher only"], NOW, "which is not requested", id="a restriction of a usage that is not asked for"),
        pytest.param(["client auth"], NOW + timedelta(days=31), "the signer has expired", id="an authority that has expired"),
    ],
)
def test_it_is_refused(usages: list[str], now: datetime, why: str) -> None:
    with pytest.raises(SigningRefused) as refused:
        signed(*usages, now=now)
    assert why in str(refused.value)


def test_a_text_that_is_no_request_or_not_signed_by_its_own_key_is_refused() -> None:
    with pytest.raises(SigningRefused, match="unable to parse certificate request"):
        read_request(b"-----BEGIN CERTIFICATE REQUEST-----\nAA==\n-----END CERTIFICATE REQUEST-----\n")
    der = bytearray(request().public_bytes(serialization.Encoding.DER))
    name = der.index(b"jane")
    der[name : name + 4] = b"jade"
    forged = x509.load_der_x509_csr(bytes(der)).public_bytes(serialization.Encoding.PEM)
    with pytest.raises(SigningRefused, match="unable to verify certificate request signature"):
        read_request(forged)


def test_values_of_an_attribute_are_one_set_and_unknown_attributes_are_left_out() -> None:
    names = [
        x509.NameAttribute(NameOID.COMMON_NAME, "first"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "ops"),
        x509.NameAttribute(NameOID.ORGANIZATION_NAME, "devs"),
        x509.NameAttribute(NameOID.DOMAIN_COMPONENT, "example"),
        x509.NameAttribute(NameOID.COMMON_NAME, "jane"),
    ]
    asked = x509.CertificateSigningRequestBuilder().subject_name(x509.Name(names)).sign(KEY, hashes.SHA256())
    subject = signed("client auth", of=asked).subject
    assert [sorted(str(one.value) for one in relative) for relative in subject.rdns] == [["devs", "ops"], ["jane"]]
