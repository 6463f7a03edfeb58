"""SIGKILL of the server, of a kubelet and of processes of pods: each recovers, and no process of a container is left behind."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import pytest

from kubeloop.api.core.v1 import Namespace, Pod, ServiceAccount
from kubeloop.client import Client
from kubeloop.kubelet.running_container import RunningContainer
from kubeloop.meta import KubeloopError, ObjectMeta
from kubeloop.timing import Clock
from tests.kubelet.conftest import IMAGES, ProcessCluster, Program, free_range, inner_kubelet, processes
from tests.kubelet.test_process_pods import is_ready, shell_pod, until, wait

pytestmark = [pytest.mark.embedded, pytest.mark.timeout(180)]
#: Seconds in which the kernel and the launchers end the containers of a killed kubelet, on a slow machine.
_CLEAN = 20.0


def marked_pod(name: str, mark: str, *, node: str = "") -> Pod:
    """Return a pod with two processes, of which one has left the session of the other; the first word of both is a mark."""
    script = f"setsid bash -c 'exec -a {mark} sleep 1001' & exec -a {mark} sleep 1002"
    return shell_pod(name, script, node=node, container={"command": ["bash", "-c"]})


def restarted(count: int) -> Any:
    return lambda status: is_ready(status) and status["containerStatuses"][0]["restartCount"] == count


def last_end(status: dict[str, Any]) -> tuple[str, int]:
    ended = status["containerStatuses"][0]["lastState"]["terminated"]
    return ended["reason"], ended["exitCode"]


# ------------------------------------------------------------------------------------------------------------------- the kubelet


async def test_a_killed_kubelet_leaves_nothing_and_its_successor_restarts_the_pods(client: Client, cluster: ProcessCluster) -> None:
    mark = f"mark-{os.getpid()}-{client.namespace}"
    await client.create(marked_pod("survivor", mark, node="worker"))
    await wait(client, "survivor", is_ready)
    await until(lambda: len(processes(mark)) == 2)
    cluster.worker.kill()
    await until(lambda: not processes(mark), timeout=_CLEAN)
    cluster.worker.start()
    status = await wait(client, "survivor", restarted(1))
    assert last_end(status) == ("ContainerStatusUnknown", 137)
    await until(lambda: len(processes(mark)) == 2)


async def test_a_pod_that_is_deleted_while_its_kubelet_is_dead_goes_with_its_files_when_the_successor_starts(
    client: Client, cluster: ProcessCluster
) -> None:
    stored = await client.create(shell_pod("late", "sleep 1000", node="worker", volumes=[{"name": "data", "emptyDir": {}}]))
    await wait(client, "late", is_ready)
    folder = cluster.folder / "worker" / "pods" / stored.metadata.uid
    assert folder.is_dir()
    cluster.worker.kill()
    await client.delete(Pod, "late", grace_period_seconds=0)
    await client.wait_gone(Pod, "late", timeout=30)
    cluster.worker.start()
    assert not folder.exists()


async def test_a_kubelet_with_another_range_restarts_the_pods_with_new_addresses(
    client: Client, cluster: ProcessCluster, tmp_path: Path
) -> None:
    former, present = free_range(1), free_range(2)
    async with inner_kubelet(cluster, "inner-range", tmp_path, pod_cidr=former):
        await client.create(shell_pod("moved", "sleep 1000", node="inner-range"))
        status = await wait(client, "moved", is_ready)
        assert ip_address(status["podIP"]) in ip_network(former)
    async with inner_kubelet(cluster, "inner-range", tmp_path, pod_cidr=present):
        status = await wait(client, "moved", restarted(1))
        assert ip_address(status["podIP"]) in ip_network(present)
        assert status["podIPs"] == [{"ip": status["podIP"]}]
        await client.delete(Pod, "moved")
        await client.wait_gone(Pod, "moved", timeout=30)


# ------------------------------------------------------------------------------------------------------------ processes of a pod


@pytest.mark.parametrize("victim", ["program", "first process", "launcher"])
async def test_a_killed_process_of_a_pod_is_an_exit_by_signal_and_the_container_restarts(
    client: Client, cluster: ProcessCluster, victim: str
) -> None:
    mark = f"mark-{os.getpid()}-{client.namespace}"
    await client.create(marked_pod("victim", mark, node="worker"))
    await wait(client, "victim", is_ready)
    await until(lambda: len(processes(mark)) == 2)
    program = max(processes(mark), key=lambda pid: b"1002" in Path(f"/proc/{pid}/cmdline").read_bytes())
    ancestors = [program]
    while _parent(ancestors[-1]) != cluster.worker.pid:
        ancestors.append(_parent(ancestors[-1]))
    before = set(processes(mark))
    os.kill({"program": program, "first process": ancestors[-2], "launcher": ancestors[-1]}[victim], signal.SIGKILL)
    status = await wait(client, "victim", restarted(1))
    assert last_end(status) == ("Error", 137)
    await until(lambda: len(processes(mark)) == 2)
    assert not before & set(processes(mark))


def _parent(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


async def test_a_container_whose_end_cannot_be_read_is_killed_and_restarts(
    client: Client, cluster: ProcessCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, faults = RunningContainer.watch, ["the log cannot be read"]

    async def fail_once(running: RunningContainer, clock: Clock) -> int:
        if faults:
            raise RuntimeError(faults.pop())
        return await watch(running, clock)

    monkeypatch.setattr(RunningContainer, "watch", fail_once)
    mark = f"mark-{os.getpid()}-{client.namespace}"
    async with inner_kubelet(cluster, "inner-unknown", tmp_path):
        await client.create(marked_pod("unknown", mark, node="inner-unknown"))
        status = await wait(client, "unknown", restarted(1))
        assert last_end(status) == ("ContainerStatusUnknown", 137)
        assert status["containerStatuses"][0]["lastState"]["terminated"]["message"] == "the log cannot be read"
        await until(lambda: len(processes(mark)) == 2)  # those of the first run are gone
        await client.delete(Pod, "unknown")
        await client.wait_gone(Pod, "unknown", timeout=30)
    assert not processes(mark)


# -------------------------------------------------------------------------------------------------------------------- the server


@dataclass
class Durable:
    """A server with its data on disk, its node, and a separate kubelet beside it."""

    folder: Path
    server: Program
    worker: Program

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"


@pytest.fixture
def durable(tmp_path: Path) -> Iterator[Durable]:
    (tmp_path / "images.yaml").write_text(IMAGES)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    images, kubeconfig = ("--image-map", "images.yaml"), ("--kubeconfig", str(tmp_path / "kubeconfig"))
    with ExitStack() as stack:
        # No other test has this range, as no other has this port; a free one could be taken while the server is dead.
        own = ("--data", "data", "--port", str(port), "--service-cluster-ip-range", f"{ip_address('127.128.0.0') + port * 64}/26")
        server = Program("server", "--pods", "process", *images, *kubeconfig, *own, folder=tmp_path)
        stack.callback(server.stop)
        worker = Program("kubelet", *kubeconfig, *images, "--name", "beside", "--root-dir", str(tmp_path / "beside"), folder=tmp_path)
        stack.callback(worker.stop)
        yield Durable(tmp_path, server, worker)


async def test_a_killed_server_ends_its_node_and_its_successor_restarts_the_pods(durable: Durable) -> None:
    own, beside = f"own-{os.getpid()}", f"beside-{os.getpid()}"
    async with Client.from_config(durable.kubeconfig) as administrator:
        await administrator.create(Namespace(metadata=ObjectMeta(name="kills")))
        await administrator.wait_for(ServiceAccount, "default", bool, namespace="kills", timeout=30)
        client = administrator.in_namespace("kills")
        await client.create(marked_pod("own", own, node="kubeloop-node"))
        await client.create(marked_pod("beside", beside, node="beside"))
        for name in ("own", "beside"):
            await wait(client, name, is_ready)
        await until(lambda: len(processes(own)) == len(processes(beside)) == 2)
    kept = set(processes(beside))
    durable.server.kill()
    await until(lambda: not processes(own), timeout=_CLEAN)
    durable.server.start()
    async with Client.from_config(durable.kubeconfig) as administrator:
        client = administrator.in_namespace("kills")
        assert last_end(await wait(client, "own", restarted(1))) == ("ContainerStatusUnknown", 137)
        await until(lambda: len(processes(own)) == 2)
        # The other node has lost its server for a while only: its pod still runs, and takes commands and deletions again.
        assert set(processes(beside)) == kept
        await wait(client, "beside", restarted(0))

        async def answers() -> bool:
            try:
                return (await client.pods.exec("beside", ["true"])).exit_code == 0
            except KubeloopError:
                return False

        await until(answers, timeout=40)
        await client.delete(Pod, "beside")
        await client.wait_gone(Pod, "beside", timeout=60)
        assert not processes(beside)
    durable.server.stop()
    assert not processes(own)
