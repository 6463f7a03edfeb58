"""``kubeloop config extract``: files that openssl and curl accept (row 30 of the reference systems)."""

from __future__ import annotations

import asyncio
import base64
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli import main
from kubeloop.config.kubeconfig.generated import kubeconfig_text
from kubeloop.pki import CertificateAuthority
from kubeloop.testing import LocalCluster
from tests.config.documents import document, write


def run(*args: str, code: int = 0) -> Result:
    result = CliRunner().invoke(main, ["config", "extract", *args], env={"KUBECONFIG": ""})
    assert result.exit_code == code, result.output
    return result


def test_openssl_reads_the_files_and_the_key_belongs_to_the_certificate(tmp_path: Path) -> None:
    authority = CertificateAuthority.create("test-ca")
    issued = authority.issue("jane", ["devs"], client=True)
    (tmp_path / "config").write_bytes(kubeconfig_text("https://127.0.0.1:6443", authority.certificate, issued))
    folder = tmp_path / "new" / "pem"

    output = run("kubeloop", "--dir", str(folder), "--kubeconfig", str(tmp_path / "config")).output

    assert output.splitlines() == [
        f"wrote {folder / 'ca.crt'}",
        f"wrote {folder / 'client.crt'}",
        f"wrote {folder / 'client.key'}",
        f"Try: curl --cacert {folder}/ca.crt --cert {folder}/client.crt --key {folder}/client.key https://127.0.0.1:6443/version",
    ]
    assert [path.stat().st_mode & 0o777 for path in sorted(folder.iterdir())] == [0o600] * 3
    subject = _openssl("x509", "-in", str(folder / "client.crt"), "-noout", "-subject")
    assert "jane" in subject
    assert "devs" in subject
    assert _openssl("verify", "-CAfile", str(folder / "ca.crt"), str(folder / "client.crt")).endswith("OK\n")
    of_key = _openssl("pkey", "-in", str(folder / "client.key"), "-pubout")
    assert of_key == _openssl("x509", "-in", str(folder / "client.crt"), "-noout", "-pubkey")


@pytest.mark.embedded
async def test_curl_logs_in_with_the_files(tmp_path: Path) -> None:
    async with LocalCluster(controllers=False) as cluster:
        output = run("kubeloop", "--dir", str(tmp_path / "pem"), "--kubeconfig", str(cluster.kubeconfig)).output
        command = output.splitlines()[-1].removeprefix("Try: curl ").removesuffix("/version").split()
        process = await asyncio.create_subprocess_exec(
            "curl", "-s", *command[:-1], f"{command[-1]}/api/v1/namespaces/default", stdout=subprocess.PIPE
        )
        answer, _ = await process.communicate()
    assert b'"name": "default"' in answer


@pytest.mark.parametrize(
    ("user", "message"),
    [
        pytest.param({"token": "secret"}, "its user has a token", id="a context with a token and without authority"),
        pytest.param({}, "its user has no certificate", id="an anonymous context"),
        pytest.param(
            {"client-certificate": "missing.crt", "client-key": "missing.key"}, "missing.crt", id="a certificate file that is missing"
        ),
    ],
)
def test_an_error_names_what_the_context_has_instead(tmp_path: Path, user: dict[str, str], message: str) -> None:
    file = write(tmp_path / "config", document(user=user))
    output = run("x", "--dir", str(tmp_path / "pem"), "--kubeconfig", str(file), code=1).output
    assert message in output
    assert not (tmp_path / "pem").exists()


def test_the_authority_alone_is_written_for_a_user_with_a_token(tmp_path: Path) -> None:
    authority = base64.b64encode(CertificateAuthority.create("test-ca").certificate).decode()
    content = document(user={"token": "secret"})
    content["clusters"][0]["cluster"]["certificate-authority-data"] = authority
    output = run("x", "--dir", str(tmp_path / "pem"), "--kubeconfig", str(write(tmp_path / "config", content))).output
    assert [path.name for path in (tmp_path / "pem").iterdir()] == ["ca.crt"]
    assert "has no client certificate" in output
    assert "secret" not in output


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "pem").write_text("a file")
    authority = CertificateAuthority.create("test-ca")
    (tmp_path / "config").write_bytes(
        kubeconfig_text("https://127.0.0.1:6443", authority.certificate, authority.issue("jane", client=True))
    )
    output = run("kubeloop", "--dir", str(tmp_path / "pem" / "x"), "--kubeconfig", str(tmp_path / "config"), code=1).output
    assert f"cannot write to {tmp_path / 'pem' / 'x'}" in output


def _openssl(*args: str) -> str:
    return subprocess.run(["openssl", *args], check=True, capture_output=True, text=True).stdout
