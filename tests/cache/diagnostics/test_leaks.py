"""Warnings about forgotten informers and handlers that block others: each is logged once, with a hint."""

from __future__ import annotations

import logging
import math
import random
import warnings

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.cache.leaks import MANY, UNUSED_AFTER, DuplicateInformerCheck, UsageMonitor
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.source import Source, until


class HandClock(FakeClock):
    """A clock that a handler can move while it blocks the loop."""

    def jump(self, seconds: float) -> None:
        self._now += seconds


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Warnings, but for what list and watch say of the scripted server."""
    texts = [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]
    return [text for text in texts if "cannot be streamed" not in text]


# ------------------------------------------------------------------------------------------------------------------ slow handlers


async def test_a_plain_handler_that_blocks_the_loop_is_named_with_its_object_once_a_minute(
    source: Source, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()
    informers = InformerFactory(api, clock=clock, rng=random.Random(1))
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    async with informers:
        maps.on_event(added=lambda _: clock.jump(0.25), name="slow")
        maps.on_event(added=lambda _: clock.jump(0.01), name="quick")
        await until(lambda: source.watches == 1)
        for name in "abc":
            source.put(name)
        await until(lambda: maps.stats.handlers[0].calls == 3)
        assert warned(caplog) == [
            "handler slow kept the event loop waiting for 250 ms on default/a; make it async, or hand long work to a queue or a thread"
        ]
        await clock.advance(61)
        source.put("d")
        await until(lambda: maps.stats.handlers[0].calls == 4)
        assert "on default/d (2 more such calls since the last warning)" in warned(caplog)[-1]
        assert maps.stats.handlers[0].slow == 4
        assert maps.stats.handlers[1].slow == 0


async def test_an_async_handler_may_take_its_time_and_the_limit_may_be_moved(
    source: Source, api: Client, caplog: pytest.LogCaptureFixture
) -> None:
    clock = HandClock()

    async def waits(event: InformerEvent[ConfigMap]) -> None:
        clock.jump(5)

    informers = InformerFactory(api, clock=clock, rng=random.Random(1))
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    async with informers:
        maps.on_event(added=waits)
        unlimited = maps.on_event(added=lambda _: clock.jump(5))
        unlimited.meter.limit = math.inf
        await until(lambda: source.watches == 1)
        source.put("a")
        await until(lambda: all(handler.calls for handler in maps.stats.handlers))
    assert warned(caplog) == []


# ------------------------------------------------------------------------------------------------------------------------- piles


async def test_handlers_that_are_added_again_and_again_and_never_removed_are_logged_at_each_doubling(
    api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    maps = InformerFactory(api, clock=clock).for_kind(ConfigMap, namespace=ALL_NAMESPACES)

    def on_request(event: InformerEvent[ConfigMap]) -> None: ...

    for _ in range(MANY):
        maps.on_event(added=on_request, name="on_request")
    assert len(warned(caplog)) == 1
    assert f"configmaps in all namespaces: {MANY} handlers named on_request, and none was removed" in warned(caplog)[0]
    for _ in range(MANY - 1):
        maps.on_event(added=on_request, name="on_request")
    assert len(warned(caplog)) == 1
    maps.on_event(added=on_request, name="on_request")
    assert len(warned(caplog)) == 2


async def test_handlers_that_are_removed_are_no_leak(api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    maps = InformerFactory(api, clock=clock).for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    for _ in range(3 * MANY):
        maps.on_event(added=print, name="on_request").remove()
    assert warned(caplog) == []


async def test_many_informers_of_one_kind_are_logged(api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    informers = InformerFactory(api, clock=clock)
    for number in range(MANY + 10):
        informers.for_kind(ConfigMap, namespace=f"ns-{number}")
        informers.for_kind(ConfigMap, namespace=f"ns-{number}")
    assert len(warned(caplog)) == 1
    assert f'{MANY} informers of ConfigMap, the last of configmaps in namespace "ns-{MANY - 1}"' in warned(caplog)[0]


def test_kinds_and_names_pile_up_apart() -> None:
    piles = DuplicateInformerCheck()
    assert [piles.grown("a", count) for count in (MANY - 1, MANY, MANY + 1, 2 * MANY)] == [False, True, False, True]
    assert piles.grown("b", MANY)


# ------------------------------------------------------------------------------------------------------------------------ unused


@pytest.mark.parametrize(
    ("looks", "expected"),
    [
        pytest.param([(0, 0, 0), (UNUSED_AFTER, 0, 0)], 1, id="an informer without any use is logged"),
        pytest.param([(0, 0, 0), (UNUSED_AFTER - 1, 0, 0)], 0, id="not before its time"),
        pytest.param([(0, 0, 0), (UNUSED_AFTER, 0, 0), (9 * UNUSED_AFTER, 0, 0)], 1, id="once"),
        pytest.param([(0, 1, 0), (UNUSED_AFTER, 1, 0), (9 * UNUSED_AFTER, 1, 0)], 0, id="a handler is a use, also without events"),
        pytest.param([(0, 1, 0), (UNUSED_AFTER, 0, 0)], 1, id="an informer that its last handler left is logged"),
        pytest.param([(0, 1, 0), (5, 0, 3), (UNUSED_AFTER, 0, 3)], 0, id="unless it was read since"),
        pytest.param([(0, 0, 1), (9 * UNUSED_AFTER, 0, 1)], 0, id="a cache that is read now and then is as it should be"),
    ],
)
def test_unused(looks: list[tuple[float, int, int]], expected: int, caplog: pytest.LogCaptureFixture) -> None:
    usage = UsageMonitor("pods in all namespaces", 0.0)
    for now, handlers, reads in looks:
        usage.check(now, handlers, reads, objects=7)
    assert len(warned(caplog)) == expected
    assert all("pods in all namespaces: no handler and no query for" in text and "7 objects" in text for text in warned(caplog))


async def test_it_is_looked_at_when_the_watch_opens_again(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async with InformerFactory(api, clock=clock, rng=random.Random(1)) as informers:
        informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await until(lambda: source.watches == 1)
        await clock.advance(UNUSED_AFTER / 2)
        source.close_watches()
        await until(lambda: len(source.asked("watch", "resourceVersion")) == 2 and source.watches == 1)
        await clock.advance(UNUSED_AFTER / 2)
        source.close_watches()
        await until(lambda: "no handler and no query" in caplog.text)


# --------------------------------------------------------------------------------------------------------------------- never ended


async def test_informers_that_were_never_ended_say_so(api: Client, clock: FakeClock) -> None:
    informers = InformerFactory(api, clock=clock)
    informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        unused = InformerFactory(api, clock=clock)
        unused.__del__()
        assert caught == [], "informers that were never started need no end"
        await informers.__aenter__()
        informers.__del__()
    assert [str(one.message) for one in caught] == ["informers were never ended (use async with): configmaps in all namespaces"]
    assert caught[0].category is ResourceWarning
    await informers.__aexit__()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        informers.__del__()
