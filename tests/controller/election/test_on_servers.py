"""Elections and groups over HTTPS, on the embedded server and a real one. No test here depends on how long something takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.client import Client
from kubeloop.controller.election import LeaderElector, LeaseConfig
from kubeloop.controller.sharding import ShardConfig, ShardMember
from kubeloop.controller.sharding.membership import SLOTS
from kubeloop.timing import FakeClock
from kubeloop.transport import Hook, Outcome, SentRequest

pytestmark = pytest.mark.server


def config(namespace: str, identity: str) -> LeaseConfig:
    """Renewed often, lost hardly ever: a slow machine must not end a term."""
    return LeaseConfig("lock", namespace, identity, lease_duration=300, renew_deadline=200, retry_period=0.05)


async def until(condition: Callable[[], Awaitable[bool] | bool]) -> None:
    async with asyncio.timeout(45):
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return
            await asyncio.sleep(0.01)


class InFlight(Hook):
    """How many requests have no answer yet."""

    def __init__(self) -> None:
        self.number = 0

    def sending(self, request: SentRequest) -> None:
        self.number += 1

    def answered(self, request: SentRequest, outcome: Outcome) -> None:
        self.number -= 1


async def test_of_two_candidates_one_leads_renews_and_hands_over_by_release(client: Client, namespace: str) -> None:
    """Behaviours I121, I122, I124, I125, I127, I129."""
    calls: list[str] = []
    electors = {name: LeaderElector(client, config(namespace, name)) for name in ("a", "b")}
    began = {name: asyncio.Event() for name in electors}

    def run(name: str) -> asyncio.Task[None]:
        async def work() -> None:
            calls.append(f"{name} began")
            began[name].set()
            try:
                await asyncio.Event().wait()
            finally:
                calls.append(f"{name} ended")

        return asyncio.create_task(electors[name].run(work))

    first = run("a")
    await began["a"].wait()
    lease = await client.get(Lease, "lock")
    assert lease.spec.holder_identity == "a"
    assert lease.spec.acquire_time == lease.spec.renew_time

    second = run("b")

    async def renewed() -> bool:
        now = (await client.get(Lease, "lock")).spec
        return now.acquire_time == lease.spec.acquire_time and now.renew_time != lease.spec.renew_time

    await until(renewed)
    await until(lambda: electors["b"].leader == "a")
    assert not began["b"].is_set()

    first.cancel()
    await began["b"].wait()
    assert calls == ["a began", "a ended", "b began"]
    spec = (await client.get(Lease, "lock")).spec
    assert (spec.holder_identity, spec.lease_transitions) == ("b", 1)
    second.cancel()
    await asyncio.wait((first, second))
    spec = (await client.get(Lease, "lock")).spec
    assert (spec.holder_identity, spec.lease_duration_seconds, spec.lease_transitions) == ("", 1, 1)


async def test_a_leader_that_was_killed_is_taken_over_after_its_lease_by_the_others_clock(client: Client, namespace: str) -> None:
    """Behaviour I123: time passes for the successor alone."""
    dead = LeaderElector(client, LeaseConfig("lock", namespace, "dead"))
    await dead.acquire()
    clock, in_flight = FakeClock(), InFlight()
    remove = client.transport.add_hook(in_flight)
    heir = LeaderElector(client, LeaseConfig("lock", namespace, "heir"), clock=clock)
    waiting = asyncio.create_task(heir.acquire())
    started = clock.now()
    async with asyncio.timeout(45):
        while not waiting.done():
            await asyncio.sleep(0.002)
            # Only while it pauses: time must not run out for a request that is under way.
            if in_flight.number == 0 and clock.next_due is not None and clock.next_due < 4.5:
                await clock.advance(clock.next_due)
    remove()
    assert heir.is_leader
    assert clock.now() - started >= 15
    assert heir.transitions == 1


async def test_a_renewal_after_another_writers_change_keeps_that_change(client: Client, namespace: str) -> None:
    """Behaviour I124."""
    elector = LeaderElector(client, config(namespace, "a"))
    await elector.acquire()
    lease = await client.get(Lease, "lock")
    lease.metadata.annotations["note"] = "kept"
    changed = await client.update(lease)
    renewing = asyncio.create_task(elector.renew())

    async def renewed() -> bool:
        now = await client.get(Lease, "lock")
        return now.spec.renew_time != changed.spec.renew_time and now.metadata.annotations == {"note": "kept"}

    await until(renewed)
    assert elector.slow_renewals >= 1
    renewing.cancel()
    await asyncio.wait((renewing,))
    assert await elector.release()


async def test_a_lease_that_is_deleted_under_a_leader_is_made_again(client: Client, namespace: str) -> None:
    elector = LeaderElector(client, config(namespace, "a"))
    await elector.acquire()
    old = await client.get(Lease, "lock")
    renewing = asyncio.create_task(elector.renew())
    await client.delete(Lease, "lock")

    async def made_again() -> bool:
        leases = await client.list(Lease, namespace=namespace)
        return [lease.spec.holder_identity for lease in leases if lease.metadata.uid != old.metadata.uid] == ["a"]

    await until(made_again)
    assert elector.is_leader
    renewing.cancel()
    await asyncio.wait((renewing,))
    await elector.release()


async def test_members_of_a_group_share_all_slots_and_take_over_from_a_member_that_leaves(client: Client, namespace: str) -> None:
    def settings(name: str) -> ShardConfig:
        return ShardConfig("group", namespace, name, lease_duration=300, renew_deadline=200, retry_period=0.05)

    members = [ShardMember(client, settings(name)) for name in "abc"]
    for one in members:
        one.start()
    await until(lambda: sum(one.slots for one in members) == SLOTS and all(one.slots for one in members))
    await members[0].leave()
    await until(lambda: members[1].slots + members[2].slots == SLOTS)
    await asyncio.gather(*(one.leave() for one in members[1:]))
    leases = await client.list(Lease, namespace=namespace, label_selector="shards.kubeloop.dev/group=group")
    assert [lease.spec.holder_identity for lease in leases] == ["", "", ""]
