"""Lets fake time pass while something is awaited: a test says what it waits for, not how often a timer must fire until then."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubeloop.tasks import wait_all
from kubeloop.timing import Clock, FakeClock

T = TypeVar("T")

#: Turns of the loop in a row with nothing else to do after which whatever runs is taken to wait for the clock.
_IDLE_TURNS = 3
#: Turns after which it is taken to do so anyhow: other tasks may spin, and loops other than asyncio's do not show whether they are idle.
_TURNS, _TURNS_UNSEEN = 2000, 100
#: Real seconds for what no loop can see: threads, sockets.
UNSEEN = 0.002


async def driven(awaitable: Awaitable[T], clock: Clock) -> T:
    """The result of ``awaitable``. While it waits, a ``FakeClock`` is moved from timer to timer; any other clock moves by itself.

    Guarantees
        Time passes only when nothing could go on without it: when the loop has nothing else to do.

    Not guaranteed
        That work in threads or over sockets is waited for before time passes: the loop cannot see it.

    Cancelled with its caller.
    """
    task = asyncio.ensure_future(awaitable)
    try:
        if isinstance(clock, FakeClock):
            while not await went_on(task.done):
                # Where nothing waits for the clock, what is awaited comes from a thread, a socket, or never.
                if not await step(clock):
                    await asyncio.wait((task,), timeout=UNSEEN)
        return await task
    finally:
        if not task.done():
            task.cancel()
            await wait_all(task)


async def step(clock: FakeClock, limit: float | None = None) -> bool:
    """Move on to what is due next, at most ``limit`` seconds; False: nothing is due within that, and no time has passed."""
    due = clock.next_due
    if due is None or (limit is not None and due > limit):
        return False
    await clock.advance(due)
    return True


async def went_on(done: Callable[[], bool]) -> bool:
    """Turn the loop until ``done()``: True; or until it has nothing else to do: False."""
    # What asyncio's loops still have to run. Counting turns instead would make a result depend on how many turns a chain of awaits takes.
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
