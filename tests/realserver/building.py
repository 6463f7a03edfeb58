"""Builds the two programs, once per version of the sources. Needs Go and its module proxy; about three minutes on two cores."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

SOURCES = Path(__file__).parent / "go"
PROGRAMS = {"etcd": "./etcd", "kube-apiserver": "./apiserver"}
VERSION = "v1.36.3"

NO_GO = (
    "make test-real needs Go 1.26 or newer, to build kube-apiserver and etcd from source: install it from https://go.dev/dl/ "
    "and see that `go version` works. Everything else is tested without it (make test)."
)


class CannotBuild(Exception):
    """Nothing to run; the text says why and what to do."""


def directory() -> Path:
    """Where binaries and stores are kept: ``KUBELOOP_REALSERVER_DIR``, or ``.realserver`` in the project."""
    return Path(os.environ.get("KUBELOOP_REALSERVER_DIR") or Path(__file__).parents[2] / ".realserver")


def binaries() -> Path:
    """The directory that holds both programs, built now if they are not there; ``KUBELOOP_REALSERVER_BIN`` names prepared ones.

    Raises:
        CannotBuild: no Go, or the build failed.
    """
    prepared = os.environ.get("KUBELOOP_REALSERVER_BIN")
    if prepared:
        missing = [name for name in PROGRAMS if not (Path(prepared) / name).is_file()]
        if missing:
            raise CannotBuild(f"KUBELOOP_REALSERVER_BIN: {prepared} holds no {' and no '.join(missing)}")
        return Path(prepared)
    target = directory() / f"bin-{_fingerprint()}"
    if all((target / name).is_file() for name in PROGRAMS):
        return target
    go = shutil.which("go")
    if go is None:
        raise CannotBuild(NO_GO)
    target.mkdir(parents=True, exist_ok=True)
    for name, package in PROGRAMS.items():
        _build(go, package, target / name)
    return target


def _fingerprint() -> str:
    digest = hashlib.sha256()
    for file in sorted(SOURCES.rglob("*")):
        if file.is_file():
            digest.update(file.read_bytes())
    return digest.hexdigest()[:12]


def _build(go: str, package: str, target: Path) -> None:
    stamp = "k8s.io/component-base/version"
    flags = f"-s -w -X {stamp}.gitVersion={VERSION} -X {stamp}.gitMajor=1 -X {stamp}.gitMinor=36 -X {stamp}.gitTreeState=clean"
    unfinished = target.with_suffix(".part")
    command = [go, "build", "-trimpath", "-buildvcs=false", "-ldflags", flags, "-o", str(unfinished), package]
    started = time.monotonic()
    print(f"building {target.name} {VERSION} (the first time takes some minutes)", flush=True)
    with subprocess.Popen(
        command, cwd=SOURCES, env={**os.environ, "CGO_ENABLED": "0", "GOFLAGS": "-mod=readonly"}, stderr=subprocess.PIPE, text=True
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
