"""Repeats read-change-write cycles that conflict with other writers.

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
    """The number of attempts and the pauses between them.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    >>> async def set_color():
    ...     settings = await client.get(ConfigMap, "settings")
    ...     settings.data["color"] = "blue"
    ...     return await client.update(settings)
    >>> (await retry_on_conflict(set_color, retries=Retries(tries=3, delay=0.01))).data
    {'color': 'blue'}

    Durations are in seconds. Each pause is ``factor`` times the previous one, plus a random share of up to ``jitter`` of it.
    """

    tries: int
    delay: float
    factor: float = 1.0
    jitter: float = 0.0


DEFAULT_RETRY = Retries(tries=5, delay=0.010, factor=1.0, jitter=0.1)
"""For objects that a few clients change independently of each other."""

DEFAULT_BACKOFF = Retries(tries=4, delay=0.010, factor=5.0, jitter=0.1)
"""For objects that a controller changes often, so that further conflicts are likely for a while."""


async def retry_on_conflict(attempt: Callable[[], Awaitable[T]], *, retries: Retries = DEFAULT_RETRY, clock: Clock | None = None) -> T:
    """Call ``attempt`` until it does not raise Conflict, at most ``retries.tries`` times. ``attempt`` must read the object each time.

    Raises:
        Conflict: The last attempt conflicted too. Other errors of ``attempt`` are raised at once.
    """
    return await retry_on_error(attempt, lambda error: isinstance(error, Conflict), retries=retries, clock=clock)


async def retry_on_error(
    attempt: Callable[[], Awaitable[T]],
    retriable: Callable[[Exception], bool],
    *,
    retries: Retries = DEFAULT_RETRY,
    clock: Clock | None = None,
) -> T:
    """Call ``attempt`` until it raises no retriable error.

    Args:
        attempt: An async function without arguments. It runs once for each try.
        retriable: Returns True for an error after which another attempt makes sense.
        retries: The number of attempts and the pauses between them.
        clock: The clock for the pauses. None: the system's clock.

    Returns:
        The result of the first successful attempt.

    Raises:
        Exception: The last retriable error after the last attempt; any other error at once.
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
