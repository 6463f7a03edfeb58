"""A manager's role among replicas: it takes part in a leader election, or shares keys with other replicas."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING

from kubeloop.client import Client
from kubeloop.controller.election.elector import LeaderElector, LeaseLost
from kubeloop.controller.election.fence import checked, guard
from kubeloop.controller.election.lease import LeaseConfig
from kubeloop.controller.errors import ManagerError
from kubeloop.controller.events import EventRecorder
from kubeloop.tasks import close_all, finish, wait_all
from kubeloop.timing import Clock
from kubeloop.transport import log_context

if TYPE_CHECKING:
    from kubeloop.controller.sharding import ShardConfig, ShardMember


#: Maximum seconds to send the event "stopped leading".
_FLUSH = 1.0


class Leadership:
    """Leadership of a process for at most one term: after the loss of the lease the process ends, and a new process becomes a candidate.

    Args:
        client: Client of the cluster that holds the Lease.
        config: The Lease, and this candidate.
        clock: Clock of renewals.
        lead: Awaited once this process leads; log records of its tasks carry ``lease_transitions``.
        lost: Called as soon as the lease is lost.
        failed: Called if ``lead`` raised.
    """

    def __init__(
        self,
        client: Client,
        config: LeaseConfig,
        clock: Clock,
        *,
        lead: Callable[[], Awaitable[None]],
        lost: Callable[[BaseException], None],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._events = EventRecorder(client, config.identity, clock=clock, flush=_FLUSH)
        self.elector = LeaderElector(client, config, clock=clock, announcements=self._events)
        self.lost = False
        self._loss_reported = False
        self._lead = lead
        self._on_lost = lost
        self._failed = failed
        self._guards: list[Callable[[], None]] = []
        self._standing: asyncio.Task[None] | None = None
        self._renewing: asyncio.Task[None] | None = None

    def cover(self, client: Client) -> None:
        """Guard ``client``: once this process does not lead any more, writes of the leader's work through it are not sent.

        This holds even after a suspension of the process.
        """
        self._guards.append(guard(client))

    async def begin(self) -> None:
        """Become a candidate for the lease.

        First pass every client that the leader's work writes with to ``cover``, so that its writes stop when the lease is lost.
        """
        await self._events.__aenter__()
        self._standing = asyncio.create_task(self._stand(), name=f"election-{self.elector.config.name}")
        self._standing.add_done_callback(self._stood)

    async def withdraw(self) -> None:
        """Stop being a candidate, and start no work. A lease that this process holds is still renewed."""
        if self._standing is not None:
            self._standing.cancel()
            await wait_all(self._standing)

    async def release(self, *, give_back: bool = True) -> None:
        """Stop renewing, and release the Lease if all protected work has ended (``give_back``), unless ``release_on_stop`` is off.

        Writes of work that has not ended (threads) are refused permanently once the lease has expired.
        """
        await close_all(self._end_renewal, partial(self._give_back, give_back=give_back), self._end_events)

    async def _end_renewal(self) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
            await wait_all(self._renewing)

    async def _give_back(self, *, give_back: bool) -> None:
        try:
            if give_back and self._standing is not None and not self.lost and self.elector.config.release_on_stop:
                await finish(self.elector.release())
        finally:
            for unguard in self._guards if give_back else ():
                unguard()

    async def _end_events(self) -> None:
        await self._events.__aexit__(None, None, None)

    def repeats(self, error: BaseException) -> bool:
        """Return whether ``error`` is a ``LeaseLost`` after the first one. Every refused write raises one; only the first is reported."""
        again, self._loss_reported = self._loss_reported, self._loss_reported or isinstance(error, LeaseLost)
        return again and isinstance(error, LeaseLost)

    async def _stand(self) -> None:
        await self.elector.acquire()
        # Immediately, as ``lead`` may take longer than the lease lasts.
        self._renewing = asyncio.create_task(self._renew(), name=f"renewing-{self.elector.config.name}")
        self._renewing.add_done_callback(self._renewed)
        with log_context(**self.elector.log_fields), checked(self.elector.assert_leading):
            await self._lead()

    async def _renew(self) -> None:
        await self.elector.renew()

    def _stood(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._failed(error)

    def _renewed(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.lost = True
            if self._standing is not None:
                self._standing.cancel()
            self._on_lost(error)


def shard_member(client: Client, sharding: ShardConfig, election: LeaseConfig | None, clock: Clock) -> ShardMember:
    """Return the ``ShardMember`` through which a manager shares keys with other replicas.

    Args:
        client: Client of the cluster that holds the group's leases.
        sharding: The group and this replica's part in it.
        election: Configuration of the leader election, which must be None.
        clock: Clock of renewals.

    Raises:
        ManagerError: leader election is configured, too.
    """
    if election is not None:
        raise ManagerError("leader_election lets one replica work and sharding lets all of them: give one of the two")
    from kubeloop.controller.sharding.member import ShardMember

    return ShardMember(client, sharding, clock=clock)
