"""``lister.wait_fresh``: waiting until the watch has brought the cache to a version, or to our own writes."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory, InformerStopped
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import DeadlineError, ObjectMeta
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import informers_of
from tests.cache.own_world import World, document
from tests.cache.source import Source, until

A1 = document("a", "u1", "11", x="1")
A2 = document("a", "u1", "12", x="2")


async def begun(work: asyncio.Task[None]) -> asyncio.Task[None]:
    await asyncio.sleep(0)
    assert not work.done()
    return work


async def test_with_nothing_written_it_returns_at_once() -> None:
    world = World()
    await world.lister.wait_fresh()


async def test_it_waits_until_the_watch_has_shown_our_own_writes_and_not_for_later_ones() -> None:
    world = World()
    world.listed([A1, document("b", "u2", "11")], "11")
    world.wrote(A2)
    world.deleted("b", "u2")
    waiting = await begun(asyncio.ensure_future(world.lister.wait_fresh()))
    world.wrote(document("c", "u3", "20"), "create")
    world.changed(A2)
    await begun(waiting)
    world.removed(document("b", "u2", "13"))
    await asyncio.wait_for(waiting, 1)


async def test_it_does_not_wait_for_writes_that_the_watch_will_never_show() -> None:
    world = World(labels="app=web")
    world.listed([], "10")
    world.wrote(document("a", "u1", "11", {"app": "db"}))
    world.deleted("stranger", "u7")
    await asyncio.wait_for(world.lister.wait_fresh(), 1)


async def test_it_waits_for_a_version_whatever_brings_it() -> None:
    world = World()
    world.listed([A1], "11")
    await world.lister.wait_fresh("11")
    waiting = await begun(asyncio.ensure_future(world.lister.wait_fresh("100")))
    world.changed(document("a", "u1", "99"))
    await begun(waiting)
    world.bookmark("101")
    await asyncio.wait_for(waiting, 1)


async def test_a_version_that_is_no_number_is_refused() -> None:
    with pytest.raises(ValueError, match='min_resource_version="abc" is not a number'):
        await World().lister.wait_fresh("abc")


async def test_a_deadline_says_what_was_waited_for_and_where_the_cache_is() -> None:
    world = World()
    world.listed([A1], "11")
    for name in "abcde":
        world.wrote(document(name, f"u-{name}", "12"))
    waiting = await begun(asyncio.ensure_future(world.lister.wait_fresh(timeout=3)))
    await world.clock.advance(3)
    with pytest.raises(DeadlineError) as raised:
        await waiting
    assert str(raised.value) == (
        "after 3 s: configmaps: the watch has not shown our own writes of default/a, default/b, default/c and 2 more; it is at version 11"
    )
    world.feed.failure = RuntimeError("refused")
    waiting = await begun(asyncio.ensure_future(world.lister.wait_fresh("50", timeout=3)))
    await world.clock.advance(3)
    with pytest.raises(DeadlineError, match=r"waiting for version 50; it is at version 11 \(last failure: refused\)"):
        await waiting


async def test_an_informer_that_stops_ends_the_wait(source: Source, api: Client, clock: FakeClock) -> None:
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        waiting = await begun(asyncio.ensure_future(maps.lister.wait_fresh("1000000")))
    with pytest.raises(InformerStopped, match="its cache no longer changes"):
        await waiting
    await maps.lister.wait_fresh(maps.resource_version)


async def test_an_informer_wakes_the_waiter_when_its_watch_gets_there(source: Source, api: Client, clock: FakeClock) -> None:
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        await until(lambda: source.watches == 1)
        waiting = await begun(asyncio.ensure_future(maps.lister.wait_fresh(str(source.version + 2))))
        source.put("a")
        source.put("b")
        await asyncio.wait_for(waiting, 5)
        assert len(maps.lister) == 2


@pytest.mark.server
async def test_what_another_client_wrote_is_there_once_its_version_is(client: Client, namespace: str) -> None:
    async with Client(client.transport, namespace=namespace) as other, InformerFactory(other) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace)
        await informers.wait_synced(10)
        written = await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
        await maps.lister.wait_fresh(written.metadata.resource_version)
        head = maps.lister.head("a")
        assert head is not None
        assert head.uid == written.metadata.uid
