"""A manager with leader election: who runs when, the lease released last, nothing after it is lost (behaviours S219, S220, R211)."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import Controller, GraceExceeded, Manager
from kubeloop.controller.election import LeaseConfig, LeaseLost
from kubeloop.controller.manager.background import Background
from kubeloop.meta import ObjectMeta
from kubeloop.testing import HandlerServer
from kubeloop.timing import FakeClock
from kubeloop.transport import LogContext, logger_with_context
from tests.controller.election.candidates import StallingClock
from tests.controller.manager.test_order import Noted

pytestmark = pytest.mark.embedded


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def server(clock: FakeClock) -> AsyncIterator[HandlerServer]:
    async with HandlerServer(clock=clock) as found:
        yield found


def lease(identity: str, *, release: bool = True) -> LeaseConfig:
    return LeaseConfig("lock", "default", identity, release_on_stop=release)


async def holder(client: Client) -> str:
    return (await client.get(Lease, "lock", namespace="default")).spec.holder_identity or ""


async def until(clock: FakeClock, work: Awaitable[object]) -> None:
    """Let time pass until ``work`` is done."""
    waiting = asyncio.ensure_future(work)
    async with asyncio.timeout(20):
        while not waiting.done():
            await clock.advance(0.1)
            await asyncio.sleep(0.001)
    waiting.result()


async def test_s219_what_needs_the_leader_starts_with_the_leadership_and_warm_up_before(server: HandlerServer, clock: FakeClock) -> None:
    log: list[str] = []
    first = server.client()
    warm, cold, other = Noted("warm", log, warm_up=True), Noted("cold", log), Noted("other", log, needs_leader=False)
    async with Manager(first, leader_election=lease("a"), clock=clock) as leading:
        await until(clock, leading.wait_leading())
        assert leading.is_leader
        second = Manager(server.client(), [cold, warm, other], leader_election=lease("b"), clock=clock)
        async with second:
            await other.started.wait()
            await clock.advance(5)
            assert not second.is_leader
            assert log == ["warm connects", "other connects", "other synced", "warm synced", "other runs"]
            await leading.stop()
            await until(clock, second.wait_leading())
            await until(clock, cold.started.wait())
            assert log[5:] == ["cold connects", "cold synced", "cold runs", "warm runs"]


async def test_s220_the_lease_is_given_back_when_all_else_has_ended(server: HandlerServer, clock: FakeClock) -> None:
    client, seen = server.client(), []

    class Looks(Noted):
        async def close(self) -> None:
            seen.append(await holder(client))

    looks = Looks("looks", [])
    manager = Manager(client, [looks], leader_election=lease("a"), clock=clock)
    await manager.start()
    await until(clock, looks.started.wait())
    await manager.stop()
    assert seen == ["a"]
    assert await holder(client) == ""


async def test_a_lease_that_is_not_to_be_given_back_is_kept(server: HandlerServer, clock: FakeClock) -> None:
    client = server.client()
    async with Manager(client, leader_election=lease("a", release=False), clock=clock) as manager:
        await until(clock, manager.wait_leading())
    assert await holder(client) == "a"


async def test_s220_a_lease_is_not_given_back_while_a_thread_still_works_for_it(server: HandlerServer, clock: FakeClock) -> None:
    begun, gate = threading.Event(), threading.Event()

    class PlainController(Controller[ConfigMap], name="plain"):
        def reconcile(self, config: ConfigMap) -> None:
            begun.set()
            gate.wait(30)

    client = server.client()
    await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
    manager = Manager(client, [PlainController()], leader_election=lease("a"), clock=clock, grace=0.01)
    await manager.start()
    await until(clock, asyncio.to_thread(begun.wait, 20))
    with pytest.raises(GraceExceeded, match="cancelled: plain"):
        await until(clock, manager.stop())
    assert await holder(client) == "a"
    gate.set()


async def take_over(client: Client) -> None:
    taken = await client.get(Lease, "lock", namespace="default")
    taken.spec.holder_identity, taken.spec.lease_transitions = "other", 7
    await client.update(taken)


async def test_s220_losing_the_lease_ends_what_needs_the_leader_at_once_and_is_an_error(server: HandlerServer, clock: FakeClock) -> None:
    client = server.client()
    log: list[str] = []
    endless = Noted("endless", log, endless=True)
    manager = Manager(client, [endless], leader_election=lease("a"), clock=clock, grace=None)
    running = asyncio.create_task(manager.run(signals=False))
    await until(clock, endless.started.wait())
    await take_over(server.client())
    with pytest.raises(LeaseLost, match='"other" holds it'):
        await until(clock, running)
    assert log[-2:] == ["endless runs", "endless closes"]
    assert await holder(client) == "other"


async def test_records_of_a_leader_carry_the_number_of_its_term(
    server: HandlerServer, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    client = server.client()
    async with Manager(client, leader_election=lease("a"), clock=clock) as first:
        await until(clock, first.wait_leading())
    said = asyncio.Event()

    async def says() -> None:
        logger_with_context("test.leader").warning("at work")
        said.set()

    async with Manager(server.client(), [says], leader_election=lease("b"), clock=clock):
        await until(clock, said.wait())
    record = next(one for one in caplog.records if one.message == "at work")
    assert record.__dict__["kubeloop"]["lease_transitions"] == "1"
    assert record.levelno == logging.WARNING


async def test_a_manager_that_never_led_stops_and_leaves_the_lease_alone(server: HandlerServer, clock: FakeClock) -> None:
    log: list[str] = []
    async with Manager(server.client(), leader_election=lease("a"), clock=clock) as leading:
        await until(clock, leading.wait_leading())
        async with Manager(server.client(), [Noted("cold", log)], leader_election=lease("b"), clock=clock):
            await clock.advance(5)
        assert log == ["cold closes"]
        assert await holder(server.client()) == "a"


@pytest.mark.parametrize(
    ("needs_leader", "runs"),
    [pytest.param(False, True, id="what needs no leader runs at once"), pytest.param(True, False, id="what needs the leader waits for it")],
)
async def test_added_while_another_one_leads(server: HandlerServer, clock: FakeClock, needs_leader: bool, runs: bool) -> None:
    log: list[str] = []
    async with Manager(server.client(), leader_election=lease("a"), clock=clock) as leading:
        await until(clock, leading.wait_leading())
        async with Manager(server.client(), leader_election=lease("b"), clock=clock) as second:
            late = Noted("late", log, needs_leader=needs_leader)
            await second.add(late)
            await clock.advance(1)
            assert late.started.is_set() is runs
            await leading.stop()
            await until(clock, second.wait_leading())
            await until(clock, late.started.wait())


async def test_added_by_the_leader_itself_runs_at_once(server: HandlerServer, clock: FakeClock) -> None:
    log: list[str] = []
    async with Manager(server.client(), leader_election=lease("a"), clock=clock) as manager:
        await until(clock, manager.wait_leading())
        late = Noted("late", log)
        await manager.add(late)
        await late.started.wait()


async def test_what_was_added_to_a_leader_is_fenced_and_logs_its_term_too(server: HandlerServer, clock: FakeClock) -> None:
    """The manager's leadership counts, not that of the task that adds the runnable."""
    client, go_on = server.client(), asyncio.Event()
    seen: list[str] = []

    async def late() -> None:
        record = logging.makeLogRecord({})
        LogContext().filter(record)
        seen.append(vars(record)["kubeloop"]["lease_transitions"])
        try:
            await go_on.wait()
        finally:  # As work does that tidies up when it is cancelled.
            with pytest.raises(LeaseLost):
                await client.create(ConfigMap(metadata=ObjectMeta(name="late", namespace="default")))
            seen.append("refused")

    manager = Manager(client, leader_election=lease("a"), clock=clock)
    running = asyncio.create_task(manager.run(signals=False))
    await until(clock, manager.wait_leading())
    await manager.add(late)
    await until(clock, asyncio.sleep(0))
    await take_over(server.client())
    with pytest.raises(LeaseLost):
        await until(clock, running)
    assert seen == ["0", "refused"]


async def test_a_lost_lease_is_one_error_however_many_notice_it(server: HandlerServer) -> None:
    """After a standstill the work's own write may be refused before the renewal notices."""
    clock, client, go_on = StallingClock(), server.client(), asyncio.Event()

    async def writes() -> None:
        await go_on.wait()
        await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))

    # Without a grace that ends, the stop waits until the renewal has noticed, too.
    manager = Manager(client, [writes, Noted("endless", [], endless=True)], leader_election=lease("a"), clock=clock, grace=None)
    running = asyncio.create_task(manager.run(signals=False))
    await until(clock, manager.wait_leading())
    clock.stall(20)
    go_on.set()
    await manager.wait()
    with pytest.raises(LeaseLost, match="not renewed for 20"):
        await until(clock, running)


async def test_a_thread_that_outlives_its_leadership_cannot_write(server: HandlerServer, clock: FakeClock) -> None:
    begun, gate = threading.Event(), threading.Event()
    loop, client = asyncio.get_running_loop(), server.client()
    outcome: asyncio.Future[object] = loop.create_future()

    async def write() -> None:
        try:
            outcome.set_result(await client.patch(ConfigMap, "a", {"data": {"late": "yes"}}, type="merge", namespace="default"))
        except LeaseLost as error:
            outcome.set_result(type(error))

    class PlainController(Controller[ConfigMap], name="plain"):
        def reconcile(self, config: ConfigMap) -> None:
            begun.set()
            gate.wait(30)
            asyncio.run_coroutine_threadsafe(write(), loop)

    await client.create(ConfigMap(metadata=ObjectMeta(name="a", namespace="default")))
    manager = Manager(client, [PlainController()], leader_election=lease("a"), clock=clock)
    running = asyncio.create_task(manager.run(signals=False))
    await until(clock, asyncio.to_thread(begun.wait, 20))
    await take_over(server.client())
    with pytest.raises(LeaseLost):
        await until(clock, running)
    gate.set()
    assert await asyncio.wait_for(outcome, 20) is LeaseLost


async def test_a_leader_that_cannot_begin_stops_and_gives_the_lease_back(server: HandlerServer, clock: FakeClock) -> None:
    class Broken(Noted):
        async def connect(self, context: object) -> None:
            raise RuntimeError("no such kind")

    client = server.client()
    manager = Manager(client, [Broken("broken", [])], leader_election=lease("a"), clock=clock)
    with pytest.raises(RuntimeError, match="no such kind"):
        await until(clock, manager.run(signals=False))
    assert await holder(client) == ""


async def test_background_work_needs_the_leader_by_default() -> None:
    async def work() -> None: ...

    make: Callable[..., Background] = Background
    assert make(work).needs_leader
    assert not make(work, needs_leader=False).needs_leader
