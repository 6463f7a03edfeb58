"""The program: its flags, and what it says when it cannot begin."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        pytest.param(["--kubeconfig", "{tmp}/missing"], "missing", id="a kubeconfig that is not there is named"),
        pytest.param(["--kubeconfig", "{tmp}/broken"], "broken", id="a kubeconfig that is no YAML is named"),
    ],
)
def test_it_ends_with_a_message_and_no_traceback(tmp_path: Path, arguments: list[str], said: str) -> None:
    (tmp_path / "broken").write_text("clusters: [")
    command = [sys.executable, "-m", "examples.sample_controller", *(argument.format(tmp=tmp_path) for argument in arguments)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("sample-controller: ")
    assert said in done.stderr
    assert "Traceback" not in done.stderr
