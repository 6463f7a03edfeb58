"""Builds the Go and the Rust program, once per version of their sources, outside of the source tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from tests.realserver.building import directory

HERE = Path(__file__).parent

#: The tool that builds each program. Where a tool is not installed, its program is not tested.
TOOLS = {"go": "go", "rust": "cargo"}


def is_installed(language: str) -> bool:
    return shutil.which(TOOLS[language]) is not None


def program(language: str) -> Path:
    """The program of a language, built now if it is not there: some minutes the first time, when its libraries are fetched too.

    Raises:
        AssertionError: it does not build; the text is the compiler's.
    """
    target = directory() / f"foreign-{language}-{_fingerprint(language)}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".part")
        (_build_go if language == "go" else _build_rust)(unfinished)
        unfinished.replace(target)
    return target


def _build_go(target: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    _run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(target), "."], HERE / "go", environment)


def _build_rust(target: Path) -> None:
    # Built from a copy: cargo writes its lock file beside Cargo.toml.
    work = directory() / "foreign-rust-build"
    for file in _sources("rust"):
        copy = work / file.relative_to(HERE / "rust")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    _run(["cargo", "build", "--quiet"], work, {**os.environ, "CARGO_TARGET_DIR": str(work / "target")})
    shutil.copy(work / "target" / "debug" / "foreign", target)


def _run(command: list[str], where: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed in {where.name}:\n{done.stderr[-4000:]}"


def _sources(language: str) -> list[Path]:
    names = {".go", ".mod", ".sum", ".rs", ".toml"}
    return sorted(file for file in (HERE / language).rglob("*") if file.suffix in names)


def _fingerprint(language: str) -> str:
    digest = hashlib.sha256()
    for file in _sources(language):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
