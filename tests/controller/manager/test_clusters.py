"""Several clusters in one manager: their caches first (S219), controllers bound to one or run for each, added and removed while it runs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import KeyController, Manager, ManagerError
from kubeloop.controller.manager.background import Background
from kubeloop.controller.manager.clusters import OnCluster, OnEachCluster
from kubeloop.meta import ObjectKey, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.controller.manager.test_order import Noted

pytestmark = pytest.mark.embedded


class Keys(KeyController[ConfigMap], name="keys"):
    def __init__(self, seen: asyncio.Queue[ObjectKey]) -> None:
        self.seen = seen

    async def reconcile(self, key: ObjectKey) -> None:
        self.seen.put_nowait(key)


@pytest.fixture
async def clients(in_loop_server: TlsTestServer) -> AsyncIterator[list[Client]]:
    """Three clusters, or so their clients say: "one", "two" and "three"; each with a config map of its name."""
    async with AsyncExitStack() as stack:
        other = await stack.enter_async_context(TlsTestServer())
        found = []
        for name, server in (("one", in_loop_server), ("two", other), ("three", other)):
            config = msgspec.structs.replace(server.config, name=name)
            found.append(await stack.enter_async_context(Client(Transport(config), namespace="default")))
        for client in found[:2]:
            await client.create(ConfigMap(metadata=ObjectMeta(name=f"of-{client.cluster}", namespace="default")))
        yield found


async def keys_of(seen: asyncio.Queue[ObjectKey], number: int) -> set[tuple[str, str]]:
    return {(key.cluster, key.name) for key in [await asyncio.wait_for(seen.get(), 10) for _ in range(number)]}


async def test_a_controller_runs_on_the_first_cluster_unless_it_is_bound_to_another(clients: list[Client]) -> None:
    seen: asyncio.Queue[ObjectKey] = asyncio.Queue()
    async with Manager(clients[0], [Keys(seen)], clusters=clients[1:2]):
        assert await keys_of(seen, 1) == {("one", "of-one")}
    async with Manager(clients[0], [OnCluster("two", Keys(seen))], clusters=clients[1:2]):
        assert await keys_of(seen, 1) == {("two", "of-two")}


async def test_one_for_each_cluster_gets_keys_that_name_it(clients: list[Client]) -> None:
    seen: asyncio.Queue[ObjectKey] = asyncio.Queue()
    async with Manager(clients[0], [OnEachCluster(lambda cluster: Keys(seen))], clusters=clients[1:2]) as manager:
        assert await keys_of(seen, 2) == {("one", "of-one"), ("two", "of-two")}
        assert [stats.name for stats in manager.stats] == ["keys@one", "keys@two"]


async def test_s219_caches_of_all_clusters_are_synced_before_all_else(in_loop_server: TlsTestServer, clients: list[Client]) -> None:
    log: list[str] = []
    seen: asyncio.Queue[ObjectKey] = asyncio.Queue()
    let_go = in_loop_server.faults.hold(matching=lambda request: request.path.endswith("/configmaps"))
    other = Noted("other", log, needs_leader=False)
    manager = Manager(clients[1], [other, OnCluster("one", Keys(seen))], clusters=clients[:1])
    starting = asyncio.create_task(manager.start())
    async with asyncio.timeout(10):
        while not any("/api/v1/configmaps" in request for request in in_loop_server.faults.requests):
            await asyncio.sleep(0.001)
    assert log == ["other connects"]
    let_go()
    await starting
    await other.started.wait()
    await manager.stop()


async def test_a_cluster_is_added_and_removed_while_it_runs(clients: list[Client]) -> None:
    seen: asyncio.Queue[ObjectKey] = asyncio.Queue()
    before = asyncio.all_tasks()
    async with Manager(clients[0], [OnEachCluster(lambda cluster: Keys(seen))]) as manager:
        assert await keys_of(seen, 1) == {("one", "of-one")}
        await manager.add_cluster(clients[1])
        assert await keys_of(seen, 1) == {("two", "of-two")}
        await manager.remove_cluster("two")
        assert list(manager.clusters) == ["one"]
        await clients[1].create(ConfigMap(metadata=ObjectMeta(name="late", namespace="default")))
        await clients[0].create(ConfigMap(metadata=ObjectMeta(name="late", namespace="default")))
        assert await keys_of(seen, 1) == {("one", "late")}
        await manager.add_cluster(clients[1])
        assert await keys_of(seen, 2) == {("two", "of-two"), ("two", "late")}
    assert not [task for task in asyncio.all_tasks() - before if "kubeloop/controller" in repr(task.get_coro())]


async def test_what_cannot_be_is_refused(clients: list[Client]) -> None:
    with pytest.raises(ManagerError, match='two clusters are named "one"'):
        Manager(clients[0], clusters=clients[:1])
    with pytest.raises(ManagerError, match='there is no cluster "four"; there are "one", "two"'):
        Manager(clients[0], [OnCluster("four", Keys(asyncio.Queue()))], clusters=clients[1:2])
    manager = Manager(clients[0])
    with pytest.raises(ManagerError, match="manager's own cluster"):
        await manager.remove_cluster("one")
    async with manager:
        pass
    with pytest.raises(ManagerError, match="the manager is stopped; nothing can be added"):
        await manager.add_cluster(clients[1])


async def test_a_cluster_on_which_something_cannot_be_made_is_as_if_never_added(clients: list[Client]) -> None:
    def make(cluster: str) -> Background:
        async def work() -> None: ...

        if cluster == "three":
            raise RuntimeError("not there")
        return Background(work, name="the same everywhere")

    first, second, third = clients
    async with Manager(first, [OnEachCluster(make)]) as manager:
        with pytest.raises(RuntimeError, match="not there"):
            await manager.add_cluster(third)
        with pytest.raises(ManagerError, match='two controllers are named "the same everywhere"'):
            await manager.add_cluster(second)
        assert list(manager.clusters) == ["one"]
        assert len(manager.runnables) == 1
        await asyncio.wait_for(manager.add(Background(nothing, name="later")), 20)


async def nothing() -> None:
    """Work that ends at once."""
