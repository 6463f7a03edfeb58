"""The first state as a stream (KEP-3157): the request, when its state reaches the cache, and the fallback."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InconsistentState, InformerFactory, WatchPolicy
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import DeadlineError
from kubeloop.timing import FakeClock
from tests.cache.informing import informed, informing, passing, paused
from tests.cache.source import Source, status, until

ASKED = ("sendInitialEvents", "resourceVersionMatch", "resourceVersion", "allowWatchBookmarks")


@pytest.fixture
def source(source: Source) -> Source:
    source.streams = True
    return source


def added(obj: dict[str, Any]) -> dict[str, Any]:
    return {"type": "ADDED", "object": obj}


async def test_the_request_asks_for_initial_events_not_older_than_nothing_with_bookmarks_and_a_timeout_C31(
    source: Source, api: Client, clock: FakeClock
) -> None:
    async with informed(api, clock):
        pass
    assert source.asked("stream", *ASKED) == [("true", "NotOlderThan", "", "true")]
    assert 300 <= int(source.asked("stream", "timeoutSeconds")[0]) <= 600


async def test_a_later_state_is_streamed_at_the_last_version_seen_C31(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with informed(api, clock) as (maps, seen):
        source.delete("a", hide=True)
        source.put("b", hide=True)
        source.error_event(status(500, "StoreReadError"))
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: len(seen.events) == 3)
        assert seen.lines == ["ADDED a", "DELETED a (tombstone)", "ADDED b"]
        assert source.asked("stream", *ASKED)[1] == ("true", "NotOlderThan", "11", "true")
        assert maps.resource_version == "13"


async def test_nothing_reaches_the_cache_before_the_end_bookmark_C32_C40(source: Source, api: Client, clock: FakeClock) -> None:
    source.stream_frames = [added(source.put("a")), added(source.put("b"))]
    async with informing(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.send(added(source.objects["a"]))
        await clock.advance(1)
        assert len(maps.lister) == 0
        assert not maps.synced
        assert maps.resource_version == "", "versions of initial events come in any order and say nothing"
        source.send(source.end(version="40"))
        await until(lambda: len(seen.events) == 2)
        assert maps.resource_version == "40"
        assert all(event.initial for event in seen.events)


@pytest.mark.parametrize("value", ["false", "True", "1", ""])
async def test_only_the_annotation_true_ends_the_initial_events_C33(source: Source, api: Client, clock: FakeClock, value: str) -> None:
    source.stream_frames = [
        added(source.put("a")),
        source.end(value),
        {"type": "BOOKMARK", "object": source.end()["object"] | {"metadata": {}}},
    ]
    async with informing(api, clock) as (maps, _):
        await until(lambda: source.watches == 1)
        await clock.advance(1)
        assert not maps.synced
        source.send(source.end("true"))
        await until(lambda: maps.synced)


async def test_changes_before_the_end_are_folded_into_one_replacement_at_the_bookmarks_version_C34(
    source: Source, api: Client, clock: FakeClock
) -> None:
    a, b, c = source.put("a"), source.put("b"), source.put("c")
    changed = source.put("b", k="2")
    again = source.put("a2")
    source.stream_frames = [
        *map(added, (a, b, c)),
        {"type": "MODIFIED", "object": changed},
        {"type": "DELETED", "object": c},
        added(again),
        {"type": "DELETED", "object": again},
        added(again),
        {"type": "DELETED", "object": a},
        added(a),
        source.end(version="50"),
    ]
    async with informed(api, clock) as (maps, seen):
        assert sorted(seen.lines) == ["ADDED a", "ADDED a2", "ADDED b"]
        found = maps.lister.get("b", "default")
        assert found is not None
        assert found.data == {"k": "2"}
        assert maps.resource_version == "50"


async def test_after_the_end_the_same_stream_goes_on_as_the_watch_C35(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with informed(api, clock) as (maps, seen):
        source.put("b")
        source.delete("a")
        await until(lambda: len(seen.events) == 3)
        assert seen.lines == ["ADDED a", "ADDED b", "DELETED a"]
        assert [kind for kind, _ in source.requests] == ["stream"], "one request, no list"
        assert maps._runner.feeds[0].listwatch.lists == {"first": 1}


async def test_events_in_the_same_packet_as_the_end_are_not_lost_C35(source: Source, api: Client, clock: FakeClock) -> None:
    frames = [added(source.put("a")), source.end(), added(source.put("b"))]
    source.stream_frames = [b"".join(source._bytes(frame) for frame in frames)]
    async with informed(api, clock) as (maps, seen):
        await until(lambda: len(seen.events) == 2)
        assert [event.initial for event in seen.events] == [True, False]
        assert maps.resource_version == "12"


async def test_a_stream_closed_before_its_end_is_requested_from_scratch_C36(source: Source, api: Client, clock: FakeClock) -> None:
    gone = source.put("gone")
    source.stream_frames = [added(gone)]
    async with informing(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.delete("gone", hide=True)
        source.put("a", hide=True)
        source.close_watches()
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: maps.synced)
        assert source.asked("stream", *ASKED) == [("true", "NotOlderThan", "", "true")] * 2
        await until(lambda: seen.events)
        assert seen.lines == ["ADDED a"], "what the first stream brought is forgotten"


async def test_a_stream_closed_after_its_end_is_followed_by_an_ordinary_watch_C37(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock) as (maps, seen):
        source.put("a")
        await until(lambda: seen.events)
        source.close_watches()
        await until(lambda: source.asked("watch", *ASKED) == [("", "", "11", "true")])
        assert len(source.asked("stream", "limit")) == 1
        assert maps._runner.feeds[0].listwatch.restarts == {"ended": 1}


async def test_429_is_retried_as_a_stream_C38(source: Source, api: Client, clock: FakeClock) -> None:
    source.stream_faults = [status(429, "TooManyRequests")] * 3
    async with informing(api, clock) as (maps, _):
        await passing(clock, lambda: maps.synced)
    assert [kind for kind, _ in source.requests] == ["stream"] * 4


async def test_a_429_that_names_a_time_is_not_tried_again_before_it_C38(source: Source, api: Client, clock: FakeClock) -> None:
    refusal = status(429, "TooManyRequests")
    refusal["details"] = {"retryAfterSeconds": 60}
    source.stream_faults = [refusal]
    async with informing(api, clock) as (maps, _):
        await until(lambda: maps.failure is not None and clock.waiting == 1)
        await clock.advance(59)
        assert len(source.requests) == 1
        await clock.advance(1)
        await until(lambda: maps.synced)


@pytest.mark.parametrize(
    ("refusal", "remembered"),
    [
        pytest.param(status(422, "Invalid"), True, id="422 Invalid, which is remembered"),
        pytest.param(status(400, "BadRequest"), True, id="400, which is remembered"),
        pytest.param(status(500, "InternalError"), False, id="any other error, which is not"),
        pytest.param(status(403, "Forbidden"), False, id="a permission to list alone"),
    ],
)
async def test_a_refused_stream_is_listed_in_the_same_round_C39(
    source: Source, api: Client, clock: FakeClock, refusal: dict[str, Any], remembered: bool
) -> None:
    source.put("a")
    source.stream_faults = [refusal]
    async with informed(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        assert [kind for kind, _ in source.requests] == ["stream", "list", "watch"]
        assert seen.lines == ["ADDED a"]
        source.error_event(status(500, "StoreReadError"))
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: source.watches == 1)
        assert source.requests[3][0] == ("list" if remembered else "stream")
        assert maps._runner.feeds[0].listwatch.lists["fallback"] == 1


async def test_while_the_end_is_missing_a_warning_comes_every_10_seconds_and_the_deadline_says_so_C41(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.stream_frames = [added(source.put("a"))]
    async with InformerFactory(api, clock=clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await until(lambda: source.watches == 1)

        def warnings() -> list[str]:
            return [record.getMessage() for record in caplog.records if "has not said that it has shown everything" in record.getMessage()]

        await clock.advance(9)
        assert not warnings()
        await clock.advance(21)
        assert len(warnings()) == 3
        waiting = asyncio.create_task(informers.wait_synced(1))
        await clock.advance(1)
        with pytest.raises(DeadlineError, match="after 30 s and 1 object the server has not said that it has shown everything"):
            await waiting
        source.send(source.end())
        await until(lambda: maps.synced)
        await clock.advance(30)
        assert len(warnings()) == 3


async def test_a_server_that_never_ends_its_initial_events_is_listed_after_a_minute_of_silence(
    source: Source, api: Client, clock: FakeClock
) -> None:
    source.stream_frames = [added(source.put("a"))]
    async with informing(api, clock) as (maps, seen):
        await until(lambda: source.watches == 1)
        await clock.advance(59)
        assert not source.asked("list", "limit")
        await clock.advance(2)
        await until(lambda: seen.events)
        assert source.asked("list", "resourceVersion") == ["0"]
        assert maps._runner.feeds[0].listwatch.lists == {"first": 1, "fallback": 1}


async def test_a_transform_runs_once_for_each_state_also_of_streamed_objects_C42(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    source.put("b")
    calls: list[str] = []

    def transform(tree: dict[str, Any]) -> None:
        calls.append(tree["metadata"]["name"])
        tree["data"] = {"by": "transform"}

    async with informed(api, clock, transform=transform) as (maps, seen):
        source.put("c")
        await until(lambda: len(seen.events) == 3)
        assert calls == ["a", "b", "c"]
        assert {one.data["by"] for one in maps.lister.list()} == {"transform"}


async def test_streaming_can_be_switched_off_C30(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, WatchPolicy(watch_list=False)):
        await until(lambda: source.watches == 1)
    assert [kind for kind, _ in source.requests] == ["list", "watch"]


@pytest.mark.parametrize("after", ["the stream", "a list"])
async def test_a_410_in_the_stream_is_no_failure_and_everything_is_requested_after_a_pause_B18(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, after: str
) -> None:
    source.put("a")
    errors: list[Exception] = []
    async with informed(api, clock, WatchPolicy(on_error=errors.append, watch_list=after == "the stream")) as (maps, _):
        await until(lambda: source.watches == 1)
        source.error_event(status(410, "Expired", "too old resource version: 11"))
        await paused(source, clock)
        assert len(maps.lister) == 1
        assert (errors, maps.failure) == ([], None)
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
        await clock.advance(2)
        await until(lambda: source.watches == 1)
        assert maps._runner.feeds[0].listwatch.lists == {"first": 1, "expired": 1}


async def test_a_consistent_state_is_compared_and_nothing_happens_C43(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with informed(api, clock, WatchPolicy(check_consistency=True)):
        pass
    asked = source.asked("list", "resourceVersion", "resourceVersionMatch", "limit")
    assert asked == [("11", "Exact", "")], "one list at exactly the version of the end bookmark"


async def test_a_streamed_state_that_differs_from_the_list_at_its_version_ends_the_program_C43(
    source: Source, api: Client, clock: FakeClock
) -> None:
    a = source.put("a")
    source.put("b")
    source.stream_frames = [added(a), added({**a, "metadata": {**a["metadata"], "name": "ghost"}}), source.end()]
    with pytest.raises(InconsistentState, match=r"at version 12 differs .*: default/b: listed only; default/ghost: streamed only"):
        async with informed(api, clock, WatchPolicy(check_consistency=True)):
            pass


async def test_a_list_to_compare_with_that_fails_is_tried_again_and_its_absence_does_no_harm_C43(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.put("a")
    source.list_faults = [status(500, "InternalError")] * 5
    async with informing(api, clock, WatchPolicy(check_consistency=True)) as (maps, _):
        await passing(clock, lambda: maps.synced)
    assert len(source.asked("list", "limit")) == 5
    assert "was not compared" in caplog.text
