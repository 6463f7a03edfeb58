"""Certificate signing requests: whom the cluster's own signers sign for, for what and for how long."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from kubeloop.api.authentication.v1 import SelfSubjectReview
from kubeloop.api.certificates.v1 import (
    CertificateSigningRequest,
    CertificateSigningRequestCondition,
    CertificateSigningRequestSpec,
    CertificateSigningRequestStatus,
)
from kubeloop.client import Client
from kubeloop.config import Credentials, Pem
from kubeloop.controlplane.accounts.certificates import CHECKS, CLIENT, KUBELET_CLIENT, KUBELET_SERVING, deletion_time
from kubeloop.meta import ObjectMeta
from kubeloop.pki.signing_requests import SigningRefused, read_request
from kubeloop.transport import Transport
from tests.servers import ServerUnderTest

NOW = datetime(2026, 1, 1, tzinfo=UTC)
FOR_CLIENTS = ["digital signature", "key encipherment", "client auth"]
FOR_SERVERS = ["digital signature", "server auth"]


def asked(name: str = "someone", organizations: tuple[str, ...] = (), names: tuple[x509.GeneralName, ...] = ()) -> bytes:
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, one) for one in organizations]
    builder = x509.CertificateSigningRequestBuilder().subject_name(x509.Name([*subject, x509.NameAttribute(NameOID.COMMON_NAME, name)]))
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(ec.generate_private_key(ec.SECP256R1()), hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def request(name: str, pem: bytes, signer: str, usages: list[Any], seconds: int | None = None) -> CertificateSigningRequest:
    spec = CertificateSigningRequestSpec(request=pem, signer_name=signer, usages=usages, expiration_seconds=seconds)
    return CertificateSigningRequest(metadata=ObjectMeta(name=name), spec=spec)


def is_decided(request: CertificateSigningRequest) -> bool:
    return bool(request.status.certificate) or any(condition.type == "Failed" for condition in request.status.conditions)


@pytest.mark.server
class TestOnAServer:
    async def test_an_approved_request_of_a_client_is_signed_as_it_asks(self, client: Client) -> None:
        name = client.namespace or ""
        pem = asked("jane", ("developers",), (x509.DNSName("jane.example.com"),))
        await client.create(request(name, pem, CLIENT, FOR_CLIENTS, 3600))
        try:
            await client.certificates.approve(name, reason="Known")
            signed = await client.wait_for(CertificateSigningRequest, name, is_decided, timeout=60)
            found = x509.load_pem_x509_certificate(signed.status.certificate or b"")
            assert found.subject.rfc4514_string() == "CN=jane,O=developers"
            assert found.public_key() == x509.load_pem_x509_csr(pem).public_key()
            assert found.not_valid_after_utc - found.not_valid_before_utc == timedelta(seconds=3600 + 300)
            usage = found.extensions.get_extension_for_class(x509.KeyUsage)
            assert usage.critical
            assert (usage.value.digital_signature, usage.value.key_encipherment, usage.value.key_cert_sign) == (True, True, False)
            assert list(found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [ExtendedKeyUsageOID.CLIENT_AUTH]
            assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
            alternative = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
            assert alternative.get_values_for_type(x509.DNSName) == ["jane.example.com"]
        finally:
            await client.delete(CertificateSigningRequest, name)

    async def test_what_a_signer_does_not_sign_fails_and_says_why(self, client: Client) -> None:
        name = client.namespace or ""
        await client.create(request(name, asked(), CLIENT, FOR_SERVERS))
        try:
            await client.certificates.approve(name, reason="Known")
            failed = await client.wait_for(CertificateSigningRequest, name, is_decided, timeout=60)
            [condition] = [one for one in failed.status.conditions if one.type == "Failed"]
            assert (condition.reason, condition.message) == (
                "SignerValidationFailure",
                "invalid usage for client certificate: server auth",
            )
            assert not failed.status.certificate
        finally:
            await client.delete(CertificateSigningRequest, name)

    async def test_a_user_who_may_request_for_nodes_gets_a_kubelets_certificate_without_manual_approval(self, client: Client) -> None:
        name = client.namespace or ""
        await client.create(request(name, asked("system:node:n1", ("system:nodes",)), KUBELET_CLIENT, FOR_CLIENTS))
        try:
            signed = await client.wait_for(CertificateSigningRequest, name, is_decided, timeout=60)
            [condition] = signed.status.conditions
            assert (condition.type, condition.reason, condition.message) == (
                "Approved",
                "AutoApproved",
                "Auto approving kubelet client certificate after SubjectAccessReview.",
            )
        finally:
            await client.delete(CertificateSigningRequest, name)

    async def test_requests_for_another_signer_are_left_alone(self, client: Client) -> None:
        name, own = client.namespace or "", f"{client.namespace}-own"
        await client.create(request(name, asked(), "example.com/signer", FOR_CLIENTS))
        await client.create(request(own, asked(), CLIENT, FOR_CLIENTS))
        try:
            await client.certificates.approve(name, reason="Known")
            await client.certificates.approve(own, reason="Known")
            await client.wait_for(CertificateSigningRequest, own, is_decided, timeout=60)
            assert not is_decided(await client.get(CertificateSigningRequest, name))
        finally:
            await client.delete(CertificateSigningRequest, name)
            await client.delete(CertificateSigningRequest, own)


NODE = "system:node:n1"
NODES = ("system:nodes",)
DNS, MAIL = x509.DNSName("n1"), x509.RFC822Name("a@example.com")
URI = x509.UniformResourceIdentifier("spiffe://a")


@pytest.mark.parametrize(
    ("signer", "pem", "usages", "why"),
    [
        pytest.param(CLIENT, asked(), ["client auth"], "", id="a client needs no more than that usage"),
        pytest.param(CLIENT, asked(), ["digital signature"], "missing required usage for client certificate: client auth", id="but that"),
        pytest.param(KUBELET_CLIENT, asked(NODE, NODES), FOR_CLIENTS, "", id="a kubelet is a node of the group of nodes"),
        pytest.param(KUBELET_CLIENT, asked(NODE), FOR_CLIENTS, "subject organization is not system:nodes", id="not of no group"),
        pytest.param(
            KUBELET_CLIENT,
            asked(NODE, (*NODES, "b")),
            FOR_CLIENTS,
            "subject organization is not system:nodes",
            id="nor of another one, too",
        ),
        pytest.param(
            KUBELET_CLIENT, asked("n1", NODES), FOR_CLIENTS, "subject common name does not begin with system:node:", id="nor another user"
        ),
        pytest.param(
            KUBELET_CLIENT, asked(NODE, NODES, (DNS,)), FOR_CLIENTS, "DNS subjectAltNames are not allowed", id="a client has no other names"
        ),
        pytest.param(
            KUBELET_CLIENT, asked(NODE, NODES, (URI,)), FOR_CLIENTS, "URI subjectAltNames are not allowed", id="whatever their kind"
        ),
        pytest.param(
            KUBELET_CLIENT,
            asked(NODE, NODES),
            FOR_SERVERS,
            "usages did not match [client auth digital signature key encipherment]",
            id="a client's certificate is for clients",
        ),
        pytest.param(KUBELET_SERVING, asked(NODE, NODES, (DNS,)), FOR_SERVERS, "", id="a server has a name"),
        pytest.param(KUBELET_SERVING, asked(NODE, NODES), FOR_SERVERS, "DNS or IP subjectAltName is required", id="one at least"),
        pytest.param(
            KUBELET_SERVING,
            asked(NODE, NODES, (DNS, MAIL)),
            FOR_SERVERS,
            "Email subjectAltNames are not allowed",
            id="and no address for mail",
        ),
        pytest.param(
            KUBELET_SERVING,
            asked(NODE, NODES, (DNS,)),
            FOR_CLIENTS,
            "usages did not match [digital signature key encipherment server auth]",
            id="a server's certificate is for servers",
        ),
    ],
)
def test_each_signer_has_its_rules(signer: str, pem: bytes, usages: list[str], why: str) -> None:
    found = read_request(pem)
    if not why:
        CHECKS[signer](found, usages)
        return
    with pytest.raises(SigningRefused) as refused:
        CHECKS[signer](found, usages)
    assert str(refused.value) == why


def _decided(kind: str, *, certificate: bytes | None = None) -> CertificateSigningRequest:
    condition = CertificateSigningRequestCondition(type=kind, status="True", last_update_time=NOW)
    status = CertificateSigningRequestStatus(conditions=[condition], certificate=certificate)
    return CertificateSigningRequest(metadata=ObjectMeta(name="r", creation_timestamp=NOW - timedelta(hours=2)), status=status)


@pytest.mark.parametrize(
    ("signing_request", "kept"),
    [
        pytest.param(
            CertificateSigningRequest(metadata=ObjectMeta(name="r", creation_timestamp=NOW)),
            timedelta(hours=24),
            id="an undecided request is kept for a day",
        ),
        pytest.param(_decided("Approved"), timedelta(hours=24), id="as is an approved request that is not signed"),
        pytest.param(_decided("Approved", certificate=b"x"), timedelta(hours=1), id="a signed request goes after an hour"),
        pytest.param(_decided("Denied"), timedelta(hours=1), id="as does a denied request"),
        pytest.param(_decided("Failed"), timedelta(hours=1), id="or failed"),
    ],
)
def test_requests_are_kept(signing_request: CertificateSigningRequest, kept: timedelta) -> None:
    assert deletion_time(signing_request) == NOW + kept


@pytest.mark.embedded
async def test_the_servers_own_control_plane_signs_what_the_server_believes(server_with_controllers: ServerUnderTest) -> None:
    server = server_with_controllers
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, "developers"), x509.NameAttribute(NameOID.COMMON_NAME, "jane")])
    pem = x509.CertificateSigningRequestBuilder().subject_name(subject).sign(key, hashes.SHA256())
    async with Client.from_config(server.kubeconfig) as admin:
        made = request("jane-of-the-server", pem.public_bytes(serialization.Encoding.PEM), CLIENT, FOR_CLIENTS)
        await admin.create(made)
        try:
            await admin.certificates.approve(made.metadata.name, reason="Known")
            signed = await admin.wait_for(CertificateSigningRequest, made.metadata.name, is_decided, timeout=60)
        finally:
            await admin.delete(CertificateSigningRequest, made.metadata.name)
    private = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    credentials = Credentials(client_certificate=Pem(data=signed.status.certificate or b""), client_key=Pem(data=private), owner="jane")
    config = msgspec.structs.replace(server.config, credentials=credentials)
    async with Client(Transport(config)) as jane:
        review = await jane.create(SelfSubjectReview())
    assert review.status.user_info.username == "jane"
    assert "developers" in review.status.user_info.groups
