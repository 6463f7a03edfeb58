"""Informers of several clusters as one: handlers, listers, and clusters that are down."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from inspect import signature

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory, InformerStopped
from kubeloop.cache.informers import InformerOptions
from kubeloop.cache.multicluster.several import MulticlusterInformerFactory, UnknownCluster
from kubeloop.client import Client
from kubeloop.endpoints import api_errors
from kubeloop.meta import DeadlineError, Forbidden, ObjectKey, ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.timing import FakeClock
from kubeloop.transport import Transport
from tests.cache.source import until


@asynccontextmanager
async def two_clusters() -> AsyncIterator[tuple[dict[str, TlsTestServer], dict[str, Client]]]:
    async with AsyncExitStack() as stack:
        servers = {name: await stack.enter_async_context(TlsTestServer()) for name in ("east", "west")}
        clients = {name: await stack.enter_async_context(Client(Transport(server.config))) for name, server in servers.items()}
        yield servers, clients


def config_map(name: str, **data: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data=data)


@pytest.mark.embedded
async def test_one_handler_hears_of_all_clusters_and_keys_and_listers_tell_them_apart() -> None:
    deliveries: list[tuple[str, ObjectKey]] = []
    async with two_clusters() as (_, clients), MulticlusterInformerFactory(clients, resync=30) as informers:
        await clients["east"].create(config_map("one", team="x"))
        maps = informers.for_kind(ConfigMap, namespace="default", indexes={"team": "data.team"})
        call = lambda event: deliveries.append((event.type.value, event.key))  # noqa: E731 - called for each kind of change alike
        registration = maps.on_event(added=call, updated=call, deleted=call)
        await informers.wait_synced(10)
        await registration.wait_synced(10)
        assert (registration.synced, maps.synced, registration.pending) == (True, {"east": True, "west": True}, 0)
        await clients["west"].create(config_map("one", team="x"))
        await clients["west"].create(config_map("two"))
        await until(lambda: len(deliveries) == 3)
        await clients["east"].delete(ConfigMap, "one", namespace="default")
        await until(lambda: len(deliveries) == 4)
        assert deliveries == [
            ("ADDED", ObjectKey("east", "default", "one")),
            ("ADDED", ObjectKey("west", "default", "one")),
            ("ADDED", ObjectKey("west", "default", "two")),
            ("DELETED", ObjectKey("east", "default", "one")),
        ]
        lister = maps.lister
        assert [(cluster, each.metadata.name) for cluster, each in lister.list()] == [("west", "one"), ("west", "two")]
        assert [(cluster, each.metadata.name) for cluster, each in lister.by_index("team", "x")] == [("west", "one")]
        assert [(cluster, head.name) for cluster, head in lister.heads("default")] == [("west", "one"), ("west", "two")]
        assert len(lister) == 2
        one = lister.get("west", "one", "default")
        assert one is not None
        assert lister.by_key(ObjectKey("west", "default", "one")) == one
        assert lister.get("east", "one") is None
        assert lister.clusters["west"].get("two") is not None
        with pytest.raises(UnknownCluster, match=r'no cluster "north" here \(there are: east, west\)'):
            lister.get("north", "one")
        registration.remove()
        await registration.wait_removed(5)
        await clients["east"].create(config_map("late"))
        await until(lambda: len(lister) == 3)
        assert len(deliveries) == 4


@pytest.mark.embedded
async def test_an_async_handler_is_called_for_one_event_at_a_time_and_clusters_take_turns() -> None:
    at_work, most = 0, 0
    order: list[str] = []
    go = asyncio.Event()

    async def handler(event: InformerEvent[ConfigMap]) -> None:
        nonlocal at_work, most
        at_work += 1
        most = max(most, at_work)
        order.append(event.key.cluster)
        await go.wait()
        await asyncio.sleep(0)
        at_work -= 1

    async with two_clusters() as (_, clients), MulticlusterInformerFactory(clients) as informers:
        maps = informers.for_kind(ConfigMap, namespace="default")
        registration = maps.on_event(added=handler)
        await registration.wait_synced(10)
        for number in range(10):
            await clients["east"].create(config_map(f"m{number}"))
        for number in range(3):
            await clients["west"].create(config_map(f"m{number}"))
        await until(lambda: len(maps.lister) == 13)
        go.set()
        await until(lambda: len(order) == 13 and registration.pending == 0)
    assert most == 1
    assert set(order[:4]) == {"east", "west"}, "ten events of one do not come before the first of the other"


@pytest.mark.embedded
async def test_a_cluster_that_is_down_stops_no_other_and_is_named_and_comes_back() -> None:
    clock = FakeClock()
    async with two_clusters() as (servers, clients):
        await servers["west"].crash()
        async with MulticlusterInformerFactory(clients, clock=clock) as informers:
            maps = informers.for_kind(ConfigMap, namespace="default")
            names: list[str] = []
            registration = maps.on_event(added=lambda event: names.append(f"{event.key.cluster}/{event.key.name}"))
            await clients["east"].create(config_map("one"))
            await informers.clusters["east"].wait_synced(10)
            await until(lambda: names == ["east/one"])
            await until(lambda: maps.clusters["west"].failure is not None)
            waiting = [asyncio.create_task(each.wait_synced(10)) for each in (informers, registration)]
            await clock.advance(10)
            for task in waiting:
                with pytest.raises(DeadlineError, match=r'^cluster "west": after 10 s: ') as caught:
                    await task
                assert "east" not in str(caught.value)
            assert maps.synced == {"east": True, "west": False}
            await clients["east"].create(config_map("two"))
            await until(lambda: names == ["east/one", "east/two"])
            await servers["west"].come_back()
            waiting = [asyncio.create_task(informers.wait_synced(600))]
            async with asyncio.timeout(5):
                while not waiting[0].done():
                    await clock.advance(5)
                    await asyncio.sleep(0.01)
            await waiting[0]
            await clients["west"].create(config_map("one"))
            await until(lambda: names[-1] == "west/one")


@pytest.mark.embedded
async def test_a_cluster_that_refuses_is_named_at_once() -> None:
    async with two_clusters() as (servers, clients), MulticlusterInformerFactory(clients) as informers:
        servers["west"].faults.refuse(api_errors.refusal(403, "Forbidden", "no"), times=100)
        informers.for_kind(ConfigMap)
        with pytest.raises(Forbidden) as caught:
            await informers.wait_synced(10)
        assert caught.value.__notes__ == ['in cluster "west"']
        await informers.clusters["east"].wait_synced(10)


@pytest.mark.embedded
async def test_clusters_need_different_names(in_loop_server: TlsTestServer) -> None:
    async with Client(Transport(in_loop_server.config)) as client:
        with pytest.raises(ValueError, match="have the same cluster name; name them"):
            MulticlusterInformerFactory([client, client])
        with pytest.raises(ValueError, match="no client was given"):
            MulticlusterInformerFactory({})
        assert list(MulticlusterInformerFactory([client]).clusters) == [client.cluster]


@pytest.mark.embedded
async def test_log_records_name_the_cluster_and_the_block_ends_with_everything(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "kubeloop.cache")
    before = asyncio.all_tasks()
    async with two_clusters() as (_, clients):
        async with MulticlusterInformerFactory(clients) as informers:
            maps = informers.for_kind(ConfigMap, namespace="default")
            await informers.wait_synced(10)
        records = [record for record in caplog.records if "synced" in record.getMessage()]
        assert {record.kubeloop["cluster"] for record in records} == {"east", "west"}  # type: ignore[attr-defined]  # a filter put it there
        with pytest.raises(InformerStopped):
            maps.on_event(added=print)
        with pytest.raises(InformerStopped):
            informers.for_kind(ConfigMap)
        assert not {task for task in asyncio.all_tasks() - before if "kubeloop informer" in task.get_name()}


@pytest.mark.server
async def test_one_server_under_two_names_is_two_clusters(client: Client, namespace: str) -> None:
    deliveries: list[ObjectKey] = []
    async with MulticlusterInformerFactory({"one": client, "other": client}) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, field_selector="metadata.name=mine")
        registration = maps.on_event(added=lambda event: deliveries.append(event.key))
        await informers.wait_synced(30)
        await registration.wait_synced(30)
        await client.create(ConfigMap(metadata=ObjectMeta(name="mine", namespace=namespace)))
        await until(lambda: len(deliveries) == 2)
        assert sorted(deliveries) == [ObjectKey("one", namespace, "mine"), ObjectKey("other", namespace, "mine")]
        assert [cluster for cluster, _ in maps.lister.heads()] == ["one", "other"]


def test_options_of_one_clusters_informers_are_options_of_several_clusters_informers() -> None:
    own = [name for name in signature(InformerFactory.for_kind).parameters if name not in ("self", "kind")]
    assert sorted(InformerOptions.__annotations__) == sorted(own)
