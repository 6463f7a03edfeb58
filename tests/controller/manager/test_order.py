"""Order of start and stop, grace, errors of both, additions: behaviours S219 to S222, each by its number."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from contextvars import ContextVar
from types import TracebackType
from typing import Self

import pytest

from kubeloop.client import Client
from kubeloop.controller import Manager, ManagerError, RunnableContext, RunnerStats
from kubeloop.controller.errors import GraceExceeded
from kubeloop.controller.manager.background import Background, NotRunnableError
from kubeloop.controller.manager.group import Group, GroupEntry
from kubeloop.controller.runner.runnable import ReconcileCounts
from kubeloop.meta import KubeloopError
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from kubeloop.workqueue import QueueStats

pytestmark = pytest.mark.embedded


@pytest.fixture
async def client(in_loop_server: TlsTestServer) -> AsyncIterator[Client]:
    async with Client(Transport(in_loop_server.config), namespace="default") as found:
        yield found


class Noted:
    """A runnable that records its calls; it ends when it is stopped, unless ``endless``."""

    def __init__(
        self, name: str, log: list[str], *, needs_leader: bool = True, warm_up: bool = False, endless: bool = False, failure: str = ""
    ) -> None:
        self.name = name
        self.needs_leader = needs_leader
        self.warm_up = warm_up
        self.started = asyncio.Event()
        self._log = log
        self._endless = endless
        self._failure = failure
        self._stop = asyncio.Event()

    @property
    def stats(self) -> RunnerStats:
        return RunnerStats(self.name, 0, QueueStats(0, 0, 0, 0, 0), ReconcileCounts())

    async def connect(self, context: RunnableContext) -> None:
        self._log.append(f"{self.name} connects")

    async def synced(self, timeout: float) -> None:
        self._log.append(f"{self.name} synced")

    async def run(self) -> None:
        self._log.append(f"{self.name} runs")
        self.started.set()
        await self._stop.wait()
        if self._endless:
            await asyncio.Event().wait()
        self._log.append(f"{self.name} ends")
        if self._failure:
            raise RuntimeError(self._failure)

    def stop(self) -> None:
        self._stop.set()

    async def close(self) -> None:
        self._log.append(f"{self.name} closes")


class Entered(AbstractAsyncContextManager["Entered"]):
    """A server that notes when it is entered and left."""

    def __init__(self, name: str, log: list[str], failure: str = "") -> None:
        self.name, self._log, self._failure = name, log, failure

    async def __aenter__(self) -> Self:
        self._log.append(f"{self.name} serves")
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._log.append(f"{self.name} ends")
        if self._failure:
            raise RuntimeError(self._failure)


async def test_s219_servers_start_first_then_caches_then_what_needs_no_leader_then_what_does(client: Client) -> None:
    log: list[str] = []
    other, leader = Noted("other", log, needs_leader=False), Noted("leader", log)
    async with Manager(client, [leader, other], servers=[Entered("webhooks", log)]):
        await asyncio.wait_for(leader.started.wait(), 10)
    begun = log[: log.index("leader runs") + 1]
    assert begun[0] == "webhooks serves"
    assert begun.index("other synced") < begun.index("other runs") < begun.index("leader runs")
    assert begun.index("leader synced") < begun.index("leader runs")


async def test_s219_everything_stops_in_reverse(client: Client) -> None:
    log: list[str] = []
    other, leader = Noted("other", log, needs_leader=False), Noted("leader", log)
    async with Manager(client, [other, leader], servers=[Entered("webhooks", log)]):
        await asyncio.wait_for(leader.started.wait(), 10)
        await asyncio.wait_for(other.started.wait(), 10)
        log.clear()
    assert log == ["leader ends", "other ends", "leader closes", "other closes", "webhooks ends"]


@pytest.mark.parametrize("grace", [pytest.param(-1, id="less than 0"), pytest.param(None, id="None")])
async def test_s221_an_unlimited_grace_waits_for_running_work(client: Client, grace: float | None) -> None:
    log: list[str] = []
    gate = asyncio.Event()
    begun = asyncio.Event()

    async def slow() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            await gate.wait()
            log.append("tidied up")

    manager = Manager(client, [slow], grace=grace)
    await manager.start()
    await begun.wait()
    stopping = asyncio.create_task(manager.stop())
    for _ in range(20):
        await asyncio.sleep(0)
    assert not stopping.done()
    gate.set()
    await stopping
    assert log == ["tidied up"]


async def test_s221_no_grace_waits_for_nothing_and_is_no_error(client: Client) -> None:
    log: list[str] = []
    endless = Noted("endless", log, endless=True)
    async with Manager(client, [endless], grace=0):
        await asyncio.wait_for(endless.started.wait(), 10)
    assert log[-1] == "endless closes"


async def test_s221_the_grace_is_30_seconds_by_default(client: Client) -> None:
    seen: list[RunnableContext] = []

    async def look(context: RunnableContext) -> None:
        seen.append(context)

    async with Manager(client, [look]):
        await asyncio.sleep(0)
    assert seen[0].grace == 30.0


async def test_s221_errors_of_runnables_and_of_the_stop_are_both_reported(client: Client) -> None:
    log: list[str] = []
    endless, failing = Noted("endless", log, endless=True), Noted("failing", log, failure="disk full")
    manager = Manager(client, [endless, failing], servers=[Entered("webhooks", log, failure="port lost")], grace=0.01)
    await manager.start()
    await endless.started.wait()
    await failing.started.wait()
    with pytest.raises(ExceptionGroup) as caught:
        await manager.stop()
    assert {str(error) for error in caught.value.exceptions} == {
        "disk full",
        "port lost",
        "not ended within 0.01 s, cancelled: endless",
    }


async def test_s221_a_cancellation_by_the_stop_is_no_error(client: Client) -> None:
    begun = asyncio.Event()

    async def endless() -> None:
        begun.set()
        await asyncio.Event().wait()

    async with Manager(client, [endless]):
        await begun.wait()


async def test_s221_something_that_a_runnable_waited_for_and_that_was_cancelled_is_an_error(client: Client) -> None:
    async def waits() -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        future.cancel()
        await future

    with pytest.raises(ManagerError, match='"waits" ended: something that it waited for was cancelled'):
        await asyncio.wait_for(Manager(client, [waits]).run(signals=False), 10)


async def test_s222_a_runnable_added_while_it_runs_starts_at_once(client: Client) -> None:
    log: list[str] = []
    async with Manager(client) as manager:
        late = Noted("late", log)
        await manager.add(late)
        await asyncio.wait_for(late.started.wait(), 10)
        assert log == ["late connects", "late synced", "late runs"]
    assert log[3:] == ["late ends", "late closes"]


async def test_s222_a_runnable_can_add_another_one(client: Client) -> None:
    log: list[str] = []
    late = Noted("late", log)
    manager = Manager(client)

    async def adding() -> None:
        await manager.add(late)

    await manager.add(Background(adding, needs_leader=False))
    async with manager:
        await asyncio.wait_for(late.started.wait(), 10)
    assert log[-1] == "late closes"


async def test_s222_a_runnable_is_refused_while_the_manager_stops(client: Client) -> None:
    refusals: list[str] = []
    begun = asyncio.Event()
    manager = Manager(client)

    async def adds_at_the_end() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            try:
                await manager.add(Noted("late", []))
            except ManagerError as error:
                refusals.append(str(error))

    await manager.add(adds_at_the_end)
    async with manager:
        await begun.wait()
    assert refusals == ["the manager is stopping; nothing can be added"]


async def test_s222_a_runnable_that_still_starts_when_the_manager_stops_is_refused_and_closed(client: Client) -> None:
    log: list[str] = []
    asked, go_on = asyncio.Event(), asyncio.Event()

    class Slow(Noted):
        async def connect(self, context: RunnableContext) -> None:
            asked.set()
            await go_on.wait()
            await super().connect(context)

    async with Manager(client) as manager:
        adding = asyncio.create_task(manager.add(Slow("slow", log)))
        await asyncio.wait_for(asked.wait(), 10)
        await manager.stop()
        go_on.set()
        with pytest.raises(ManagerError, match="stopped; nothing can be added"):
            await asyncio.wait_for(adding, 10)
    assert log[-1] == "slow closes"
    assert "slow runs" not in log


async def test_an_added_runnable_has_the_context_of_the_manager_not_of_its_adder(client: Client) -> None:
    log: list[str] = []
    whose = ContextVar("whose", default="unset")

    class Tells(Noted):
        async def connect(self, context: RunnableContext) -> None:
            log.append(f"connects under {whose.get()}")

        async def run(self) -> None:
            log.append(f"runs under {whose.get()}")
            await super().run()

    whose.set("the manager's")
    async with Manager(client) as manager:
        whose.set("the adder's")
        tells = Tells("tells", [])
        await manager.add(tells)
        await asyncio.wait_for(tells.started.wait(), 10)
    assert log == ["connects under the manager's", "runs under the manager's"]


async def test_s222_a_second_start_is_refused(client: Client) -> None:
    async with Manager(client) as manager:
        with pytest.raises(ManagerError, match="started already; make a new one"):
            await manager.start()


@pytest.mark.parametrize("failing", [pytest.param(False, id="after a stop"), pytest.param(True, id="after a failure")])
async def test_s222_no_task_is_left(client: Client, failing: bool) -> None:
    async def fails() -> None:
        raise RuntimeError("no")

    before = asyncio.all_tasks()
    log: list[str] = []
    other = Noted("other", log, needs_leader=False)
    manager = Manager(client, [other, Noted("leader", log), *([fails] if failing else [])])
    if failing:
        with pytest.raises(RuntimeError, match="no"):
            await asyncio.wait_for(manager.run(signals=False), 10)
    else:
        async with manager:
            await other.started.wait()
    left = [task for task in asyncio.all_tasks() - before if "kubeloop/controller" in repr(task.get_coro())]
    assert left == []


async def test_a_failure_while_it_starts_stops_it_and_is_raised(client: Client) -> None:
    class NeverSynced(Noted):
        async def synced(self, timeout: float) -> None:
            await asyncio.Event().wait()

    async def fails() -> None:
        raise RuntimeError("no licence")

    log: list[str] = []
    manager = Manager(client, [Background(fails, needs_leader=False), NeverSynced("slow", log)])
    with pytest.raises(RuntimeError, match="no licence"):
        await asyncio.wait_for(manager.run(signals=False), 10)
    assert manager.phase == "stopped"
    assert log == ["slow connects", "slow closes"]


async def test_a_stop_that_is_cancelled_still_ends_everything(client: Client) -> None:
    log: list[str] = []
    endless = Noted("endless", log, endless=True)
    manager = Manager(client, [endless], servers=[Entered("webhooks", log)], grace=None)
    await manager.start()
    await endless.started.wait()
    stopping = asyncio.create_task(manager.stop())
    for _ in range(5):
        await asyncio.sleep(0)
    stopping.cancel()
    with pytest.raises(asyncio.CancelledError):
        await stopping
    assert log[-2:] == ["endless closes", "webhooks ends"]


class WithRun:
    def __init__(self) -> None:
        self.seen: list[RunnableContext] = []

    async def run(self, context: RunnableContext) -> None:
        self.seen.append(context)


async def test_an_object_with_an_async_run_is_run_and_gets_the_context(client: Client) -> None:
    work = WithRun()
    async with Manager(client, [work]) as manager:
        for _ in range(5):
            await asyncio.sleep(0)
        assert manager.stats == []
    assert work.seen[0].client is client


def plain() -> None: ...


async def greedy(first: int, two: int) -> None: ...


@pytest.mark.parametrize(
    ("target", "message"),
    [
        pytest.param(plain, "cannot be run by a manager", id="a plain function"),
        pytest.param(7, "cannot be run by a manager", id="no function at all"),
        pytest.param(WithRun, "cannot be run by a manager", id="a class where an object is meant"),
        pytest.param(greedy, r"takes \(first, two\).*functools.partial", id="a function of two arguments"),
    ],
)
def test_what_cannot_be_run_is_refused_with_the_way_out(target: Callable[..., object], message: str) -> None:
    with pytest.raises(NotRunnableError, match=message):
        Background(target)  # type: ignore[arg-type]  # the test is about this
    assert issubclass(NotRunnableError, KubeloopError)


async def test_a_second_controller_of_a_name_is_refused(client: Client) -> None:
    with pytest.raises(ManagerError, match='two controllers are named "twin"'):
        Manager(client, [Noted("twin", []), Noted("twin", [])])


async def test_what_does_not_end_when_it_is_cancelled_is_named_and_waited_for(client: Client, caplog: pytest.LogCaptureFixture) -> None:
    go_on = asyncio.Event()

    async def stubborn() -> None:
        while not go_on.is_set():
            with suppress(asyncio.CancelledError):
                await go_on.wait()

    cluster = next(iter(Manager(client).clusters.values()))
    work = Background(stubborn)
    await work.connect(cluster.context)
    group = Group(lambda _: None, grace=0.01)
    group.launch([GroupEntry(work, cluster)])
    await asyncio.sleep(0)
    ending = asyncio.create_task(group.stop(0))
    async with asyncio.timeout(20):
        while not caplog.records:
            await asyncio.sleep(0.001)
    assert "stubborn: cancelled 0.01 s ago and not ended yet" in caplog.text
    assert not ending.done()
    go_on.set()
    await asyncio.wait_for(ending, 20)


async def test_what_was_late_is_named(client: Client) -> None:
    endless = Noted("endless", [], endless=True)
    manager = Manager(client, [endless], grace=0.01)
    await manager.start()
    await endless.started.wait()
    with pytest.raises(GraceExceeded) as caught:
        await manager.stop()
    assert caught.value.names == ["endless"]
