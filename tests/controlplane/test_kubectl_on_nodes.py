"""kubectl with nodes that work: it prints what it prints where the real control plane runs. The transcripts were recorded there."""

from __future__ import annotations

import asyncio
import difflib
from pathlib import Path

import pytest

from kubeloop.client import Client
from kubeloop.transport import Transport
from tests.kubectl.pool import namespace_with_nodes
from tests.kubectl.transcript import Command, Part, Session, parse
from tests.servers import ServerUnderTest

#: A real server of the tests has no front proxy, so that it reaches no metrics.
pytestmark = pytest.mark.embedded

FOLDER = Path(__file__).parents[1] / "kubectl" / "transcripts" / "simulated"
#: What kubectl prints while it waits depends on the moment.
_PROGRESS = ("Waiting for ", "waiting for ")
_UNORDERED = ("kubectl wait ", "kubectl events ", "kubectl get events ")


def _settled(command: Command) -> list[str]:
    """Return the lines of a command without those of its progress; in order where kubectl's own order depends on the moment."""
    if "--for=delete" in command.line:
        return []  # It names the pods that it still saw.
    lines = [line for line in command.output.splitlines() if not line.startswith(_PROGRESS)]
    return sorted(lines) if command.line.startswith(_UNORDERED) else lines


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", sorted(path.stem for path in FOLDER.glob("*.txt")))
async def test_kubectl_prints_what_it_prints_with_the_real_control_plane(
    name: str, client: Client, bare_server: ServerUnderTest, tmp_path: Path
) -> None:
    namespace = f"{client.namespace}-nodes"
    parts = parse((FOLDER / f"{name}.txt").read_text())
    session = Session(Path(bare_server.kubeconfig), namespace, tmp_path, tmp_path)

    def play() -> list[Part]:
        return list(session.play(parts))

    wrong: list[str] = []
    async with Client(Transport(bare_server.config)) as own, namespace_with_nodes(own, namespace):
        for wanted, found in zip(parts, await asyncio.to_thread(play), strict=True):
            if not isinstance(wanted, Command) or not isinstance(found, Command):
                continue
            real, here = _settled(wanted), _settled(found)
            if real != here:
                lines = difflib.unified_diff(real, here, "real", "here", lineterm="", n=2)
                wrong.append("\n".join([f"$ {wanted.line}", *lines]))
    assert not wrong, "\n\n".join([f"{len(wrong)} commands print something else:", *wrong])
