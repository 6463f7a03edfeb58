"""Lets fake time pass while something is awaited: a test says what it waits for, not how often a timer must fire until then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from kubeloop.timing import Clock, FakeClock

T = TypeVar("T")

#: Turns of the loop without a result after which whatever runs is taken to wait for the clock.
_QUIET = 60


async def driven(awaitable: Awaitable[T], clock: Clock) -> T:
    """The result of ``awaitable``. While it waits, a ``FakeClock`` is moved from timer to timer; any other clock moves by itself.

    Guarantees
        Time passes only when nothing could go on without it: after many turns of the loop in which the result did not come.

    Not guaranteed
        That work in threads or over sockets is waited for before time passes: the loop cannot see it.

    Cancelled with its caller.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        if isinstance(clock, FakeClock):
            while not task.done():
                await _settled(task)
                if not task.done() and not await step(clock):
                    # Nothing waits for the clock: what is awaited comes from a thread, a socket, or never.
                    await asyncio.wait((task,), timeout=0.005)
        return await task
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait((task,))


async def step(clock: FakeClock, limit: float | None = None) -> bool:
    """Move on to what is due next, at most ``limit`` seconds; False: nothing is due within that, and no time has passed."""
    due = clock.next_due
    if due is None or (limit is not None and due > limit):
        return False
    await clock.advance(due)
    return True


async def _settled(task: asyncio.Future[T]) -> None:
    for _ in range(_QUIET):
        if task.done():
            return
        await asyncio.sleep(0)
