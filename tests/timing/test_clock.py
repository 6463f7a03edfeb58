"""The fake clock wakes what a test's time has reached, in order; the system clock is a Clock."""

import asyncio
from datetime import UTC, timedelta

from kubeloop.timing import Clock, FakeClock, SystemClock


async def test_sleepers_wake_in_the_order_of_their_times_with_the_clock_at_each() -> None:
    clock = FakeClock()
    start = clock.now()
    woken: list[float] = []

    async def sleep(seconds: float) -> None:
        await clock.sleep(seconds)
        woken.append(clock.now() - start)

    async with asyncio.TaskGroup() as group:
        for seconds in (3, 1, 2):
            group.create_task(sleep(seconds))
        await clock.advance(2.5)
        assert woken == [1, 2]
        await clock.advance(0.5)
    assert woken == [1, 2, 3]


async def test_a_sleeper_that_sleeps_again_is_woken_again_in_one_advance() -> None:
    clock = FakeClock()
    ticks: list[float] = []

    async def tick() -> None:
        while True:
            await clock.sleep(1)
            ticks.append(clock.now())

    task = asyncio.ensure_future(tick())
    await clock.advance(5)
    task.cancel()
    assert len(ticks) == 5
    assert ticks == sorted(ticks)


async def test_timers_of_one_time_run_in_the_order_in_which_they_were_set() -> None:
    clock = FakeClock()
    calls: list[str] = []
    clock.call_later(1, lambda: calls.append("first"))
    cancelled = clock.call_later(1, lambda: calls.append("cancelled"))
    clock.call_later(1, lambda: calls.append("second"))
    cancelled.cancel()
    assert clock.waiting == 2
    await clock.advance(0.25)
    assert clock.next_due == 0.75
    await clock.advance(0.75)
    assert calls == ["first", "second"]
    assert clock.waiting == 0
    assert clock.next_due is None


async def test_a_cancelled_sleeper_leaves_nothing_behind() -> None:
    clock = FakeClock()
    task = asyncio.ensure_future(clock.sleep(10))
    await clock.advance(1)
    task.cancel()
    await asyncio.wait([task])
    assert clock.waiting == 0


async def test_wall_time_passes_with_the_clock_and_may_be_set_apart_from_it() -> None:
    clock = FakeClock()
    before, now = clock.wall(), clock.now()
    await clock.advance(90)
    assert clock.wall() - before == timedelta(seconds=90)
    clock.step_wall(-3600)
    assert clock.wall() < before
    assert clock.now() == now + 90


async def test_the_system_clock_calls_back_and_tells_utc() -> None:
    clock: Clock = SystemClock()
    called = asyncio.Event()
    before = clock.now()
    clock.call_later(0, called.set)
    await asyncio.wait_for(called.wait(), 5)
    await clock.sleep(0)
    assert clock.now() >= before
    assert clock.wall().tzinfo is UTC
