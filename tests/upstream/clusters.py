"""The clusters that the conformance suite runs against: kubeloop's API server with its own control plane, or with the real one."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.realserver.building import CannotBuild
from tests.realserver.serving import free_ports

#: Nodes, and how the programs of specs behave.
SIMULATION = Path(__file__).with_name("simulation.yaml")

#: Clusters that this module starts. ``python -m tests.upstream.nodes --conformance`` runs the suite inside the namespaces of a real node.
CLUSTERS = ("simulated", "real-control-plane")


@contextlib.contextmanager
def cluster(name: str, programs: Path, home: Path) -> Iterator[Path]:
    """Run a cluster, and return the path of an administrator's kubeconfig. The logs are in ``home``.

    Args:
        name: One of ``CLUSTERS``.
        programs: The folder with kube-controller-manager and kube-scheduler.
        home: A folder for keys, logs and the kubeconfig.

    Raises:
        CannotBuild: A program ended, or was not ready in time; the message names its log.
    """
    kubeconfig, keys = home / "kubeconfig", home / "pki"
    with contextlib.ExitStack() as running:
        flags = ["--kubeconfig", str(kubeconfig), "--cert-dir", str(keys), "--simulation", str(SIMULATION)]
        if name == "real-control-plane":
            flags.append("--no-controllers")
        server = running.enter_context(_process("server", [sys.executable, "-m", "kubeloop", "server", *flags], home))
        _await_ready(server, home)
        if name == "real-control-plane":
            for program, command in _control_plane(programs, kubeconfig, keys, home).items():
                running.enter_context(_process(program, command, home))
        yield kubeconfig


def _control_plane(programs: Path, kubeconfig: Path, keys: Path, home: Path) -> dict[str, list[str]]:
    ports = free_ports(2)
    common = [
        f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
        "--leader-elect=false", "--bind-address=127.0.0.1",
    ]  # fmt: skip
    manager = [
        str(programs / "kube-controller-manager"), *common, f"--secure-port={ports[0]}", f"--cert-dir={home / 'manager'}",
        "--use-service-account-credentials", f"--service-account-private-key-file={keys / 'sa.key'}", f"--root-ca-file={keys / 'ca.crt'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}", f"--cluster-signing-key-file={keys / 'ca.key'}",
    ]  # fmt: skip
    scheduler = [str(programs / "kube-scheduler"), *common, f"--secure-port={ports[1]}", f"--cert-dir={home / 'scheduler'}"]
    return {"kube-controller-manager": manager, "kube-scheduler": scheduler}


@contextlib.contextmanager
def _process(name: str, command: list[str], home: Path) -> Iterator[subprocess.Popen[str]]:
    with (home / f"{name}.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE if name == "server" else log, stderr=log, text=True, cwd=home)
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _await_ready(server: subprocess.Popen[str], home: Path) -> None:
    assert server.stdout is not None
    line = server.stdout.readline()
    if not line.startswith("ready "):
        raise CannotBuild(f"the server did not start: {line}see {home / 'server.log'}")
