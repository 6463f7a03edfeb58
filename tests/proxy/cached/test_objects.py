"""The objects of a cache: which changes watches get from events, lists and confirmations."""

from __future__ import annotations

import pytest

from kubeloop.types import JSONObject
from tests.proxy.cached.caches import TestClient, cache_of, summary_of
from tests.proxy.samples import pod

OLD = [pod("a", version="3"), pod("b", version="4"), pod("c", version="5")]


@pytest.mark.parametrize(
    ("listed", "version", "expected"),
    [
        pytest.param(OLD, 9, [], id="an equal list is no change"),
        pytest.param([*OLD, pod("d", version="12")], 20, ["ADDED d 12"], id="an object that was added meanwhile is ADDED"),
        pytest.param([*OLD[:2], pod("c", version="12")], 20, ["MODIFIED c 12"], id="an object that changed meanwhile is MODIFIED"),
        pytest.param(OLD[:2], 20, ["DELETED c 20"], id="an object that vanished is DELETED at the list's version"),
        pytest.param(
            [OLD[0], pod("d", version="20")],
            20,
            ["DELETED c 18", "DELETED b 19", "ADDED d 20"],
            id="each deletion gets another version",
        ),
        pytest.param(
            [pod("b", version="12"), pod("c", version="11")],
            20,
            ["MODIFIED c 11", "MODIFIED b 12", "DELETED a 20"],
            id="changes come in the order of their versions",
        ),
        pytest.param(OLD, 7, ["ERROR 410 Expired"], id="a list that is older than the cache ends the watches"),
        pytest.param(OLD[:1], 10, ["ERROR 410 Expired"], id="more deletions than versions end the watches"),
        pytest.param([*OLD[:2], pod("c", version="2")], 20, ["ERROR 410 Expired"], id="an object with an older version ends the watches"),
    ],
)
async def test_a_new_list_becomes_changes(listed: list[JSONObject], version: int, expected: list[str]) -> None:
    async with cache_of(*OLD, version=9) as cache:
        client = TestClient(cache, cache.progress._clock, version=9)
        await client.events()
        cache.bring_list(*listed, version=version)
        events = await client.events()
        assert [summary_of(event) for event in events] == expected
        assert cache.names() == sorted(tree["metadata"]["name"] for tree in listed)
        await client.close()


async def test_a_vanished_object_is_deleted_with_its_last_state() -> None:
    async with cache_of(pod("a", version="3", node="node-1"), version=9) as cache:
        client = TestClient(cache, cache.progress._clock, version=9)
        await client.events()
        cache.bring_list(version=20)
        (event,) = await client.events()
        assert event["object"] == pod("a", version="20", node="node-1")
        await client.close()


async def test_a_late_change_that_a_confirmation_includes_is_dropped() -> None:
    async with cache_of(pod("a", version="3"), version=9) as cache:
        cache.objects.advance(15)
        cache.put(pod("short", version="12"))
        cache.remove_pod(pod("short", version="13"))
        assert cache.names() == ["a"]
        assert cache.objects.log.end == cache.objects.log.begin
        cache.put(pod("b", version="16"))
        assert cache.names() == ["a", "b"]


async def test_a_version_that_is_no_number_ends_the_use_of_the_cache() -> None:
    async with cache_of(pod("a", version="3"), version=9) as cache:
        cache.put(pod("b", version="x-1"))
        assert cache.objects.unusable
        assert not cache.objects.synced
        assert not await cache.ready()


async def test_objects_are_in_the_order_of_their_paths_as_in_a_list_of_the_api_server() -> None:
    trees = [pod(name, version=str(version)) for version, name in enumerate(("b", "a", "a.c"), 3)]
    trees += [tree | {"metadata": tree["metadata"] | {"namespace": f"{tree['metadata']['namespace']}-two"}} for tree in trees]
    async with cache_of(*trees) as cache:
        found = [f"{head.namespace}/{head.name}" for head in cache.objects.snapshot()]
        assert found == ["shop-two/a", "shop-two/a.c", "shop-two/b", "shop/a", "shop/a.c", "shop/b"]


async def test_a_snapshot_is_shared_until_the_next_change_and_sorted() -> None:
    async with cache_of(pod("b", version="3"), pod("a", version="4"), version=9) as cache:
        first = cache.objects.snapshot()
        assert cache.objects.snapshot() is first
        assert [head.name for head in first] == ["a", "b"]
        cache.put(pod("aa", version="10"))
        assert cache.names() == ["a", "aa", "b"]
        assert [head.name for head in first] == ["a", "b"]


async def test_a_deletion_without_a_new_version_is_still_a_change() -> None:
    async with cache_of(pod("a", version="3"), version=9) as cache:
        client = TestClient(cache, cache.progress._clock, version=9)
        await client.events()
        cache.remove_pod(pod("a", version="3"))
        assert await client.summaries() == ["DELETED a 3"]
        await client.close()
