"""The embedded server beside kube-apiserver with etcd: started, looked at and put under the same load, one after the other in one run."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.guarding import AccessControl, Administrator, furnish, guard
from bench.prepare import BUILD
from kubeloop.config import load_config
from tests.realserver.building import binaries
from tests.realserver.serving import real_server

MEMORY = "kubeloop"
DISK = "kubeloop --data"
REAL = "kube-apiserver, etcd"


@dataclass
class Load:
    """``per_second`` of all workers together; latencies in milliseconds. ``cpu_s``: of all the server's processes meanwhile."""

    what: str
    workers: int
    per_second: float
    p50_ms: float
    p99_ms: float
    cpu_s: float = 0.0


@dataclass
class Server:
    """``start_s``: wall time from the start of its processes to the first answer, ``start_cpu_s``: what they spent on it.

    ``fresh_mib``: resident memory of all of them a second later.
    """

    start_s: float
    start_cpu_s: float
    fresh_mib: float
    loads: dict[str, Load] = field(default_factory=dict)
    #: Bytes of its audit log after the load, where it has one.
    logged: int = 0
    #: Objects of 2 KB after which it was looked at, and what one of them takes, in KiB.
    filled: int = 0
    object_kib: float = 0.0

    def load(self, request: str, workers: int) -> Load | None:
        return self.loads.get(f"{request}, {workers}")

    def as_json(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True)
class _Running:
    kubeconfig: Path
    pids: list[int]
    guard: AccessControl | None


def measure(name: str, *, requests: int = 2000, pods: int = 500, fill: int = 0, starts: int = 3, guarded: bool = False) -> Server:
    """Starts it several times, and loads the last one. ``guarded``: see ``guarding``; otherwise the load is an administrator's.

    Raises:
        RuntimeError: it did not start, or refused a request; with its last words. CannotBuild: there is no Go to build the real one.
    """
    took, spent = [], []
    for number in range(starts):
        began = time.perf_counter()
        with _started(name, guarded) as running:
            took.append(time.perf_counter() - began)
            spent.append(processor_seconds(running.pids))
            if number < starts - 1:
                continue
            time.sleep(1)  # what it does beside answering is part of what it takes
            server = Server(statistics.median(took), statistics.median(spent), resident_mib(running.pids))
            for load in _loads(running, "-n", str(requests), "-pods", str(pods)):
                server.loads[f"{load.what}, {load.workers}"] = load
            if running.guard is not None:
                server.logged = running.guard.logged
    if fill:
        _fill(name, server, fill, guarded)
    return server


def _fill(name: str, server: Server, objects: int, guarded: bool) -> None:
    with _started(name, guarded) as running:
        before = resident_mib(running.pids)
        for load in _loads(running, "-fill", str(objects)):
            server.loads[f"{load.what}, {load.workers}"] = load
        time.sleep(1)
        server.filled = objects
        server.object_kib = (resident_mib(running.pids) - before) * 1024 / objects


def _loads(running: _Running, *more: str) -> list[Load]:
    with administrator_files(running.kubeconfig) as who, tempfile.TemporaryFile("w+") as words:
        arguments = ["-server", who.server, "-ca", str(who.ca)]
        if running.guard is not None:
            furnish(who)
            arguments += ["-token", str(running.guard.token)]
        else:
            arguments += ["-cert", str(who.cert), "-key", str(who.key)]
        loads = []
        spent = processor_seconds(running.pids)
        with subprocess.Popen([BUILD / "load", *arguments, *more], stdout=subprocess.PIPE, stderr=words, text=True) as client:
            assert client.stdout is not None
            for line in client.stdout:
                before, spent = spent, processor_seconds(running.pids)
                loads.append(Load(**json.loads(line), cpu_s=spent - before))
        if client.returncode:
            words.seek(0)
            raise RuntimeError(f"the load client failed: {words.read().strip()[-800:]}")
    return loads


@contextlib.contextmanager
def _started(name: str, guarded: bool) -> Iterator[_Running]:
    with tempfile.TemporaryDirectory() as folder:
        with_guard = guard(Path(folder)) if guarded else None
        flags = with_guard.flags if with_guard is not None else []
        if name == REAL:
            programs = binaries()
            with real_server(programs, flags) as kubeconfig:
                yield _Running(kubeconfig, list(processes_of(programs, kubeconfig.parent)), with_guard)
            return
        kubeconfig = Path(folder) / "kubeconfig"
        command = [sys.executable, "-m", "kubeloop", "server", "--no-controllers", "--kubeconfig", str(kubeconfig), *flags]
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
                yield _Running(kubeconfig, [process.pid], with_guard)
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate(timeout=30)


def processes_of(programs: Path, home: Path) -> Iterator[int]:
    """The processes that run one of these programs in that folder (Linux)."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "exe").readlink().parent == programs.resolve() and (folder / "cwd").readlink() == home.resolve():
                yield int(folder.name)


def processor_seconds(pids: list[int]) -> float:
    """Seconds that these processes have spent."""
    fields = [Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split() for pid in pids]
    return sum(int(one[11]) + int(one[12]) for one in fields) / os.sysconf("SC_CLK_TCK")


def scheduled_seconds(pid: int) -> float:
    """Return the CPU time of a process in seconds, from the scheduler's nanoseconds: a clock tick of 10 ms is too coarse for short work."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def resident_mib(pids: list[int]) -> float:
    pages = sum(int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in pids)
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


@contextlib.contextmanager
def administrator_files(kubeconfig: Path) -> Iterator[Administrator]:
    """Write certificate, key and authority of a kubeconfig to files, which are removed afterwards."""
    config = load_config(kubeconfig)
    with tempfile.TemporaryDirectory() as folder:
        files = {"ca": config.ca, "cert": config.credentials.client_certificate, "key": config.credentials.client_key}
        paths = {name: Path(folder) / name for name in files}
        for name, pem in files.items():
            assert pem is not None
            with os.fdopen(os.open(paths[name], os.O_WRONLY | os.O_CREAT, 0o600), "wb") as file:
                file.write(pem.read())
        yield Administrator(config.server, **paths)
