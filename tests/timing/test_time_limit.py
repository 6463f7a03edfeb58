"""Time limits by an injected clock: what ends a block, and what passes through."""

from __future__ import annotations

import asyncio
import math

import pytest

from kubeloop.timing import FakeClock, TimeLimit, within


async def test_a_block_ends_when_its_time_is_over_on_the_clock_that_was_given() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(within(clock, 30, asyncio.Event().wait()))
    await clock.advance(29)
    assert not waiting.done()
    await clock.advance(1)
    with pytest.raises(TimeoutError):
        await waiting


@pytest.mark.parametrize("seconds", [pytest.param(None, id="none"), pytest.param(math.inf, id="infinity")])
async def test_no_limit_sets_no_timer(seconds: float | None) -> None:
    clock = FakeClock()
    async with TimeLimit(clock, seconds) as limit:
        assert not clock.waiting
    assert not limit.expired


async def test_a_block_that_ends_in_time_leaves_no_timer() -> None:
    clock = FakeClock()
    assert await within(clock, 5, asyncio.sleep(0, "done")) == "done"
    assert not clock.waiting


@pytest.mark.parametrize("seconds", [0.0, -1.0])
async def test_a_limit_without_any_time_ends_the_first_wait_and_lets_work_through_that_does_not_wait(seconds: float) -> None:
    async def at_once() -> str:
        return "done"

    assert await within(FakeClock(), seconds, at_once()) == "done"
    with pytest.raises(TimeoutError):
        await within(FakeClock(), seconds, asyncio.Event().wait())


async def test_a_timeout_error_of_the_block_itself_is_not_the_limit() -> None:
    limit = TimeLimit(FakeClock(), 5)
    with pytest.raises(TimeoutError, match="of a socket"):
        async with limit:
            raise TimeoutError("of a socket")
    assert not limit.expired


async def test_the_cancellation_of_the_caller_passes_through() -> None:
    clock = FakeClock()
    waiting = asyncio.ensure_future(within(clock, 5, asyncio.Event().wait()))
    await clock.advance(1)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert not clock.waiting
