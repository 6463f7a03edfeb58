"""Informers behind a network that fails, and of servers that crash: they end equal to the server, and handlers get no wrong event.

The embedded server and a real one alike, with a proxy between; crashes only where the server is ours.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Informer, InformerFactory
from kubeloop.client import Client
from kubeloop.config import ClusterConfig
from kubeloop.meta import DeadlineError, ObjectMeta
from kubeloop.testing import LocalCluster, TlsTestServer
from kubeloop.transport import Transport
from tests.cache.model.contract import ContractChecker, Key, Seen, seen
from tests.cache.model.hurried import HurriedClock
from tests.faults import FaultProxy
from tests.servers import ServerUnderTest

#: Longer than any watch is asked to last.
WATCHES_END = 700.0


@dataclass
class NetworkedInformer:
    """An informer behind a proxy, a handler that checks its events, and a client with its own network for writes."""

    proxy: FaultProxy
    client: Client
    maps: Informer[ConfigMap]
    checker: ContractChecker
    clock: HurriedClock
    namespace: str
    informers: InformerFactory

    async def write(self, *names: str, **data: str) -> None:
        for name in names:
            await self.client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=self.namespace), data=data))

    async def delete(self, name: str) -> None:
        await self.client.delete(ConfigMap, name, namespace=self.namespace)

    async def is_equal(self, *, hurry: bool = True) -> None:
        """Wait until cache and handler show what the server has; then no delivered event may be wrong.

        ``hurry``: let the time of a watch pass now and then.
        """
        pause = 0.2
        async with asyncio.timeout(20):
            while not self._rested(there := await self._listed()):
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(pause):
                        await self.until(partial(self._rested, there))
                if hurry:
                    self.clock.jump(WATCHES_END)
                    pause *= 1.5
        self.checker.finish(there)
        assert self.checker.violations == []

    async def _listed(self) -> dict[Key, Seen]:
        listed = await self.client.list(ConfigMap, namespace=self.namespace)
        return {(self.namespace, one.metadata.name): Seen(one.metadata.uid, int(one.metadata.resource_version)) for one in listed}

    def _rested(self, there: dict[Key, Seen]) -> bool:
        return seen(self.maps.lister.heads()) == there == self.checker.states

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(20):
            while not condition():
                await asyncio.sleep(0.005)

    @property
    def lists(self) -> int:
        """How often everything was asked for."""
        return sum(feed.listwatch.lists.total() for feed in self.maps._runner.feeds)


@asynccontextmanager
async def informed(
    config: ClusterConfig, namespace: str, *, names: str = "ab", sync: bool = True, clock: HurriedClock | None = None
) -> AsyncIterator[NetworkedInformer]:
    # A minute of silence must be longer than the three seconds in which a server waits for a version that does not come.
    clock, checker = clock or HurriedClock(15), ContractChecker("checker")
    async with (
        Client(Transport(config)) as client,
        FaultProxy(config.server) as proxy,
        Client(Transport(proxy.config(config))) as behind,
        InformerFactory(behind, clock=clock) as informers,
    ):
        for name in names:
            await client.create(ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace)))
        if not sync:
            proxy.freeze()
        maps = informers.for_kind(ConfigMap, namespace=namespace)
        checker.attach(maps)
        around = NetworkedInformer(proxy, client, maps, checker, clock, namespace, informers)
        if sync:
            await informers.wait_synced(1000)
            await around.is_equal(hurry=False)
        yield around


Fault = Callable[[NetworkedInformer], Any]


async def refused_for_a_while(around: NetworkedInformer) -> None:
    await around.proxy.refuse()
    around.proxy.reset()
    await around.clock.sleep(3)
    await around.proxy.accept()


async def dropped_for_a_while(around: NetworkedInformer) -> None:
    around.proxy.drop_after(0)
    around.proxy.cut()
    await around.clock.sleep(3)
    await around.proxy.accept()


async def frozen_for_a_while(around: NetworkedInformer) -> None:
    around.proxy.freeze()
    await around.clock.sleep(10)
    around.proxy.thaw()


@pytest.mark.server
@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(lambda around: around.proxy.cut(), id="connections that are closed"),
        pytest.param(lambda around: around.proxy.reset(), id="connections that are reset"),
        pytest.param(lambda around: around.proxy.half_close(), id="connections of which one direction ends"),
        pytest.param(lambda around: around.proxy.cut_after(120, times=3), id="connections cut in mid-frame, three times"),
        pytest.param(refused_for_a_while, id="a server that refuses for a while"),
        pytest.param(dropped_for_a_while, id="connections dropped as soon as they are open, for a while"),
        pytest.param(frozen_for_a_while, id="a server that is silent for a while"),
    ],
)
async def test_nothing_is_missed_and_the_cache_goes_on_answering_through(server: ServerUnderTest, namespace: str, fault: Fault) -> None:
    async with informed(server.config, namespace) as around:
        await around.write("before")
        waiting = fault(around)
        failing: Awaitable[Any] = asyncio.ensure_future(waiting) if asyncio.iscoroutine(waiting) else asyncio.sleep(0)
        assert around.maps.lister.get("a") is not None
        await around.write("c", "d", k="v" * 300)
        await around.delete("a")
        await failing
        await around.write("e")
        await around.is_equal()
        assert around.maps.reconnects + around.lists >= 1


@pytest.mark.server
async def test_a_cut_in_mid_frame_is_resumed_from_the_last_event_and_nothing_is_listed(server: ServerUnderTest, namespace: str) -> None:
    async with informed(server.config, namespace) as around:
        lists = around.lists
        around.proxy.cut_after(200)
        await around.write("c", k="v" * 1000)
        await around.is_equal(hurry=False)
        assert around.maps.reconnects == 1
        assert around.lists == lists


@pytest.mark.server
async def test_a_server_that_falls_silent_without_closing_is_left_at_the_end_of_the_watch(server: ServerUnderTest, namespace: str) -> None:
    async with informed(server.config, namespace) as around:
        assert around.proxy.lose() >= 1
        await around.write("c")
        await around.delete("a")
        await asyncio.sleep(0.05)
        assert around.maps.lister.get("c") is None, "the informer cannot know it"
        around.clock.jump(WATCHES_END)
        await around.is_equal()
        assert around.maps.reconnects >= 1


@pytest.mark.server
async def test_an_informer_that_begins_in_a_black_hole_says_so_and_syncs_when_it_ends(server: ServerUnderTest, namespace: str) -> None:
    async with informed(server.config, namespace, sync=False) as around:
        with pytest.raises(DeadlineError, match="not synced: configmaps in namespace"):
            await around.informers.wait_synced(2)
        around.proxy.thaw()
        await around.is_equal()


@pytest.mark.embedded
async def test_a_server_that_is_killed_and_comes_back_without_its_state_is_found_out() -> None:
    async with LocalCluster(controllers=False) as cluster, informed(cluster.config, "default", names="abcdefghijklmnop") as around:
        around.checker.server_forgets = True
        before = int(around.maps.resource_version)
        await asyncio.to_thread(cluster.kill)
        await around.until(lambda: around.maps.failure is not None)
        assert len(around.maps.lister) == 16, "the cache goes on answering"
        await asyncio.to_thread(cluster.restart)
        await around.write("a", "new")
        await around.is_equal(hurry=False)
        assert int(around.maps.resource_version) < before
        assert around.checker.tombstones == 15, "all but a, which is another one now, and is updated"


@pytest.mark.embedded
@pytest.mark.parametrize("forget", [False, True], ids=["with its store", "without it"])
async def test_a_server_that_crashes_again_and_again_is_followed_through_all_its_lives(forget: bool) -> None:
    clock = HurriedClock(50)
    async with TlsTestServer(clock=clock) as server, informed(server.config, "default", clock=clock) as around:
        around.checker.server_forgets = forget
        for life in range(3):
            await server.crash()
            await around.until(lambda: around.maps.failure is not None)
            await server.come_back(forget=forget)
            await around.write(*(f"life-{life}-{number}" for number in range(3)))
            await around.is_equal(hurry=False)
        assert len(around.maps.lister) == (3 if forget else 11)


@pytest.mark.embedded
async def test_a_server_that_forgot_its_history_is_listed_and_only_changes_are_delivered() -> None:
    clock = HurriedClock(50)
    async with TlsTestServer(clock=clock) as server, informed(server.config, "default", clock=clock) as around:
        events = around.checker.events
        around.proxy.freeze()
        await around.delete("a")
        await around.write("c")
        await server.api.compactor.compact(await server.api.storage.revision())
        server.faults.cut_streams()
        around.proxy.cut()
        around.proxy.thaw()
        await around.is_equal(hurry=False)
        assert around.checker.events == events + 2
        assert around.checker.tombstones == 1
