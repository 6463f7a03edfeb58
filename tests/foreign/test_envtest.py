"""Go projects that test on envtest of controller-runtime, unchanged, with kubeloop's launchers in place of its binaries."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kubeloop.cli import main
from tests.foreign.building import HERE

# The tests compile what they run.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(1200)]

_RUNTIME = "sigs.k8s.io/controller-runtime/pkg"


@pytest.fixture(scope="module")
def assets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("assets")
    done = CliRunner().invoke(main, ["envtest-assets", str(folder)])
    assert done.exit_code == 0, done.output
    return folder


@pytest.mark.parametrize(
    ("packages", "passed"),
    [
        pytest.param(
            ["./..."],
            [
                "TestPagesAreMadeAndMadeAgain",
                "TestTheSchemaAndItsRulesAreEnforced",
                "TestWebhooksSetDefaultsAndRefuse",
                "TestUsersHaveTheRightsThatRolesGrant",
                "TestObjectsOutliveARestartOfTheServer",
            ],
            id="a project as kubebuilder lays it out",
        ),
        pytest.param([f"{_RUNTIME}/client", f"{_RUNTIME}/envtest"], ["TestSource", "TestClient"], id="controller-runtime's own suites"),
    ],
)
def test_go_test_passes_on_the_launchers_and_leaves_no_process(assets: Path, packages: list[str], passed: list[str]) -> None:
    environment = {**os.environ, "KUBEBUILDER_ASSETS": str(assets), "GOFLAGS": "-mod=readonly", "CGO_ENABLED": "0"}
    environment["KUBEBUILDER_CONTROLPLANE_START_TIMEOUT"] = "120s"  # where many tests run beside this one
    command = ["go", "test", "-trimpath", "-count=1", "-v", "-p=1", *packages]
    done = subprocess.run(command, cwd=HERE / "envtest", env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, (done.stdout + done.stderr)[-12000:]
    assert set(passed) - set(re.findall(r"(?m)^--- PASS: (\w+)", done.stdout)) == set()
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
