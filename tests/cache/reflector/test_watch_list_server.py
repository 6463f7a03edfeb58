"""Streamed states, resumed watches and what a server says of versions it does not have: on the embedded server, and on a real one."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory, WatchPolicy
from kubeloop.client import Client
from kubeloop.meta import ObjectMeta
from kubeloop.timing import SystemClock
from tests.cache.informing import resumed
from tests.cache.source import until

pytestmark = pytest.mark.server

#: A real control plane puts its root certificates into every namespace.
OURS = {"kubeloop.example": "yes"}


def config_map(name: str, **labels: str) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, labels={**OURS, **labels}))


async def test_the_first_state_comes_as_one_stream_that_goes_on_as_the_watch_C31_C35(client: Client, namespace: str) -> None:
    for name in "abc":
        await client.create(config_map(name))
    async with InformerFactory(client) as informers:
        maps = informers.for_kind(ConfigMap, namespace=namespace, label_selector=OURS)
        await informers.wait_synced(30)
        assert sorted(head.name for head in maps.lister.heads()) == ["a", "b", "c"]
        await client.delete(ConfigMap, "a", namespace=namespace)
        await client.create(config_map("d"))
        await until(lambda: sorted(head.name for head in maps.lister.heads()) == ["b", "c", "d"])
        listwatch = maps._runner.feeds[0].listwatch
        assert (listwatch.lists, listwatch.restarts, listwatch.watches) == ({"first": 1}, {}, 1)


async def test_a_stream_of_metadata_and_of_nothing_ends_too_C33(client: Client, namespace: str) -> None:
    await client.create(config_map("a", color="red"))
    async with InformerFactory(client) as informers:
        metadata = informers.metadata(ConfigMap, namespace=namespace, label_selector={"color": "red"})
        nothing = informers.for_kind(ConfigMap, namespace=namespace, label_selector={"color": "blue"})
        await informers.wait_synced(30)
        assert [head.name for head in metadata.lister.heads()] == ["a"]
        assert len(nothing.lister) == 0
        assert nothing.resource_version not in ("", "0")
        for informer in (metadata, nothing):
            assert informer._runner.feeds[0].listwatch.lists == {"first": 1}


async def test_states_streamed_under_a_storm_of_writes_are_those_listed_at_their_version_C43(client: Client, namespace: str) -> None:
    done = asyncio.Event()

    async def storm(name: str) -> None:
        while not done.is_set():
            await client.create(config_map(name))
            await client.patch(ConfigMap, name, {"data": {"k": "2"}}, namespace=namespace)
            await client.delete(ConfigMap, name, namespace=namespace)

    async with asyncio.TaskGroup() as writers:
        for number in range(6):
            writers.create_task(storm(f"m{number}"))
        try:
            for _ in range(5):
                async with InformerFactory(client, policy=WatchPolicy(check_consistency=True)) as informers:
                    maps = informers.for_kind(ConfigMap, namespace=namespace)
                    await informers.wait_synced(30)
                    assert maps._runner.feeds[0].listwatch.lists == {"first": 1}
        finally:
            done.set()


async def test_a_resumed_watch_brings_what_changed_since_and_nothing_else(client: Client, namespace: str) -> None:
    await client.create(config_map("a"))
    seen = await client.list(ConfigMap, namespace=namespace)
    await client.delete(ConfigMap, "a", namespace=namespace)
    await client.create(config_map("b"))
    async with resumed(client, SystemClock(), seen.resource_version, namespace=namespace, labels=OURS) as sink:
        await until(lambda: len([line for line in sink.lines if "bookmark" not in line]) >= 2)
        assert [line for line in sink.lines if "bookmark" not in line] == ["remove a", "change b"]
        assert not sink.failures


async def test_a_version_from_another_life_of_the_server_is_found_out_and_everything_is_streamed(client: Client, namespace: str) -> None:
    await client.create(config_map("a"))
    async with resumed(client, SystemClock(), "900000000000", namespace=namespace, labels=OURS) as sink:
        async with asyncio.timeout(20):
            while not sink.lines:
                await asyncio.sleep(0.01)
        assert sink.lines == ["replace a"]
