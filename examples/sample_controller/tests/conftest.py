"""The controller as a user runs it: a process of its own."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
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


@pytest.fixture
def start_controller(kubectl: Kubectl, tmp_path: Path) -> Iterator[Callable[[], Path]]:
    """Starts the controller; gives the file that it logs to. It must end by itself, with status 0, on SIGTERM."""
    running: list[subprocess.Popen[bytes]] = []

    def start() -> Path:
        log = tmp_path / "controller.log"
        command = [sys.executable, "-m", "examples.sample_controller", "--kubeconfig", str(kubectl.kubeconfig)]
        with log.open("wb") as out:
            running.append(subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=subprocess.STDOUT))
        return log

    yield start
    for process in running:
        process.terminate()
        assert process.wait(20) == 0


@pytest.fixture
def controlled(foos: Kubectl, start_controller: Callable[[], Path]) -> Kubectl:
    """kubectl, where the controller runs."""
    start_controller()
    return foos


def foo(name: str = "example-foo", deployment: str = "example-foo", replicas: int | None = 1) -> str:
    """A manifest."""
    spec = {"deploymentName": deployment, "replicas": replicas}
    shown = ", ".join(f"{key}: {value}" for key, value in spec.items() if value not in (None, ""))
    return f"apiVersion: samplecontroller.k8s.io/v1alpha1\nkind: Foo\nmetadata: {{name: {name}}}\nspec: {{{shown}}}\n"
