"""A deadline on a clock of one's own, so that tests decide when it has passed."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from kubeloop.meta.type_checks import described_word
from kubeloop.timing import Clock


def require_seconds(seconds: object) -> None:
    """Refuse a time that is none.

    Raises:
        TypeError: it is no number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise TypeError(f"timeout={described_word(seconds)}: must be a number of seconds; each wait has an end")


@asynccontextmanager
async def within(seconds: float, clock: Clock) -> AsyncIterator[None]:
    """As ``asyncio.timeout``, by ``clock``.

    Raises:
        TimeoutError: the block did not end in time; it was cancelled. TypeError: ``seconds`` is no number.
    """
    require_seconds(seconds)
    async with asyncio.timeout(None) as scope:
        timer = clock.call_later(seconds, lambda: scope.reschedule(asyncio.get_running_loop().time()))
        try:
            yield
        finally:
            timer.cancel()
