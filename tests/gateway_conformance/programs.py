"""Builds the conformance suite of the Gateway API and the backend of its requests, once per version of the sources. Needs Go."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import CannotBuild, directory

SOURCES = Path(__file__).parent / "go"
_SUITE = "sigs.k8s.io/gateway-api/conformance"
_ECHO = f"{_SUITE}/echo-basic"
NO_GO = (
    "make conformance-gateway needs Go 1.26 or newer, to build the conformance suite of the Gateway API: install it from "
    "https://go.dev/dl/ and see that `go version` works."
)
# The backend listens on all addresses, which the process pods of a machine share: here it listens on the address of its pod.
_LISTENERS = {
    "echo-basic.go": ('fmt.Sprintf(":%s", ', 'fmt.Sprintf(os.Getenv("KUBELOOP_POD_IP")+":%s", ', 3),
    "tcpserver/tcpserver.go": ('fmt.Sprintf(":%s", s.', 'fmt.Sprintf(os.Getenv("KUBELOOP_POD_IP")+":%s", s.', 2),
    "grpc/grpc.go": ('fmt.Sprintf("0.0.0.0:%d", ', 'fmt.Sprintf(os.Getenv("KUBELOOP_POD_IP")+":%d", ', 2),
}


@dataclass(frozen=True, slots=True)
class Programs:
    """What a run of the suite needs of its Go module.

    Attributes:
        suite: The program of the suite.
        echo: The backend of its requests.
        definitions: The folder with the CRDs of the standard channel.
        version: The version of the Gateway API, such as ``v1.6.3``.
    """

    suite: Path
    echo: Path
    definitions: Path
    version: str


def programs() -> Programs:
    """Return the programs, built now if they are not there.

    Raises:
        CannotBuild: Go is not installed, or a build failed.
    """
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(NO_GO)
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sorted(SOURCES.iterdir()))).hexdigest()[:12]
    target = directory() / f"gateway-conformance-{digest}"
    suite, echo = target / "suite.test", target / "echo-basic"
    if not (suite.is_file() and echo.is_file()):
        target.mkdir(parents=True, exist_ok=True)
        print("building the conformance suite of the Gateway API (once, a minute or two)", flush=True)
        _go(go, "test", "-c", "-vet=off", "-o", str(suite), ".")
        _build_echo(go, echo)
    module = json.loads(_go(go, "mod", "download", "-json", "sigs.k8s.io/gateway-api@" + _version(go)))
    return Programs(suite, echo, Path(module["Dir"]) / "config" / "crd" / "standard", module["Version"])


def _version(go: str) -> str:
    return _go(go, "list", "-m", "-f", "{{.Version}}", _SUITE).strip()


def _build_echo(go: str, target: Path) -> None:
    """Build the backend with other listeners, from a copy of its module."""
    source = Path(_go(go, "list", "-m", "-f", "{{.Dir}}", _SUITE).strip())
    with tempfile.TemporaryDirectory() as temporary:
        copy, module = Path(temporary, "conformance"), Path(temporary, "go.mod")
        _copy(source, copy)
        for name, (former, text, count) in _LISTENERS.items():
            file = copy / "echo-basic" / name
            contents = file.read_text()
            if contents.count(former) != count:
                raise CannotBuild(
                    f"{name} of echo-basic: {count} listeners {former!r} were expected; see tests/gateway_conformance/programs.py"
                )
            file.write_text(contents.replace(former, text))
        module.write_text((SOURCES / "go.mod").read_text() + f"\nreplace {_SUITE} => {copy}\n")
        shutil.copyfile(SOURCES / "go.sum", module.with_suffix(".sum"))
        _go(go, "build", f"-modfile={module}", "-o", str(target), _ECHO)


def _copy(source: Path, target: Path) -> None:
    """Copy a folder of Go's module cache, whose files and folders are read-only, as a folder that can be written."""
    for file in source.rglob("*"):
        copied = target / file.relative_to(source)
        if file.is_file():
            copied.parent.mkdir(parents=True, exist_ok=True)
            copied.write_bytes(file.read_bytes())


def _go(go: str, *words: str) -> str:
    result = subprocess.run([go, *words], cwd=SOURCES, capture_output=True, text=True, check=False)
    if result.returncode:
        raise CannotBuild(f"go {' '.join(words)} failed:\n{result.stderr.strip()}")
    return result.stdout
