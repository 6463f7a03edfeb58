"""A whole program on both servers: two replicas with leader election, probes and metrics; the second goes on where the first ended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import aiohttp
import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap, Event
from kubeloop.client import Client
from kubeloop.controller import CacheScope, Controller, Endpoints, KindCacheScope, Manager
from kubeloop.controller.election import LeaseConfig
from kubeloop.meta import ObjectMeta

pytestmark = pytest.mark.server


class Marks(Controller[ConfigMap], name="marks"):
    """Writes into each config map which replica saw it last."""

    def __init__(self, replica: str) -> None:
        self.replica = replica

    async def reconcile(self, config: ConfigMap) -> None:
        if config.data.get("wanted") == self.replica and config.data.get("done") != self.replica:
            config.data["done"] = self.replica
            await self.client.update(config)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession() as found:
        yield found


def replica(client: Client, name: str) -> Manager:
    assert client.namespace
    lease = LeaseConfig("program", client.namespace, name, retry_period=0.2)
    endpoints = Endpoints(health="127.0.0.1:0", metrics="127.0.0.1:0")
    return Manager(client, [Marks(name)], leader_election=lease, endpoints=endpoints, namespace=client.namespace)


async def done_by(client: Client, name: str) -> None:
    await client.wait_for(ConfigMap, "work", lambda config: config.data.get("done") == name, timeout=30)


async def wait_for_event(client: Client, message: str) -> None:
    """An event about the lease says so; it may take a moment."""
    async with asyncio.timeout(30):
        while message not in {event.message async for event in client.list(Event, namespace=client.namespace)}:
            await asyncio.sleep(0.05)


async def test_the_second_replica_goes_on_where_the_first_ended(client: Client, http: aiohttp.ClientSession) -> None:
    await client.create(ConfigMap(metadata=ObjectMeta(name="work"), data={"wanted": "first"}))
    first, second = replica(client, "first"), replica(client, "second")
    async with first:
        await asyncio.wait_for(first.wait_leading(), 30)
        await done_by(client, "first")
        async with second:
            assert not second.is_leader
            async with http.get(second.urls["health"] + "/readyz?verbose") as answer:
                assert (answer.status, await answer.text()) == (
                    200,
                    "[+]informers ok\n[+]shutdown ok\n[+]background-tasks ok\nreadyz check passed\n",
                )
            await first.stop()
            await asyncio.wait_for(second.wait_leading(), 30)
            work = await client.get(ConfigMap, "work")
            work.data["wanted"] = "second"
            await client.update(work)
            await done_by(client, "second")
            async with http.get(second.urls["metrics"] + "/metrics") as answer:
                text = await answer.text()
            assert 'leader_election_master_status{name="program"} 1.0' in text
            assert "rest_client_requests_total" in text
            await wait_for_event(client, "first became leader")
            await wait_for_event(client, "second became leader")
    lease = await client.get(Lease, "program")
    assert lease.spec.holder_identity in (None, "")
    assert lease.spec.lease_transitions == 1


async def test_selectors_of_a_kind_are_the_servers_to_apply(client: Client) -> None:
    assert client.namespace
    seen: asyncio.Queue[str] = asyncio.Queue()

    class Seen(Controller[ConfigMap], name="seen"):
        async def reconcile(self, config: ConfigMap) -> None:
            seen.put_nowait(config.metadata.name)

    await client.create(ConfigMap(metadata=ObjectMeta(name="other")))
    await client.create(ConfigMap(metadata=ObjectMeta(name="ours", labels={"team": "web"})))
    scope = CacheScope(namespaces=client.namespace, kinds={ConfigMap: KindCacheScope(label_selector={"team": "web"})})
    async with Manager(client, [Seen()], scope=scope):
        assert await asyncio.wait_for(seen.get(), 30) == "ours"
        await client.create(ConfigMap(metadata=ObjectMeta(name="late", labels={"team": "web"})))
        assert await asyncio.wait_for(seen.get(), 30) == "late"
