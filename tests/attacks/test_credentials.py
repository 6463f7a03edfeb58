"""Certificates that are none of this server's: forged, for another purpose, before or after their time.

A real server answers 401 to each. The embedded one ends the TLS handshake where the chain or the purpose is wrong, as Python's TLS does
before the server can answer; it answers certificates out of their time with 401 as well.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace

from kubeloop.config import Credentials, Pem
from kubeloop.meta import Forbidden, TransportError, Unauthorized
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

MYSELF = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
DAY = timedelta(days=1)


@asynccontextmanager
async def shown(server: ServerUnderTest, certificate: bytes, key: bytes) -> AsyncIterator[Transport]:
    credentials = Credentials(client_certificate=Pem(data=certificate), client_key=Pem(data=key))
    async with Transport(replace(server.config, credentials=credentials)) as transport:
        yield transport


async def who(server: ServerUnderTest, issued: IssuedCertificate) -> dict[str, Any]:
    async with shown(server, issued.certificate, issued.key) as transport:
        answer = await transport.request("POST", MYSELF, body=b"{}")
    found: dict[str, Any] = json.loads(answer.body)["status"]["userInfo"]
    return found


def authority(server: ServerUnderTest) -> CertificateAuthority:
    return CertificateAuthority.load((server.keys / "ca.crt").read_bytes(), (server.keys / "ca.key").read_bytes())


def namesake(server: ServerUnderTest) -> CertificateAuthority:
    """Another authority of the same name."""
    (attribute,) = x509.load_pem_x509_certificate(authority(server).certificate).subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return CertificateAuthority.create(str(attribute.value))


async def test_a_certificate_of_the_servers_own_authority_names_a_user(server: ServerUnderTest) -> None:
    found = await who(server, authority(server).issue("ann", ("ops",), client=True))
    assert (found["username"], found["groups"]) == ("ann", ["ops", "system:authenticated"])


async def test_a_certificate_of_another_authority_names_no_user(server: ServerUnderTest) -> None:
    await _refused(server, CertificateAuthority.create("another").issue("admin", ("system:masters",), client=True))


async def test_nor_does_one_of_another_authority_of_the_same_name(server: ServerUnderTest) -> None:
    await _refused(server, namesake(server).issue("admin", ("system:masters",), client=True))


async def test_a_certificate_for_servers_names_no_user(server: ServerUnderTest) -> None:
    await _refused(server, authority(server).issue("admin", ("system:masters",), server=True))


async def test_a_certificate_of_a_user_issues_no_others(server: ServerUnderTest) -> None:
    ann = authority(server).issue("ann", client=True)
    forged = CertificateAuthority.load(ann.certificate, ann.key).issue("admin", ("system:masters",), client=True)
    await _refused(server, IssuedCertificate(forged.certificate + ann.certificate, forged.key))


async def test_a_self_signed_certificate_names_no_user(server: ServerUnderTest) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    names = [(NameOID.ORGANIZATION_NAME, "system:masters"), (NameOID.COMMON_NAME, "admin")]
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in names])
    now = datetime.now(UTC)
    builder = x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
    builder = builder.serial_number(x509.random_serial_number()).not_valid_before(now - DAY).not_valid_after(now + DAY)
    made = builder.sign(key, hashes.SHA256())
    own = CertificateAuthority(made, key)
    await _refused(server, IssuedCertificate(own.certificate, own.key))


@pytest.mark.parametrize("now", [pytest.param(-400, id="expired"), pytest.param(400, id="not yet valid")])
async def test_a_certificate_out_of_its_time_names_no_user(server: ServerUnderTest, now: int) -> None:
    issued = authority(server).issue("ann", ("ops",), client=True, days=30, now=datetime.now(UTC) + now * DAY)
    with pytest.raises(Unauthorized):
        await who(server, issued)


async def test_a_certificate_without_a_name_names_no_user_whatever_its_groups(server: ServerUnderTest) -> None:
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.now(UTC)
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "system:masters")])
    builder = x509.CertificateBuilder().subject_name(subject).public_key(key.public_key()).serial_number(x509.random_serial_number())
    builder = builder.not_valid_before(now - DAY).not_valid_after(now + DAY)
    purpose = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
    certificate = authority(server).certify(builder.add_extension(purpose, critical=False))
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    issued = IssuedCertificate(certificate, pem)
    with pytest.raises(Forbidden, match="system:anonymous"):
        await who(server, issued)


async def _refused(server: ServerUnderTest, issued: IssuedCertificate) -> None:
    with pytest.raises((Unauthorized, TransportError)):
        await who(server, issued)
