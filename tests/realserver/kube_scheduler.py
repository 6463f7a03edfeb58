"""Runs the real kube-scheduler against a server, with its defaults."""

from __future__ import annotations

import contextlib
import json
import shutil
import ssl
import subprocess
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.realserver.building import CannotBuild, binaries, directory
from tests.realserver.serving import free_ports

_PROGRAM = "kube-scheduler"
#: Seconds until it must be ready.
_PATIENCE = 120.0


@contextlib.contextmanager
def kube_scheduler(kubeconfig: Path) -> Iterator[Path]:
    """The path of its log, while it is at work.

    Raises:
        CannotBuild: no Go; or it ended, or was not ready within two minutes: the end of its log is in the text.
    """
    program = binaries([_PROGRAM]) / _PROGRAM
    directory().mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="scheduler-", dir=directory()))
    (port,) = free_ports(1)
    log, configuration = home / "log", home / "configuration.json"
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    connection = {"kubeconfig": str(kubeconfig), "qps": 1000, "burst": 1000}
    configuration.write_text(json.dumps(document | {"clientConnection": connection, "leaderElection": {"leaderElect": False}}))
    command = [
        str(program), f"--config={configuration}", "--v=2", "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={home}",
        f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
    ]  # fmt: skip
    process = None
    try:
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, cwd=home)
        _await_readiness(port, process, log)
        yield log
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(home, ignore_errors=True)


def _await_readiness(port: int, process: subprocess.Popen[bytes], log: Path) -> None:
    unverified = ssl._create_unverified_context()  # its certificate is made when it starts
    until = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < until:
        with contextlib.suppress(OSError), urllib.request.urlopen(f"https://127.0.0.1:{port}/readyz", context=unverified, timeout=5):
            return
        time.sleep(0.05)
    state = f"ended with exit status {process.returncode}" if process.returncode is not None else "is not ready"
    raise CannotBuild(f"{_PROGRAM} {state}:\n" + "\n".join(log.read_text(errors="replace").splitlines()[-20:]))
