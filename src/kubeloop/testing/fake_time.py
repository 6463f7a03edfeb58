"""Advances fake time while a test awaits something, so that the test need not know how many timers fire until then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubeloop.tasks import wait_all
from kubeloop.timing import Clock, FakeClock

T = TypeVar("T")

#: Idle turns of the loop in a row after which all tasks are assumed to wait for the clock.
_IDLE_TURNS = 3
#: Turns after which all tasks are assumed to wait for the clock even if the loop is busy, because a task may spin; and the same for loops
#: other than asyncio's, which do not show whether they are idle.
_TURNS, _TURNS_UNSEEN = 2000, 100
#: Real seconds for work outside the loop: threads, sockets.
UNSEEN = 0.002


async def with_fake_time(awaitable: Awaitable[T], clock: Clock) -> T:
    """Return the result of ``awaitable``. While it waits, a ``FakeClock`` is advanced from timer to timer; other clocks run by themselves.

    Guarantees
        Time passes only when the loop is idle.

    Not guaranteed
        Work in threads or over sockets may be unfinished when time passes: the loop cannot see it.

    If the caller is cancelled, ``awaitable`` is cancelled too.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        if isinstance(clock, FakeClock):
            while not await run_until_idle(task.done):
                # If no task waits for the clock, the result comes from a thread, a socket, or never.
                if not await step(clock):
                    await asyncio.wait((task,), timeout=UNSEEN)
        return await task
    finally:
        if not task.done():
            task.cancel()
            await wait_all(task)


async def step(clock: FakeClock, limit: float | None = None) -> bool:
    """Advance to the next timer, by at most ``limit`` seconds. Return False, without advancing, if no timer is due within them."""
    due = clock.next_due
    if due is None or (limit is not None and due > limit):
        return False
    await clock.advance(due)
    return True


async def run_until_idle(done: Callable[[], bool]) -> bool:
    """Run the loop until ``done()`` is true (returns True) or the loop is idle (returns False)."""
    # The ready queue of asyncio's loops. Counting turns instead would make a result depend on the length of a chain of awaits.
    ready = getattr(asyncio.get_running_loop(), "_ready", None)
    idle = 0
    for _ in range(_TURNS if ready is not None else _TURNS_UNSEEN):
        if done():
            return True
        await asyncio.sleep(0)
        idle = idle + 1 if ready is not None and not ready else 0
        if idle >= _IDLE_TURNS:
            break
    return done()
