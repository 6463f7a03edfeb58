"""The bitcoin operator: a network of real daemons from kubectl apply to a full mesh, a steady network, and a start with many networks.

The real daemons run as process pods. The other two measurements have simulated pods, and scripted daemons in the process of the
benchmark, so that a machine without thousands of daemons shows the costs of the operator.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from bench.controlplane import kubeloop_server
from bench.servers import resident_mib, scheduled_seconds
from examples.bitcoin_operator.daemon import install, write_image_map
from examples.bitcoin_operator.tests.scripted_daemons import ScriptedDaemons
from examples.bitcoin_operator.types import BitcoinNetwork, BitcoinNetworkSpec
from kubeloop.api.apiextensions.v1 import CustomResourceDefinition
from kubeloop.client import Client
from kubeloop.codegen.crd import definitions_of
from kubeloop.config import load_config
from kubeloop.controller import has_condition
from kubeloop.meta import ObjectMeta, Unstructured
from kubeloop.transport import Transport
from tests.realserver.serving import free_ports

_LIMIT = 300.0
_KUBECTL = str(Path(sys.executable).with_name("kubectl"))
_WRITES = ("POST", "PUT", "PATCH", "APPLY", "DELETE")


@dataclass
class BitcoinRun:
    """The figures of the operator.

    Attributes:
        formed_s: Seconds from kubectl apply of a network of three real daemons to the full mesh.
        formed_cpu_ms: CPU time of the operator meanwhile.
        steady_share: Share of a core that the operator takes while a network of 50 does not change.
        steady_writes: Writes to the API server meanwhile.
        steady_requests: Requests to daemons meanwhile.
        start_cpu_s: CPU time of an operator that starts with 200 networks of 5, until it has compared all daemons.
        resident_mib: Resident memory of that operator, in MiB.
    """

    formed_s: float
    formed_cpu_ms: float
    steady_share: float
    steady_writes: float
    steady_requests: int
    start_cpu_s: float
    resident_mib: float


def measure_bitcoin(*, nodes: int = 50, networks: int = 200, steady: float = 60.0) -> BitcoinRun:
    """Measure the operator.

    Args:
        nodes: Size of the steady network.
        networks: Number of networks of 5 at the start.
        steady: Seconds for which the steady network is measured.

    Raises:
        DaemonUnavailable: The real daemon cannot be downloaded.
        RuntimeError: A program did not start.
        DeadlineError: A network did not form in 5 minutes.
    """
    formed_s, formed_cpu = asyncio.run(_form())
    share, writes, requests = asyncio.run(_steady(nodes, steady))
    start_cpu, resident = asyncio.run(_start(networks))
    return BitcoinRun(formed_s, 1000 * formed_cpu, share, writes, requests, start_cpu, resident)


async def _form() -> tuple[float, float]:
    programs = install()
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        write_image_map(folder / "images.yaml", programs)
        with kubeloop_server(folder, "--pods", "process", "--image-map", str(folder / "images.yaml")) as stack:
            async with _cluster(stack.kubeconfig) as client, _operator(folder, stack.kubeconfig) as pid:
                manifest = folder / "network.yaml"
                manifest.write_text(_network("my-network", 3).to_yaml())
                began, spent = time.perf_counter(), scheduled_seconds(pid)
                command = [_KUBECTL, f"--kubeconfig={stack.kubeconfig}", "apply", "-f", str(manifest)]
                await asyncio.to_thread(subprocess.run, command, check=True, stdout=subprocess.DEVNULL)
                await _meshed(client, "my-network")
                return time.perf_counter() - began, scheduled_seconds(pid) - spent


async def _steady(nodes: int, seconds: float) -> tuple[float, float, int]:
    with tempfile.TemporaryDirectory() as home, kubeloop_server(Path(home), "--nodes", "20") as stack:
        async with (
            ScriptedDaemons() as daemons,
            _cluster(stack.kubeconfig) as client,
            _operator(Path(home), stack.kubeconfig, daemons) as pid,
        ):
            await client.create(_network("steady", nodes))
            await _meshed(client, "steady")
            await asyncio.sleep(10)  # until the last status writes and Events are sent
            before = await _writes(stack.kubeconfig), len(daemons.requests), scheduled_seconds(pid)
            await asyncio.sleep(seconds)
            after = await _writes(stack.kubeconfig), len(daemons.requests), scheduled_seconds(pid)
    return (after[2] - before[2]) / seconds, after[0] - before[0], after[1] - before[1]


async def _start(networks: int) -> tuple[float, float]:
    with tempfile.TemporaryDirectory() as home, kubeloop_server(Path(home), "--nodes", "20") as stack:
        async with ScriptedDaemons() as daemons, _cluster(stack.kubeconfig) as client:
            names = [f"network-{number}" for number in range(networks)]
            async with _operator(Path(home), stack.kubeconfig, daemons):
                for name in names:
                    await client.create(_network(name, 5))
                for name in names:
                    await _meshed(client, name)
            daemons.requests.clear()
            async with _operator(Path(home), stack.kubeconfig, daemons, ready=False) as pid:
                async with asyncio.timeout(_LIMIT):
                    while len({request.ip for request in daemons.requests}) < 5 * networks:
                        await asyncio.sleep(0.2)
                await asyncio.sleep(2)  # until the last reconciles have ended
                return scheduled_seconds(pid), resident_mib([pid])


def _network(name: str, nodes: int) -> BitcoinNetwork:
    return BitcoinNetwork(metadata=ObjectMeta(name=name, namespace="default"), spec=BitcoinNetworkSpec(nodes=nodes))


async def _meshed(client: Client, name: str) -> None:
    await client.wait_for(BitcoinNetwork, name, lambda network: has_condition(network, "Meshed", True), timeout=_LIMIT)


async def _writes(kubeconfig: Path) -> float:
    """Return the number of writes that the server has counted, other than writes of Leases."""
    command = [_KUBECTL, f"--kubeconfig={kubeconfig}", "get", "--raw", "/metrics"]
    text = (await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True, text=True)).stdout
    lines = [line for line in text.splitlines() if line.startswith("apiserver_request_total") and 'resource="leases"' not in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines if any(f'verb="{verb}"' in line for verb in _WRITES))


@contextlib.asynccontextmanager
async def _cluster(kubeconfig: Path) -> AsyncIterator[Client]:
    """Install the CustomResourceDefinition, and yield a client."""
    async with Client(Transport(load_config(kubeconfig)), namespace="default") as client:
        for definition in definitions_of([BitcoinNetwork]):
            created = await client.create(Unstructured.from_dict(definition.document))
            await client.wait_for(CustomResourceDefinition, created.metadata.name, "condition=Established", timeout=60)
        yield client


@contextlib.asynccontextmanager
async def _operator(folder: Path, kubeconfig: Path, daemons: ScriptedDaemons | None = None, *, ready: bool = True) -> AsyncIterator[int]:
    """The operator's process. ``ready``: wait until its caches are synced."""
    (port,) = free_ports(1)
    command = [sys.executable, "-m", "examples.bitcoin_operator", f"--kubeconfig={kubeconfig}", f"--health=127.0.0.1:{port}"]
    if daemons is not None:
        command += ["--rpc-url", daemons.url_of("{ip}")]
    with (folder / "operator.log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, cwd=Path(__file__).parents[1])
    try:
        if ready:
            async with asyncio.timeout(60):
                while "caches are synced" not in (folder / "operator.log").read_text():
                    await asyncio.sleep(0.1)
            await asyncio.sleep(1)  # the controller's start ends
        yield process.pid
    finally:
        process.terminate()
        await asyncio.to_thread(process.wait)
