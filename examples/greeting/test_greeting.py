"""The program of the README works as the README says, and is the program that stands there."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.kubectl.runner import Kubectl

HERE = Path(__file__).parent
GREETING = "{apiVersion: example.com/v1, kind: Greeting, metadata: {name: hi}, spec: {name: you}}"


@pytest.mark.server
def test_the_greeting_gets_its_config_map_again_and_again(kubectl: Kubectl) -> None:
    kubectl("apply", "-f", str(HERE / "greeting.yaml"))
    kubectl("wait", "--for=condition=Established", "crd/greetings.example.com", "--timeout=10s")
    environment = {"KUBECONFIG": str(kubectl.kubeconfig), "PATH": ""}
    program = subprocess.Popen([sys.executable, str(HERE / "greeting.py")], env=environment, stderr=subprocess.PIPE)
    try:
        kubectl("apply", "-f", "-", stdin=GREETING)
        kubectl("wait", "configmap/hi", "--for=create", "--timeout=20s")
        assert kubectl("get", "configmap", "hi", "-o", "jsonpath={.data.text}") == "Hello, you!"
        kubectl("delete", "configmap", "hi")
        kubectl("wait", "configmap/hi", "--for=create", "--timeout=20s")
    finally:
        program.terminate()
        _, errors = program.communicate(timeout=20)
        kubectl("delete", "crd", "greetings.example.com", "--wait")
    assert (program.returncode, errors) == (0, b"SIGTERM: stopping; once more to exit at once\n")


def test_the_readme_shows_this_very_program() -> None:
    readme = (HERE.parents[1] / "README.md").read_text()
    assert f"```python\n{(HERE / 'greeting.py').read_text()}```" in readme
