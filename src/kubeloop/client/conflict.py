"""Repeating a read-change-write that met somebody else's write.

Source: client-go util/retry.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

import msgspec

from kubeloop.meta import Conflict
from kubeloop.timing import Clock, SystemClock

T = TypeVar("T")


class Retries(msgspec.Struct, frozen=True, kw_only=True):
    """How often and how far apart. Seconds; each pause is ``factor`` times the one before, and up to ``jitter`` of it longer."""

    tries: int
    delay: float
    factor: float = 1.0
    jitter: float = 0.0


DEFAULT_RETRY = Retries(tries=5, delay=0.010, factor=1.0, jitter=0.1)
"""For changes of a few clients that do not know of each other."""

DEFAULT_BACKOFF = Retries(tries=4, delay=0.010, factor=5.0, jitter=0.1)
"""For changes that meet a controller which may be busy with the object for a while."""


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]], *, retries: Retries = DEFAULT_RETRY, clock: Clock | None = None) -> T:
    """Call ``attempt`` until it does not end in Conflict, as often as ``retries`` say. It must read the object anew each time.

    Raises:
        Conflict: the last one, when the last try conflicts too. Anything else goes through at once.
    """
    return await retry_on_error(attempt, lambda error: isinstance(error, Conflict), retries=retries, clock=clock)


async def retry_on_error(
    attempt: Callable[[], Awaitable[T]],
    retriable: Callable[[Exception], bool],
    *,
    retries: Retries = DEFAULT_RETRY,
    clock: Clock | None = None,
) -> T:
    """Call ``attempt`` until it does not raise something ``retriable``, as often as ``retries`` say.

    Raises:
        Exception: the last retriable one when tries run out; one that is not retriable at once.
    """
    clock = clock or SystemClock()
    delay = retries.delay
    for _ in range(retries.tries - 1):
        try:
            return await attempt()
        except Exception as error:
            if not retriable(error):
                raise
        await clock.sleep(delay * (1 + random.random() * retries.jitter))
        delay *= retries.factor
    return await attempt()
