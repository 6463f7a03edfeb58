"""Nothing is reconciled from a cache that is not complete."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop import Client, Controller, InformerFactory, Manager, Result
from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.client import ALL_NAMESPACES
from kubeloop.meta import ObjectMeta
from kubeloop.testing import TlsTestServer
from kubeloop.transport import Transport
from tests.cache.source import until

pytestmark = pytest.mark.embedded


async def test_nothing_is_reconciled_until_every_cache_is_complete_and_what_comes_meanwhile_is_one_request(
    in_loop_server: TlsTestServer,
) -> None:
    """[T235]"""
    reconciled: list[str] = []

    class Mapper(Controller[ConfigMap], owns=[Secret]):
        async def reconcile(self, config_map: ConfigMap) -> Result | None:
            reconciled.append(f"{config_map.metadata.name} {config_map.data.get('n')}")
            return None

    async with Client(Transport(in_loop_server.config)) as client:
        one = await client.create(ConfigMap(metadata=ObjectMeta(name="one", namespace="default"), data={"n": "0"}))
        release = in_loop_server.faults.hold(matching=lambda request: request.path == "/api/v1/secrets")
        informers = InformerFactory(client)
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        manager = Manager(client, [Mapper()], informers=informers)
        running = asyncio.create_task(_run(manager, informers))
        try:
            await until(lambda: maps.synced)
            for number in range(1, 6):
                one.data["n"] = str(number)
                one = await client.update(one)
            await until(lambda: maps.resource_version == one.metadata.resource_version)
            await asyncio.gather(*(registration.wait_drained() for registration in maps.registrations))
            assert reconciled == []
            release()
            await until(lambda: bool(reconciled))
            last = await client.create(ConfigMap(metadata=ObjectMeta(name="two", namespace="default"), data={"n": "0"}))
            await until(lambda: reconciled[-1] == f"{last.metadata.name} 0")
            assert reconciled == ["one 5", "two 0"]
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)


async def _run(manager: Manager, informers: InformerFactory) -> None:
    async with informers:
        await manager.run()
