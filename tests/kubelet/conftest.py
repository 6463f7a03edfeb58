"""A server with process pods and a second node beside it, both separate programs, for all tests of this folder."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Namespace, Node, ServiceAccount
from kubeloop.client import Client
from kubeloop.config import load_config
from kubeloop.kubelet.kubelet import KubeletOptions, ProcessKubelet
from kubeloop.meta import ObjectMeta
from kubeloop.tasks import end_tasks

_NUMBERS = itertools.count(1)
IMAGES = """
images:
  web:
    command: [python3, -S, -m, http.server, --bind, $(KUBELOOP_POD_IP)]
    args: ["8080"]
    files: {/srv/index.html: first}
    workingDirectory: /srv
  web:2:
    command: [python3, -S, -m, http.server, --bind, $(KUBELOOP_POD_IP), "8080"]
    files: {/srv/index.html: second}
    workingDirectory: /srv
  shell: {command: [sh, -c]}
  idle: {command: [sleep, "1000"]}
"""


class Program:
    """A command of kubeloop that runs. ``kill`` ends it with SIGKILL, as ``stop`` does with SIGTERM."""

    def __init__(self, *words: str, folder: Path) -> None:
        self._words = words
        self._folder = folder
        self._log = (folder / f"{words[0]}.log").open("ab")
        self.process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> str:
        """Start it and return what it prints when it is ready."""
        words = [sys.executable, "-m", "kubeloop", *self._words]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=self._log, cwd=self._folder)
        assert self.process.stdout is not None
        line = self.process.stdout.readline().decode()
        self.process.stdout.close()
        if not line.startswith("ready"):
            self.stop()
        assert line.startswith("ready"), Path(self._log.name).read_text()[-3000:]
        return line

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        assert self.process is not None
        self.process.wait(10)

    def stop(self) -> None:
        assert self.process is not None
        if self.process.poll() is None:
            self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.kill()
        self._log.close()


@dataclass
class ProcessCluster:
    """The server with its node ``kubeloop-node``, and the node ``worker``, which updates volumes often."""

    folder: Path
    kubeconfig: Path
    server: Program
    worker: Program


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ProcessCluster]:
    folder = tmp_path_factory.mktemp("process-pods")
    (folder / "images.yaml").write_text(IMAGES)
    kubeconfig = folder / "kubeconfig"
    with ExitStack() as stack:
        server = Program(
            "server", "--pods", "process", "--metrics", "--image-map", "images.yaml", "--kubeconfig", str(kubeconfig), folder=folder
        )
        stack.callback(server.stop)
        flags = ("--kubeconfig", str(kubeconfig), "--name", "worker", "--image-map", "images.yaml", "--root-dir", str(folder / "worker"))
        worker = Program("kubelet", *flags, "--sync-frequency", "0.2", folder=folder)
        stack.callback(worker.stop)
        yield ProcessCluster(folder, kubeconfig, server, worker)


@asynccontextmanager
async def inner_kubelet(cluster: ProcessCluster, name: str, folder: Path, **options: Any) -> AsyncIterator[ProcessKubelet]:
    """Run a further node in the test's own process; afterwards its Node is deleted.

    Args:
        cluster: The cluster that it joins.
        name: The node's name.
        folder: For its state.
        options: Further fields of ``KubeletOptions``.
    """
    settings = KubeletOptions(name, folder / name, cluster.folder / "images.yaml", sync_frequency=0.2, service_proxy=False, **options)
    node, ready = ProcessKubelet(load_config(cluster.kubeconfig), settings), asyncio.Event()
    running = asyncio.create_task(node.run(ready.set))
    started = asyncio.create_task(ready.wait())
    try:
        await asyncio.wait((running, started), return_when=asyncio.FIRST_COMPLETED)
        assert ready.is_set(), running
        yield node
    finally:
        await end_tasks(running, started)
        async with Client.from_config(cluster.kubeconfig) as administrator:
            await administrator.delete(Node, name)


def free_range(number: int) -> str:
    """Return eight loopback addresses that no kubelet chooses, others in each process and for each number."""
    return f"{ip_address('127.192.0.0') + os.getpid() % 2**17 * 32 + number * 8}/29"


def processes(mark: str) -> list[int]:
    """Return the ids of processes whose first word is a mark."""
    result = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            if words[0] == mark.encode():
                result.append(int(entry.name))
    return result


@pytest.fixture
async def client(cluster: ProcessCluster) -> AsyncIterator[Client]:
    """An administrator in a new namespace."""
    name = f"process-{next(_NUMBERS)}"
    async with Client.from_config(cluster.kubeconfig) as administrator:
        await administrator.create(Namespace(metadata=ObjectMeta(name=name)))
        await administrator.wait_for(ServiceAccount, "default", bool, namespace=name, timeout=30)
        yield administrator.in_namespace(name)
        await administrator.delete(Namespace, name)
