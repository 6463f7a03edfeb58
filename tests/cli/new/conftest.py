"""A new operator, made by the wheel of this tree in a clean folder."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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
        # Compiled files are kept beside the wheel, not in the project: each of these processes would compile all that it imports.
        compiled = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(self.wheel.parent / "compiled")}
        return {**kept, "PYTHONPATH": str(self.wheel), **compiled}

    def run(self, *words: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
        where = folder or self.folder
        return subprocess.run([sys.executable, *words], cwd=where, env=self.environment, capture_output=True, text=True, check=False)


def make(project: Project, options: Sequence[str]) -> None:
    command = ["-m", "kubeloop", "new", "operator", project.name, "--group", project.group, *options]
    done = project.run(*command, folder=project.folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def shared_folder(tmp_path_factory: pytest.TempPathFactory, name: str) -> Iterator[Path]:
    """A folder that all workers of this run share. It is locked: one worker fills it, the others wait."""
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"shared-{name}"
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


@pytest.fixture(scope="session")
def wheel_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this tree."""
    with shared_folder(tmp_path_factory, "wheel") as folder:
        if not (folder / "wheels").exists():
            list(WheelBuilder(str(ROOT)).build(directory=str(folder / "unfinished"), versions=["standard"]))
            (folder / "unfinished").rename(folder / "wheels")
        (built,) = (folder / "wheels").glob("*.whl")
        return built


@pytest.fixture(scope="session")
def wheel(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel's contents."""
    with shared_folder(tmp_path_factory, "contents") as folder:
        if not (folder / "contents").exists():
            with zipfile.ZipFile(wheel_file) as archive:
                archive.extractall(folder / "unfinished")
            (folder / "unfinished").rename(folder / "contents")
        return folder / "contents"


@pytest.fixture(scope="session")
def kubectl_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture
def kubectl(server: ServerUnderTest, namespace: str, kubectl_home: Path) -> Kubectl:
    return Kubectl(Path(server.kubeconfig), kubectl_home, namespace)


@pytest.fixture(scope="session")
def project(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """With the names that are usual; its name and group are this run's own, as it is installed on servers that others use too."""
    number = os.getpid()
    found = Project(tmp_path_factory.mktemp("new") / f"web{number}-operator", f"web{number}-operator", f"t{number}.example.com", wheel)
    make(found, ["--kind", "Web", "--packaging", "both"])
    return found


@pytest.fixture(scope="session")
def types(project: Project, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """mypy's cache with kubeloop's types: made once for all workers, of which each has a copy, as two processes cannot write to one."""
    with shared_folder(tmp_path_factory, "types") as folder:
        if not (folder / "types").exists():
            old = shutil.copytree(project.folder, folder / "project")
            # mypy takes a file of the same relative path, size and second for a known one: files of two workers' projects are such files.
            for path in old.rglob("*.py"):
                os.utime(path, (1_000_000_000, 1_000_000_000))
            project.run("-m", "mypy", "--cache-dir", str(folder / "unfinished"), folder=old)
            (folder / "unfinished").rename(folder / "types")
    return Path(shutil.copytree(folder / "types", tmp_path_factory.mktemp("types") / "types"))
