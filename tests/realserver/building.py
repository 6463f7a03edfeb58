"""Builds Kubernetes' own programs, once per version of the sources. Needs Go and its module proxy; some minutes on two cores."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
PROGRAMS = {
    "etcd": "./etcd",
    "kube-apiserver": "./apiserver",
    "kube-controller-manager": "./controllermanager",
    "kube-scheduler": "./scheduler",
}
_SERVER = ("etcd", "kube-apiserver")
#: Sources outside the fingerprint: a program that is added must not make all others be built again.
_ADDED = ("scheduler",)
VERSION = "v1.36.3"

NO_GO = (
    "make test-real needs Go 1.26 or newer, to build Kubernetes' own programs and Helm from source: install it from https://go.dev/dl/ "
    "and see that `go version` works. Everything else is tested without it (make test)."
)


class CannotBuild(Exception):
    """Nothing to run; the text says why and what to do."""


def directory() -> Path:
    """Where binaries and stores are kept: ``KUBELOOP_REALSERVER_DIR``, or ``.realserver`` in the project."""
    return Path(os.environ.get("KUBELOOP_REALSERVER_DIR") or Path(__file__).parents[2] / ".realserver")


def binaries(names: Iterable[str] = _SERVER) -> Path:
    """The directory that holds these programs, built now if they are not there; ``KUBELOOP_REALSERVER_BIN`` names prepared ones.

    Raises:
        CannotBuild: no Go, or the build failed.
    """
    prepared = os.environ.get("KUBELOOP_REALSERVER_BIN")
    if prepared:
        missing = [name for name in names if not (Path(prepared) / name).is_file()]
        if missing:
            raise CannotBuild(f"KUBELOOP_REALSERVER_BIN: {prepared} holds no {' and no '.join(missing)}")
        return Path(prepared)
    target = directory() / f"bin-{_fingerprint()}"
    missing = [name for name in names if not (target / name).is_file()]
    go = shutil.which("go") if missing else ""
    if go is None:
        raise CannotBuild(NO_GO)
    target.mkdir(parents=True, exist_ok=True)
    for name in missing:
        build(go, ["build"], PROGRAMS[name], target / name)
    return target


def _fingerprint(sources: Path = SOURCES) -> str:
    digest = hashlib.sha256()
    for file in sorted(sources.rglob("*")):
        if file.is_file() and file.parent.name not in _ADDED:
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def build(go: str, verb: Sequence[str], package: str, target: Path, sources: Path = SOURCES) -> None:
    """Build one program; it appears at ``target`` when it is complete.

    Args:
        go: The go command.
        verb: ``build``, or ``test -c`` for a program of tests.
        package: The package, as its module names it.
        target: The file to write.
        sources: The folder of the Go module.

    Raises:
        CannotBuild: The build failed.
    """
    stamp = "k8s.io/component-base/version"
    flags = f"-s -w -X {stamp}.gitVersion={VERSION} -X {stamp}.gitMajor=1 -X {stamp}.gitMinor=36 -X {stamp}.gitTreeState=clean"
    unfinished = target.with_suffix(".part")
    command = [go, *verb, "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(unfinished), package]
    started = time.monotonic()
    print(f"building {target.name} {VERSION} (the first time takes some minutes)", flush=True)
    with subprocess.Popen(
        command, cwd=sources, env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}, stderr=subprocess.PIPE, text=True
    ) as process:
        while True:
            try:
                _, errors = process.communicate(timeout=15)
                break
            except subprocess.TimeoutExpired:
                print(f"  still building {target.name}, {time.monotonic() - started:.0f} s", flush=True)
            except BaseException:
                process.kill()
                raise
    if process.returncode:
        sys.stderr.write(errors)
        raise CannotBuild(f"go build {package} failed; see above (is the Go module proxy reachable, is this Go 1.26 or newer?)")
    unfinished.replace(target)
    print(f"  built {target.name} in {time.monotonic() - started:.0f} s", flush=True)
