"""The blocks of docs/process-pods.md run, in their order, against a server with process pods."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from kubeloop.client import Client
from tests.docs.pages import ROOT
from tests.kubelet.conftest import IMAGES, ProcessCluster

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(120)]
_BLOCK = re.compile(r"(?:<!-- block: (?P<use>[^>]*?) -->\s*)?^```(?P<kind>sh|yaml)\n(?P<text>.*?)^```$", re.DOTALL | re.MULTILINE)
_EXPECTED = re.compile(r"# => (.*)$", re.MULTILINE)


def tutorial(folder: Path) -> tuple[str, list[str]]:
    """Write the files of the tutorial; return its commands and the texts that they print."""
    page = (ROOT / "docs" / "process-pods.md").read_text().partition("## Ten minutes")[2].partition("\n## ")[0]
    script = []
    for match in _BLOCK.finditer(page):
        use = match["use"] or "run"
        if use.startswith("file "):
            (folder / use.removeprefix("file ")).write_text(match["text"])
        elif use == "run":
            script.append(match["text"])
    text = "".join(script)
    return text, _EXPECTED.findall(text)


async def test_the_tutorial_runs_as_it_is_written(client: Client, cluster: ProcessCluster, tmp_path: Path) -> None:
    script, expected = tutorial(tmp_path)
    images = (tmp_path / "images.yaml").read_text()
    (cluster.folder / "images.yaml").write_text(IMAGES + images.partition("images:\n")[2].replace("  shell: {command: [sh, -c]}\n", ""))
    lines = cluster.kubeconfig.read_text()
    (tmp_path / "kubeconfig").write_text(lines)
    environment = {
        **os.environ,
        "KUBECONFIG": str(tmp_path / "kubeconfig"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "POD_NAMESPACE": client.namespace,
    }
    choose = f"kubectl config set-context --current --namespace={client.namespace} > /dev/null\n"
    done = await asyncio.to_thread(
        subprocess.run, ["bash", "-euo", "pipefail", "-c", choose + script], cwd=tmp_path, env=environment, capture_output=True, timeout=100
    )
    output = done.stdout.decode()
    assert done.returncode == 0, output[-2000:] + done.stderr.decode()[-2000:]
    position = 0
    for text in expected:
        assert text in output[position:], f"{text!r} is not in:\n{output[position:]}"
        position = output.index(text, position)
