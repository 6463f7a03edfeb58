"""``make test`` in a new project, where kubeloop was installed from a wheel and no package index has it."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from pathlib import Path

import pytest

# Environments are made, and tests run, in separate processes.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(1200)]


@dataclass(frozen=True)
class Machine:
    """A machine without an index: ``others`` holds all packages but kubeloop, pip too; kubeloop's wheel is a file."""

    wheel: Path
    others: Path
    python: Path

    def run(self, *words: str, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "KUBE", "PIP", "MAKE"))}
        # Packages are found as if they were installed, and pip asks no index. What pip need not compile is compiled where it is imported.
        index = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0", "PIP_NO_COMPILE": "1"}
        environment = {**kept, "PYTHONPATH": str(self.others), **index, **more}
        return subprocess.run(words, cwd=folder, env=environment, capture_output=True, text=True, check=False)


#: Makes environments without pip, which is found where all other packages are: to unpack and compile it takes five seconds each time.
_PYTHON = """\
#!/bin/sh
if [ "$1 $2" = "-m venv" ]; then set -- "$@" --without-pip; fi
exec '{python}' "$@"
"""


@pytest.fixture(scope="module")
def machine(wheel_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    folder = tmp_path_factory.mktemp("machine")
    python = folder / "python"
    python.write_text(_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    others = folder / "others"
    others.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "kubeloop" not in path.name and path.suffix != ".pth":
            (others / path.name).symlink_to(path)
    return Machine(wheel_file, others, python)


@pytest.fixture(scope="module")
def clean(machine: Machine, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment in which kubeloop was installed from its wheel."""
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder / "venv")
    done = machine.run(str(folder / "venv/bin/python"), "-m", "pip", "install", f"{machine.wheel}[server]", folder=folder)
    assert done.returncode == 0, done.stderr
    return folder / "venv/bin"


def test_it_installs_the_wheel_that_kubeloop_was_installed_from(machine: Machine, clean: Path, tmp_path: Path) -> None:
    done = machine.run(str(clean / "kubeloop"), "new", "operator", "shop", folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "shop" / "local.mk").read_text().endswith(f"\nKUBELOOP ?= {machine.wheel}\n")
    assert "local.mk" in (tmp_path / "shop" / ".gitignore").read_text()
    done = machine.run("make", "test", f"PYTHON={machine.python}", folder=tmp_path / "shop")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_it_says_how_to_go_on_where_no_index_has_kubeloop(machine: Machine, clean: Path, tmp_path: Path) -> None:
    machine.run(str(clean / "kubeloop"), "new", "operator", "shop", folder=tmp_path)
    (tmp_path / "shop" / "local.mk").unlink()
    done = machine.run("make", "setup", f"PYTHON={machine.python}", folder=tmp_path / "shop")
    assert done.returncode != 0
    assert "pip cannot install what pyproject.toml lists. If kubeloop is not on your package index, say where it is:" in done.stdout
    assert "  make setup KUBELOOP=path/to/kubeloop-" in done.stdout
    done = machine.run("make", "setup", f"PYTHON={machine.python}", folder=tmp_path / "shop", PIP_FIND_LINKS=str(machine.wheel.parent))
    assert done.returncode == 0, done.stdout + done.stderr
