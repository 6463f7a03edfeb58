"""Watches from the cache: the events that a client gets for each change, in time, and for a client that is too slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kubeloop.endpoints import api_errors
from kubeloop.proxy.cached.event_log import CachedEvent, EventLog
from kubeloop.proxy.cached.watchers import BOOKMARKS
from kubeloop.timing import FakeClock
from kubeloop.types import JSONObject
from tests.proxy.cached.caches import METADATA, TestClient, cache_of, settled, summary_of
from tests.proxy.rules.rule_texts import rule
from tests.proxy.samples import pod

HIDE_BACK = rule(match=[{"labelSelector": "tier=back"}])
HIDE_BY_CONDITION = rule(when="object.metadata.labels.tier == 'back'")
MOVE = rule({"set": {"spec.nodeName": "hidden"}}, name="move")
FAIL = rule({"jsonPatch": [{"op": "remove", "path": "/spec/absent"}]}, name="fail", match=[{"labelSelector": "tier=bad"}])
FRONT = "labelSelector=tier%3Dfront"
ON_NODE = "fieldSelector=spec.nodeName%3Dnode-7"


@pytest.mark.parametrize(
    ("rules", "selectors", "before", "after", "expected"),
    [
        pytest.param([], "", None, "front", "ADDED", id="a new object is ADDED"),
        pytest.param([], "", "front", "back", "MODIFIED", id="a changed object is MODIFIED"),
        pytest.param([], "", "front", None, "DELETED", id="a deleted object is DELETED"),
        pytest.param([], FRONT, "back", "front", "ADDED", id="an object that begins to match the selector is ADDED"),
        pytest.param([], FRONT, "front", "back", "DELETED", id="an object that stops matching the selector is DELETED"),
        pytest.param([], FRONT, "back", "bad", None, id="an object that does not match is no event"),
        pytest.param([], FRONT, None, "back", None, id="a new object that does not match is no event"),
        pytest.param([], FRONT, "back", None, None, id="the deletion of an object that did not match is no event"),
        pytest.param([HIDE_BACK], "", "back", "front", "ADDED", id="an object that becomes visible is ADDED"),
        pytest.param([HIDE_BACK], "", "front", "back", "DELETED", id="an object that becomes hidden is DELETED"),
        pytest.param([HIDE_BACK], "", "back", "back", None, id="a change of a hidden object is no event"),
        pytest.param([HIDE_BACK], "", "back", None, None, id="the deletion of a hidden object is no event"),
        pytest.param([HIDE_BACK], "", "front", None, "DELETED", id="the deletion of a visible object is DELETED"),
        pytest.param([HIDE_BY_CONDITION], "", "front", "back", "DELETED", id="a condition that hides deletes as well"),
        pytest.param([HIDE_BY_CONDITION], "", "back", "front", "ADDED", id="a condition that no longer hides adds as well"),
        pytest.param([HIDE_BACK], FRONT, "front", "back", "DELETED", id="selector and rule together delete once"),
        pytest.param([MOVE], ON_NODE, "front", "back", None, id="a selector of a field that rules change sees the changed field"),
    ],
)
async def test_transitions(rules: list[JSONObject], selectors: str, before: str | None, after: str | None, expected: str | None) -> None:
    clock = FakeClock()
    async with cache_of(*([pod("a", before, version="3")] if before else []), version=9, clock=clock) as cache:
        client = TestClient(cache, clock, *rules, selectors=selectors, version=9)
        await client.events()
        if after is None:
            cache.remove_pod(pod("a", before or "", version="12"))
        else:
            cache.put(pod("a", after, version="12"))
        assert await client.summaries() == ([] if expected is None else [f"{expected} a 12"])
        await client.close()


async def test_an_object_that_stops_matching_a_selector_is_deleted_with_its_previous_state() -> None:
    clock = FakeClock()
    async with cache_of(pod("a", "front", version="3", node="node-1"), version=9, clock=clock) as cache:
        client = TestClient(cache, clock, selectors=FRONT, version=9)
        await client.events()
        cache.put(pod("a", "back", version="12", node="node-2"))
        (event,) = await client.events()
        assert event["object"] == pod("a", "front", version="12", node="node-1")
        await client.close()


async def test_an_object_that_becomes_hidden_is_deleted_with_its_identity_only() -> None:
    clock = FakeClock()
    async with cache_of(pod("a", "front", version="3"), version=9, clock=clock) as cache:
        client = TestClient(cache, clock, HIDE_BACK, version=9)
        await client.events()
        cache.put(pod("a", "back", version="12"))
        (event,) = await client.events()
        assert set(event["object"]) == {"kind", "apiVersion", "metadata"}
        assert "labels" not in event["object"]["metadata"]
        await client.close()


async def test_rules_change_events_and_clients_without_them_get_the_original() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        ruled, plain = TestClient(cache, clock, MOVE, version=9), TestClient(cache, clock, version=9)
        await settled()
        cache.put(pod("a", version="12"))
        assert (await ruled.events())[0]["object"]["spec"]["nodeName"] == "hidden"
        assert (await plain.events())[0]["object"] == pod("a", version="12")
        await ruled.close()
        await plain.close()


async def test_metadata_only_is_the_form_of_events_and_bookmarks() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client = TestClient(cache, clock, form=METADATA, initial_events=True, bookmarks=True)
        cache.put(pod("a", version="12"))
        events = await client.events()
        assert {event["object"]["kind"] for event in events} == {"PartialObjectMetadata"}
        assert all("spec" not in event["object"] for event in events)
        await client.close()


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        pytest.param({}, ["ADDED a 3", "ADDED b 4"], id="a watch without a version begins with the state"),
        pytest.param({"initial_events": True}, ["ADDED a 3", "ADDED b 4", "BOOKMARK 9 end"], id="a streamed list ends with the bookmark"),
        pytest.param({"selectors": FRONT}, ["ADDED a 3"], id="the state is what the selector selects"),
        pytest.param({"namespace": "other"}, [], id="the state is that of the namespace"),
        pytest.param({"version": 9}, [], id="a watch from the newest version begins with nothing"),
        pytest.param(
            {"version": 9, "initial_events": True}, ["ADDED a 3", "ADDED b 4", "BOOKMARK 9 end"], id="a streamed list at a version"
        ),
    ],
)
async def test_the_begin_of_a_watch(query: dict[str, Any], expected: list[str]) -> None:
    clock = FakeClock()
    async with cache_of(pod("a", version="3"), pod("b", "back", version="4"), version=9, clock=clock) as cache:
        client = TestClient(cache, clock, **query)
        assert await client.summaries() == expected
        cache.put(pod("c", version="12"))
        assert await client.summaries() == ([] if query.get("namespace") else ["ADDED c 12"])
        await client.close()


async def test_a_watch_from_a_version_gets_the_changes_after_it_from_the_log() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        for version in range(10, 15):
            cache.put(pod("a", version=str(version)))
        client = TestClient(cache, clock, version=12)
        assert await client.summaries() == ["MODIFIED a 13", "MODIFIED a 14"]
        await client.close()


async def test_a_watch_from_before_the_log_gets_410() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client = TestClient(cache, clock, version=8)
        (event,) = await client.events()
        assert summary_of(event) == "ERROR 410 Expired"
        assert event["object"]["message"] == "too old resource version: 8 (9)"
        assert client.task.done()


async def test_a_watch_from_a_future_version_gets_only_later_changes() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client = TestClient(cache, clock, version=12, bookmarks=True)
        await settled()
        cache.put(pod("a", version="11"))
        assert await client.summaries() == []
        cache.put(pod("a", version="12"), pod("b", version="13"))
        assert await client.summaries() == ["ADDED b 13"]
        await client.close()


async def test_bookmarks_come_about_every_minute_with_the_version_of_the_cache() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client = TestClient(cache, clock, version=9, bookmarks=True)
        silent = TestClient(cache, clock, version=9)
        await settled()
        await clock.advance(BOOKMARKS * 1.3)
        assert await client.summaries() == []  # the client knows this version
        cache.bookmark(30)
        await clock.advance(BOOKMARKS * 1.3)
        assert await client.summaries() == ["BOOKMARK 30"]
        assert await silent.summaries() == []
        await client.close()
        await silent.close()


async def test_a_bookmark_never_overtakes_an_event() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client = TestClient(cache, clock, version=9, bookmarks=True)
        await settled()
        client.stop_reading()
        cache.put(pod("a", version="12"))
        await clock.advance(BOOKMARKS * 1.3)
        assert await client.summaries() == []
        client.read_again()
        await clock.advance(BOOKMARKS * 1.3)
        assert await client.summaries() == ["ADDED a 12", "BOOKMARK 12"]
        await client.close()


async def test_a_watch_ends_after_its_timeout() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client = TestClient(cache, clock, version=9, timeout=5)
        await settled()
        await clock.advance(4.9)
        assert not client.task.done()
        await clock.advance(0.2)
        await settled()
        assert client.task.done()
        assert await client.summaries() == []
        assert cache.watchers == 0


async def test_a_client_that_does_not_read_catches_up_from_the_log() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        slow, fast = TestClient(cache, clock, version=9), TestClient(cache, clock, version=9)
        await settled()
        slow.stop_reading()
        for version in range(10, 210):
            cache.put(pod("a", version=str(version)))
            await settled()
        assert len(await fast.events()) == 200
        slow.read_again()
        for _ in range(20):
            await settled()
        assert [int(event["object"]["metadata"]["resourceVersion"]) for event in await slow.events()] == list(range(10, 210))
        await slow.close()
        await fast.close()


async def test_a_client_that_falls_behind_the_log_is_cut_off() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock, log=EventLog(max_events=16)) as cache:
        slow = TestClient(cache, clock, version=9)
        await settled()
        slow.stop_reading()
        for version in range(10, 110):
            cache.put(pod("a", version=str(version)))
            await settled()
        slow.read_again()
        for _ in range(20):
            await settled()
        assert slow.task.done()
        assert await slow.summaries() == []
        assert TestClient(cache, clock, version=9).task is not None
        assert cache.watchers == 1


async def test_the_watch_ends_with_the_error_of_a_rule_that_fails_after_the_events_before() -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        client, other = TestClient(cache, clock, FAIL, version=9), TestClient(cache, clock, version=9)
        await settled()
        cache.put(pod("a", version="12"), pod("b", "bad", version="13"), pod("c", version="14"))
        assert await client.summaries() == ["ADDED a 12", "ERROR 500 InternalError"]
        assert client.task.done()
        assert await other.summaries() == ["ADDED a 12", "ADDED b 13", "ADDED c 14"]
        again = TestClient(cache, clock, FAIL, version=12)
        assert await again.summaries() == ["ERROR 500 InternalError"]
        await other.close()


async def test_a_reload_of_rules_ends_watches_with_410() -> None:
    clock = FakeClock()
    async with cache_of(pod("a", version="3"), version=9, clock=clock) as cache:
        waiting = TestClient(cache, clock, version=9)
        future = TestClient(cache, clock, version=99)
        stalled = TestClient(cache, clock, version=0)
        stalled.stop_reading()
        await settled()
        assert cache.expire() == 3
        assert await waiting.summaries() == ["ERROR 410 Expired"]
        assert await future.summaries() == ["ERROR 410 Expired"]
        stalled.read_again()
        assert (await stalled.summaries())[-1] == "ERROR 410 Expired"
        assert cache.watchers == 0


async def test_watches_stay_while_the_api_server_is_away() -> None:
    clock = FakeClock()
    async with cache_of(pod("a", version="3"), version=9, clock=clock) as cache:
        client = TestClient(cache, clock, version=9)
        await settled()
        cache.objects.failed(api_errors.internal_error("away"))
        disconnected = not cache.connected
        await settled()
        assert not client.task.done()
        cache.objects.watching()
        cache.put(pod("a", version="12"))
        assert (disconnected, cache.connected) == (True, True)
        assert await client.summaries() == ["MODIFIED a 12"]
        await client.close()


async def test_an_event_is_encoded_once_for_all_watchers_of_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        clients = [TestClient(cache, clock, MOVE, version=9) for _ in range(100)]
        await settled()
        group = clients[0].watcher.group
        calls: list[CachedEvent] = []
        frame = group.frame

        def counted(event: CachedEvent) -> bytes | None:
            calls.append(event)
            return frame(event)

        monkeypatch.setattr(group, "frame", counted)
        cache.put(pod("a", version="12"))
        assert [await client.summaries() for client in clients] == [["ADDED a 12"]] * 100
        assert len(calls) == 1
        for client in clients:
            await client.close()
        assert cache.watchers == 0


async def test_nothing_is_written_for_a_watch_that_has_ended() -> None:
    """Its connection may transfer the next response already."""
    clock = FakeClock()
    async with cache_of(version=9, clock=clock) as cache:
        clients = [TestClient(cache, clock, version=9) for _ in range(300)]
        await settled()
        cache.put(pod("a", version="12"))
        await asyncio.sleep(0)
        assert sum(bool(client.data) for client in clients) == 128  # the others wait for their turn
        waiting = [client for client in clients if not client.data]
        for client in waiting:
            client.watcher.expire()
        await settled()
        assert all(client.task.done() for client in waiting)
        assert [summary_of(event) for client in waiting for event in await client.events()] == ["ERROR 410 Expired"] * 172
        for client in clients:
            await client.close()
