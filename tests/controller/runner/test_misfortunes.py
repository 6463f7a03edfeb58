"""Controllers and managers when things go wrong: stops at bad moments, threads that do not end, kinds that come and go."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.cache import HandlerFailed, Head, InformerEvent
from kubeloop.client import Client
from kubeloop.controller import Controller, KeyController, Manager, ManagerError, Predicate, Result, WatchedKind
from kubeloop.meta import DeadlineError, ObjectKey, ObjectMeta, Unstructured
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport

pytestmark = pytest.mark.embedded

Definition = Unstructured.for_kind(
    "apiextensions.k8s.io/v1", "CustomResourceDefinition", plural="customresourcedefinitions", namespaced=False
)
Thing = Unstructured.for_kind("misfortunes.example.com/v1", "Thing", plural="things", namespaced=True)
Unknown = Unstructured.for_kind("misfortunes.example.com/v1", "Thing")


@pytest.fixture
async def client(in_loop_server: TlsTestServer) -> AsyncIterator[Client]:
    async with Client(Transport(in_loop_server.config), namespace="default") as found:
        yield found


def config(name: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"))


def definition() -> Unstructured:
    return Definition.from_dict(
        {
            "metadata": {"name": "things.misfortunes.example.com"},
            "spec": {
                "group": "misfortunes.example.com",
                "scope": "Namespaced",
                "names": {"plural": "things", "singular": "thing", "kind": "Thing", "listKind": "ThingList"},
                "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": {"type": "object"}}}],
            },
        }
    )


class Names(Controller[ConfigMap], name="names"):
    def __init__(self) -> None:
        self.seen: list[str] = []
        self.calls: list[str] = []

    async def start(self) -> None:
        self.calls.append("start")

    async def stop(self) -> None:
        self.calls.append("stop")

    async def reconcile(self, obj: ConfigMap) -> Result | None:
        self.seen.append(obj.metadata.name)
        return None

    async def until(self, *names: str) -> None:
        async with asyncio.timeout(10):
            while not set(names) <= set(self.seen):
                await asyncio.sleep(0.001)


class Things(KeyController[Thing], name="things"):  # type: ignore[valid-type]  # made at run time
    def __init__(self) -> None:
        self.seen: list[str] = []

    async def reconcile(self, key: ObjectKey) -> Result | None:
        there = self.lister(Thing).by_key(key) is not None
        self.seen.append(f"{key.name} {'there' if there else 'gone'}")
        return None

    async def until(self, message: str) -> None:
        async with asyncio.timeout(20):
            while message not in self.seen:
                await asyncio.sleep(0.005)


def left_over(before: set[asyncio.Task[object]]) -> list[str]:
    """Tasks of controllers and caches that were not there before."""
    return [
        repr(task)
        for task in asyncio.all_tasks() - before
        if not task.done() and any(word in repr(task.get_coro()) for word in ("controller", "cache", "EventSender"))
    ]


async def test_a_stop_that_is_requested_while_it_waits_for_a_sync_ends_it_at_once(in_loop_server: TlsTestServer, client: Client) -> None:
    before = asyncio.all_tasks()
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/configmaps"))
    controller = Names()
    manager = Manager(client, [controller])
    running = asyncio.create_task(manager.run(signals=False))
    async with asyncio.timeout(10):
        while not any("/configmaps" in request for request in in_loop_server.faults.requests):
            await asyncio.sleep(0.001)
    manager.request_stop()
    await asyncio.wait_for(running, 5)
    assert controller.calls == []
    assert not left_over(before)
    let_go()


async def test_a_stop_before_the_start_means_that_nothing_is_started(client: Client) -> None:
    controller = Names()
    manager = Manager(client, [controller])
    manager.request_stop()
    await asyncio.wait_for(manager.run(signals=False), 5)
    assert controller.calls == []


async def test_a_cancellation_during_the_grace_leaves_nothing_behind(client: Client) -> None:
    before = asyncio.all_tasks()
    entered = asyncio.Event()

    class Hanging(Controller[ConfigMap], name="hanging"):
        async def reconcile(self, obj: ConfigMap) -> None:
            entered.set()
            await asyncio.Event().wait()

    manager = Manager(client, [Hanging()], grace=None)
    running = asyncio.create_task(manager.run(signals=False))
    await asyncio.wait_for(manager.wait_leading(), 10)
    await client.create(config("a"))
    await asyncio.wait_for(entered.wait(), 10)
    running.cancel()
    await asyncio.sleep(0.01)
    assert not running.done(), "it waits for the reconcile"
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(running, 5)
    assert not left_over(before)


async def test_a_controller_whose_start_was_cancelled_from_within_is_a_failure(client: Client) -> None:
    class Cancelled(Names, name="cancelled"):
        async def start(self) -> None:
            raise asyncio.CancelledError

    with pytest.raises(ManagerError, match='controller "cancelled" ended'):
        await asyncio.wait_for(Manager(client, [Cancelled()]).run(signals=False), 5)


async def test_a_controller_that_could_not_be_added_leaves_nothing_behind(in_loop_server: TlsTestServer, client: Client) -> None:
    class Secrets(Names, owns=[Secret], name="secrets"):
        pass

    late = Secrets()
    clock = FakeClock()
    async with Manager(client, [Names()], clock=clock, sync_timeout=60) as manager:
        before = asyncio.all_tasks()
        let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/secrets"))
        adding = asyncio.ensure_future(manager.add(late))
        while not adding.done():
            await clock.advance(10)
            await asyncio.sleep(0.001)
        with pytest.raises(DeadlineError, match="secrets"):
            await adding
        assert [stats.name for stats in manager.stats] == ["names"]
        assert not [task for task in left_over(before) if "EventSender" in task]
        let_go()
        await manager.add(late)
    assert late.calls == ["start", "stop"]


async def test_a_thread_that_outlives_the_timeout_keeps_its_key_from_being_reconciled_beside_it(client: Client) -> None:
    together = 0
    most = 0
    calls = 0
    lock, gate = threading.Lock(), threading.Event()

    class Slow(Controller[ConfigMap], workers=4, timeout=0.02, name="slow"):
        def reconcile(self, obj: ConfigMap) -> None:
            nonlocal together, most, calls
            with lock:
                calls += 1
                together += 1
                most = max(most, together)
            if calls == 1:
                gate.wait(10)
            with lock:
                together -= 1

    async with Manager(client, [Slow()]) as manager:
        await client.create(config("a"))
        async with asyncio.timeout(10):
            while not calls:
                await asyncio.sleep(0.005)
        await asyncio.sleep(0.1)
        assert (calls, manager.stats[0].queue.processing) == (1, 1)
        gate.set()
        async with asyncio.timeout(10):
            while calls < 2:
                await asyncio.sleep(0.005)
        assert manager.stats[0].counts.timeouts == 1
    assert most == 1


async def test_a_watch_function_that_raises_costs_the_other_handlers_of_that_kind_nothing(client: Client) -> None:
    def broken(head: Head) -> list[ObjectKey]:
        raise RuntimeError("boom")

    class Fragile(Names, watches=[WatchedKind(ConfigMap, to=broken)], name="fragile"):
        pass

    controller = Fragile()
    async with Manager(client, [controller]):
        await client.create(config("a"))
        await controller.until("a")


async def test_a_predicate_that_raises_on_an_initial_object_is_named_at_once(client: Client) -> None:
    def broken(event: InformerEvent[ConfigMap]) -> bool:
        raise RuntimeError("boom")

    class Choosy(Names, predicates=[Predicate(broken)], name="choosy"):
        pass

    await client.create(config("a"))
    with pytest.raises(HandlerFailed, match="failed on default/a: RuntimeError: boom"):
        await asyncio.wait_for(Manager(client, [Choosy()]).start(), 5)


@pytest.mark.parametrize(
    "kind", [pytest.param(Thing, id="a kind that is described in the program"), pytest.param(Unknown, id="a kind known by its name only")]
)
async def test_a_manager_waits_for_a_definition_that_comes_later_and_the_deadline_names_it(
    client: Client, kind: type[Unstructured]
) -> None:
    seen: list[str] = []

    class Late(Controller[kind], name="late"):  # type: ignore[valid-type]  # made at run time
        async def reconcile(self, obj: Unstructured) -> None:
            seen.append(obj.metadata.name)

    with pytest.raises(DeadlineError, match=r"(?s)not synced: .*misfortunes\.example\.com"):
        await Manager(client, [Late()], sync_timeout=0.05).start()
    manager = Manager(client, [Late()])
    starting = asyncio.create_task(manager.start())
    await asyncio.sleep(0.02)
    assert not starting.done()
    await client.create(definition())
    await asyncio.wait_for(starting, 15)
    await client.create(Thing.from_dict({"metadata": {"name": "t", "namespace": "default"}}))
    async with asyncio.timeout(10):
        while seen != ["t"]:
            await asyncio.sleep(0.005)
    await manager.stop()


async def test_a_definition_that_is_deleted_and_recreated_while_a_controller_runs(client: Client) -> None:
    await client.create(definition())
    await client.wait_for(Definition, "things.misfortunes.example.com", _is_established, timeout=10)
    controller = Things()
    async with Manager(client, [controller]):
        await client.create(Thing.from_dict({"metadata": {"name": "first", "namespace": "default"}}))
        await controller.until("first there")
        await client.delete(Definition, "things.misfortunes.example.com")
        await client.wait_gone(Definition, "things.misfortunes.example.com", timeout=10)
        await controller.until("first gone")
        await client.create(definition())
        await client.wait_for(Definition, "things.misfortunes.example.com", _is_established, timeout=10)
        await client.create(Thing.from_dict({"metadata": {"name": "second", "namespace": "default"}}))
        await controller.until("second there")


def _is_established(definition: Unstructured) -> bool:
    return any(each["type"] == "Established" and each["status"] == "True" for each in definition.get("status", "conditions", default=[]))


async def test_two_clusters_in_one_process_do_not_see_each_other(in_loop_server: TlsTestServer, client: Client) -> None:
    class Keys(KeyController[ConfigMap], name="keys"):
        def __init__(self) -> None:
            self.seen: set[ObjectKey] = set()

        async def reconcile(self, key: ObjectKey) -> None:
            self.seen.add(key)

    first, second = Keys(), Keys()
    async with (
        TlsTestServer() as other,
        Client(Transport(msgspec.structs.replace(other.config, name="other"))) as there,
        Manager(client, [first]),
        Manager(there, [second]),
    ):
        await client.create(config("here"))
        await there.create(config("there"))
        async with asyncio.timeout(10):
            while not (first.seen and second.seen):
                await asyncio.sleep(0.001)
    assert (first.seen, second.seen) == ({ObjectKey("in-loop", "default", "here")}, {ObjectKey("other", "default", "there")})


async def test_a_storm_of_keys_is_worked_off_with_each_key_seen_at_least_once(client: Client) -> None:
    seen: set[str] = set()

    class Storm(KeyController[ConfigMap], workers=10, name="storm"):
        async def reconcile(self, key: ObjectKey) -> None:
            seen.add(key.name)
            await asyncio.sleep(0)

    controller = Storm()
    async with Manager(client, [controller]) as manager:
        for round_ in range(3):
            for number in range(3000):
                controller.enqueue(ObjectKey("", "default", f"n{number}"), after=0.01 * round_)
        async with asyncio.timeout(20):
            while len(seen) < 3000 or manager.stats[0].queue.waiting or manager.stats[0].queue.delayed:
                await asyncio.sleep(0.01)
        assert manager.stats[0].counts.errors == 0
