"""Watches over the wire: where they begin, what they show, and how they end."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from kubeloop.apiserver.handlers import watch
from kubeloop.apiserver.handlers.watch import WatchDependencies, Watcher, WatchForm
from kubeloop.apiserver.registry.options import ListParameters
from kubeloop.apiserver.storage import watch_cache
from kubeloop.apiserver.store.reader import Reader, Selection
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.apiserver.conftest import CONFIGMAPS, MERGE, PARTIAL, TABLE, Api, running_api


def seen(events: list[JSONObject]) -> list[tuple[str, str, str]]:
    return [(one["type"], one["object"]["metadata"].get("name", ""), one["object"]["metadata"]["resourceVersion"]) for one in events]


async def test_a_watch_from_a_version_shows_every_change_after_it_in_order(api: Api) -> None:
    start = (await api.create("old")).version
    made = (await api.create("a")).version
    changed = (await api("PATCH", f"{CONFIGMAPS}/a", {"data": {"k": "v"}}, content=MERGE)).version
    await api("PATCH", f"{CONFIGMAPS}/a", {"data": {"k": "v"}}, content=MERGE)
    await api("DELETE", f"{CONFIGMAPS}/a")
    events = await api.events(f"{CONFIGMAPS}?watch=1&resourceVersion={start}", 3)
    gone = str(int(changed) + 1)
    assert seen(events) == [("ADDED", "a", made), ("MODIFIED", "a", changed), ("DELETED", "a", gone)]
    assert events[2]["object"]["data"] == {"k": "v"}


async def test_changes_that_come_later_are_shown_as_they_happen(api: Api) -> None:
    start = (await api.create("old")).version
    async with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}") as events:
        for name in ("a", "b"):
            made = await api.create(name)
            assert seen([await anext(events)]) == [("ADDED", name, made.version)]


@pytest.mark.parametrize("query", ["", "&resourceVersion=0"])
async def test_a_watch_without_a_version_begins_with_the_existing_objects(api: Api, query: str) -> None:
    versions = [(await api.create(name)).version for name in "ab"]
    events = await api.events(f"{CONFIGMAPS}?watch=1{query}", 2)
    assert seen(events) == [("ADDED", "a", versions[0]), ("ADDED", "b", versions[1])]


async def test_a_watch_list_ends_its_initial_events_with_a_bookmark(api: Api) -> None:
    version = (await api.create("a")).version
    query = "watch=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true"
    events = await api.events(f"{CONFIGMAPS}?{query}", 2)
    assert seen(events) == [("ADDED", "a", version), ("BOOKMARK", "", version)]
    assert events[1]["object"]["metadata"]["annotations"] == {"k8s.io/initial-events-end": "true"}


async def test_an_object_that_enters_or_leaves_the_selection_is_added_or_deleted(api: Api) -> None:
    start = (await api.create("a")).version
    states = ({"in": "yes"}, {"in": "yes", "x": "y"}, {"in": "no"}, {"in": "never"}, {"in": "yes"})
    versions = [(await api("PATCH", f"{CONFIGMAPS}/a", {"metadata": {"labels": labels}}, content=MERGE)).version for labels in states]
    events = await api.events(f"{CONFIGMAPS}?watch=1&labelSelector=in=yes&resourceVersion={start}", 4)
    assert [(one[0], one[2]) for one in seen(events)] == [
        ("ADDED", versions[0]), ("MODIFIED", versions[1]), ("DELETED", versions[2]), ("ADDED", versions[4])
    ]  # fmt: skip
    assert events[2]["object"]["metadata"]["labels"] == {"in": "yes", "x": "y"}


async def test_a_watch_of_one_name_shows_only_it(api: Api) -> None:
    await api.create("a")
    version = (await api.create("b")).version
    assert seen(await api.events(f"{CONFIGMAPS}?watch=1&fieldSelector=metadata.name=b", 1)) == [("ADDED", "b", version)]
    assert seen(await api.events("/api/v1/watch/namespaces/default/configmaps/b", 1)) == [("ADDED", "b", version)]


async def test_a_watch_from_before_compaction_gets_the_error_in_its_stream(api: Api) -> None:
    start = (await api.create("a")).version
    newest = (await api.create("b")).version
    await api("POST", "/debug/compact")
    async with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion={start}") as events:
        found = [event async for event in events]
    assert [event["type"] for event in found] == ["ERROR"]
    status = found[0]["object"]
    assert (status["code"], status["reason"], status["message"]) == (410, "Expired", f"too old resource version: {start} ({newest})")


async def test_tables_of_a_watch_carry_their_columns_once(api: Api) -> None:
    await api.create("a")
    await api.create("b")
    async with api.watch(f"{CONFIGMAPS}?watch=1", accept=TABLE) as events:
        first, second = await anext(events), await anext(events)
    assert len(first["object"]["columnDefinitions"]) == 3
    assert second["object"]["columnDefinitions"] is None
    assert [one["object"]["rows"][0]["cells"][0] for one in (first, second)] == ["a", "b"]


async def test_metadata_alone_is_watched_on_request(api: Api) -> None:
    await api.create("a", data={"k": "v"})
    async with api.watch(f"{CONFIGMAPS}?watch=1", accept=PARTIAL) as events:
        found = await anext(events)
    assert (found["object"]["kind"], set(found["object"])) == ("PartialObjectMetadata", {"kind", "apiVersion", "metadata"})


async def test_many_watchers_see_the_same_bytes(api: Api) -> None:
    start = (await api.create("old")).version
    watch = [asyncio.create_task(api.events(f"{CONFIGMAPS}?watch=1&resourceVersion={start}", 3)) for _ in range(20)]
    for name in "abc":
        await api.create(name)
    results = await asyncio.gather(*watch)
    assert all(result == results[0] for result in results)


async def test_a_watch_ends_when_its_time_is_over_and_says_before_how_far_it_came() -> None:
    clock = FakeClock()
    async with running_api(clock) as api:
        start = (await api.create("a")).version
        path = f"{CONFIGMAPS}?watch=1&resourceVersion={start}&allowWatchBookmarks=true&timeoutSeconds=90"
        async with api.watch(path) as events:
            elsewhere = (await api.create("x", "/api/v1/namespaces")).version
            following = asyncio.ensure_future(anext(events))
            while not following.done():
                await clock.advance(1)
                await asyncio.sleep(0.001)
            assert seen([await following]) == [("BOOKMARK", "", elsewhere)]
            rest = asyncio.ensure_future(_drain(events))
            while not rest.done():
                await clock.advance(1)
                await asyncio.sleep(0.001)
            assert seen(await rest) == [("BOOKMARK", "", elsewhere)]  # once more just before the end


async def _drain(events: Any) -> list[JSONObject]:
    return [event async for event in events]


async def test_a_watcher_that_does_not_keep_up_is_cut_off_and_the_others_go_on(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_cache, "MOST_WAITING", 5)
    cache = api.server.api.cache
    slow = cache.subscribe("/registry/core/configmaps/")
    start = (await api.create("old")).version
    watch = asyncio.create_task(api.events(f"{CONFIGMAPS}?watch=1&resourceVersion={start}", 8))
    for number in range(8):
        await api.create(f"n{number}")
    assert len(await watch) == 8
    assert (slow.cut, await slow.receive()) == (True, [])
    slow.close()


async def test_watches_of_a_stopping_server_end_properly(api: Api) -> None:
    async with api.watch(f"{CONFIGMAPS}?watch=1") as events:
        await api.create("a")
        await anext(events)
        stopping = asyncio.create_task(api.server.api.stop())
        assert await _drain(events) == []
        await stopping


async def test_a_watch_that_its_client_leaves_frees_its_place(api: Api) -> None:
    cache = api.server.api.cache
    async with api.watch(f"{CONFIGMAPS}?watch=1&resourceVersion=0"):
        assert len(cache.subscriptions("/registry/core/configmaps/")) == 1
    async with asyncio.timeout(5):
        while cache.subscriptions("/registry/core/configmaps/"):
            await asyncio.sleep(0.005)


async def test_bookmarks_go_on_while_nothing_happens() -> None:
    """A client that got a bookmark takes silence for a broken connection. No bookmark repeats the version that a watch began from."""
    clock = FakeClock()
    async with running_api(clock) as api:
        server, start = api.server.api, (await api.create("start")).version
        resource = server.registry.get(GroupVersionResource("", "v1", "configmaps"))
        assert resource is not None
        parts = WatchDependencies(server.objects, server.cache, Reader(server.objects, server.cache, clock), clock, lambda: 600.0)
        options = ListParameters(resource_version=start, watch=True, allow_bookmarks=True)
        frames = Watcher(resource, "", options, Selection(resource, "", ""), WatchForm(), parts).frames()
        following = asyncio.ensure_future(anext(frames))
        for _ in range(3 * int(watch.BOOKMARK_EVERY)):
            await clock.advance(1)
        assert not following.done()
        made = (await api.create("a")).version
        found = [await following]
        for _ in range(3):
            following = asyncio.ensure_future(anext(frames))
            while not following.done():
                await clock.advance(1)
            found.append(await following)
        shown = [json.loads(line) for frame in found for line in frame.splitlines()]
        assert [one["type"] for one in shown] == ["ADDED", "BOOKMARK", "BOOKMARK", "BOOKMARK"]
        assert all(int(one["object"]["metadata"]["resourceVersion"]) >= int(made) for one in shown)
        following = asyncio.ensure_future(anext(frames, b""))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)


async def test_a_bookmark_does_not_overtake_changes_that_came_while_the_client_took_its_time() -> None:
    """A client that is cut off after such a bookmark, and resumes from it, would never see them."""
    clock = FakeClock()
    async with running_api(clock) as api:
        server, start = api.server.api, (await api.create("start")).version
        resource = server.registry.get(GroupVersionResource("", "v1", "configmaps"))
        assert resource is not None
        parts = WatchDependencies(server.objects, server.cache, Reader(server.objects, server.cache, clock), clock, lambda: 600.0)
        options = ListParameters(resource_version=start, watch=True, allow_bookmarks=True)
        frames = Watcher(resource, "", options, Selection(resource, "", ""), WatchForm(), parts).frames()
        following = asyncio.ensure_future(anext(frames))
        await api.create("a")
        found = [await following]  # and now the client takes its time
        made = (await api.create("b")).version
        await clock.advance(watch.BOOKMARK_EVERY)
        following = asyncio.ensure_future(anext(frames))
        while not following.done():
            await clock.advance(1)
        found.append(await following)
        shown = seen([json.loads(line) for frame in found for line in frame.splitlines()])
        assert shown[1] == ("ADDED", "b", made)
        following = asyncio.ensure_future(anext(frames, b""))
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
