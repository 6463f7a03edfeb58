"""Members of a group on a server in this process, time being the test's: hand-overs, losses, and what they leave at the server."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.controller.election import LeaseLost
from kubeloop.controller.election.fence import checked
from kubeloop.controller.sharding import Ownership, ShardConfig, ShardMember
from kubeloop.controller.sharding.membership import SLOTS
from kubeloop.meta import NotFound, ObjectKey, ObjectMeta
from kubeloop.testing import HandlerServer
from tests.controller.election.candidates import StallingClock, of

KEYS = [ObjectKey("c", "default", f"key-{number}") for number in range(60)]


class Replica:
    """A member with one controller, and the keys that are worked on in it."""

    def __init__(self, server: HandlerServer, clock: StallingClock, identity: str) -> None:
        self.client = server.client(user=identity)
        self.member = ShardMember(self.client, ShardConfig("group", "default", identity), clock=clock)
        self.member.cover(self.client)
        self.owner: Ownership = self.member.of("foo")
        self.gained: list[ObjectKey] = []
        self.owner.on_gained(lambda owned: self.gained.extend(key for key in KEYS if owned(key)))
        self.working: set[ObjectKey] = set()
        self.go_on = asyncio.Event()
        self.work = self.owner.guarded(self._work)

    @property
    def owned(self) -> set[ObjectKey]:
        return {key for key in KEYS if self.owner.owns(key)}

    async def _work(self, key: ObjectKey) -> str:
        self.working.add(key)
        try:
            await self.go_on.wait()
        finally:
            self.working.discard(key)
        return "done"


class Replicas:
    def __init__(self, server: HandlerServer, clock: StallingClock) -> None:
        self.server = server
        self.clock = clock
        self.made: list[Replica] = []

    def start(self, identity: str) -> Replica:
        one = Replica(self.server, self.clock, identity)
        self.made.append(one)
        one.member.start()
        return one

    def each_key_has_one(self, *replicas: Replica) -> bool:
        owned = [one.owned for one in replicas]
        return set().union(*owned) == set(KEYS) and sum(map(len, owned)) == len(KEYS)

    async def leases(self) -> list[Lease]:
        return list(await self.server.client().list(Lease, namespace="default", label_selector="shards.kubeloop.dev/group=group"))


@pytest.fixture
def clock() -> StallingClock:
    return StallingClock()


@pytest.fixture
async def in_process(clock: StallingClock) -> AsyncIterator[HandlerServer]:
    async with HandlerServer(clock=clock) as found:
        yield found


@pytest.fixture
async def replicas(in_process: HandlerServer, clock: StallingClock) -> AsyncIterator[Replicas]:
    found = Replicas(in_process, clock)
    yield found
    for one in found.made:
        one.go_on.set()
    await asyncio.sleep(0)
    for one in found.made:
        await one.member.leave()


async def test_a_single_replica_has_every_key_at_once(replicas: Replicas, clock: StallingClock) -> None:
    one = replicas.start("a")
    await clock.advance(0)
    assert one.owned == set(KEYS)
    assert one.member.slots == SLOTS
    assert set(one.gained) == set(KEYS)


async def test_keys_are_shared_when_another_comes_and_taken_over_when_it_leaves(replicas: Replicas, clock: StallingClock) -> None:
    one = replicas.start("a")
    await clock.advance(1)
    two = replicas.start("b")
    await clock.advance(8)
    assert replicas.each_key_has_one(one, two)
    assert one.owned
    assert set(two.gained) == two.owned
    one.gained.clear()
    lost = two.owned
    await two.member.leave()
    await clock.advance(2.1)
    assert one.owned == set(KEYS)
    assert set(one.gained) == lost


async def test_a_key_that_is_worked_on_moves_only_after_that(replicas: Replicas, clock: StallingClock) -> None:
    one = replicas.start("a")
    await clock.advance(1)
    works = [asyncio.ensure_future(one.work(key)) for key in KEYS]
    await clock.advance(0)
    two = replicas.start("b")
    await clock.advance(60)
    assert two.owned == set()
    assert one.owned
    assert one.owned != set(KEYS)
    one.go_on.set()
    assert await asyncio.gather(*works) == ["done"] * len(KEYS)
    await clock.advance(4)
    assert replicas.each_key_has_one(one, two)
    assert two.owned


async def test_a_key_of_another_is_not_worked_on(replicas: Replicas, clock: StallingClock) -> None:
    one = replicas.start("a")
    two = replicas.start("b")
    one.go_on.set()
    await clock.advance(10)
    theirs = next(iter(two.owned))
    assert await one.work(theirs) is None


async def test_a_dead_replica_is_taken_over_after_its_lease_and_not_before(
    replicas: Replicas, in_process: HandlerServer, clock: StallingClock
) -> None:
    one, two = replicas.start("a"), replicas.start("b")
    await clock.advance(10)
    before = one.owned
    in_process.faults.break_answers(matching=of("b"))
    await clock.advance(12)
    assert two.owned == set()
    assert one.owned == before
    await clock.advance(8)
    assert one.owned == set(KEYS)


async def test_a_replica_that_cannot_renew_cancels_its_work_and_comes_back(
    replicas: Replicas, in_process: HandlerServer, clock: StallingClock
) -> None:
    one, two = replicas.start("a"), replicas.start("b")
    await clock.advance(10)
    works = [asyncio.ensure_future(two.work(key)) for key in two.owned]
    await clock.advance(0)
    heal = in_process.faults.break_answers(matching=of("b"))
    await clock.advance(10.1)
    assert two.working == set()
    assert await asyncio.gather(*works) == [None] * len(works)
    await clock.advance(10)
    assert one.owned == set(KEYS)
    heal()
    await clock.advance(10)
    assert replicas.each_key_has_one(one, two)
    assert two.owned


async def test_a_write_of_a_reconcile_that_stood_still_is_not_sent(replicas: Replicas, clock: StallingClock) -> None:
    one = replicas.start("a")
    await clock.advance(0)
    outcomes: list[object] = []

    async def write(key: ObjectKey) -> None:
        await clock.sleep(1)
        try:
            await one.client.create(ConfigMap(metadata=ObjectMeta(name=key.name)))
        except LeaseLost as error:
            outcomes.append(type(error))

    working = asyncio.ensure_future(one.owner.guarded(write)(KEYS[0]))
    await clock.advance(0.5)
    clock.stall(20)
    await clock.advance(0)
    await working
    assert outcomes == [LeaseLost]


async def test_a_write_of_work_that_outlived_its_term_is_not_sent_in_the_next_one(
    replicas: Replicas, in_process: HandlerServer, clock: StallingClock
) -> None:
    """Its key may have been another replica's in between."""
    one = replicas.start("a")
    await clock.advance(0)
    outcomes: list[object] = []
    ended = asyncio.Event()

    async def stubborn(key: ObjectKey) -> None:
        try:
            await asyncio.Event().wait()
        finally:  # As a thread does that cannot be cancelled, or work that tidies up for long.
            await ended.wait()
            try:
                await one.client.create(ConfigMap(metadata=ObjectMeta(name=key.name)))
            except LeaseLost as error:
                outcomes.append(type(error))

    working = asyncio.ensure_future(one.owner.guarded(stubborn)(KEYS[0]))
    await clock.advance(0)
    heal = in_process.faults.break_answers(matching=of("a"))
    await clock.advance(11)
    heal()
    await clock.advance(11)
    assert one.owned == set(KEYS)
    ended.set()
    await working
    assert outcomes == [LeaseLost]


async def test_work_that_takes_long_to_end_does_not_keep_other_work_from_being_cancelled(
    replicas: Replicas, in_process: HandlerServer, clock: StallingClock
) -> None:
    one = replicas.start("a")
    await clock.advance(0)
    ended = asyncio.Event()

    async def slow_to_end(key: ObjectKey) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await ended.wait()

    async def lapse() -> None:
        heal = in_process.faults.break_answers(matching=of("a"))
        await clock.advance(11)
        heal()
        await clock.advance(11)

    slow = [asyncio.ensure_future(one.owner.guarded(slow_to_end)(key)) for key in KEYS[:10]]
    await lapse()
    works = [asyncio.ensure_future(one.work(key)) for key in KEYS[10:]]
    await clock.advance(0)
    assert len(one.working) == len(works)
    await lapse()
    assert one.working == set()
    ended.set()
    await asyncio.gather(*slow, *works)


async def test_a_member_that_never_began_leaves_nothing_on_its_client(in_process: HandlerServer, clock: StallingClock) -> None:
    client = in_process.client()
    member = ShardMember(client, ShardConfig("group", "default", "a"), clock=clock)
    member.cover(client)
    await member.leave()

    def refuse() -> None:
        raise LeaseLost("a reader still looks")

    with checked(refuse):
        await client.create(ConfigMap(metadata=ObjectMeta(name="a")))


async def test_a_deleted_lease_costs_a_moment_and_is_made_again(replicas: Replicas, clock: StallingClock) -> None:
    one = replicas.start("a")
    await clock.advance(5)
    await replicas.server.client().delete((await replicas.leases())[0])
    await clock.advance(4)
    assert one.owned == set(KEYS)
    assert len(await replicas.leases()) == 1


async def test_a_member_of_another_version_may_have_everything(replicas: Replicas, clock: StallingClock) -> None:
    one, two = replicas.start("a"), replicas.start("b")
    await clock.advance(10)
    await two.member.leave()
    lease = next(lease for lease in await replicas.leases() if not lease.spec.holder_identity)
    lease.spec.holder_identity, lease.spec.lease_duration_seconds = "b", 30
    lease.metadata.annotations["shards.kubeloop.dev/protocol"] = "99"
    await replicas.server.client().update(lease)
    await clock.advance(20)
    assert one.owned == set()
    await clock.advance(20)
    assert one.owned == set(KEYS)


async def test_leases_of_members_that_left_are_deleted_in_the_end(replicas: Replicas, clock: StallingClock) -> None:
    replicas.start("a")
    two = replicas.start("b")
    await clock.advance(10)
    await two.member.leave()
    await clock.advance(30)
    assert len(await replicas.leases()) == 2
    await clock.advance(60)
    assert [lease.spec.holder_identity for lease in await replicas.leases()] == ["a"]


async def test_a_server_that_restarts_costs_nothing_and_a_server_that_forgets_only_a_moment(
    replicas: Replicas, in_process: HandlerServer, clock: StallingClock
) -> None:
    one, two = replicas.start("a"), replicas.start("b")
    await clock.advance(10)
    await in_process.restart()
    await clock.advance(3)
    assert replicas.each_key_has_one(one, two)
    await in_process.restart(forget=True)
    await clock.advance(10)
    assert replicas.each_key_has_one(one, two)


async def test_refusals_are_said_once(
    replicas: Replicas, in_process: HandlerServer, clock: StallingClock, caplog: pytest.LogCaptureFixture
) -> None:
    in_process.faults.refuse(NotFound, times=100, matching=of("a", "list"))
    one = replicas.start("a")
    await clock.advance(30)
    assert one.owned == set()
    complaints = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(complaints) == 1
    assert complaints[0].startswith("leases of group group in default cannot be listed: NotFound: refused by a test")
