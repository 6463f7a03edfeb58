"""Tests of TLS contexts: keys are loaded without a file on disk."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from kubeloop.meta.tls import load_pair, server_tls
from kubeloop.pki import CertificateAuthority

_AUTHORITY = CertificateAuthority.create("test-ca")


def encrypted(key: bytes) -> bytes:
    private = serialization.load_pem_private_key(key, None)
    form = serialization.PrivateFormat.PKCS8
    return private.private_bytes(serialization.Encoding.PEM, form, serialization.BestAvailableEncryption(b"secret"))


@pytest.fixture
def read_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """No folder for temporary files exists, as in a container with a read-only file system."""

    def refuse(*_: object, **__: object) -> None:
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(tempfile, "mkstemp", refuse)


@pytest.mark.usefixtures("read_only")
def test_a_key_is_loaded_where_no_temporary_file_can_be_written() -> None:
    issued = _AUTHORITY.issue("localhost", server=True)
    load_pair(server_tls(), issued.certificate, issued.key)


def test_without_files_in_memory_a_temporary_file_serves_and_is_removed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    issued = _AUTHORITY.issue("localhost", server=True)
    load_pair(server_tls(), issued.certificate, issued.key)
    with pytest.raises(ssl.SSLError):
        load_pair(server_tls(), issued.certificate, b"no key")
    assert list(tmp_path.iterdir()) == []


def test_a_key_of_another_certificate_and_a_key_with_a_passphrase_are_refused() -> None:
    issued = _AUTHORITY.issue("localhost", server=True)
    for key in (_AUTHORITY.issue("localhost", server=True).key, encrypted(issued.key)):
        with pytest.raises(ssl.SSLError):
            load_pair(server_tls(), issued.certificate, key)
