"""What list and watch does around its decisions: pauses, closes, versions, detached bytes, the error handler, the numbers."""

from __future__ import annotations

import asyncio
import logging
import random
from typing import Any

import msgspec
import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerFactory, WatchPolicy
from kubeloop.cache.reflector.reporter import ReflectorReporter, diagnosis, failure_class_of, is_too_large, retry_after_of
from kubeloop.cache.reflector.steps import FailureClass, ListPage, OpenWatch, Reason, ReplaceStore, Step, WatchList
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.meta import ApiError, ConnectionRefused, Forbidden, NotFound, Status, TransportError
from kubeloop.timing import Backoff, FakeClock
from tests.cache.informing import informed, informing, passing, paused, resumed
from tests.cache.source import Source, status, until

LISTS = WatchPolicy(watch_list=False)


def error(code: int, reason: str, message: str = "", causes: list[dict[str, str]] | None = None, wait: int = 0) -> ApiError:
    body = status(code, reason, message, causes)
    if wait:
        body["details"] = {"retryAfterSeconds": wait}
    return ApiError.from_status(msgspec.convert(body, Status))


TOO_LARGE_BY_REASON = error(504, "Timeout", "x", [{"reason": "ResourceVersionTooLarge"}])
TOO_LARGE_BY_CAUSE = error(504, "Timeout", "x", [{"message": "Too large resource version"}])
TOO_LARGE_BY_TEXT = error(504, "Timeout", "Too large resource version: 9, current: 7")

# ----------------------------------------------------------------------------------------------------------- what a failure means


@pytest.mark.parametrize(
    ("failure", "trouble"),
    [
        pytest.param(error(410, "Expired"), FailureClass.EXPIRED, id="410 with its reason"),
        pytest.param(error(410, "Gone"), FailureClass.EXPIRED, id="410 as servers of old said it"),
        pytest.param(TOO_LARGE_BY_REASON, FailureClass.TOO_LARGE, id="too large, by a cause's reason [A5]"),
        pytest.param(
            error(504, "Timeout", "x", [{"message": "Too large resource version"}]),
            FailureClass.TOO_LARGE,
            id="too large, by a cause's message [A5]",
        ),
        pytest.param(TOO_LARGE_BY_TEXT, FailureClass.TOO_LARGE, id="too large, by its message [A5]"),
        pytest.param(
            error(500, "InternalError", "Too large resource version"), FailureClass.INTERNAL, id="another error that only says so"
        ),
        pytest.param(error(504, "Timeout", "try again"), FailureClass.OTHER, id="any other timeout"),
        pytest.param(ConnectionRefused("nothing listens"), FailureClass.REFUSED, id="a refused connection"),
        pytest.param(TransportError("reset"), FailureClass.OTHER, id="a connection that breaks"),
        pytest.param(error(429, "TooManyRequests"), FailureClass.BUSY, id="429"),
        pytest.param(error(422, "Invalid"), FailureClass.INVALID, id="422"),
        pytest.param(error(400, "BadRequest"), FailureClass.INVALID, id="400"),
        pytest.param(error(405, "MethodNotAllowed"), FailureClass.INVALID, id="405"),
        pytest.param(error(403, "Forbidden"), FailureClass.OTHER, id="403"),
        pytest.param(error(500, "StoreReadError"), FailureClass.INTERNAL, id="500 with its own reason"),
    ],
)
def test_a_failure_means(failure: Exception, trouble: FailureClass) -> None:
    assert failure_class_of(failure) is trouble


def test_too_large_is_no_other_apierror_A5() -> None:
    assert not is_too_large(error(404, "NotFound", "Too large resource version"))


def test_a_servers_wish_to_be_left_alone_is_honoured_up_to_five_minutes() -> None:
    assert retry_after_of(error(429, "TooManyRequests", wait=7)) == 7.0
    assert retry_after_of(error(429, "TooManyRequests", wait=86_400)) == 300.0
    assert retry_after_of(error(429, "TooManyRequests", wait=-5)) == 0.0
    assert retry_after_of(error(500, "InternalError")) == retry_after_of(TransportError("reset")) == 0.0


def test_a_diagnosis_names_the_verb_or_the_definition_that_is_missing() -> None:
    assert diagnosis(error(403, "Forbidden"), "list") == "grant this user the verb list (informers need list and watch)"
    assert "CustomResourceDefinition" in diagnosis(error(404, "NotFound"), "list")
    assert diagnosis(error(404, "NotFound", "is the CustomResourceDefinition installed?"), "list") == ""
    assert diagnosis(error(500, "InternalError"), "list") == ""


# ------------------------------------------------------------------------------------------------------------------------- policy


@pytest.mark.parametrize(
    ("least", "expected"),
    [
        pytest.param(300, (300, 600), id="five to ten minutes"),
        pytest.param(10, (300, 600), id="less is raised to five minutes"),
        pytest.param(1800, (1800, 3600), id="more is as asked"),
    ],
)
def test_a_watch_is_asked_to_end_after_B14(least: int, expected: tuple[int, int]) -> None:
    assert WatchPolicy(min_watch_timeout=least).watch_seconds == expected


@pytest.mark.parametrize("options", [{"page_size": -1}, {"internal_error_retry": -0.1}])
def test_a_policy_refuses_what_makes_no_sense_and_names_it(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        WatchPolicy(**options)


async def test_watch_timeouts_are_random_B14(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, LISTS) as (_, seen):
        for number in range(5):
            await until(lambda: source.watches == 1)
            source.put(f"m{number}")
            await until(lambda n=number: len(seen.events) == n + 1)
            source.close_watches()
            await until(lambda n=number: len(source.asked("watch", "timeoutSeconds")) == n + 2)
    asked = [int(seconds) for seconds in source.asked("watch", "timeoutSeconds")]
    assert len(set(asked)) > 3
    assert all(300 <= seconds <= 600 for seconds in asked)


async def test_pauses_between_failures_grow_from_800_ms_to_30_s_and_are_forgotten_after_2_minutes_A13(
    source: Source, api: Client, clock: FakeClock
) -> None:
    class Fixed(random.Random):
        def random(self) -> float:
            return 0.0

    source.list_faults = [status(500, "InternalError")] * 9
    errors: list[Exception] = []
    async with InformerFactory(api, clock=clock, rng=Fixed(1), policy=WatchPolicy(watch_list=False, on_error=errors.append)) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        for number, pause in enumerate([0.8, 1.6, 3.2, 6.4, 12.8, 25.6, 30.0, 30.0], start=1):
            await until(lambda n=number: len(errors) == n and clock.waiting == 1)
            await clock.advance(pause - 0.2)
            assert len(source.requests) == number
            await clock.advance(0.21)
        await until(lambda: len(errors) == 9 and clock.waiting == 1)
        await clock.advance(30)
        await until(lambda: maps.synced and source.watches == 1)
        await clock.advance(121)
        source.error_event(status(500, "InternalError"))
        await paused(source, clock)
        await clock.advance(0.801)
        await until(lambda: len(source.asked("list", "limit")) == 11)


async def test_a_custom_backoff_can_be_given_A13(source: Source, api: Client, clock: FakeClock) -> None:
    source.list_faults = [status(500, "InternalError")] * 3
    errors: list[Exception] = []

    def backoff() -> Backoff:
        return Backoff(initial=100.0, factor=1.0, jitter=0.0, cap=100.0, clock=clock)

    policy = WatchPolicy(watch_list=False, backoff=backoff, on_error=errors.append)
    async with informing(api, clock, policy) as (maps, _):
        for number in (1, 2, 3):
            await until(lambda n=number: len(errors) == n and clock.waiting == 1)
            await clock.advance(99)
            assert len(source.requests) == number
            await clock.advance(1)
        await until(lambda: maps.synced)


# -------------------------------------------------------------------------------------------------------------------------- lists


async def test_a_kept_object_does_not_keep_its_list_alive_A10(source: Source, api: Client, clock: FakeClock) -> None:
    for number in range(20):
        source.put(f"m{number}", k="x" * 2000)
    async with informed(api, clock, LISTS) as (maps, _):
        heads = list(maps.lister.heads())
        assert len(heads) == 20
        assert all(type(head._packed.blob) is bytes and len(head._packed.blob) < 3000 for head in heads), (
            "its own bytes, not a view of the page"
        )


async def test_a_list_that_fails_calls_on_error_and_the_loop_goes_on_A12_B29(source: Source, api: Client, clock: FakeClock) -> None:
    source.list_faults = [status(500, "InternalError", "etcd is gone"), status(403, "Forbidden")]
    errors: list[str] = []

    def tell(error: Exception) -> None:
        errors.append(type(error).__name__)
        raise RuntimeError("a handler that fails harms no other")

    async with informing(api, clock, WatchPolicy(watch_list=False, on_error=tell)) as (maps, _):
        await passing(clock, lambda: maps.synced)
    assert errors == ["InternalError", "Forbidden"]


async def test_leaving_ends_a_list_that_hangs_at_once_A12(source: Source, api: Client, clock: FakeClock) -> None:
    source.lists.clear()
    async with asyncio.timeout(2):
        async with informing(api, clock, LISTS):
            await until(lambda: source.requests)
    source.lists.set()
    assert clock.waiting == 0, "no timer is left"


async def test_a_relist_takes_the_place_of_the_old_content_at_once_T237(source: Source, api: Client, clock: FakeClock) -> None:
    for name in "abc":
        source.put(name)
    async with informed(api, clock, LISTS) as (maps, seen):
        await until(lambda: source.watches == 1)
        source.delete("a", hide=True)
        source.put("d", hide=True)
        source.lists.clear()
        source.error_event(status(500, "StoreReadError"))
        await paused(source, clock)
        await clock.advance(2)
        await until(lambda: len(source.asked("list", "limit")) == 2)
        assert sorted(head.name for head in maps.lister.heads()) == ["a", "b", "c"], "readable until the new list is complete"
        source.lists.set()
        await until(lambda: len(seen.events) == 5)
        assert sorted(head.name for head in maps.lister.heads()) == ["b", "c", "d"]


async def test_a_streamed_state_takes_the_place_of_the_old_content_at_once_T237(source: Source, api: Client, clock: FakeClock) -> None:
    source.streams = True
    source.put("a")
    async with informed(api, clock) as (maps, _):
        source.delete("a", hide=True)
        new = source.put("b", hide=True)
        source.error_event(status(500, "StoreReadError"))
        await paused(source, clock)
        source.stream_frames = [{"type": "ADDED", "object": new}]
        await clock.advance(2)
        await until(lambda: source.watches == 1)
        await clock.advance(1)
        assert [head.name for head in maps.lister.heads()] == ["a"]
        source.send(source.end())
        await until(lambda: [head.name for head in maps.lister.heads()] == ["b"])


async def test_a_list_from_which_nothing_comes_for_a_minute_is_given_up(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    source.lists.clear()
    async with informing(api, clock, LISTS) as (maps, _):
        await until(lambda: source.requests)
        await clock.advance(61)
        await until(lambda: "cannot list: nothing came from the server for 60 s" in caplog.text)
        source.lists.set()
        await passing(clock, lambda: maps.synced)


# ------------------------------------------------------------------------------------------------------------------------- watches


async def test_the_version_follows_every_event_in_order_and_the_cache_gets_each_B26(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, LISTS) as (maps, seen):
        await until(lambda: source.watches == 1)
        shown = []
        for version in (20, 30):
            source.version = version - 1
            source.put("a", n=str(version))
            await until(lambda expected=str(version): maps.resource_version == expected)
            shown.append(maps.resource_version)
        source.version = 35
        source.bookmark()
        await until(lambda: maps.resource_version == "35")
        source.version = 39
        source.delete("a")
        await until(lambda: maps.resource_version == "40")
        assert len(seen.events) == 3, "a bookmark is no event [B27]"


async def test_after_an_error_event_the_watch_is_closed_by_the_client_before_any_pause_B21(
    source: Source, api: Client, clock: FakeClock
) -> None:
    async with informed(api, clock, LISTS) as (maps, _):
        await until(lambda: source.watches == 1)
        source.error_event(status(500, "StoreReadError"))
        await until(lambda: source.watches == 0)
        assert clock.waiting == 1
        assert not maps._runner.feeds[0].listwatch.watching


@pytest.mark.parametrize("streams", [True, False])
async def test_leaving_closes_the_watch_at_once_B24(source: Source, api: Client, clock: FakeClock, streams: bool) -> None:
    source.streams = streams
    async with asyncio.timeout(2):
        async with informed(api, clock):
            await until(lambda: source.watches == 1)
        await until(lambda: source.watches == 0)
    assert clock.waiting == 0, "no timer is left"


async def test_leaving_during_a_pause_ends_it_at_once_B24_X5(source: Source, api: Client, clock: FakeClock) -> None:
    source.stream_faults = [status(429, "TooManyRequests")]
    async with asyncio.timeout(2):
        async with informing(api, clock):
            await paused(source, clock)
    assert clock.waiting == 0


async def test_internal_errors_inside_the_window_only_open_the_watch_again_B19(source: Source, api: Client, clock: FakeClock) -> None:
    policy = WatchPolicy(watch_list=False, internal_error_retry=30.0)
    async with informed(api, clock, policy) as (maps, _):
        for _ in range(2):
            await until(lambda: source.watches == 1)
            source.error_event(status(500, "InternalError"))
            await paused(source, clock)
            await clock.advance(4)
        await until(lambda: source.watches == 1)
        assert len(source.asked("list", "limit")) == 1
        assert maps._runner.feeds[0].listwatch.restarts == {"internal": 2}
        await clock.advance(40)
        source.error_event(status(500, "InternalError"))
        await paused(source, clock)
        await clock.advance(40)
        await until(lambda: len(source.asked("list", "limit")) == 2)


async def test_a_429_event_is_honoured_with_the_time_that_it_names(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, LISTS):
        await until(lambda: source.watches == 1)
        source.error_event(status(429, "TooManyRequests") | {"details": {"retryAfterSeconds": 90}})
        await until(lambda: not source.watches and clock.next_due == 90)
        await clock.advance(89)
        assert len(source.asked("watch", "limit")) == 1
        await clock.advance(1)
        await until(lambda: source.watches == 1)
        assert len(source.asked("list", "limit")) == 1


@pytest.mark.parametrize(
    ("answer", "error", "advice"),
    [
        pytest.param(status(403, "Forbidden"), Forbidden, "grant this user the verb list", id="403"),
        pytest.param(status(404, "NotFound"), NotFound, "is this kind installed there", id="404"),
    ],
)
async def test_what_only_a_person_can_help_is_said_at_once_with_what_to_do(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, answer: dict[str, Any], error: type, advice: str
) -> None:
    source.list_faults = [answer]
    async with informing(api, clock) as (maps, _):
        await until(lambda: isinstance(maps.failure, error))
        assert advice in caplog.text


async def test_a_failure_that_repeats_is_said_in_full_once_and_again_after_something_worked(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    missing = status(404, "NotFound", "404 page not found")
    source.streams, source.stream_faults, source.list_faults = True, [missing] * 3, [missing] * 3

    def said() -> list[bool]:
        """Of each warning so far: whether it was said in full."""
        texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
        assert all("404 page not found" in text or ", still NotFound; " in text for text in texts)
        return ["(is this kind installed there" in text for text in texts]

    async with informing(api, clock) as (maps, _):
        await passing(clock, lambda: maps.synced and source.watches)
        assert len(said()) >= 3
        assert said() == [True] + [False] * (len(said()) - 1)
        caplog.clear()
        source.stream_faults, source.list_faults, source.watch_faults = [missing], [missing], [missing]
        source.close_watches()
        await passing(clock, lambda: said() and source.watches)
        assert said()[0]


@pytest.mark.parametrize(
    ("step", "text"),
    [
        pytest.param(ListPage("", 0, pause=True), "listing again in 0.8 s", id="a list after a pause"),
        pytest.param(ListPage("", 0, why=Reason.FALLBACK), "listing at once", id="the list after a refused stream"),
        pytest.param(WatchList("", pause=True), "requesting all objects again in 0.8 s", id="a streamed list"),
        pytest.param(OpenWatch("7"), "watching again at once", id="a watch from the last version"),
        pytest.param(ReplaceStore("7"), "going on at once", id="the replacement of the store"),
    ],
)
def test_the_first_failure_is_logged_with_the_step_that_follows(step: Step, text: str, caplog: pytest.LogCaptureFixture) -> None:
    reporter = ReflectorReporter("configmaps", None)
    reporter.failed(TransportError("reset"), "cannot list", verb="list")
    reporter.next(step, 0.8)
    assert [record.getMessage() for record in caplog.records] == [f"configmaps: cannot list: reset; {text}"]


@pytest.mark.parametrize("opened", [pytest.param(False, id="when the watch is opened"), pytest.param(True, id="as an event of the watch")])
async def test_an_expired_version_is_logged_low_B29(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, opened: bool
) -> None:
    caplog.set_level(logging.INFO)
    expired = status(410, "Expired", "too old resource version")
    source.watch_faults = [] if opened else [expired]
    async with informed(api, clock, LISTS):
        if opened:
            await until(lambda: source.watches == 1)
            source.error_event(expired)
        await until(lambda: "too old resource version" in caplog.text)
        (record,) = [record for record in caplog.records if "too old resource version" in record.getMessage()]
        assert record.levelno == logging.INFO


async def test_a_normal_end_of_a_watch_is_no_warning_B29(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    errors: list[Exception] = []
    async with informed(api, clock, WatchPolicy(watch_list=False, on_error=errors.append)) as (_, seen):
        await until(lambda: source.watches == 1)
        source.put("a")
        await until(lambda: seen.events)
        source.close_watches()
        await until(lambda: len(source.asked("watch", "limit")) == 2)
        assert not errors
        assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_lists_and_restarts_are_counted_by_reason(source: Source, api: Client, clock: FakeClock) -> None:
    async with informed(api, clock, LISTS) as (maps, seen):
        listwatch = maps._runner.feeds[0].listwatch
        await until(lambda: source.watches == 1)
        source.put("a")
        await until(lambda: seen.events)
        source.close_watches()
        await until(lambda: source.watches == 1 and listwatch.restarts == {"ended": 1})
        source.put("b")
        await until(lambda: len(seen.events) == 2)
        source.reset_watches()
        await until(lambda: source.watches == 1 and listwatch.restarts == {"ended": 1, "broken": 1})
        source.error_event(status(410, "Expired"))
        await paused(source, clock)
        await clock.advance(3)
        await until(lambda: source.watches == 1)
        assert listwatch.lists == {"first": 1, "expired": 1}
        assert maps.reconnects == 2


# ------------------------------------------------------------------------------------------------------------------------- resume


async def test_a_stored_state_is_resumed_by_a_watch_from_its_version(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with informed(api, clock, LISTS) as (first, _):
        version = first.resource_version
    source.put("b")
    source.requests.clear()
    async with resumed(api, clock, version) as sink:
        await until(lambda: sink.lines == ["change b"])
    assert source.asked("watch", "resourceVersion") == ["11"]
    assert source.asked("check", "resourceVersion") == ["11"], "whether the server has got so far"


async def test_a_stored_state_that_the_server_has_forgotten_is_replaced(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    source.compact()
    async with resumed(api, clock, "5") as sink:
        await passing(clock, lambda: sink.lines)
        assert sink.lines == ["replace a"]
        assert source.asked("stream", "resourceVersion") == ["5"]


async def test_a_stored_state_of_a_restarted_server_is_replaced_at_once(source: Source, api: Client, clock: FakeClock) -> None:
    source.put("a")
    async with resumed(api, clock, "700") as sink:
        await until(lambda: sink.lines == ["replace a"])
        assert [kind for kind, _ in source.requests][:4] == ["watch", "check", "stream", "list"]
        assert source.asked("list", "resourceVersion") == [""]
