"""kubectl rollout prints what it prints where the real kube-controller-manager runs: the transcript was recorded there."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path

import pytest

from kubeloop.client import Client
from tests.kubectl.transcript import Command, Part, Session, parse
from tests.servers import ServerUnderTest

pytestmark = pytest.mark.server

TRANSCRIPT = Path(__file__).parents[1] / "kubectl" / "transcripts" / "controlled" / "rollout.txt"


async def test_rollouts_are_told_undone_restarted_and_paused(client: Client, bare_server: ServerUnderTest, tmp_path: Path) -> None:
    assert client.namespace is not None
    parts = parse(TRANSCRIPT.read_text())
    session = Session(Path(bare_server.kubeconfig), client.namespace, tmp_path, tmp_path)

    def play() -> list[Part]:
        return list(session.play(parts))

    wrong: list[str] = []
    for wanted, found in zip(parts, await asyncio.to_thread(play), strict=True):
        if isinstance(wanted, Command) and isinstance(found, Command) and wanted.output != found.output:
            lines = difflib.unified_diff(wanted.output.splitlines(), found.output.splitlines(), "real", "here", lineterm="", n=2)
            wrong.append("\n".join([f"$ {wanted.line}", *lines]))
    assert not wrong, "\n\n".join(wrong)
