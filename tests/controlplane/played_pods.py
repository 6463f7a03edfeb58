"""Pods that a test starts and fails by hand, by fake time."""

from __future__ import annotations

from collections.abc import Callable

from kubeloop.api.core.v1 import Pod
from kubeloop.client import ALL_NAMESPACES
from kubeloop.meta import format_time
from tests.controlplane.simulated import FakeTimeCluster
from tests.controlplane.workloads import is_ready


async def set_phase(cluster: FakeTimeCluster, name: str, phase: str, *, ready: bool = False) -> None:
    now = format_time(cluster.clock.wall().replace(microsecond=0))
    condition = {"type": "Ready", "status": "True" if ready else "False", "lastTransitionTime": now}
    change = {"status": {"phase": phase, "conditions": [condition]}}
    await cluster.client.patch(Pod, name, change, type="strategic", subresource="status")


async def start_pods(cluster: FakeTimeCluster, *, rounds: int = 20, starts: Callable[[Pod], bool] = lambda _: True) -> None:
    """Make pods ready as a kubelet does, and give the controllers a second after each round, until a round finds none to start."""
    for _ in range(rounds):
        await cluster.pass_time(1)
        pods = await cluster.client.list(Pod, namespace=ALL_NAMESPACES)
        waiting = [one for one in pods if not is_ready(one) and one.status.phase not in ("Failed", "Succeeded") and starts(one)]
        if not waiting:
            return
        for pod in waiting:
            await set_phase(cluster, pod.metadata.name, "Running", ready=True)
