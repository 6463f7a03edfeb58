"""The clusters that the conformance suite runs against: the server with its own control plane or the real one, and nodes."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import CannotBuild
from tests.upstream.controlplane import commands
from tests.upstream.nodes.cluster import stand_in_images
from tests.upstream.nodes.images import names

#: Nodes, and how the programs of specs behave.
SIMULATION = Path(__file__).with_name("simulation.yaml")

#: Clusters that this module starts. ``python -m tests.upstream.nodes --conformance`` runs the suite inside the namespaces of a real node.
CLUSTERS = ("simulated", "real-control-plane", "process-pods")


@dataclass(frozen=True)
class Cluster:
    """A running cluster. ``kubeconfig`` is an administrator's; ``prefix`` begins commands that are to reach the cluster's network."""

    kubeconfig: Path
    prefix: Sequence[str] = ()


@contextlib.contextmanager
def cluster(name: str, programs: Path, home: Path) -> Iterator[Cluster]:
    """Run a cluster. The logs are in ``home``.

    Args:
        name: One of ``CLUSTERS``.
        programs: The folder with kube-controller-manager and kube-scheduler.
        home: A folder for keys, logs and the kubeconfig.

    Raises:
        CannotBuild: A program ended, or was not ready in time, with a message that names its log; or process pods are not possible here.
    """
    kubeconfig, keys = home / "kubeconfig", home / "pki"
    with contextlib.ExitStack() as running:
        command = [sys.executable, "-m", "kubeloop", "server", "--kubeconfig", str(kubeconfig), "--cert-dir", str(keys)]
        if name == "process-pods":
            command = [*_own_network(), *command, *_process_pods(home)]
        else:
            command += ["--simulation", str(SIMULATION)]
        if name == "real-control-plane":
            command.append("--no-controllers")
        server = running.enter_context(_process("server", command, home))
        _await_ready(server, home)
        if name == "real-control-plane":
            for program, words in commands(programs, kubeconfig, keys, home).items():
                running.enter_context(_process(program, words, home))
        yield Cluster(kubeconfig, ["nsenter", f"--target={server.pid}", "--net"] if name == "process-pods" else ())


def _own_network() -> list[str]:
    """Return the start of a command that runs in a separate network: each cluster has the same addresses, and opens port 53."""
    missing = [program for program in ("unshare", "nsenter", "ip") if shutil.which(program) is None]
    if missing or os.geteuid() != 0:
        raise CannotBuild(f"process pods run in a network namespace here, which needs root{''.join(f' and {name}' for name in missing)}")
    return ["unshare", "--net", "sh", "-c", 'ip link set lo up && exec "$@"', "sh"]


def _process_pods(home: Path) -> list[str]:
    """Write the image map, of the images that the real nodes have, and return the server's flags."""
    images = {name: {"layout": {"path": str(file), "setuid": "strip"}} for file in stand_in_images() for name in names(file)}
    file = home / "images.yaml"
    file.write_text(json.dumps({"images": images}, indent=1))
    return ["--pods", "process", "--image-map", str(file), "--allow-remote-backends"]


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
