"""A watch never dies silently: when a stream from which nothing comes is given up."""

from __future__ import annotations

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import Informer, WatchPolicy
from kubeloop.cache.reflector.stall_detection import BookmarkInterval
from kubeloop.client import Client
from kubeloop.timing import FakeClock
from tests.cache.informing import informed
from tests.cache.source import Source, until

#: Long watches, so that none ends for another reason.
LISTS = WatchPolicy(watch_list=False, min_watch_timeout=5000)


@pytest.mark.parametrize(
    ("times", "limit"),
    [
        pytest.param([], None, id="without bookmarks nothing follows from silence"),
        pytest.param([60, 120], None, id="two bookmarks are no rhythm yet"),
        pytest.param([60, 120, 180], 185, id="after three, three intervals and five seconds of silence are too many"),
        pytest.param([0, 40, 100, 160], 185, id="the longest interval counts"),
        pytest.param([60, 60.1, 120, 120.5], None, id="a bookmark that comes twice is one"),
        pytest.param([60, 60.1, 120, 120.5, 180], 185, id="and does not shorten the interval"),
        pytest.param([1, 3, 5], 35, id="an interval counts as ten seconds at least"),
        pytest.param([60, 120, 180, 480], 905, id="a pause that was no end makes it more patient"),
    ],
)
def test_silence_allowed_after_bookmarks_at(times: list[float], limit: float | None) -> None:
    rhythm = BookmarkInterval()
    for time in times:
        rhythm.bookmark(time)
    assert rhythm.limit == limit


async def bookmarks(source: Source, clock: FakeClock, maps: Informer[ConfigMap]) -> None:
    """Three, each a minute after the last."""
    for _ in range(3):
        await clock.advance(60)
        source.version += 1
        source.bookmark()
        await until(lambda expected=str(source.version): maps.resource_version == expected)


@pytest.mark.parametrize("streams", [True, False])
async def test_a_watch_whose_bookmarks_came_regularly_is_abandoned_when_they_stop_T239(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, streams: bool
) -> None:
    source.streams = streams
    async with informed(api, clock, WatchPolicy(watch_list=streams, min_watch_timeout=5000)) as (maps, _):
        await until(lambda: source.watches == 1)
        await bookmarks(source, clock, maps)
        await clock.advance(184)
        assert maps.reconnects == 0
        await clock.advance(2)
        await until(lambda: source.asked("check", "resourceVersion") == ["13"])
        assert source.asked("watch", "resourceVersion")[-1] == "13"
        assert maps._runner.feeds[0].listwatch.restarts == {"silent": 1}
        assert "abandoned; watching again at once" in caplog.text


async def test_events_without_bookmarks_are_signs_of_life_T239(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, LISTS) as (maps, seen):
        await until(lambda: source.watches == 1)
        await bookmarks(source, clock, maps)
        await clock.advance(180)
        source.put("a")
        await until(lambda: seen.events)
        await clock.advance(180)
        assert maps.reconnects == 0
        await clock.advance(6)
        await until(lambda: maps.reconnects == 1)


async def test_a_new_watch_has_no_rhythm_yet_T239(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, LISTS) as (maps, _):
        await until(lambda: source.watches == 1)
        await bookmarks(source, clock, maps)
        await clock.advance(186)
        await until(lambda: source.asked("check", "limit"))
        await until(lambda: clock.waiting == 1)
        seconds = int(source.asked("watch", "timeoutSeconds")[1])
        await clock.advance(seconds + 3)
        assert maps.reconnects == 1, "it lasts as long as it may"
        await clock.advance(3)
        await until(lambda: maps.reconnects == 2)


async def test_a_server_that_never_answers_a_watch_is_given_up_too(source: Source, api: Client, clock: FakeClock) -> None:
    source.silent = True
    async with informed(api, clock, WatchPolicy(watch_list=False)) as (maps, _):
        await until(lambda: source.asked("watch", "limit"))
        source.silent = False
        seconds = int(source.asked("watch", "timeoutSeconds")[0])
        await clock.advance(seconds + 6)
        await until(lambda: maps.failure is not None)
        await clock.advance(2)
        await until(lambda: source.watches == 1)
