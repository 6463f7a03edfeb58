"""Candidates of one election on a server in the test's process; each has a client of its own."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from kubeloop.controller.election import LeaderElector, LeaseConfig, LeaseLost
from kubeloop.testing import InProcessServer
from kubeloop.timing import Clock, FakeClock


@dataclass
class Candidate:
    """``leaders``: what on_new_leader was told. ``task``: its run, if it runs."""

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


class Candidates:
    def __init__(self, server: InProcessServer, clock: FakeClock) -> None:
        self.server = server
        self.clock = clock
        self.made: list[Candidate] = []

    def make(self, identity: str, *, clock: Clock | None = None, **changes: Any) -> Candidate:
        config = LeaseConfig("lock", "default", identity, **changes)
        client = self.server.client()
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

    @property
    def leading(self) -> list[str]:
        return [one.elector.config.identity for one in self.made if one.elector.is_leader]

    async def end(self) -> None:
        for one in self.made:
            error = await one.stop()
            assert error is None or isinstance(error, LeaseLost), error
