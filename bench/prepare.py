"""Builds what a run needs, once, under ``bench/.build``: the Go programs, the environment of the Python peer, the pods."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from pathlib import Path

from bench.pods.__main__ import generate

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
LIGHTKUBE = BUILD / "lightkube" / "bin" / "python"
_PROGRAMS = ("pack", "server", "clientgo")


class CannotPrepare(Exception):
    """Something outside is missing; the text says what to install."""


def _say(text: str) -> None:
    print(f"bench: {text}", file=sys.stderr, flush=True)


def _fresh(stamp: Path, *sources: Path) -> bool:
    """Whether ``stamp`` was written for these very sources."""
    return stamp.exists() and stamp.read_text() == _digest(*sources)


def _digest(*sources: Path) -> str:
    found = hashlib.sha256()
    for source in sources:
        for file in sorted(source.rglob("*")) if source.is_dir() else [source]:
            if file.is_file() and "__pycache__" not in file.parts:
                found.update(file.read_bytes())
    return found.hexdigest()


def programs() -> None:
    """The replay server and client-go's informer.

    Raises:
        CannotPrepare: there is no Go, or it cannot build them.
    """
    stamp = BUILD / "go.stamp"
    if _fresh(stamp, HERE / "go") and all((BUILD / name).exists() for name in _PROGRAMS):
        return
    if shutil.which("go") is None:
        raise CannotPrepare("the replay server and client-go's informer are Go programs: install Go 1.26 or newer")
    _say("building the Go programs (once; some minutes when the modules are not there yet)")
    BUILD.mkdir(exist_ok=True)
    flags = ["-trimpath", "-ldflags=-s -w", "-o", f"{BUILD}/"]
    built = subprocess.run(
        ["go", "build", *flags, *(f"./{name}" for name in _PROGRAMS)], cwd=HERE / "go", capture_output=True, text=True, check=False
    )
    if built.returncode:
        raise CannotPrepare(f"go build failed in bench/go:\n{built.stderr.strip()}")
    stamp.write_text(_digest(HERE / "go"))


def lightkube() -> None:
    """An environment of its own, so that a peer's dependencies never meet the project's.

    Raises:
        CannotPrepare: pip cannot install it.
    """
    requirements = HERE / "peers" / "lightkube.txt"
    stamp = BUILD / "lightkube.stamp"
    if _fresh(stamp, requirements) and LIGHTKUBE.exists():
        return
    _say("installing lightkube into an environment of its own (once)")
    venv.create(BUILD / "lightkube", clear=True, with_pip=True)
    pip = [str(LIGHTKUBE), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--require-hashes", "-r", str(requirements)]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        raise CannotPrepare(f"lightkube cannot be installed:\n{installed.stderr.strip()}")
    stamp.write_text(_digest(requirements))


def pods(count: int, events: int) -> Path:
    """The directory of packed pods and events. Generated once per size."""
    out = BUILD / "data" / f"{count}-{events}"
    stamp = out / "stamp"
    if _fresh(stamp, HERE / "pods", HERE / "go" / "pack"):
        return out
    _say(f"generating {count} pods and {events} events (once)")
    shutil.rmtree(out, ignore_errors=True)
    generate(count, events, out)
    packed = subprocess.run([BUILD / "pack", "-in", out, "-out", out], capture_output=True, text=True, check=False)
    if packed.returncode:
        raise CannotPrepare(f"pack refused the generated pods:\n{packed.stdout}{packed.stderr}")
    (out / "pods.jsonl").unlink()
    (out / "events.jsonl").unlink()
    stamp.write_text(_digest(HERE / "pods", HERE / "go" / "pack"))
    return out
