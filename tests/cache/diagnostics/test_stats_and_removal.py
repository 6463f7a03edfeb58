"""What an informer says of itself, and how one is removed while others go on."""

from __future__ import annotations

import asyncio
import random

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory, InformerStopped
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, until


async def test_its_numbers_follow_what_it_caches(source: Source, api: Client, clock: FakeClock) -> None:
    informers = InformerFactory(api, clock=clock, rng=random.Random(1))
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    source.put("a")
    source.put("b")
    assert (maps.stats.objects, maps.stats.synced, maps.stats.stored_bytes) == (0, False, 0)
    async with informers:
        await until(lambda: source.watches == 1)
        before = maps.stats
        assert (before.objects, before.events, before.synced, before.pending) == (2, 2, True, 0)
        assert before.stored_bytes > 0
        source.put("c")
        await until(lambda: maps.stats.events == 3)
        assert maps.stats.objects == 3
        assert int(maps.stats.resource_version) > int(before.resource_version)


async def test_a_removed_informer_watches_no_more_and_tells_its_handlers_nothing(source: Source, api: Client, clock: FakeClock) -> None:
    """S227: and another informer of the kind may take its place."""
    delivered: list[InformerEvent[ConfigMap]] = []
    informers = InformerFactory(api, clock=clock, rng=random.Random(1))
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    maps.on_event(added=delivered.append)
    async with informers:
        await until(lambda: source.watches == 1)
        before = asyncio.all_tasks()
        await informers.remove(maps)
        await informers.remove(maps)
        source.put("late")
        assert maps.stopped
        assert list(informers) == []
        assert len(asyncio.all_tasks()) < len(before)
        with pytest.raises(InformerStopped):
            maps.on_event(added=delivered.append)
        again = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        assert again is not maps
        await informers.wait_synced()
        assert again.lister.head("late", "default") is not None
    assert delivered == []
