"""Fixtures of the kubectl tests: kubectl on the server under test, each test in a new namespace."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.kubectl.runner import Kubectl, kubectl_binary
from tests.servers import ServerUnderTest


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One home for all, so that kubectl asks for discovery once and not in each call."""
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, kubectl_home: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), kubectl_home, namespace)


@pytest.fixture
def start_kubectl(kubectl: Kubectl) -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Starts kubectl in the background (watches); ended with the test."""
    running: list[subprocess.Popen[str]] = []

    def start(*args: str) -> subprocess.Popen[str]:
        environment = {"HOME": str(kubectl.home), "KUBECONFIG": str(kubectl.kubeconfig), "PATH": os.environ.get("PATH", "")}
        command = [kubectl_binary(), "--namespace", kubectl.namespace, *args]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, env=environment)
        running.append(process)
        return process

    yield start
    for process in running:
        process.terminate()
        process.communicate(timeout=10)
