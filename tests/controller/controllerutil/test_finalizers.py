"""Finalizers: added and removed one at a time, others' stay, on both servers."""

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.client import Client
from kubeloop.controller.controllerutil.finalizers import FinalizerError, add_finalizer, has_finalizer, remove_finalizer
from kubeloop.meta import NotFound, ObjectMeta

pytestmark = pytest.mark.server

MINE = "finalizers.example.com/mine"
OTHER = "finalizers.example.com/other"


async def made(client: Client, *finalizers: str) -> ConfigMap:
    return await client.create(ConfigMap(metadata=ObjectMeta(name="c", finalizers=list(finalizers))))


async def test_adding_a_present_finalizer_sends_nothing(client: Client) -> None:
    found = await made(client, MINE)
    assert await add_finalizer(client, found, MINE) is found
    await remove_finalizer(client, found, MINE)


async def test_finalizers_that_others_added_since_the_object_was_read_stay(client: Client) -> None:
    stale = await made(client)
    await add_finalizer(client, stale, OTHER)
    both = await add_finalizer(client, stale, MINE)
    assert both.metadata.finalizers == [OTHER, MINE]
    assert stale.metadata.finalizers == [], "the object given is not changed"
    assert await remove_finalizer(client, stale, OTHER) is stale, "what was read says that there is nothing to remove"
    left = await remove_finalizer(client, both, OTHER)
    assert left is not None
    assert left.metadata.finalizers == [MINE]
    await remove_finalizer(client, left, MINE)


async def test_many_that_come_at_once_are_all_there(client: Client) -> None:
    found = await made(client)
    names = [f"finalizers.example.com/f{number}" for number in range(4)]
    await asyncio.gather(*(add_finalizer(client, found, name) for name in names))
    now = await client.get(ConfigMap, "c")
    assert sorted(now.metadata.finalizers) == names
    await asyncio.gather(*(remove_finalizer(client, now, name) for name in names))
    assert (await client.get(ConfigMap, "c")).metadata.finalizers == []


async def test_the_last_one_lets_a_deleted_object_go(client: Client) -> None:
    await made(client, MINE)
    going = (await client.delete(ConfigMap, "c")).object
    assert going is not None
    assert has_finalizer(going, MINE)
    with pytest.raises(FinalizerError, match="is being deleted"):
        await add_finalizer(client, going, OTHER)
    assert await remove_finalizer(client, going, MINE) is not None
    with pytest.raises(NotFound):
        await client.get(ConfigMap, "c")
    assert await remove_finalizer(client, going, MINE) is None, "a deleted object waits for nothing"


async def test_a_successor_of_the_same_name_is_left_alone(client: Client) -> None:
    first = await made(client)
    await client.delete(first)
    second = await made(client, MINE)
    with pytest.raises(FinalizerError, match="another one has its name"):
        await add_finalizer(client, first, MINE)
    first.metadata.finalizers = [MINE]
    assert await remove_finalizer(client, first, MINE) is None
    assert (await client.get(ConfigMap, "c")).metadata.finalizers == [MINE]
    await remove_finalizer(client, second, MINE)


@pytest.mark.parametrize("name", ["mine", "not a name/x", "example.com/"])
async def test_a_name_that_is_no_finalizer_is_refused_before_anything_is_sent(client: Client, name: str) -> None:
    with pytest.raises(ValueError, match=r"example\.com/what-it-waits-for"):
        await add_finalizer(client, ConfigMap(metadata=ObjectMeta(name="c")), name)
