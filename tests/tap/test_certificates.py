"""The certificates of a tap, judged by openssl; and the package that makes them."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.tap.certificates import TapCertificates
from tests.tap.open_tap import open_tap


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(("-verify_ip", "127.0.0.1", "-noservername"), "Verification: OK", id="the address"),
        pytest.param(
            ("-servername", "api.example.com", "-verify_hostname", "api.example.com"), "Verification: OK", id="the name of the handshake"
        ),
        pytest.param(("-servername", "a.example.com", "-verify_hostname", "b.example.com"), "hostname mismatch", id="no other name"),
    ],
)
async def test_openssl_accepts(tmp_path: Path, options: tuple[str, ...], expected: str) -> None:
    async with open_tap("https://127.0.0.1:1") as tap:
        authority = tmp_path / "ca.crt"
        authority.write_bytes(tap.certificates.authority)
        command = ("openssl", "s_client", "-connect", f"127.0.0.1:{tap.port}", "-CAfile", str(authority), *options)
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        async with asyncio.timeout(20):
            out, _ = await process.communicate(b"")
    text = out.decode()
    assert expected in text
    assert "No client certificate CA names sent" in text
    assert "Acceptable client certificate CA names" not in text


def test_a_name_has_one_context() -> None:
    certificates = TapCertificates()
    assert certificates.context("a.example.com") is certificates.context("a.example.com")
    assert certificates.context("a.example.com") is not certificates.context("b.example.com")


@pytest.mark.parametrize("name", ["a\u00e4.example.com", "a b\x00"])
def test_an_impossible_name_is_an_error(name: str) -> None:
    with contextlib.suppress(ValueError):
        TapCertificates().context(name)


def test_a_missing_package_is_named() -> None:
    program = "import sys; sys.modules['cryptography'] = None; from kubeloop.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program, "tap", "--kubeconfig", "/dev/null", "--", "true"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    program = "import sys; sys.modules['cryptography'] = None; from kubeloop.tap.certificates import TapCertificates; TapCertificates()"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "kubeloop tap needs cryptography, which is not installed: pip install 'kubeloop[server]'" in done.stderr
