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

FOLDER = Path(__file__).parents[1] / "kubectl" / "transcripts" / "controlled"
NAMES = {"rollout": "a Deployment", "rollout-statefulset": "a StatefulSet", "rollout-daemonset": "a DaemonSet"}


def _without_waits(output: str) -> list[str]:
    """Return the lines without the ones that kubectl prints while a controller has not seen a change yet."""
    return [line for line in output.splitlines() if not line.endswith("spec update to be observed...")]


@pytest.mark.parametrize("name", NAMES, ids=NAMES.values())
async def test_kubectl_rolls_out_undoes_and_restarts(name: str, client: Client, bare_server: ServerUnderTest, tmp_path: Path) -> None:
    assert client.namespace is not None
    parts = parse((FOLDER / f"{name}.txt").read_text())
    session = Session(Path(bare_server.kubeconfig), client.namespace, tmp_path, tmp_path)

    def play() -> list[Part]:
        return list(session.play(parts))

    wrong: list[str] = []
    for wanted, found in zip(parts, await asyncio.to_thread(play), strict=True):
        if not isinstance(wanted, Command) or not isinstance(found, Command):
            continue
        real, here = (_without_waits(one.output) for one in (wanted, found))
        if real != here:
            lines = difflib.unified_diff(real, here, "real", "here", lineterm="", n=2)
            wrong.append("\n".join([f"$ {wanted.line}", *lines]))
    assert not wrong, "\n\n".join(wrong)
