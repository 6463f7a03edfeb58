"""Candidates of one election on a server in the test's process; each has its own client."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from kubeloop.controller.election import LeaderElector, LeaseConfig, LeaseLost, LeaseRecord
from kubeloop.meta import ObjectMeta
from kubeloop.serving.request import Request
from kubeloop.testing import HandlerServer, on
from kubeloop.testing.calls import Matches
from kubeloop.timing import Clock, FakeClock


@dataclass
class Candidate:
    """``leaders``: the arguments of on_new_leader. ``task``: its run, if it runs."""

    elector: LeaderElector
    client: Client
    leaders: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    task: asyncio.Task[None] | None = None

    def start(self) -> None:
        async def lead() -> None:
            self.calls.append("started")
            try:
                await asyncio.Event().wait()
            finally:
                self.calls.append("ended")

        self.task = asyncio.create_task(self.elector.run(lead, lambda: self.calls.append("stopped")))

    async def ended(self) -> BaseException | None:
        """What its run raised; it has ended then. None: a cancellation or nothing."""
        assert self.task is not None
        await asyncio.wait((self.task,))
        return None if self.task.cancelled() else self.task.exception()

    async def stop(self) -> BaseException | None:
        if self.task is None:
            return None
        self.task.cancel()
        return await self.ended()


class StallingClock(FakeClock):
    """A fake clock under which a process can stand still: time passes, and no due timer runs until it goes on."""

    def stall(self, seconds: float) -> None:
        self._move_to(self.now() + seconds)

    def _move_to(self, now: float) -> None:
        super()._move_to(max(now, self.now()))  # What was due meanwhile is late.


def of(identity: str, verb: str = "*") -> Matches:
    """Requests of one candidate about leases."""
    wanted = on(verb, Lease)

    def matches(request: Request) -> bool:
        subject = (request.peer_certificate or {}).get("subject", ())
        return wanted(request) and any(("commonName", identity) in part for part in subject)

    return matches


class Candidates:
    def __init__(self, server: HandlerServer, clock: FakeClock) -> None:
        self.server = server
        self.clock = clock
        self.made: list[Candidate] = []

    def make(self, identity: str, *, clock: Clock | None = None, **changes: Any) -> Candidate:
        config = LeaseConfig("lock", "default", identity, **changes)
        client = self.server.client(user=identity)
        leaders: list[str] = []
        elector = LeaderElector(client, config, clock=clock or self.clock, on_new_leader=leaders.append, rng=random.Random(len(self.made)))
        one = Candidate(elector, client, leaders)
        self.made.append(one)
        return one

    def start(self, identity: str, **changes: Any) -> Candidate:
        one = self.make(identity, **changes)
        one.start()
        return one

    async def lease(self) -> Lease:
        return await self.server.client().get(Lease, "lock")

    async def hold(self, holder: str, *, duration: int = 15, transitions: int = 3, renewed: datetime | None = None) -> Lease:
        """Have the lease held by a candidate that is not of this test."""
        record = LeaseRecord(holder, duration, self.clock.wall(), renewed or self.clock.wall(), transitions)
        return await self.server.client().create(Lease(metadata=ObjectMeta(name="lock", namespace="default"), spec=record.spec()))

    async def touch(self) -> None:
        """Change the lease as a person does, so that a write over an older version is refused."""
        lease = await self.lease()
        lease.metadata.annotations["note"] = str(int(lease.metadata.annotations.get("note", "0")) + 1)
        await self.server.client().update(lease)

    def verbs(self, identity: str) -> list[str]:
        """What a candidate has asked the server since this was last called."""
        calls = self.server.faults.calls
        found = [call.verb for call in calls if call.user == identity]
        calls[:] = [call for call in calls if call.user != identity]
        return found

    @property
    def leading(self) -> list[str]:
        return [one.elector.config.identity for one in self.made if one.elector.is_leader]

    async def end(self) -> None:
        for one in self.made:
            error = await one.stop()
            assert error is None or isinstance(error, LeaseLost), error
