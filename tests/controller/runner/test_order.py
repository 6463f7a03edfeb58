"""In which order the keys of a controller are reconciled."""

import asyncio
from collections.abc import Callable, Hashable

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller import Controller, Manager, labels_match
from kubeloop.meta import ObjectKey, ObjectMeta

pytestmark = pytest.mark.server

LABELS = {"order": "test"}


class Fair(Controller[ConfigMap], predicates=[labels_match("order=test")], name="fair"):
    """Notes what it reconciles. Names that begin with the same letter are one tenant's."""

    def __init__(self, keys: list[str]) -> None:
        self.found = keys

    async def reconcile(self, config: ConfigMap) -> None:
        self.found.append(config.metadata.name)

    def tenants(self) -> Callable[[ObjectKey], Hashable]:
        return lambda key: key.name[0]


async def make(client: Client, *names: str) -> None:
    for name in names:
        await client.create(ConfigMap(metadata=ObjectMeta(name=name, labels=LABELS)))


async def until(keys: list[str], count: int) -> None:
    async with asyncio.timeout(30):
        while len(keys) < count:
            await asyncio.sleep(0.01)


async def test_tenants_take_turns(client: Client) -> None:
    await make(client, "a1", "a2", "a3", "b1")
    found: list[str] = []
    async with Manager(client, [Fair(found)], namespace=client.namespace):
        await until(found, 4)
    assert found == ["a1", "b1", "a2", "a3"]
