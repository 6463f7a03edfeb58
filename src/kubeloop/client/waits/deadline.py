"""A deadline on a clock of one's own, so that tests decide when it has passed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeloop.timing import Clock


@asynccontextmanager
async def within(seconds: float, clock: Clock) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, by ``clock``.

    Raises:
        TimeoutError: the block did not end in time; it was cancelled.
    """
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(asyncio.get_running_loop().time()))
        try:
            yield
        finally:
            timer.cancel()
