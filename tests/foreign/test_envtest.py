"""A Go project as kubebuilder lays it out, which tests on envtest: unchanged, with kubeloop's launchers in place of the binaries."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.cli import main
from tests.foreign.building import HERE

# The test compiles what it runs.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(1200)]

_TESTS = [
    "TestPagesAreMadeAndMadeAgain",
    "TestTheSchemaAndItsRulesAreEnforced",
    "TestWebhooksSetDefaultsAndRefuse",
    "TestUsersHaveTheRightsThatRolesGrant",
    "TestObjectsOutliveARestartOfTheServer",
]


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assets")
    done = CliRunner().invoke(main, ["envtest-assets", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


def test_go_test_passes_on_the_launchers_and_leaves_no_process(assets: Path) -> None:
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets), "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    environment["KUBEBUILDER_CONTROLPLANE_START_TIMEOUT"] = "120s"  # where many tests run beside this one
    command = ["go", "test", "-trimpath", "-count=1", "-v", "-p=1", "./..."]
    done = subprocess.run(command, cwd=HERE / "envtest", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-12000:]
    assert re.findall(r"(?m)^--- PASS: (\w+)", done.stdout) == _TESTS
    assert _processes_with(f"KUBEBUILDER_ASSETS={assets}") == []


def _processes_with(variable: str) -> list[str]:
    """The command lines of all processes that inherited an environment variable."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if variable.encode() in (process / "environ").read_bytes().split(b"\0"):
                found.append((process / "cmdline").read_text().replace("\0", " "))
        except OSError:
            continue  # it has ended meanwhile, or is another user's
    return found
