"""A server in the test's own process, and controllers on it, all by a clock that moves only when nothing else can go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from kubeloop.api.core.v1 import Node, NodeCondition, NodeSpec, Taint
from kubeloop.client import Client
from kubeloop.controller import ControllerBase, Runnable
from kubeloop.meta import ObjectMeta, Quantity
from kubeloop.testing.fake_time import with_fake_time
from kubeloop.testing.faults import Faults
from kubeloop.testing.kube_cluster import OwnServer, own_server
from kubeloop.timing import FakeClock

T = TypeVar("T")


@dataclass
class FakeTimeCluster:
    """A cluster by fake time."""

    client: Client
    clock: FakeClock
    server: OwnServer

    @property
    def faults(self) -> Faults:
        """Faults of the server, and all requests so far."""
        return self.server.faults

    async def start(self, *controllers: ControllerBase[Any] | Runnable) -> None:
        """Run more controllers, in a manager apart from the others."""
        await self.server.start_manager(*controllers)

    async def stop(self) -> None:
        """Stop all controllers."""
        await self.server.stop_managers()

    async def pass_time(self, seconds: float) -> None:
        await self.drive(self.clock.sleep(seconds))

    async def drive(self, awaitable: Awaitable[T]) -> T:
        """Return the result of ``awaitable``; time passes while nothing else can go on."""
        return await with_fake_time(awaitable, self.clock)

    async def add_node(
        self, name: str, *, ready: bool = True, labels: dict[str, str] | None = None, taints: list[Taint] | None = None, **room: str
    ) -> Node:
        """Create a node without a kubelet, with 4 cpu, 8Gi and 110 pods unless ``room`` says otherwise."""
        spec = NodeSpec(taints=taints or [])
        made = await self.client.create(Node(metadata=ObjectMeta(name=name, labels=labels or {}), spec=spec))
        made.spec.taints = taints or []  # Admission has added that of a node that is not ready.
        made = await self.client.update(made)
        made.status.conditions = [NodeCondition(type="Ready", status="True" if ready else "False")]
        amounts = {"cpu": "4", "memory": "8Gi", "pods": "110", "ephemeral-storage": "100Gi"} | room
        made.status.capacity = made.status.allocatable = {key: Quantity(value) for key, value in amounts.items()}
        return await self.client.update_status(made)


@asynccontextmanager
async def simulation(*controllers: ControllerBase[Any] | Runnable) -> AsyncIterator[FakeTimeCluster]:
    """Run controllers on an own server until the block ends."""
    clock = FakeClock()
    async with own_server(clock) as cluster:
        if controllers:
            await cluster.start_manager(*controllers)
        yield FakeTimeCluster(cluster.client(), clock, cluster)
