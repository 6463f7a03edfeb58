"""Reconciles that do not return: named with class, key and way out; their key stays theirs, the others go on."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from kubeloop.meta import ObjectKey
from tests.controller.runner.bench import KEY, OTHER, Bench


class Stubborn:
    """Goes on although it is cancelled, for one key, until it is let go."""

    def __init__(self) -> None:
        self.let_go = asyncio.Event()
        self.calls: list[ObjectKey] = []
        self.running: list[ObjectKey] = []

    async def __call__(self, key: ObjectKey) -> None:
        assert key not in self.running, "never twice at a time"
        self.calls.append(key)
        self.running.append(key)
        while key == KEY and not self.let_go.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await self.let_go.wait()
        self.running.remove(key)


async def test_it_keeps_its_key_and_other_keys_go_on_though_there_is_but_one_worker(caplog: pytest.LogCaptureFixture) -> None:
    reconcile = Stubborn()
    async with Bench(reconcile, timeout=5) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(0)
        bench.queue.add(KEY)
        bench.queue.add(OTHER)
        await bench.clock.advance(5.5)
        assert reconcile.calls == [KEY], "the time has passed, and it is given a moment to end"
        await bench.clock.advance(1)
        assert reconcile.calls == [KEY, OTHER]
        assert (bench.workers.counts.hanging, bench.queue.stats.processing) == (1, 1)
        (record,) = caplog.records
        words = "bench: the reconcile of shop/web has been running for 6 s although it was cancelled after 5 s (timeout=)"
        assert words in record.getMessage()
        assert "other keys continue" in record.getMessage()
        reconcile.let_go.set()
        await bench.clock.advance(1)
        assert reconcile.calls == [KEY, OTHER, KEY]
        assert bench.workers.counts.hanging == 0
        bench.queue.add(OTHER)
        await bench.clock.advance(0)
        assert bench.workers._running == 1, "the worker too many has ended"
    assert "has ended, after" in caplog.text


async def test_it_is_named_again_each_time_its_age_has_doubled(caplog: pytest.LogCaptureFixture) -> None:
    reconcile = Stubborn()
    async with Bench(reconcile, timeout=100) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(1000)
        assert len(caplog.records) == 4  # After 101, 202, 404 and 808 s.
        reconcile.let_go.set()


async def test_without_a_time_limit_it_is_named_after_a_minute_with_a_hint_to_time_limits(caplog: pytest.LogCaptureFixture) -> None:
    gate = asyncio.Event()

    async def wait(key: ObjectKey) -> None:
        await gate.wait()

    async with Bench(wait) as bench:
        bench.queue.add(KEY)
        await bench.clock.advance(59)
        assert not caplog.records
        await bench.clock.advance(1)
        assert "bench: the reconcile of shop/web has not returned for 60 s" in caplog.text
        assert "give the class timeout=... seconds" in caplog.text
        gate.set()


async def test_a_stop_waits_for_it() -> None:
    reconcile = Stubborn()
    bench = Bench(reconcile, timeout=5)
    task = asyncio.ensure_future(bench.workers.run())
    bench.queue.add(KEY)
    await bench.clock.advance(7)
    bench.workers.stop()
    await bench.clock.advance(0)
    assert not task.done()
    reconcile.let_go.set()
    await asyncio.wait_for(task, 5)
    assert not bench.clock.waiting
