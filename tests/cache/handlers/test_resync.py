"""Resync periods of handlers: each its own, what a resync sends, and resyncs that are left out."""

from __future__ import annotations

import asyncio
import logging

import pytest

from kubeloop.api.core.v1 import ConfigMap
from kubeloop.cache import InformerEvent, InformerFactory
from kubeloop.client import ALL_NAMESPACES, Client
from kubeloop.timing import FakeClock
from tests.cache.handlers.test_handlers import Seen, informers_of
from tests.cache.source import Source, until


async def test_each_handler_keeps_its_own_resync_period_whatever_others_ask_for(
    source: Source, api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture
) -> None:
    """[F71] [F72]"""
    caplog.set_level(logging.INFO)
    source.put("a")
    informers = InformerFactory(api, resync=12 * 3600, clock=clock)
    maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    seen = [Seen() for _ in range(4)]
    periods = [maps.on_event(updated=each, resync=period) for each, period in zip(seen, (None, 60, 0, 5), strict=True)]
    assert [each.resync for each in periods] == [12 * 3600, 60, 0, 5]
    async with informers:
        await until(lambda: all(each.synced for each in periods))
        await clock.advance(60)
        assert [each.lines.count("RESYNC a") for each in seen] == [0, 1, 0, 12]
        late = Seen()
        maps.on_event(updated=late, resync=2, name="late")
        assert "handler late of configmaps in all namespaces was added after the start; its resyncs are every 2 s from now" in caplog.text
        await clock.advance(4)
        assert late.lines == ["RESYNC a"] * 2
        assert [each.lines.count("RESYNC a") for each in seen] == [0, 1, 0, 12], "a late handler with a short period changes no other's"


async def test_a_kind_may_have_its_own_resync_period(api: Client, clock: FakeClock) -> None:
    informers = InformerFactory(api, resync=30, clock=clock)
    assert informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event().resync == 30
    assert informers.for_kind(ConfigMap, label_selector="app=web", resync=10, namespace=ALL_NAMESPACES).on_event().resync == 10
    assert informers.for_kind(ConfigMap, label_selector="app=web", namespace=ALL_NAMESPACES).on_event(resync=7).resync == 7


async def test_a_resync_period_below_a_second_is_raised_and_said(api: Client, clock: FakeClock, caplog: pytest.LogCaptureFixture) -> None:
    """[X4]"""
    maps = informers_of(api, clock).for_kind(ConfigMap, namespace=ALL_NAMESPACES)
    assert maps.on_event(resync=0.25, name="hasty").resync == 1.0
    assert "handler hasty of configmaps in all namespaces: a resync period of 0.25 s is too short; using 1 s" in caplog.text


async def test_a_relist_tells_what_changed_and_a_resync_tells_all(source: Source, api: Client, clock: FakeClock) -> None:
    """[F73]"""
    source.put("same")
    source.put("changed")
    async with informers_of(api, clock) as informers:
        maps = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES)
        plain, resynced = Seen(), Seen()
        maps.on_event(added=plain, updated=plain)
        maps.on_event(added=resynced, updated=resynced, resync=100)
        await until(lambda: source.watches == 1 and len(plain.events) == len(resynced.events) == 2)
        source.put("changed", k="2", hide=True)
        source.put("new", hide=True)
        source.error_event({"kind": "Status", "status": "Failure", "code": 410, "reason": "Expired", "message": "x"})
        await until(lambda: source.watches == 0)
        await clock.advance(3)
        await until(lambda: len(plain.events) == 4)
        assert plain.lines[2:] == ["MODIFIED changed", "ADDED new"]
        await clock.advance(100)
        await until(lambda: len(resynced.events) == 7)
        assert sorted(resynced.lines[4:]) == ["RESYNC changed", "RESYNC new", "RESYNC same"]
        assert len(plain.events) == 4


async def test_a_resync_that_is_due_while_the_last_one_still_waits_is_left_out(source: Source, api: Client, clock: FakeClock) -> None:
    go = asyncio.Event()
    calls: list[str] = []

    async def slow(event: InformerEvent[ConfigMap]) -> None:
        calls.append(event.type.value)
        await go.wait()

    for name in "abc":
        source.put(name)
    async with informers_of(api, clock) as informers:
        registration = informers.for_kind(ConfigMap, namespace=ALL_NAMESPACES).on_event(updated=slow, resync=5)
        await registration.wait_synced()
        await clock.advance(5)
        await clock.advance(500)
        assert (calls, registration.pending) == (["RESYNC"], 2)
        go.set()
        await until(lambda: registration.pending == 0)
        await clock.advance(5)
        assert calls == ["RESYNC"] * 6
