"""Each transcript of ``transcripts/`` prints what it printed against a real Kubernetes API server.

``python -m tests.kubectl.record KUBECONFIG [NAME ...]`` records them again.
"""

from __future__ import annotations

import difflib
from pathlib import Path

import pytest

from tests.kubectl.runner import Kubectl
from tests.kubectl.transcript import Command, Session, parse

pytestmark = pytest.mark.server

FOLDER = Path(__file__).parent / "transcripts"


@pytest.mark.parametrize("path", [pytest.param(path, id=path.stem) for path in sorted(FOLDER.glob("*.txt"))])
def test_kubectl_prints_what_it_prints_against_a_real_server(path: Path, kubectl: Kubectl, tmp_path: Path) -> None:
    parts = parse(path.read_text())
    session = Session(kubectl.kubeconfig, kubectl.namespace, kubectl.home, tmp_path)
    wrong: list[str] = []
    for wanted, found in zip(parts, session.play(parts), strict=True):
        if isinstance(wanted, Command) and isinstance(found, Command) and wanted.output != found.output:
            lines = difflib.unified_diff(wanted.output.splitlines(), found.output.splitlines(), "real", "here", lineterm="", n=2)
            wrong.append("\n".join([f"$ {wanted.line}", *lines]))
    assert not wrong, "\n\n".join([f"{len(wrong)} commands print something else:", *wrong])
