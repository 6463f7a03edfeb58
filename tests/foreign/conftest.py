"""The tests depend on installed compilers: a program whose compiler is missing is left out, and the report's end says so."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.foreign.building import TOOLS, is_installed, program
from tests.servers import ServerUnderTest, server_under_test

_MISSING = [language for language in TOOLS if not is_installed(language)]
_WITH_GO = ["test_envtest.py", "test_go_cached.py", "test_ingress_nginx_store.py", "test_operators.py"]
collect_ignore = [f"test_{language}.py" for language in _MISSING] + (_WITH_GO if "go" in _MISSING else [])


@pytest.fixture(scope="session")
def server() -> Iterator[ServerUnderTest]:
    """Without controllers, as the real one runs: no other client changes the objects of a program."""
    with server_under_test(controllers=False) as found:
        yield found


class Chapters:
    """Runs chapters of a program against the server under test, in a namespace of the test's own."""

    def __init__(self, server: ServerUnderTest, namespace: str) -> None:
        self._server = server
        self._namespace = namespace

    def differences(self, language: str, chapter: str) -> list[str]:
        """Lines that only the expectation ("- ") or only the program ("+ ") has; a failure's text is in it too."""
        environment = {"KUBECONFIG": str(self._server.kubeconfig), "HOME": os.environ.get("HOME", "/"), "PATH": os.environ.get("PATH", "")}
        command = [str(program(language)), chapter, self._namespace]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
        printed = done.stdout.splitlines() + (done.stderr.splitlines() if done.returncode else [])
        expected = (Path(__file__).parent / "expected" / f"{language}-{chapter}.txt").read_text().splitlines()
        return (
            [f"- {line}" for line in expected if line not in printed]
            + [f"+ {line}" for line in printed if line not in expected]
            + (["the order of the lines"] if sorted(printed) == sorted(expected) and printed != expected else [])
        )


@pytest.fixture
def chapters(server: ServerUnderTest, namespace: str) -> Chapters:
    return Chapters(server, namespace)
