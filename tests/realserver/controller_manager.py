"""Runs the real kube-controller-manager against a server, with its defaults: all controllers, protobuf, a lease that elects it."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import CannotBuild, binaries, directory
from tests.realserver.serving import free_ports
from tests.servers import ServerUnderTest

_PROGRAM = "kube-controller-manager"
_PATIENCE = 120.0

#: All controllers that are on by default, and the two of bootstrap tokens.
_CONTROLLERS = "*,bootstrap-signer-controller,token-cleaner-controller"

#: Nodes in tests send no heartbeats; and the client's rate limit must not slow down its many requests.
_FOR_TESTS = [
    f"--controllers={_CONTROLLERS}",
    "--node-monitor-grace-period=24h",
    "--node-startup-grace-period=24h",
    "--kube-api-qps=1000",
    "--kube-api-burst=1000",
    "--horizontal-pod-autoscaler-sync-period=1s",
]


def upstream_is_wanted() -> bool:
    """Suites of controllers are to test upstream's instead of kubeloop's."""
    return os.environ.get("KUBELOOP_TEST_CONTROLLERS", "kubeloop") == "upstream"


@dataclass(frozen=True)
class ControllerManager:
    """A running kube-controller-manager. ``port`` serves its health and metrics over TLS."""

    port: int
    log_file: Path

    @property
    def lease(self) -> str:
        """The name of its Lease in kube-system."""
        return f"test-{self.port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    @property
    def complaints(self) -> list[str]:
        """What it logged as an error so far, without time and process."""
        return [re.sub(r"^E\d+ [\d:.]+ +\d+ ", "", line) for line in self.log.splitlines() if re.match(r"E\d{4} ", line)]


@contextlib.contextmanager
def controller_manager(server: ServerUnderTest) -> Iterator[ControllerManager]:
    """Elected and at work, for as long as the context lasts.

    Raises:
        CannotBuild: no Go; or it ended, or did not begin within two minutes: the end of its log is in the text.
    """
    program = binaries([_PROGRAM]) / _PROGRAM
    directory().mkdir(parents=True, exist_ok=True)
    home = Path(tempfile.mkdtemp(prefix="controllers-", dir=directory()))
    (port,) = free_ports(1)
    running = ControllerManager(port, home / "log")
    keys = server.keys
    command = [
        str(program), f"--kubeconfig={server.kubeconfig}", "--use-service-account-credentials", "--v=2",
        "--bind-address=127.0.0.1", f"--secure-port={port}", f"--cert-dir={home}",
        f"--authentication-kubeconfig={server.kubeconfig}", f"--authorization-kubeconfig={server.kubeconfig}",
        f"--service-account-private-key-file={keys / 'sa.key'}", f"--root-ca-file={keys / 'ca.crt'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}", f"--cluster-signing-key-file={keys / 'ca.key'}",
        # A new lease, so that the next process need not wait until this one's lease is over.
        f"--leader-elect-resource-name={running.lease}", *_FOR_TESTS,
    ]  # fmt: skip
    process = None
    try:
        with running.log_file.open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, cwd=home)
        _await_work(running, process)
        yield running
    finally:
        if process is not None:
            process.terminate()
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        shutil.rmtree(home, ignore_errors=True)


@contextlib.contextmanager
def own_controllers(server: ServerUnderTest, *, scheduler: bool = False, lease: str = "") -> Iterator[None]:
    """Our controllers in a process apart, without nodes, at work for as long as the context lasts.

    Args:
        server: Where they work.
        scheduler: Whether our scheduler works too.
        lease: The name of the Lease in kube-system that elects them. Empty: they work without an election.

    Raises:
        CannotBuild: they ended, or were not ready within two minutes.
    """
    (port,) = free_ports(1)
    keys = server.keys
    election = ["--leader-elect-resource-name", lease] if lease else ["--leader-elect", "false"]
    command = [
        sys.executable, "-m", "kubeloop", "controlplane", "--kubeconfig", str(server.kubeconfig), *election,
        "--controllers", _CONTROLLERS if scheduler else f"{_CONTROLLERS},-default-scheduler", "--health-address", f"127.0.0.1:{port}",
        "--service-account-private-key-file", str(keys / "sa.key"), "--root-ca-file", str(keys / "ca.crt"),
        "--cluster-signing-cert-file", str(keys / "ca.crt"), "--cluster-signing-key-file", str(keys / "ca.key"),
    ]  # fmt: skip
    process = subprocess.Popen(command)
    try:
        until = time.monotonic() + _PATIENCE
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > until:
                raise CannotBuild(f"the controllers are not ready; exit status {process.returncode}")
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except urllib.error.HTTPError as error:
        error.close()
    except OSError:
        pass  # The port is not open yet.
    return False


def _await_work(running: ControllerManager, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _PATIENCE
    while "successfully acquired lease" not in running.log.lower():
        if process.poll() is not None or time.monotonic() > until:
            state = f"ended with exit status {process.returncode}" if process.returncode is not None else "was not elected"
            raise CannotBuild(f"{_PROGRAM} {state}:\n" + "\n".join(running.log.splitlines()[-20:]))
        time.sleep(0.05)
