"""The controller as a user runs it: a separate process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

from examples.sample_controller.steps import MANIFESTS
from tests.kubectl.runner import Kubectl

ROOT = Path(__file__).parents[3]


@pytest.fixture
def foos(kubectl: Kubectl) -> Iterator[Kubectl]:
    """kubectl, where the kind Foo is served."""
    kubectl("apply", "-f", str(MANIFESTS / "crd-status-subresource.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/foos.samplecontroller.k8s.io", "--timeout=10s")
    yield kubectl
    kubectl("delete", "crd", "foos.samplecontroller.k8s.io", "--wait")


class Program:
    """The controller in a separate process."""

    def __init__(self, log: Path, arguments: Sequence[str]) -> None:
        self._log = log
        with log.open("wb") as out:
            command = [sys.executable, "-m", "examples.sample_controller", *arguments]
            self._process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT)

    @property
    def log(self) -> str:
        """What it said so far."""
        return self._log.read_text()

    def kill(self) -> None:
        """As a crash: it can do nothing about it."""
        self._process.kill()
        self._process.wait(60)

    def end(self) -> None:
        """It must end by itself, with status 0, on SIGTERM; unless it was killed."""
        if self._process.returncode is None:
            self._process.terminate()
            assert self._process.wait(60) == 0, self.log


Starter = Callable[..., Program]


@pytest.fixture
def start_controller(kubectl: Kubectl, tmp_path: Path) -> Iterator[Starter]:
    """Starts the controller with arguments, besides the server's."""
    running: list[Program] = []

    def start(*arguments: str, kubeconfig: Path | None = None) -> Program:
        server = ["--kubeconfig", str(kubeconfig or kubectl.kubeconfig)]
        running.append(Program(tmp_path / f"controller-{len(running)}.log", [*server, *arguments]))
        return running[-1]

    yield start
    for program in running:
        program.end()


@pytest.fixture
def controlled(foos: Kubectl, start_controller: Starter) -> Kubectl:
    """kubectl, where the controller runs."""
    start_controller()
    return foos


def foo(name: str = "example-foo", deployment: str = "example-foo", replicas: int | None = 1) -> str:
    """A manifest."""
    spec = {"deploymentName": deployment, "replicas": replicas}
    shown = ", ".join(f"{key}: {value}" for key, value in spec.items() if value not in (None, ""))
    return f"apiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {{name: {name}}}\nspec: {{{shown}}}\n"
