"""The program: its flags, and what it says when it cannot begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

GOOD = """
apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {server: "https://127.0.0.1:1"}}]
users: [{name: u, user: {token: t}}]
"""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        pytest.param(["--kubeconfig", "{tmp}/missing"], "missing", id="a kubeconfig that is not there is named"),
        pytest.param(["--kubeconfig", "{tmp}/broken"], "broken", id="a kubeconfig that is no YAML is named"),
        pytest.param(["-kubeconfig", "{tmp}/missing"], "missing", id="flags may be spelled as the original's, with one dash"),
        pytest.param(
            ["--kubeconfig={tmp}/good", "--leader-elect", "--leader-elect-lease-duration=5"],
            "lease_duration (5 s) must be longer than renew_deadline (10 s)",
            id="times of an election that cannot be safe are refused",
        ),
    ],
)
def test_it_ends_with_a_message_and_no_traceback(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "broken").write_text("clusters: [")
    (tmp_path / "good").write_text(GOOD)
    command = [sys.executable, "-m", "examples.sample_controller", *(argument.format(tmp=tmp_path) for argument in arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("sample-controller: ")
    assert message in done.stderr
    assert "Traceback" not in done.stderr


def test_a_flag_that_it_does_not_know_is_named() -> None:
    command = [sys.executable, "-m", "examples.sample_controller", "--leader-elected"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 2
    assert "--leader-elected" in done.stderr
