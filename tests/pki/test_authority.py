"""Certificates as the other side of a connection judges them."""

from __future__ import annotations

import ssl
import stat
from datetime import UTC, datetime
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from kubeloop.pki import CertificateAuthority
from kubeloop.pki.files import write_secret


def test_a_certificate_carries_user_groups_names_and_usage() -> None:
    issued = CertificateAuthority.create("ca").issue(
        "jane", ("ops", "devs"), dns_names=["localhost"], ip_addresses=["127.0.0.1"], client=True
    )
    certificate = x509.load_pem_x509_certificate(issued.certificate)
    assert [one.value for one in certificate.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)] == ["ops", "devs"]
    assert [one.value for one in certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)] == ["jane"]
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    usage = certificate.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [x509.oid.ExtendedKeyUsageOID.CLIENT_AUTH]
    assert certificate.not_valid_before_utc < datetime.now(UTC) < certificate.not_valid_after_utc


def test_an_authority_that_was_saved_issues_what_the_same_trust_accepts() -> None:
    created = CertificateAuthority.create("ca")
    loaded = CertificateAuthority.load(created.certificate, created.key)
    issued = x509.load_pem_x509_certificate(loaded.issue("s", server=True).certificate)
    issued.verify_directly_issued_by(x509.load_pem_x509_certificate(created.certificate))


def test_an_issued_certificate_loads_into_tls(tmp_path: Path) -> None:
    issued = CertificateAuthority.create("ca").issue("s", server=True)
    pair = tmp_path / "pair.pem"
    write_secret(pair, issued.certificate + issued.key)
    ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(pair)


def test_a_certificate_for_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="for a client, a server, or both"):
        CertificateAuthority.create("ca").issue("s")


def test_keys_do_not_show_when_printed() -> None:
    issued = CertificateAuthority.create("ca").issue("s", client=True)
    assert "PRIVATE" not in repr(issued)


def test_a_secret_is_readable_by_its_owner_only_even_over_an_open_file(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_bytes(b"old")
    path.chmod(0o644)
    write_secret(path, b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode)) == (b"new", 0o600)


def test_a_secret_that_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    folder = tmp_path / "target"
    folder.mkdir()
    (folder / "secret").mkdir()
    with pytest.raises(OSError, match="secret"):
        write_secret(folder / "secret", b"new")
    assert [one.name for one in folder.iterdir()] == ["secret"]
