"""The control plane beside Kubernetes' own: a Deployment of 1,000 replicas on 100 simulated nodes, scaled up and down.

The peers are kube-apiserver, etcd, kube-controller-manager, kube-scheduler and kwok's nodes, with their client limits raised so that no
program waits for its own rate limiter. kubeloop runs in two forms: ``kubeloop server`` with its controllers in one process, which uses one
processor, and ``kubeloop server --no-controllers`` beside ``kubeloop controlplane``, two programs like those of Kubernetes.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from statistics import median

from bench.servers import processes_of, processor_seconds, resident_mib
from kubeloop.api.apps.v1 import Deployment, DeploymentSpec
from kubeloop.api.core.v1 import Container, Node, NodeStatus, Pod, PodSpec, PodTemplateSpec, ServiceAccount
from kubeloop.client import Client
from kubeloop.codec.encoding import encode
from kubeloop.config import load_config
from kubeloop.meta import LabelSelector, ObjectMeta, Quantity
from kubeloop.transport import Transport
from tests.foreign.building import program
from tests.realserver.building import binaries
from tests.realserver.serving import free_ports, real_server

KUBELOOP = "kubeloop"
TWO_PROCESSES = "kubeloop, two processes"
REAL = "kube-apiserver, etcd, kube-controller-manager, kube-scheduler, kwok"
_LIMIT = 900.0
_POLL = 0.05
_KUBECTL = str(Path(sys.executable).with_name("kubectl"))
#: The process pod's program: it starts at once and runs until it is stopped, so the figure is that of the control plane and the kubelet.
_IMAGES = 'images: {x: {command: [sh, -c, "trap exit TERM; while :; do sleep 1; done"]}}\n'


@dataclass
class Phase:
    """``seconds`` of wall time, ``cpu_s`` of all processes meanwhile, and their resident memory at the end."""

    seconds: float
    cpu_s: float
    resident_mib: float


@dataclass
class ControlPlaneRun:
    """The figures of one stack."""

    up: Phase
    down: Phase
    idle_share: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def median_of(runs: Sequence[ControlPlaneRun]) -> ControlPlaneRun:
    """Return the medians of all figures: a machine that others use gives a run up to a third less."""

    def phase(phases: Sequence[Phase]) -> Phase:
        return Phase(*(median(getattr(phase, field.name) for phase in phases) for field in fields(Phase)))

    return ControlPlaneRun(phase([run.up for run in runs]), phase([run.down for run in runs]), median(run.idle_share for run in runs))


@dataclass(frozen=True)
class _Stack:
    kubeconfig: Path
    pids: list[int]


def measure(name: str, *, replicas: int = 1000, nodes: int = 100, idle: float = 20.0) -> ControlPlaneRun:
    """Start a stack, scale a Deployment up and down, and measure all of the stack's processes.

    Args:
        name: ``KUBELOOP``, ``TWO_PROCESSES`` or ``REAL``.
        replicas: Size of the Deployment.
        nodes: Number of simulated nodes.
        idle: Seconds for which the stack is measured while nothing changes and all pods run.

    Raises:
        RuntimeError: A program did not start, or the Deployment was not ready in 15 minutes.
    """
    with tempfile.TemporaryDirectory() as folder, _stack(name, Path(folder), nodes) as stack:
        return asyncio.run(_measure(stack, name, replicas, nodes, idle))


def _stack(name: str, folder: Path, nodes: int) -> contextlib.AbstractContextManager[_Stack]:
    if name == REAL:
        return _real(folder)
    return (_two_processes if name == TWO_PROCESSES else kubeloop_server)(folder, "--nodes", str(nodes))


@dataclass
class IdleRun:
    """A cluster whose pods all run: ``share`` of a core that its programs take, their resident memory, and ``filled_s`` to that point."""

    share: float
    resident_mib: float
    filled_s: float


def measure_idle(*, nodes: int, pods: int, settle: float = 60.0, idle: float = 60.0) -> IdleRun:
    """Fill kubeloop's server with pods of Deployments, and measure it while nothing changes.

    Args:
        nodes: Number of simulated nodes.
        pods: Number of pods, in Deployments of at most 1,000.
        settle: Seconds between the last ready pod and the measurement.
        idle: Seconds of the measurement; Leases of nodes are renewed every 10 s.

    Raises:
        RuntimeError: The server did not start, or the pods were not ready in 15 minutes.
    """
    with tempfile.TemporaryDirectory() as folder, kubeloop_server(Path(folder), "--nodes", str(nodes)) as stack:
        return asyncio.run(_measure_idle(stack, nodes, pods, settle, idle))


async def _measure_idle(stack: _Stack, nodes: int, pods: int, settle: float, idle: float) -> IdleRun:
    async with Client(Transport(load_config(stack.kubeconfig)), namespace="default") as client:
        await _nodes_ready(client, nodes)
        await client.wait_for(ServiceAccount, "default", bool, timeout=60)
        began = time.perf_counter()
        sizes = {f"web-{first}": min(1000, pods - first) for first in range(0, pods, 1000)}
        for name, size in sizes.items():
            await client.create(_deployment(size, name))
        for name, size in sizes.items():
            await client.wait_for(Deployment, name, f"jsonpath={{.status.readyReplicas}}={size}", timeout=_LIMIT)
        filled = time.perf_counter() - began
    await asyncio.sleep(settle)
    spent = processor_seconds(stack.pids)
    await asyncio.sleep(idle)
    return IdleRun((processor_seconds(stack.pids) - spent) / idle, resident_mib(stack.pids), filled)


def measure_process_pod(*, rounds: int = 7) -> list[float]:
    """Apply a Deployment of one process pod with kubectl, several times on one server, and measure until it is Ready.

    Args:
        rounds: Number of Deployments, one after the other.

    Returns:
        Seconds of wall time of each round, from the start of kubectl to the watch event in which the Deployment has its ready replica.

    Raises:
        RuntimeError: The server did not start, or kubectl failed.
        DeadlineError: A pod was not Ready in 15 minutes.
    """
    with tempfile.TemporaryDirectory() as folder:
        images = Path(folder, "images.yaml")
        images.write_text(_IMAGES)
        with kubeloop_server(Path(folder), "--pods", "process", "--image-map", str(images)) as stack:
            return asyncio.run(_measure_process_pods(stack, Path(folder), rounds))


async def _measure_process_pods(stack: _Stack, folder: Path, rounds: int) -> list[float]:
    found = []
    async with Client(Transport(load_config(stack.kubeconfig)), namespace="default") as client:
        await _nodes_ready(client, 1)
        await client.wait_for(ServiceAccount, "default", bool, timeout=60)
        for number in range(rounds):
            name = f"web-{number}"
            manifest = folder / f"{name}.json"
            manifest.write_bytes(encode(_deployment(1, name)))
            command = [_KUBECTL, f"--kubeconfig={stack.kubeconfig}", f"--cache-dir={folder / 'cache'}", "apply", "-f", str(manifest)]
            began = time.perf_counter()
            kubectl = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            said, _ = await kubectl.communicate()
            if kubectl.returncode:
                raise RuntimeError(f"kubectl apply failed: {said.decode()}")
            await client.wait_for(Deployment, name, "jsonpath={.status.readyReplicas}=1", timeout=_LIMIT)
            found.append(time.perf_counter() - began)
    return found


async def _measure(stack: _Stack, name: str, replicas: int, nodes: int, idle: float) -> ControlPlaneRun:
    async with Client(Transport(load_config(stack.kubeconfig)), namespace="default") as client:
        if name == REAL:
            await _add_kwok_nodes(client, nodes)
        await _nodes_ready(client, nodes)
        await client.wait_for(ServiceAccount, "default", bool, timeout=60)
        async with _phase(stack) as up:
            await client.create(_deployment(replicas))
            await client.wait_for(Deployment, "web", lambda stored: stored.status.ready_replicas == replicas, timeout=_LIMIT)
        spent = processor_seconds(stack.pids)
        await asyncio.sleep(idle)
        share = (processor_seconds(stack.pids) - spent) / idle
        async with _phase(stack) as down:
            await client.set_scale(Deployment, "web", 0)
            async with asyncio.timeout(_LIMIT):
                while await _count(client):
                    await asyncio.sleep(_POLL)
        return ControlPlaneRun(up[0], down[0], share)


@contextlib.asynccontextmanager
async def _phase(stack: _Stack) -> AsyncIterator[list[Phase]]:
    found: list[Phase] = []
    began, spent = time.perf_counter(), processor_seconds(stack.pids)
    yield found
    found.append(Phase(time.perf_counter() - began, processor_seconds(stack.pids) - spent, resident_mib(stack.pids)))


async def _count(client: Client) -> int:
    return len(await client.list_page(Pod, limit=1))


def _deployment(replicas: int, name: str = "web") -> Deployment:
    pods = PodTemplateSpec(metadata=ObjectMeta(labels={"app": name}), spec=PodSpec(containers=[Container(name="c", image="x:1")]))
    selector = LabelSelector(match_labels={"app": name})
    return Deployment(metadata=ObjectMeta(name=name), spec=DeploymentSpec(replicas=replicas, selector=selector, template=pods))


async def _add_kwok_nodes(client: Client, count: int) -> None:
    room = {"cpu": Quantity("64"), "memory": Quantity("256Gi"), "pods": Quantity("10000")}
    for number in range(count):
        metadata = ObjectMeta(name=f"kwok-{number}", annotations={"kwok.x-k8s.io/node": "fake"}, labels={"kubernetes.io/os": "linux"})
        await client.create(Node(metadata=metadata, status=NodeStatus(capacity=room, allocatable=room)))


async def _nodes_ready(client: Client, count: int) -> None:
    async with asyncio.timeout(120):
        while True:
            nodes = [node async for node in client.list(Node)]
            if (
                sum(
                    not node.spec.taints and any(c.type == "Ready" and c.status == "True" for c in node.status.conditions) for node in nodes
                )
                >= count
            ):
                return
            await asyncio.sleep(0.2)


@contextlib.contextmanager
def kubeloop_server(folder: Path, *flags: str) -> Iterator[_Stack]:
    kubeconfig = folder / "kubeconfig"
    command = [sys.executable, "-m", "kubeloop", "server", "--kubeconfig", str(kubeconfig), *flags]
    with _process(command, folder, "server") as process:
        assert process.stdout is not None
        if not process.stdout.readline().startswith("ready"):
            raise RuntimeError(f"kubeloop did not start: {(folder / 'server.log').read_text()[-800:]}")
        yield _Stack(kubeconfig, [process.pid])


@contextlib.contextmanager
def _two_processes(folder: Path, *flags: str) -> Iterator[_Stack]:
    keys = folder / "pki"
    with kubeloop_server(folder, "--no-controllers", "--cert-dir", str(keys), *flags) as server:
        command = [
            sys.executable, "-m", "kubeloop", "controlplane", f"--kubeconfig={server.kubeconfig}", f"--root-ca-file={keys / 'ca.crt'}",
            f"--cluster-signing-cert-file={keys / 'ca.crt'}", f"--cluster-signing-key-file={keys / 'ca.key'}",
            f"--service-account-private-key-file={keys / 'sa.key'}",
        ]  # fmt: skip
        with _process(command, folder, "controlplane") as controlplane:
            yield _Stack(server.kubeconfig, [*server.pids, controlplane.pid])


@contextlib.contextmanager
def _real(folder: Path) -> Iterator[_Stack]:
    programs = binaries(["etcd", "kube-apiserver", "kube-controller-manager", "kube-scheduler"])
    with real_server(programs) as kubeconfig, contextlib.ExitStack() as running:
        keys = kubeconfig.parent
        ports = free_ports(3)
        common = [
            f"--kubeconfig={kubeconfig}", f"--authentication-kubeconfig={kubeconfig}", f"--authorization-kubeconfig={kubeconfig}",
            "--leader-elect=false", "--bind-address=127.0.0.1", "--kube-api-qps=5000", "--kube-api-burst=5000",
        ]  # fmt: skip
        commands = {
            "manager": [
                str(programs / "kube-controller-manager"), *common, f"--secure-port={ports[0]}", f"--cert-dir={folder / 'manager'}",
                f"--service-account-private-key-file={keys / 'sa.key'}", f"--root-ca-file={keys / 'ca.crt'}",
                f"--cluster-signing-cert-file={keys / 'ca.crt'}", f"--cluster-signing-key-file={keys / 'ca.key'}",
            ],
            "scheduler": [str(programs / "kube-scheduler"), *common, f"--secure-port={ports[1]}", f"--cert-dir={folder / 'scheduler'}"],
            "kwok": [
                str(program("kwok")), f"--kubeconfig={kubeconfig}", "--manage-all-nodes", "--node-lease-duration-seconds=40",
                f"--server-address=127.0.0.1:{ports[2]}",
            ],
        }  # fmt: skip
        processes = [running.enter_context(_process(command, folder, name)) for name, command in commands.items()]
        yield _Stack(kubeconfig, [*processes_of(programs, keys), *(process.pid for process in processes)])


@contextlib.contextmanager
def _process(command: list[str], folder: Path, name: str) -> Iterator[subprocess.Popen[str]]:
    with (folder / f"{name}.log").open("w") as log:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE if name == "server" else log,
            stderr=log,
            text=True,
            cwd=folder,
            env={**os.environ, "HOME": str(folder)},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
