"""The store's indexes and both queues against an API server: what the informer finds is what the server answers."""

from __future__ import annotations

import random

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import ByLabel, DeltaFifo, DeltaQueue, InformerFactory, Sorted
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from tests.cache.source import until

pytestmark = pytest.mark.server


@pytest.mark.parametrize("queue", [pytest.param(DeltaQueue, id="in order"), pytest.param(DeltaFifo, id="by object")])
async def test_after_any_writes_each_index_finds_what_the_server_has(
    client: Client, namespace: str, queue: type[DeltaQueue | DeltaFifo]
) -> None:
    """[E68, G92]"""
    rng = random.Random(7)

    def some(number: int) -> ConfigMap:
        labels = {"team": rng.choice(["red", "blue"])} if rng.random() < 0.8 else {}
        return ConfigMap(metadata=ObjectMeta(name=f"map-{number}", labels=labels), data={"rank": f"{rng.randrange(100):02}"})

    for number in range(6):
        await client.create(some(number))
    async with InformerFactory(client) as informers:
        size = Sorted[ConfigMap](lambda each: len(each.data))
        maps = informers.for_kind(
            ConfigMap, namespace=namespace, indexes={"team": ByLabel("team"), "rank": Sorted("data.rank"), "size": size}, queue=queue
        )
        await informers.wait_synced(30)
        for number in range(25):
            name = f"map-{rng.randrange(10)}"
            there = {each.metadata.name: each async for each in client.list(ConfigMap, namespace=namespace)}.get(name)
            if there is None:
                await client.create(some(int(name[4:])))
            elif number % 4 == 0:
                await client.delete(ConfigMap, name)
            else:
                new = some(0)
                there.data, there.metadata.labels = {**new.data, f"more-{number}": "x"}, new.metadata.labels
                await client.update(there)
        listed = [each async for each in client.list(ConfigMap, namespace=namespace)]
        versions = {each.metadata.name: each.metadata.resource_version for each in listed}
        await until(lambda: {head.name: head.resource_version for head in maps.lister.heads()} == versions)
        for team in ("red", "blue"):
            assert {each.metadata.name for each in maps.lister.by_index("team", team)} == {
                each.metadata.name async for each in client.list(ConfigMap, namespace=namespace, label_selector=f"team={team}")
            }
        ranked = [each for each in listed if "rank" in each.data]
        assert [each.metadata.name for each in maps.lister.range("rank")] == [
            each.metadata.name for each in sorted(ranked, key=lambda each: (each.data["rank"], each.metadata.name))
        ]
        assert [len(each.data) for each in maps.lister.range("size", reverse=True)] == sorted(
            (len(each.data) for each in listed), reverse=True
        )
