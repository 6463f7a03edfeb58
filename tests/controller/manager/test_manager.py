"""The manager: order of start, graceful stop, failures, additions while it runs (behaviours R207, R208, S219-S222)."""

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.client import Client
from kubeloop.controller import Controller, DeclarationError, Manager, ManagerError, Result
from kubeloop.controller.errors import GraceExceeded
from kubeloop.meta import DeadlineError, Forbidden, ObjectMeta, Status
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

pytestmark = pytest.mark.embedded


class Recorder(Controller[ConfigMap], owns=[Secret], name="recorder"):
    """Notes what it is called for; waits for ``gate`` if there is one."""

    def __init__(self, gate: asyncio.Event | None = None) -> None:
        self.seen: asyncio.Queue[str] = asyncio.Queue()
        self.gate = gate
        self.ended: list[str] = []
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def reconcile(self, config: ConfigMap) -> Result | None:
        self.seen.put_nowait(config.metadata.name)
        if self.gate is not None:
            await self.gate.wait()
        self.ended.append(config.metadata.name)
        return None


@pytest.fixture
async def client(in_loop_server: TlsTestServer):  # type: ignore[no-untyped-def]  # pytest knows the type
    async with Client(Transport(in_loop_server.config), namespace="default") as found:
        yield found


def config(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name))


async def next_of(controller: Recorder) -> str:
    return await asyncio.wait_for(controller.seen.get(), 10)


async def test_nothing_is_reconciled_before_every_informer_of_the_controller_is_synced(
    in_loop_server: TlsTestServer, client: Client
) -> None:
    await client.create(config("a"))
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/secrets"))
    controller = Recorder()
    manager = Manager(client, [controller])
    starting = asyncio.create_task(manager.start())
    async with asyncio.timeout(10):
        while not any("/configmaps" in request for request in in_loop_server.faults.requests):
            await asyncio.sleep(0.001)
        while not manager.stats[0].queue.waiting:
            await asyncio.sleep(0.001)
    assert controller.seen.empty()
    assert controller.calls == []
    let_go()
    await starting
    assert await next_of(controller) == "a"
    await manager.stop()
    assert controller.calls == ["start", "stop"]


async def unsynced(server: TlsTestServer, manager: Manager) -> asyncio.Task[None]:
    """A start that waits for a list that does not come."""
    starting = asyncio.ensure_future(manager.start())
    async with asyncio.timeout(10):
        while not any("/secrets" in request for request in server.faults.requests):
            await asyncio.sleep(0.001)
    return starting


async def test_r208_caches_have_two_minutes_to_sync_and_then_the_start_fails(in_loop_server: TlsTestServer, client: Client) -> None:
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/secrets"))
    clock = FakeClock()
    starting = await unsynced(in_loop_server, Manager(client, [Recorder()], clock=clock))
    await clock.advance(119.9)
    assert not starting.done()
    await clock.advance(0.1)
    with pytest.raises(DeadlineError, match=r"not synced: .*secrets in all namespaces"):
        await asyncio.wait_for(starting, 10)
    let_go()


async def test_r208_a_stop_while_caches_sync_is_no_error(in_loop_server: TlsTestServer, client: Client) -> None:
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/secrets"))
    manager = Manager(client, [Recorder()], clock=FakeClock())
    running = asyncio.ensure_future(manager.run())
    async with asyncio.timeout(10):
        while not any("/secrets" in request for request in in_loop_server.faults.requests):
            await asyncio.sleep(0.001)
        manager.request_stop()
        await running
    let_go()


async def test_a_sync_that_takes_too_long_fails_and_names_missing_informers(in_loop_server: TlsTestServer, client: Client) -> None:
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/secrets"))
    with pytest.raises(DeadlineError, match=r"not synced: .*secrets in all namespaces"):
        await Manager(client, [Recorder()], sync_timeout=0.05).start()
    let_go()


async def test_a_missing_permission_fails_at_once_and_names_it(in_loop_server: TlsTestServer, client: Client) -> None:
    refused = Forbidden(Status(reason="Forbidden", code=403, message="secrets is forbidden: you cannot list them"))
    in_loop_server.faults.refuse(refused, times=50, matching=lambda request: request.path.endswith("/secrets"))
    with pytest.raises(Forbidden, match="you cannot list them"):
        await Manager(client, [Recorder()]).start()


async def test_a_stop_lets_a_running_reconcile_end_and_leaves_no_task_behind(client: Client) -> None:
    before = asyncio.all_tasks()
    gate = asyncio.Event()
    controller = Recorder(gate)
    manager = Manager(client, [controller])
    await manager.start()
    await client.create(config("a"))
    assert await next_of(controller) == "a"
    stopping = asyncio.create_task(manager.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    gate.set()
    await stopping
    assert controller.ended == ["a"]
    left = {
        task for task in asyncio.all_tasks() - before if "kubeloop" in repr(task.get_coro()) and "apiserver" not in repr(task.get_coro())
    }
    assert not [task for task in left if "controller" in repr(task.get_coro()) or "cache" in repr(task.get_coro())]


async def test_a_reconcile_that_does_not_end_within_the_grace_is_cancelled(client: Client) -> None:
    controller = Recorder(asyncio.Event())
    manager = Manager(client, [controller], grace=0.01)
    await manager.start()
    await client.create(config("a"))
    await next_of(controller)
    with pytest.raises(GraceExceeded, match=r"not ended within 0\.01 s, cancelled: recorder"):
        await manager.stop()
    assert controller.ended == []
    assert controller.calls == ["start", "stop"]
    assert manager.phase == "stopped"


async def test_a_controller_that_cannot_start_stops_everything_and_run_raises_its_error(client: Client) -> None:
    class Broken(Recorder, name="broken"):
        async def start(self) -> None:
            raise RuntimeError("no licence")

    healthy = Recorder()
    with pytest.raises(RuntimeError, match="no licence"):
        await asyncio.wait_for(Manager(client, [Broken(), healthy]).run(signals=False), 10)
    assert healthy.calls == ["start", "stop"]


async def test_run_ends_when_it_is_asked_to_and_when_it_is_cancelled(client: Client) -> None:
    for cancel in (False, True):
        controller = Recorder()
        manager = Manager(client, [controller])
        running = asyncio.create_task(manager.run(signals=False))
        async with asyncio.timeout(10):
            while not controller.calls:
                await asyncio.sleep(0.001)
        if cancel:
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
        else:
            manager.request_stop()
            await running
        assert controller.calls == ["start", "stop"]


async def test_a_controller_added_while_it_runs_starts_at_once(client: Client) -> None:
    await client.create(config("a"))
    later = Recorder()
    async with Manager(client) as manager:
        await manager.add(later)
        assert await next_of(later) == "a"
    assert later.calls == ["start", "stop"]


async def test_what_cannot_be_is_refused(client: Client) -> None:
    manager = Manager(client, [Recorder()])
    with pytest.raises(ManagerError, match='two controllers are named "recorder"'):
        await manager.add(Recorder())
    async with manager:
        with pytest.raises(ManagerError, match="started already"):
            await manager.start()
    with pytest.raises(ManagerError, match="the manager is stopped"):
        await manager.add(Recorder())
    await manager.stop()


async def test_a_controller_serves_one_manager_at_a_time_and_another_one_afterwards(client: Client) -> None:
    controller = Recorder()
    async with Manager(client, [controller]):
        with pytest.raises(DeclarationError, match="by another manager already"):
            await Manager(client, [controller]).start()
        await client.create(config("a"))
        assert await next_of(controller) == "a"
    async with Manager(client, [controller]):
        assert await next_of(controller) == "a"


async def test_the_statistics_show_queue_reconciles_and_the_last_change(client: Client) -> None:
    controller = Recorder()
    async with Manager(client, [controller]) as manager:
        await client.create(config("a"))
        await next_of(controller)
        async with asyncio.timeout(10):
            while not manager.stats[0].counts.reconciles:
                await asyncio.sleep(0.001)
        (stats,) = manager.stats
    assert (stats.name, stats.workers, stats.queue.adds, stats.counts.reconciles, stats.counts.errors) == ("recorder", 1, 1, 1, 0)
    assert stats.last_change == "ConfigMap default/a ADDED"
    assert stats.counts.last_key == "default/a"
