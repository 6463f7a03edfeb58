"""Handlers that are slow, never return, or ignore their end: they are measured and named, and no other handler waits for them."""

from __future__ import annotations

import asyncio

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import everything, informers_of
from tests.cache.source import Source, until


async def test_how_much_waits_for_a_handler_and_for_how_long_is_measured_and_warned_about_each_time_it_doubles(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """[F70]"""
    from kubeloop.cache.handlers import registration as module

    assert module.WARN_AT == 10_000
    monkeypatch.setattr(module, "WARN_AT", 100)
    go = asyncio.Event()

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        await go.wait()

    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        registration = maps.on_event(added=slow, updated=slow, name="slow")
        seen = everything(maps)
        await until(lambda: source.watches == 1)
        source.put("a")
        source.put("b")
        await until(lambda: registration.pending == 1)
        await clock.advance(20)
        assert registration.oldest(clock.now()) == 20
        for number in range(250):
            source.put("a", n=str(number))
        await until(lambda: len(seen.events) == 252)
        assert (registration.pending, registration.oldest(clock.now())) == (251, 20)
        warnings = [record.getMessage() for record in caplog.records if "handler slow is slow" in record.getMessage()]
        assert warnings == [f"handler slow is slow: {depth} events wait for it, the oldest for 20 s" for depth in (100, 200)]
        go.set()
        await registration.wait_drained()
        assert (registration.pending, registration.oldest(clock.now())) == (0, 0.0)
        go.clear()
        for number in range(120):
            source.put("b", n=str(number))
        await until(lambda: len(seen.events) == 372)
        warnings = [record.getMessage() for record in caplog.records if "handler slow is slow" in record.getMessage()]
        assert len(warnings) == 3, "who has caught up is warned about again"
        go.set()


async def test_what_a_handler_begins_with_is_no_reason_to_call_it_slow(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubeloop.cache.handlers import registration as module

    monkeypatch.setattr(module, "WARN_AT", 10)
    for number in range(50):
        source.put(f"m{number}")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await maps.on_event(added=lambda _: None, updated=lambda _: None, resync=5).wait_synced()
        await maps.on_event(added=lambda _: None).wait_synced()
        await clock.advance(5)
    assert "is slow" not in caplog.text


async def test_a_handler_that_never_returns_is_named_with_its_object_and_delays_no_other(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    async def hangs(event: InformerEvent[ConfigMap]) -> None:
        if event.key.name == "b":
            await asyncio.Event().wait()

    source.put("a")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        registration = maps.on_event(added=hangs, updated=hangs, name="hanging")
        seen = everything(maps)
        await registration.wait_synced()
        await until(lambda: source.watches == 1)
        await clock.advance(29)
        source.put("b")
        source.put("c")
        await until(lambda: len(seen.events) == 3 and registration.meter.key == "default/b")
        await clock.advance(29)
        assert "has not returned" not in caplog.text, "it is the call that took long, not the time since the handler began"
        await clock.advance(1)
        assert caplog.text.count("handler hanging has not returned from default/b for 30 s; 1 events wait for it") == 1
        await clock.advance(299)
        assert caplog.text.count("has not returned") == 1
        await clock.advance(1)
        assert "handler hanging has not returned from default/b for 330 s" in caplog.text
        source.put("d")
        await until(lambda: len(seen.events) == 4)
        await asyncio.wait_for(informers.remove(maps), 5)
        assert not [task for task in asyncio.all_tasks() if "hanging" in task.get_name()]
    assert clock.waiting == 0


async def test_a_handler_that_goes_on_although_it_was_cancelled_holds_up_the_end_for_fifteen_seconds_and_is_left_behind(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    free = asyncio.Event()
    events: list[str] = []

    async def stubborn(event: InformerEvent[ConfigMap]) -> None:
        events.append(event.key.name)
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    source.put("a")
    source.put("b")
    async with InformerFactory(api, clock=clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        maps.on_event(added=stubborn, name="stubborn")
        await until(lambda: events == ["a"])
        (task,) = [task for task in asyncio.all_tasks() if "stubborn" in task.get_name()]
        removing = asyncio.create_task(informers.remove(maps))
        await until(lambda: source.watches == 0)
        await clock.advance(14)
        assert not removing.done()
        await clock.advance(1)
        await asyncio.wait_for(removing, 5)
        assert "kubeloop handler stubborn of configmaps in all namespaces is still running although it was cancelled 5 s ago" in caplog.text
        assert caplog.text.count("cancelling it again") == 2
        assert "left behind, still running" in caplog.text
        free.set()
        await asyncio.wait({task}, timeout=5)
        assert events == ["a"], "what waited for it is dropped even so [X3]"


class WorkingClock(FakeClock):
    """Time passes while a plain function works, without a turn of the loop."""

    def work(self, seconds: float) -> None:
        self._move_to(self.now() + seconds)


async def test_others_have_their_turn_between_the_calls_of_a_plain_handler_that_takes_long(source: Source, api: Client) -> None:
    working = WorkingClock()
    for number in range(20):
        source.put(f"m{number}")
    delivered = 0

    def long(event: InformerEvent[ConfigMap]) -> None:
        nonlocal delivered
        delivered += 1
        working.work(0.003)

    async with informers_of(api, working) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        await informers.wait_synced()
        registration = maps.on_event(added=long)
        most, before = 0, 0
        while not registration.synced:
            await asyncio.sleep(0)
            most, before = max(most, delivered - before), delivered
    assert delivered == 20
    assert most == 3, "no more than fit into five milliseconds"
