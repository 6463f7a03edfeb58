"""A new operator, made by the wheel of this tree in a clean folder."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from tests.kubectl.runner import Kubectl
from tests.servers import ServerUnderTest

ROOT = Path(__file__).parents[3]


@dataclass(frozen=True)
class Project:
    """``run`` runs Python in its folder, with kubeloop as the wheel has it."""

    folder: Path
    name: str
    group: str
    wheel: Path

    @property
    def environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "KUBE"))}
        # What is compiled is kept beside the wheel, not in the project: each of these processes would compile all that it imports.
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.wheel.parent / "compiled")}
        return {**kept, "PYTHONPATH": str(self.wheel), **compiled}

    def run(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        where = folder or self.folder
        return subprocess.run([sys.executable, *words], cwd=where, env=self.environment, capture_output=True, text=True, check=False)


def make(project: Project, options: Sequence[str]) -> None:
    command = ["-m", "kubeloop", "new", "operator", project.name, "--group", project.group, *options]
    done = project.run(*command, folder=project.folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents."""
    folder = tmp_path_factory.mktemp("wheel")
    (built,) = WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])
    with zipfile.ZipFile(built) as archive:
        archive.extractall(folder / "contents")
    return folder / "contents"


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, kubectl_home: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), kubectl_home, namespace)


@pytest.fixture(scope="session")
def types(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mypy's cache, which holds kubeloop's types after the first project that is checked."""
    return tmp_path_factory.mktemp("types")


@pytest.fixture(scope="session")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """With the names that are usual; its name and group are this run's own, as it is installed on servers that others use too."""
    number = os.getpid()
    found = Project(tmp_path_factory.mktemp("new") / f"web{number}-operator", f"web{number}-operator", f"t{number}.example.com", wheel)
    make(found, ["--kind", "Web", "--packaging", "both"])
    return found
