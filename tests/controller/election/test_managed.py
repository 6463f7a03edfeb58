"""The work of a leader in a manager: what it may still do when its process stood still."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller import Manager
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.controller.manager.background import Background
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer
from tests.controller.election.candidates import StallingClock


async def until(clock: StallingClock, work: Awaitable[object]) -> None:
    """Let time pass until it is done."""
    waiting = asyncio.ensure_future(work)
    async with asyncio.timeout(20):
        while not waiting.done():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
    waiting.result()


async def test_work_that_stood_still_for_longer_than_the_lease_writes_nothing(in_process: HandlerServer, clock: StallingClock) -> None:
    """Whatever wakes up first after the standstill: its write is refused before it is sent, as this process leads no longer."""
    client = in_process.client()
    outcomes: list[object] = []

    async def work() -> None:
        await clock.sleep(0.5)
        try:
            await client.create(ConfigMap(metadata=ObjectMeta(name="late")))
        except LeaseLost as error:
            outcomes.append(error)
        await asyncio.Event().wait()

    manager = Manager(client, [Background(work)], leader_election=LeaseConfig("lock", "default", "a"), clock=clock)
    await manager.start()
    await until(clock, manager.wait_leading())
    await clock.advance(0)
    clock.stall(30)
    await until(clock, manager.wait())
    with pytest.raises(LeaseLost):
        await manager.stop()
    assert len(outcomes) == 1
    assert isinstance(outcomes[0], LeaseLost)
