"""The TLS context of a cluster: trusted authorities, the client certificate, and errors of a broken one."""

from __future__ import annotations

import ssl

import pytest

from kubeloop.config import ClusterConfig, Credentials, Pem
from kubeloop.meta import ConfigError
from kubeloop.pki import CertificateAuthority

AUTHORITY = CertificateAuthority.create("tests")
ISSUED = AUTHORITY.issue("me", client=True)
OTHER = AUTHORITY.issue("other", client=True)


def config(certificate: bytes = ISSUED.certificate, key: bytes = ISSUED.key, ca: bytes = AUTHORITY.certificate) -> ClusterConfig:
    user = Credentials(client_certificate=Pem(data=certificate, field="client-certificate"), client_key=Pem(data=key, field="client-key"))
    return ClusterConfig(server="https://h", ca=Pem(data=ca, field="certificate-authority"), credentials=user)


def test_only_the_clusters_own_authority_is_trusted() -> None:
    context = config().ssl_context()
    assert [dict(pair[0] for pair in one["subject"])["commonName"] for one in context.get_ca_certs()] == ["tests"]  # type: ignore[misc]  # typeshed says object
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.minimum_version is ssl.TLSVersion.TLSv1_2


def test_skipping_verification_skips_it() -> None:
    assert ClusterConfig(server="https://h", insecure_skip_tls_verify=True).ssl_context().verify_mode is ssl.CERT_NONE


def test_no_key_is_left_on_disk(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = tmp_path_factory.mktemp("tls")
    monkeypatch.setattr("tempfile.tempdir", str(directory))
    config().ssl_context()
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize(
    ("broken", "message"),
    [
        pytest.param(
            config(key=OTHER.key),
            "client-certificate: client certificate and key cannot be used together",
            id="a key of another certificate",
        ),
        pytest.param(config(key=b"-----BEGIN NOTHING-----"), "cannot be used together", id="a key that is none"),
        pytest.param(
            config(ca=b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            "no usable certificate in it",
            id="a CA that is none",
        ),
    ],
)
def test_a_broken_certificate_names_its_field(broken: ClusterConfig, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        broken.ssl_context()
