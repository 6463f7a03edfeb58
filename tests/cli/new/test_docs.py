"""The commands of docs/operators.md run as they are printed, one block after the other."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.new.conftest import ROOT
from tests.kubectl.runner import kubectl_binary
from tests.servers import ServerUnderTest

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(1200)]

#: Makes the environment that ``make setup`` makes, from that of these tests.
SETUP = 'mkdir -p .venv && ln -sfn "$TOOLS" .venv/bin && touch -d @"$LATER" .venv/.installed'


def test_the_page_of_operators_is_followed_in_order(tmp_path: Path, server: ServerUnderTest) -> None:
    page = (ROOT / "docs" / "operators.md").read_text()
    found = re.findall(r"^```sh\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert len(found) >= 3
    script = "set -e\n" + "".join(found).replace("cd web-operator\n", f"cd web-operator\n{SETUP}\n")
    tools = Path(sys.executable).parent
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KUBE", "MAKE"))},
        "PATH": os.pathsep.join([str(tools), str(Path(kubectl_binary()).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
        "KUBECONFIG": str(server.kubeconfig),
        "HOME": str(tmp_path),
        "TOOLS": str(tools),
        "LATER": str(int(time.time()) + 86400),
        # All tests of such a project run beside this file.
        "PYTEST_ADDOPTS": "-k accepts_the_sample -p no:cacheprovider",
    }
    done = subprocess.run(["sh", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "deployment.apps/web-operator serverside-applied" in done.stdout
    assert re.search(r"^cache-sample ", done.stdout, re.MULTILINE)
    installed = (tmp_path / "web-operator" / "dist" / "install.yaml").read_text()
    assert "image: registry.example.com/web-operator:0.1.0\n" in installed
