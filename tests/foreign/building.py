"""Builds the Go programs and the Rust program, Helm and kwok, once per version of their sources, outside of the source tree."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path

from tests.realserver.building import directory
from tests.realserver.controller_manager import upstream_is_wanted

HERE = Path(__file__).parent

#: The tool that builds each program. Where a tool is not installed, its program is not tested.
TOOLS = {"go": "go", "rust": "cargo"}
_HELM = "helm.sh/helm/v4/cmd/helm"
_KWOK = "sigs.k8s.io/kwok/cmd/kwok"


def is_installed(language: str) -> bool:
    return shutil.which(TOOLS[language]) is not None


def left_out_programs() -> list[str]:
    """The tests that this run leaves out, in words."""
    found = [f"the foreign program in {language}: {tool} is not installed" for language, tool in TOOLS.items() if not shutil.which(tool)]
    if not is_installed("go"):
        found.append("definitions and samples of operators: go is not installed, which fetches them")
        found.append("the store of ingress-nginx behind the proxy: go is not installed, which builds it")
    if not upstream_is_wanted():
        found.append(
            "kube-controller-manager, Helm, kwok and Rust's client library: make test-real does that (it builds them in some minutes)"
        )
    return found


def program(language: str) -> Path:
    """The program of a language, or ``router``, built now if it is not there: the first time in some minutes, with its libraries.

    Raises:
        AssertionError: it does not build; the text is the compiler's.
    """
    target = directory() / f"foreign-{language}-{_fingerprint(language)}"
    if not target.is_file():
        target.parent.mkdir(parents=True, exist_ok=True)
        unfinished = target.with_suffix(".part")
        _BUILDERS[language](unfinished)
        unfinished.replace(target)
    return target


def _build_go(target: Path, folder: str = "go") -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    _run(["go", "build", "-trimpath", "-buildvcs=false", "-o", str(target), "."], HERE / folder, environment)


def _build_rust(target: Path) -> None:
    # Built from a copy: cargo writes its lock file beside Cargo.toml.
    work = directory() / "foreign-rust-build"
    for file in _sources("rust"):
        copy = work / file.relative_to(HERE / "rust")
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.read_bytes())
    _run(["cargo", "build", "--quiet"], work, {**os.environ, "CARGO_TARGET_DIR": str(work / "target")})
    shutil.copy(work / "target" / "debug" / "foreign", target)


def _build_helm(target: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    _run(["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(target), _HELM], HERE / "helm", environment)


def _build_kwok(target: Path) -> None:
    environment = {**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}
    _run(["go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", str(target), _KWOK], HERE / "kwok", environment)


_BUILDERS: dict[str, Callable[[Path], None]] = {
    "go": _build_go,
    "router": partial(_build_go, folder="router"),
    "rust": _build_rust,
    "helm": _build_helm,
    "kwok": _build_kwok,
}


def _run(command: list[str], folder: Path, environment: dict[str, str]) -> None:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed in {folder.name}:\n{done.stderr[-4000:]}"


def _sources(language: str) -> list[Path]:
    names = {".go", ".mod", ".sum", ".rs", ".toml"}
    return sorted(file for file in (HERE / language).rglob("*") if file.suffix in names)


def _fingerprint(language: str) -> str:
    digest = hashlib.sha256()
    for file in _sources(language):
        digest.update(file.read_bytes())
    return digest.hexdigest()[:12]
