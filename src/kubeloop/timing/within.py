"""A time limit for one wait, measured by an injected clock."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

from kubeloop.timing.clock import Clock

T = TypeVar("T")


async def within(clock: Clock, seconds: float, work: Awaitable[T]) -> T:
    """Return the result of ``work``; cancel it when ``seconds`` have passed by ``clock``.

    Raises:
        TimeoutError: the time is over.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(loop.time()))
        try:
            return await work
        finally:
            timer.cancel()
