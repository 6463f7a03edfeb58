"""Runnables with a separate leader election, and the Leases of kube-controller-manager and kube-scheduler."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from dataclasses import dataclass, replace
from typing import Any

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import Namespace
from kubeloop.client import Client
from kubeloop.controller import ControllerBase, Runnable, RunnableContext, RunnerStats
from kubeloop.controller.election import LeaderElector, LeaseConfig
from kubeloop.controller.events import EventRecorder
from kubeloop.controller.manager.clusters import runnable_of
from kubeloop.meta import NotFound
from kubeloop.tasks import end_tasks

#: Names and namespace of upstream's Leases: cmd/kube-controller-manager/app/options/options.go, pkg/scheduler/apis/config/v1/defaults.go.
CONTROLLERS_LEASE = "kube-controller-manager"
SCHEDULER_LEASE = "kube-scheduler"
LEASE_NAMESPACE = "kube-system"

#: Maximum seconds to send the event "stopped leading".
_FLUSH = 1.0


@dataclass(frozen=True, slots=True)
class ControlPlaneLeases:
    """The Leases of a control plane. The controllers and the scheduler are elected independently, like upstream's two programs."""

    controllers: LeaseConfig
    scheduler: LeaseConfig


async def server_leases(client: Client) -> ControlPlaneLeases:
    """Return the Leases for the control plane in the process of its API server.

    The identity is the same after a restart with the same objects: a server that was killed need not wait for its own Lease to expire. No
    other server has these objects at the same time.
    """
    namespace = await client.get(Namespace, LEASE_NAMESPACE)
    identity = f"{socket.gethostname()}_{namespace.metadata.uid}"
    return ControlPlaneLeases(
        LeaseConfig(CONTROLLERS_LEASE, LEASE_NAMESPACE, identity), LeaseConfig(SCHEDULER_LEASE, LEASE_NAMESPACE, identity)
    )


async def other_holders(client: Client, leases: ControlPlaneLeases) -> dict[str, str]:
    """Return the Leases that other candidates hold or held last, as NAMESPACE/NAME, with the identities of their holders."""
    result: dict[str, str] = {}
    for config in (leases.controllers, leases.scheduler):
        with contextlib.suppress(NotFound):
            holder = (await client.get(Lease, config.name, namespace=config.namespace)).spec.holder_identity
            if holder and holder != config.identity:
                result[str(config)] = holder
    return result


class ElectedRunnable:
    """Runs a runnable while this process holds a Lease, independently of the manager's own election.

    Guarantees:
        The caches of the runnable are synced before the election, as in kube-scheduler. The runnable works only while the Lease is held.
        When the Lease is lost, the runnable is cancelled and ``run`` raises ``LeaseLost``. On a stop the Lease is released as soon as the
        runnable has ended.

    Args:
        runnable: A controller, or another runnable.
        config: The Lease, and this candidate.
    """

    needs_leader = False
    warm_up = False

    def __init__(self, runnable: ControllerBase[Any] | Runnable, config: LeaseConfig) -> None:
        self._runnable = runnable_of(runnable)
        self._config = config
        self._context: RunnableContext | None = None
        self._candidate: asyncio.Task[None] | None = None
        self._leading = asyncio.Event()
        self._stopping = False

    @property
    def name(self) -> str:
        return self._runnable.name

    @property
    def stats(self) -> RunnerStats:
        return self._runnable.stats

    async def wait_leading(self) -> None:
        """Wait until this process holds the Lease and the runnable begins to work."""
        await self._leading.wait()

    async def connect(self, context: RunnableContext) -> None:
        self._context = context
        await self._runnable.connect(replace(context, elected=True))

    async def synced(self, timeout: float) -> None:
        await self._runnable.synced(timeout)

    async def run(self) -> None:
        if self._stopping:
            return
        self._candidate = asyncio.create_task(self._stand(), name=f"election-{self._config.name}")
        try:
            await self._candidate
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                await end_tasks(self._candidate)
                raise
            if not self._stopping:
                raise

    def stop(self) -> None:
        self._stopping = True
        if self._leading.is_set():
            self._runnable.stop()
        elif self._candidate is not None:
            self._candidate.cancel()

    async def close(self) -> None:
        await self._runnable.close()

    async def _stand(self) -> None:
        context = self._context
        assert context is not None
        async with EventRecorder(context.client, self._config.identity, clock=context.clock, flush=_FLUSH) as events:
            await LeaderElector(context.client, self._config, clock=context.clock, announcements=events).run(self._lead)

    async def _lead(self) -> None:
        self._leading.set()
        if not self._stopping:
            await self._runnable.run()
