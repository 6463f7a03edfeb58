"""Repeating a read-change-write that met somebody else's write.

Source: client-go util/retry (DefaultRetry: 5 steps, 10 ms, jitter 0.1).
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from kubeloop.meta import Conflict
from kubeloop.timing import Clock, SystemClock

T = TypeVar("T")

_TRIES, _DELAY, _JITTER = 5, 0.010, 0.1


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]], *, clock: Clock | None = None) -> T:
    """Call ``attempt`` until it does not end in Conflict, at most five times. It must read the object anew each time.

    Raises:
        Conflict: the last one, when the fifth try conflicts too. Anything else goes through at once.
    """
    clock = clock or SystemClock()
    for _ in range(_TRIES - 1):
        try:
            return await attempt()
        except Conflict:
            await clock.sleep(_DELAY * (1 + random.random() * _JITTER))
    return await attempt()
