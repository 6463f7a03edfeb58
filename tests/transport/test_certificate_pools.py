"""Whom every TLS context trusts: as with Go, any certificate that was given as an authority, be it an intermediate or the peer's own."""

from __future__ import annotations

import contextlib
import datetime
import ssl
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from kubeloop.apiserver.authentication.certificates import Bundle
from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
from kubeloop.apiserver.outbound.target import trust
from kubeloop.config import ClusterConfig, Pem
from kubeloop.controller.webhooks.tls import ServingCertificate, server_tls
from kubeloop.http1.dial import Dialer
from kubeloop.pki import CertificateAuthority, IssuedCertificate
from kubeloop.serving.listener import server_context

NAME = "server.example.com"


class Hierarchy:
    """A root, an intermediate authority that it signed, and certificates that the intermediate signed."""

    def __init__(self) -> None:
        self.root = CertificateAuthority.create("root")
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "intermediate")]))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(minutes=5))
            .not_valid_after(now + datetime.timedelta(days=1))
            # Not critical, and without a key identifier: what VERIFY_X509_STRICT refuses, and kubeadm made for years.
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=False)
        )
        certificate = x509.load_pem_x509_certificate(self.root.certify(builder))
        self.intermediate = CertificateAuthority(certificate, key)
        self.server = self.intermediate.issue("server", dns_names=(NAME,), server=True)
        self.client = self.intermediate.issue("client", client=True)


@pytest.fixture(scope="module")
def hierarchy() -> Hierarchy:
    return Hierarchy()


def intermediate(hierarchy: Hierarchy, issued: IssuedCertificate) -> bytes:
    return hierarchy.intermediate.certificate


def own(hierarchy: Hierarchy, issued: IssuedCertificate) -> bytes:
    return issued.certificate


def unrelated(hierarchy: Hierarchy, issued: IssuedCertificate) -> bytes:
    return CertificateAuthority.create("unrelated").certificate


def load(context: ssl.SSLContext, issued: IssuedCertificate) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "pair.pem")
        file.write_bytes(issued.certificate + issued.key)
        context.load_cert_chain(file)


def shake_hands(client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Both ends, in memory. Raises ssl.SSLError when one of them refuses the other."""
    upwards, downwards = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = client.wrap_bio(downwards, upwards, server_hostname=NAME), server.wrap_bio(upwards, downwards, server_side=True)
    waiting = list(ends)
    for _ in range(10):
        for end in tuple(waiting):
            try:
                end.do_handshake()
                waiting.remove(end)
            except ssl.SSLWantReadError:
                pass
    assert not waiting
    for end in ends:  # with TLS 1.3 a client knows only now that its certificate was refused
        with contextlib.suppress(ssl.SSLWantReadError):
            end.read(1)


def of_clusters(authority: bytes, folder: Path) -> ssl.SSLContext:
    return ClusterConfig(server=f"https://{NAME}", ca=Pem(data=authority)).ssl_context()


def of_cluster_files(authority: bytes, folder: Path) -> ssl.SSLContext:
    (folder / "ca.crt").write_bytes(authority)
    return ClusterConfig(server=f"https://{NAME}", ca=Pem(path=folder / "ca.crt")).ssl_context()


def of_proxies(authority: bytes, folder: Path) -> ssl.SSLContext:
    dialer = Dialer(f"https://{NAME}", f"https://{NAME}", "", authorities=lambda: authority)
    return dialer._proxy_tls()


def of_webhooks(authority: bytes, folder: Path) -> ssl.SSLContext:
    return trust(authority)


def of_kubelets(authority: bytes, folder: Path) -> ssl.SSLContext:
    (folder / "ca.crt").write_bytes(authority)
    return KubeletCredentials(authority=folder / "ca.crt").context


CLIENTS = [
    pytest.param(of_clusters, id="certificate-authority-data of a kubeconfig"),
    pytest.param(of_cluster_files, id="certificate-authority of a kubeconfig"),
    pytest.param(of_proxies, id="an HTTPS proxy"),
    pytest.param(of_webhooks, id="the caBundle of a webhook, a conversion or an APIService"),
    pytest.param(of_kubelets, id="--kubelet-certificate-authority"),
]
GIVEN = [pytest.param(intermediate, id="an intermediate authority"), pytest.param(own, id="the peer's own certificate")]
Client = Callable[[bytes, Path], ssl.SSLContext]
Given = Callable[[Hierarchy, IssuedCertificate], bytes]


@pytest.mark.parametrize("files", GIVEN)
@pytest.mark.parametrize("make", CLIENTS)
def test_a_client_trusts(make: Client, files: Given, hierarchy: Hierarchy, tmp_path: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(server, hierarchy.server)
    shake_hands(make(files(hierarchy, hierarchy.server), tmp_path), server)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_client_trusts_no_authority_that_it_was_not_given(make: Client, hierarchy: Hierarchy, tmp_path: Path) -> None:
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(server, hierarchy.server)
    with pytest.raises(ssl.SSLError):
        shake_hands(make(unrelated(hierarchy, hierarchy.server), tmp_path), server)


@pytest.mark.parametrize("make", CLIENTS)
def test_a_client_that_trusts_a_certificate_still_compares_the_name(make: Client, hierarchy: Hierarchy, tmp_path: Path) -> None:
    other = hierarchy.intermediate.issue("other", dns_names=("other.example.com",), server=True)
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load(server, other)
    with pytest.raises(ssl.SSLCertVerificationError, match="mismatch"):
        shake_hands(make(other.certificate, tmp_path), server)


def of_listeners(authority: bytes, hierarchy: Hierarchy) -> ssl.SSLContext:
    return server_context(hierarchy.server.certificate, hierarchy.server.key, authority)


def of_webhook_servers(authority: bytes, hierarchy: Hierarchy) -> ssl.SSLContext:
    return server_tls(ServingCertificate(hierarchy.server.certificate, hierarchy.server.key), authority)


SERVERS = [pytest.param(of_listeners, id="the API server"), pytest.param(of_webhook_servers, id="a webhook server")]
Server = Callable[[bytes, Hierarchy], ssl.SSLContext]


@pytest.mark.parametrize("files", GIVEN)
@pytest.mark.parametrize("make", SERVERS)
def test_a_server_trusts_client_certificates_by(make: Server, files: Given, hierarchy: Hierarchy) -> None:
    client = trust(hierarchy.intermediate.certificate)
    load(client, hierarchy.client)
    shake_hands(client, make(files(hierarchy, hierarchy.client), hierarchy))


@pytest.mark.parametrize("make", SERVERS)
def test_a_server_trusts_no_client_of_an_authority_that_it_was_not_given(make: Server, hierarchy: Hierarchy) -> None:
    client = trust(hierarchy.intermediate.certificate)
    load(client, hierarchy.client)
    with pytest.raises(ssl.SSLError):
        shake_hands(client, make(unrelated(hierarchy, hierarchy.client), hierarchy))


@pytest.mark.parametrize("files", GIVEN)
def test_authentication_knows_a_client_by(files: Given, hierarchy: Hierarchy) -> None:
    chain = (ssl.PEM_cert_to_DER_cert(hierarchy.client.certificate.decode()),)
    assert Bundle(files(hierarchy, hierarchy.client)).has_issued(chain)
    assert not Bundle(unrelated(hierarchy, hierarchy.client)).has_issued(chain)
