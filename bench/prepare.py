"""Builds what a run needs, once, under ``bench/.build``: the Go and Rust programs, the environments of the Python peers, the pods."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable, Iterable
from pathlib import Path

from bench.pods.__main__ import generate

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
LIGHTKUBE = BUILD / "lightkube" / "bin" / "python"
OFFICIAL = BUILD / "official" / "bin" / "python"
KUBERNETES_ASYNCIO = BUILD / "kubernetes_asyncio" / "bin" / "python"
KR8S = BUILD / "kr8s" / "bin" / "python"
KOPF = BUILD / "kopf" / "bin" / "python"
MITMPROXY = BUILD / "mitmproxy" / "bin" / "mitmdump"
KUBE_RS = BUILD / "rust" / "release" / "kuberef"
_PROGRAMS = ("pack", "server", "clientgo", "load", "requests", "controller", "queues", "proxyload", "relay")


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
    """The replay server, and the clients in Go.

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


def kube_rs() -> None:
    """kube-rs's reflector.

    Raises:
        CannotPrepare: there is no Rust, or it cannot build it.
    """
    sources = (HERE / "rust" / "Cargo.toml", HERE / "rust" / "src")
    stamp = BUILD / "rust.stamp"
    if _fresh(stamp, *sources) and KUBE_RS.exists():
        return
    if shutil.which("cargo") is None:
        raise CannotPrepare("kube-rs's reflector is a Rust program: install Rust 1.85 or newer")
    _say("building the Rust program (once; some minutes)")
    command = ["cargo", "build", "--release", "--quiet", "--target-dir", str(BUILD / "rust")]
    built = subprocess.run(command, cwd=HERE / "rust", capture_output=True, text=True, check=False)
    if built.returncode:
        raise CannotPrepare(f"cargo build failed in bench/rust:\n{built.stderr.strip()[-2000:]}")
    stamp.write_text(_digest(*sources))


def lightkube() -> None:
    """A separate environment, so that a peer's dependencies never meet the project's.

    Raises:
        CannotPrepare: pip cannot install it.
    """
    _environment("lightkube", "--require-hashes")


def exactly(name: str) -> Callable[[], None]:
    """The same for other peers. Exact versions; some of their wheels differ between platforms, so they are not pinned by hash.

    The returned function raises CannotPrepare: pip cannot install it.
    """
    return lambda: _environment(name, "--no-deps")


def mitmproxy() -> None:
    """mitmproxy 12, which needs a newer Python than kubeloop does.

    Raises:
        CannotPrepare: there is no such Python, or pip cannot install it.
    """
    interpreter = sys.executable
    if sys.version_info < (3, 12):
        root = HERE.parent
        command = ["bash", str(root / "tools" / "find_python.sh"), "3.13", str(root / ".pythons")]
        found = subprocess.run(command, capture_output=True, text=True, check=False)
        if found.returncode:
            raise CannotPrepare(f"mitmproxy needs Python 3.12 or newer:\n{found.stderr.strip()[-2000:]}")
        interpreter = found.stdout.strip()
    _environment("mitmproxy", "--no-deps", interpreter=interpreter)


def _environment(name: str, *options: str, interpreter: str = "") -> None:
    requirements = HERE / "peers" / f"{name}.txt"
    stamp = BUILD / f"{name}.stamp"
    python = BUILD / name / "bin" / "python"
    if _fresh(stamp, requirements) and python.exists():
        return
    _say(f"installing {name} into its own environment (once)")
    if interpreter:
        subprocess.run([interpreter, "-m", "venv", "--clear", str(BUILD / name)], check=True)
    else:
        venv.create(BUILD / name, clear=True, with_pip=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *options, "-r", str(requirements)]
    installed = subprocess.run(pip, capture_output=True, text=True, check=False)
    if installed.returncode:
        raise CannotPrepare(f"{name} cannot be installed:\n{installed.stderr.strip()[-2000:]}")
    stamp.write_text(_digest(requirements))


PEERS: dict[str, Callable[[], None]] = {"go": programs, "kube-rs": kube_rs, "lightkube": lightkube, "mitmproxy": mitmproxy} | {
    name: exactly(name) for name in ("official", "kubernetes_asyncio", "kr8s", "kopf")
}


def peers(names: Iterable[str]) -> dict[str, str]:
    """Prepare these peers; return the name of each that could not be prepared, with the reason."""
    missing: dict[str, str] = {}
    for name in dict.fromkeys(names):
        try:
            PEERS[name]()
        except CannotPrepare as error:
            missing[name] = str(error)
            _say(f"without {name}: {error}")
    return missing


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
