"""The embedded server beside kube-apiserver with etcd: started, looked at and put under the same load, one after the other in one run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.prepare import BUILD
from kubeloop.config import load_config
from tests.realserver.building import binaries
from tests.realserver.serving import real_server

MEMORY = "kubeloop"
DISK = "kubeloop --data"
REAL = "kube-apiserver, etcd"


@dataclass
class Load:
    """``per_second`` of all workers together; latencies in milliseconds."""

    what: str
    workers: int
    per_second: float
    p50_ms: float
    p99_ms: float


@dataclass
class Server:
    """``start_s``: wall time from the start of its processes to the first answer. ``fresh_mib``: resident memory of all of them then."""

    start_s: float
    fresh_mib: float
    loads: dict[str, Load] = field(default_factory=dict)
    #: Objects of 2 KB after which it was looked at, and what one of them takes, in KiB.
    filled: int = 0
    object_kib: float = 0.0

    def load(self, what: str, workers: int) -> Load | None:
        return self.loads.get(f"{what}, {workers}")

    def as_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class _Running:
    kubeconfig: Path
    pids: list[int]


def measure(name: str, *, requests: int = 2000, pods: int = 500, fill: int = 0, starts: int = 3) -> Server:
    """Starts it several times, and loads the last one.

    Raises:
        RuntimeError: it did not start, or refused a request; with its last words. CannotBuild: there is no Go to build the real one.
    """
    took = []
    for number in range(starts):
        began = time.perf_counter()
        with _started(name) as running:
            took.append(time.perf_counter() - began)
            if number < starts - 1:
                continue
            time.sleep(1)  # what it does beside answering is part of what it takes
            server = Server(sorted(took)[len(took) // 2], _resident(running.pids))
            with _certificates(running.kubeconfig) as arguments:
                for load in _loads(arguments, "-n", str(requests), "-pods", str(pods)):
                    server.loads[f"{load.what}, {load.workers}"] = load
            if fill:
                _fill(name, server, fill)
    return server


def _fill(name: str, server: Server, objects: int) -> None:
    with _started(name) as running, _certificates(running.kubeconfig) as arguments:
        before = _resident(running.pids)
        for load in _loads(arguments, "-fill", str(objects)):
            server.loads[f"{load.what}, {load.workers}"] = load
        time.sleep(1)
        server.filled = objects
        server.object_kib = (_resident(running.pids) - before) * 1024 / objects


def _loads(arguments: list[str], *more: str) -> list[Load]:
    done = subprocess.run([BUILD / "load", *arguments, *more], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the load client failed: {done.stderr.strip()[-800:]}")
    return [Load(**json.loads(line)) for line in done.stdout.splitlines()]


@contextlib.contextmanager
def _started(name: str) -> Iterator[_Running]:
    if name == REAL:
        programs = binaries()
        with real_server(programs) as kubeconfig:
            yield _Running(kubeconfig, list(_running(programs)))
        return
    with tempfile.TemporaryDirectory() as folder:
        kubeconfig = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "kubeloop", "server", "--no-controllers", "--kubeconfig", str(kubeconfig)]
        if name == DISK:
            command += ["--data", str(Path(folder) / "data")]
        with (Path(folder) / "log").open("w+") as log:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
            try:
                assert process.stdout is not None
                if not process.stdout.readline().startswith("ready"):
                    process.wait(10)
                    log.seek(0)
                    raise RuntimeError(f"{name} did not start: {log.read()[-800:]}")
                yield _Running(kubeconfig, [process.pid])
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=30)


def _running(programs: Path) -> Iterator[int]:
    """The processes that run one of these programs (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "exe").readlink().parent == programs.resolve():
                yield int(folder.name)


def _resident(pids: list[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextlib.contextmanager
def _certificates(kubeconfig: Path) -> Iterator[list[str]]:
    """The arguments of the load client; the files are gone afterwards."""
    config = load_config(kubeconfig)
    with tempfile.TemporaryDirectory() as folder:
        files = {"ca": config.ca, "cert": config.credentials.client_certificate, "key": config.credentials.client_key}
        arguments = ["-server", config.server]
        for name, pem in files.items():
            assert pem is not None
            path = Path(folder) / name
            with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(pem.read())
            arguments += [f"-{name}", str(path)]
        yield arguments
