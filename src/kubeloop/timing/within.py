"""A limit for one wait, by the clock that the rest is timed by."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from kubeloop.timing.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """The result of ``work``, which is cancelled when ``seconds`` have passed by ``clock``.

    Raises:
        TimeoutError: they have passed.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(loop.time()))
        try:
            return await work
        finally:
            timer.cancel()
