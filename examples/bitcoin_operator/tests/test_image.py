"""Tests of the start script of the daemon's image, with a program that prints its configuration in the place of the daemon."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from examples.bitcoin_operator.daemon import START_SCRIPT


def configuration(folder: Path, **environment: str) -> list[str]:
    """Return the lines of the configuration that the script writes, below ``folder`` in the place of the root."""
    program = folder / "bitcoind"
    program.write_text(f"#!/bin/sh\nexec cat {folder}/bitcoin.conf\n")
    program.chmod(0o755)
    script = START_SCRIPT.read_text().replace("/bitcoin", f"{folder}/bitcoin")
    variables = {**environment, "PATH": f"{folder}:{os.environ['PATH']}"}
    return subprocess.run(["sh", "-c", script], env=variables, capture_output=True, text=True, check=True).stdout.splitlines()


@pytest.mark.parametrize(
    ("environment", "credentials"),
    [
        pytest.param({}, ("user", "password"), id="without a Secret"),
        pytest.param({"BC_RPC_USER": "john", "BC_RPC_PASSWORD": "secret"}, ("john", "secret"), id="with both keys"),
        pytest.param({"BC_RPC_USER": "john"}, ("user", "password"), id="with the user alone"),
        pytest.param({"BC_RPC_PASSWORD": "secret"}, ("user", "password"), id="with the password alone"),
    ],
)
def test_the_daemon_has_the_credentials_that_the_operator_expects(
    tmp_path: Path, environment: dict[str, str], credentials: tuple[str, str]
) -> None:
    lines = configuration(tmp_path, POD_IP="127.0.0.2", **environment)
    user, password = credentials
    assert [line for line in lines if line.startswith(("rpcuser", "rpcpassword"))] == [f"rpcuser={user}", f"rpcpassword={password}"]
    assert "rpcbind=127.0.0.2:18332" in lines
