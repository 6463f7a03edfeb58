"""Replicas of a controller that share its keys, over HTTPS: each key is reconciled by one of them at any time, in all of them evenly."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable

import pytest

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.controller import Controller, GraceExceeded, Manager, ManagerError, Result
from kubeloop.controller.election import LeaseConfig
from kubeloop.controller.sharding import ShardConfig
from kubeloop.meta import ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport

NAMES = [f"key-{number}" for number in range(300)]


class Book:
    """Which replica reconciles which key at this moment, and which did last."""

    def __init__(self) -> None:
        self.now: dict[str, str] = {}
        self.last: dict[tuple[str, str], str] = {}
        self.twice: list[str] = []

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(150):
            while not condition():
                await asyncio.sleep(0.005)

    def seen(self, state: str) -> Counter[str]:
        """How many of the keys each replica was the last to reconcile in a state."""
        return Counter(who for (_, version), who in self.last.items() if version == state)


class SharedController(Controller[ConfigMap], name="shared", workers=8):
    def __init__(self, book: Book, replica: str) -> None:
        self.book = book
        self.replica = replica

    async def reconcile(self, config_map: ConfigMap) -> Result | None:
        name = config_map.metadata.name
        if name in self.book.now:
            self.book.twice.append(f"{name} by {self.book.now[name]} and {self.replica}")
        self.book.now[name] = self.replica
        try:
            await asyncio.sleep(0)
        finally:
            self.book.now.pop(name, None)
        self.book.last[name, config_map.data.get("state", "")] = self.replica
        return None


class Replica:
    def __init__(self, server: TlsTestServer, book: Book, name: str) -> None:
        self.name = name
        self.client = Client(Transport(server.config), namespace="default")
        # A short retry period, so that hand-overs are quick; deadlines so long that a slow machine meets none of them by itself.
        config = ShardConfig("shared", "default", name, lease_duration=120, renew_deadline=100, retry_period=0.2)
        self.manager = Manager(self.client, [SharedController(book, name)], namespace="default", sharding=config)

    async def start(self) -> None:
        await self.manager.start()

    async def stop(self) -> None:
        await self.manager.stop()
        await self.client.close()


@pytest.fixture
async def server() -> AsyncIterator[TlsTestServer]:
    async with TlsTestServer() as found:
        yield found


def even(counts: Counter[str], replicas: int) -> bool:
    fair = len(NAMES) / replicas
    return counts.total() == len(NAMES) and len(counts) == replicas and all(0.7 * fair <= count <= 1.3 * fair for count in counts.values())


@pytest.mark.embedded
@pytest.mark.timeout(200)
async def test_three_replicas_share_300_keys_and_each_key_has_one_at_any_time(server: TlsTestServer) -> None:
    """One leaves, one comes, one dies, and all objects change meanwhile: the last state of each is reconciled, never by two at a time."""
    book = Book()
    admin = server.client()
    await asyncio.gather(*(admin.create(ConfigMap(metadata=ObjectMeta(name=name), data={"state": "0"})) for name in NAMES))

    async def change(state: str) -> None:
        await asyncio.gather(*(admin.patch(ConfigMap, name, {"data": {"state": state}}, type="merge") for name in NAMES))

    replicas = [Replica(server, book, name) for name in ("replica-a", "replica-b", "replica-c")]
    try:
        await asyncio.gather(*(one.start() for one in replicas))
        await book.until(lambda: even(book.seen("0"), 3))

        # One goes while everything changes.
        gone = replicas.pop()
        await asyncio.gather(change("1"), gone.stop())
        await book.until(lambda: book.seen("1").total() == len(NAMES))

        # One comes while everything changes.
        replicas.append(Replica(server, book, "replica-d"))
        await asyncio.gather(change("2"), replicas[-1].start())
        await book.until(lambda: book.seen("2").total() == len(NAMES))
        await book.until(lambda: {"replica-a", "replica-b", "replica-d"} == set(book.seen("2")))
        await book.until(lambda: even(book.seen("2"), 3))

        # One dies: it gives nothing back. Its lease is made to expire, so that the test need not wait for it.
        dead = replicas.pop()
        await dead.client.close()
        await dead.stop()
        leases = await admin.list(Lease, namespace="default")
        lease = next(lease for lease in leases if lease.spec.holder_identity == dead.name)
        await admin.patch(Lease, lease.metadata.name, {"spec": {"leaseDurationSeconds": 1}}, type="merge", namespace="default")
        await change("3")
        await book.until(lambda: even(book.seen("3"), 2))
    finally:
        for one in replicas:
            await one.stop()
    assert book.twice == []


@pytest.mark.embedded
async def test_a_replica_whose_thread_outlives_the_stop_leaves_its_keys_to_expire(server: TlsTestServer) -> None:
    begun, gate = threading.Event(), threading.Event()

    class PlainController(Controller[ConfigMap], name="plain"):
        def reconcile(self, config: ConfigMap) -> None:
            begun.set()
            gate.wait(60)

    async with Client(Transport(server.config), namespace="default") as client:
        await client.create(ConfigMap(metadata=ObjectMeta(name="a")))
        config = ShardConfig("plain", "default", "replica-a", lease_duration=120, renew_deadline=100)
        manager = Manager(client, [PlainController()], namespace="default", sharding=config, grace=0.01)
        await manager.start()
        assert await asyncio.to_thread(begun.wait, 60)
        with pytest.raises(GraceExceeded):
            await manager.stop()
        leases = [lease async for lease in client.list(Lease, label_selector="shards.kubeloop.dev/group=plain", namespace=ALL_NAMESPACES)]
        assert [lease.spec.holder_identity for lease in leases] == ["replica-a"]
    gate.set()


@pytest.mark.embedded
async def test_sharding_and_leader_election_are_alternatives(server: TlsTestServer) -> None:
    with pytest.raises(ManagerError, match="give one of the two"):
        Manager(server.client(), sharding=ShardConfig("a", "default"), leader_election=LeaseConfig("a", "default"))
