"""kubeloop's scheduler beside kube-scheduler: the same pods and nodes on the same kind of server, which has no other controllers.

All pods exist before a scheduler starts. The time counts from the first binding to the last one, as a watch shows them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.targets import Target
from kubeloop.api.core.v1 import Namespace, Node, Pod, ServiceAccount
from kubeloop.client import Client
from kubeloop.codec import decode
from kubeloop.config import load_config
from kubeloop.meta import ObjectMeta
from kubeloop.transport import Transport
from tests.realserver.building import binaries

KUBELOOP = "kubeloop"
PEER = "kube-scheduler"
#: The pods of a stage: without preferences, or with affinity to other pods and spread over zones.
PLAIN, AFFINE = "plain", "affinity and spreading"
#: The part of kube-scheduler's pods per second that must be reached.
SHARES = {PLAIN: 1 / 3, AFFINE: 1 / 4}

_NAMESPACE = "bench"
_AT_ONCE = 16
#: Limit of kube-scheduler's requests, above its pods per second on the embedded server.
_REQUESTS_PER_SECOND = 300
_TIMEOUT = 900.0


@dataclass(frozen=True)
class SchedulerFigures:
    """``per_second``: pods from the first binding to the last. ``cpu_ms``: of the scheduler for a pod, its start included.

    ``server_ms``: of the server for a pod. ``mib``: resident memory of the scheduler at the end.
    """

    per_second: float
    cpu_ms: float
    server_ms: float
    mib: float


def measure(*, pods: int, nodes: int, only: Sequence[str], say: Callable[[str], None]) -> dict[str, dict[str, SchedulerFigures]]:
    """Return the figures of each scheduler, by stage."""
    result: dict[str, dict[str, SchedulerFigures]] = {}
    for stage in SHARES:
        for name in (KUBELOOP, PEER):
            if only and not name.startswith(tuple(only)):
                continue
            say(f"{stage}: {name}")
            result.setdefault(stage, {})[name] = _run(name, stage, pods, nodes)
    return result


def show(console: Console, title: str, results: Mapping[str, Mapping[str, SchedulerFigures]]) -> None:
    """Print a table of all figures."""
    table = Table(title=title)
    for heading in ("pods", "scheduler", "pods/s", "ratio", "CPU ms/pod", "server ms/pod", "MiB"):
        table.add_column(heading, justify="left" if heading in ("pods", "scheduler") else "right")
    for stage, figures in results.items():
        peer = figures.get(PEER)
        for name, one in figures.items():
            ratio = f"{one.per_second / peer.per_second:.2f}" if peer is not None else ""
            table.add_row(stage, name, f"{one.per_second:.0f}", ratio, f"{one.cpu_ms:.2f}", f"{one.server_ms:.2f}", f"{one.mib:.0f}")
    console.print(table)


def judge(results: Mapping[str, Mapping[str, SchedulerFigures]]) -> Iterator[Target]:
    """Return whether enough pods are scheduled in a second: as milliseconds for a pod, of which less is better."""
    for stage, share in SHARES.items():
        figures = results.get(stage, {})
        if KUBELOOP in figures:
            peer = figures.get(PEER)
            limit = None if peer is None else 1000 / (peer.per_second * share)
            against = f"{share:.2f} of the pods per second of {PEER}"
            yield Target(f"scheduling, {stage}", "ms/pod", 1000 / figures[KUBELOOP].per_second, limit, against)


def _run(name: str, stage: str, pods: int, nodes: int) -> SchedulerFigures:
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        kubeconfig = home / "kubeconfig"
        command = [sys.executable, "-m", "kubeloop", "server", "--no-controllers", "--kubeconfig", str(kubeconfig)]
        with _program(command, home / "server.log", ready="ready") as server:
            asyncio.run(_furnish(kubeconfig, stage, pods, nodes))
            before = _cpu(server.pid)
            with _program(_command(name, kubeconfig, home), home / "scheduler.log") as scheduler:
                seconds = asyncio.run(_bound(kubeconfig, pods, lambda: _check(scheduler, home / "scheduler.log")))
                cpu, mib = _cpu(scheduler.pid), _resident(scheduler.pid)
            return SchedulerFigures(pods / seconds, 1000 * cpu / pods, 1000 * (_cpu(server.pid) - before) / pods, mib)


def _command(name: str, kubeconfig: Path, home: Path) -> list[str]:
    if name == KUBELOOP:
        return [sys.executable, "-m", "bench.peers.schedulers.kubeloop_scheduler", str(kubeconfig)]
    configuration = home / "scheduler.json"
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        # Its default limit of 50 requests a second would be the slowest part. Without a limit it opens a connection for each of
        # thousands of bindings at once (the embedded server speaks HTTP/1.1), and its TLS handshakes time out.
        "clientConnection": {"kubeconfig": str(kubeconfig), "qps": _REQUESTS_PER_SECOND, "burst": _REQUESTS_PER_SECOND},
        "leaderElection": {"leaderElect": False},
    }
    configuration.write_text(json.dumps(document))
    return [str(binaries([PEER]) / PEER), f"--config={configuration}", "--secure-port=0"]


@contextlib.contextmanager
def _program(command: list[str], log: Path, *, ready: str = "") -> Iterator[subprocess.Popen[str]]:
    """Run a program until the block ends; with ``ready``, from the time on when it prints such a line."""
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=subprocess.PIPE if ready else file, stderr=file, text=True)
        try:
            if process.stdout is not None and not process.stdout.readline().startswith(ready):
                process.wait(10)
                raise RuntimeError(f"{command[0]} did not start: {log.read_text()[-800:]}")
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.communicate(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()


def _check(process: subprocess.Popen[str], log: Path) -> None:
    if process.poll() is not None:
        raise RuntimeError(f"the scheduler ended: {log.read_text()[-800:]}")


def _client(kubeconfig: Path) -> Client:
    return Client(Transport(load_config(kubeconfig)), namespace=_NAMESPACE)


async def _furnish(kubeconfig: Path, stage: str, pods: int, nodes: int) -> None:
    """Create nodes and pods."""
    async with _client(kubeconfig) as client:
        await client.create(Namespace(metadata=ObjectMeta(name=_NAMESPACE)))
        await client.create(ServiceAccount(metadata=ObjectMeta(name="default")))
        await _each(nodes, lambda number: _create_node(client, number))
        await _each(pods, lambda number: client.create(_pod(stage, number)))


async def _each(count: int, act: Callable[[int], Any]) -> None:
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(number: int) -> None:
        async with slots:
            await act(number)

    await asyncio.gather(*(one(number) for number in range(count)))


async def _create_node(client: Client, number: int) -> None:
    name = f"node-{number}"
    labels = {"kubernetes.io/hostname": name, "topology.kubernetes.io/zone": f"zone-{number % 3}"}
    made = await client.create(Node(metadata=ObjectMeta(name=name, labels=labels)))
    made.spec.taints = []  # Admission has added that of a node that is not ready.
    made = await client.update(made)
    status = {
        "allocatable": {"cpu": "32", "memory": "128Gi", "pods": "110", "ephemeral-storage": "100Gi"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    await client.patch(Node, name, {"status": status}, type="strategic", subresource="status")


def _pod(stage: str, number: int) -> Pod:
    """Return a pod of one of 50 applications."""
    labels = {"app": f"app-{number % 50}"}
    resources = {"requests": {"cpu": "100m", "memory": "200Mi"}}
    spec: dict[str, Any] = {"containers": [{"name": "c", "image": "registry.example/app:1", "resources": resources}]}
    if stage == AFFINE:
        selector = {"matchLabels": labels}
        apart = {"weight": 100, "podAffinityTerm": {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}}
        spec["affinity"] = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [apart]}}
        if number % 10 == 0:
            term = {"topologyKey": "kubernetes.io/hostname", "labelSelector": selector}
            spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = [term]
        zones = {
            "maxSkew": 5,
            "topologyKey": "topology.kubernetes.io/zone",
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector,
        }
        spec["topologySpreadConstraints"] = [zones]
    document = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": f"pod-{number}", "labels": labels}, "spec": spec}
    return decode(Pod, json.dumps(document).encode())


async def _bound(kubeconfig: Path, pods: int, check: Callable[[], None]) -> float:
    """Return the seconds between the first binding and the last."""
    bound, first = 0, 0.0
    async with _client(kubeconfig) as client, asyncio.timeout(_TIMEOUT):
        watchdog = asyncio.create_task(_watch_over(check))
        try:
            async with client.watch(Pod, field_selector="spec.nodeName!=") as events:
                async for event in events:
                    if event.type != "ADDED":
                        continue
                    first = first or time.monotonic()
                    bound += 1
                    if bound == pods:
                        return time.monotonic() - first
                    if watchdog.done():
                        watchdog.result()
        finally:
            watchdog.cancel()
    raise RuntimeError(f"{bound} of {pods} pods were bound")


async def _watch_over(check: Callable[[], None]) -> None:
    while True:
        check()
        await asyncio.sleep(1)


def _cpu(pid: int) -> float:
    """Return the seconds that a process has spent."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _resident(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)
