"""A deadline on a clock of one's own, so that tests decide when it has passed."""

from __future__ import annotations

import asyncio
import functools
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from kubeloop.meta.errors import DeadlineError
from kubeloop.meta.type_checks import described_word
from kubeloop.timing import Clock

T = TypeVar("T")
M = TypeVar("M", bound=Callable[..., Coroutine[Any, Any, Any]])


def require_seconds(seconds: object) -> None:
    """Refuse a time that is none.

    Raises:
        TypeError: it is no number.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
        raise TypeError(f"timeout={described_word(seconds)}: must be a number of seconds")


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


async def limit(work: Awaitable[T], timeout: float, clock: Clock, verb: str) -> T:
    """The result of ``work``, which is cancelled after ``timeout`` seconds.

    Raises:
        DeadlineError: it was cancelled, or reached a deadline of its own. TypeError: ``timeout`` is no number.
    """
    try:
        async with within(timeout, clock):
            return await work
    except DeadlineError:
        raise
    except TimeoutError as error:
        raise DeadlineError(f"{verb}: not done within {timeout:g} s; the server may still carry it out") from error


def limited(method: M) -> M:
    """Decorate a verb: its argument ``timeout`` limits the whole call, in seconds. None: only the limit of each request (``Transport``)."""

    @functools.wraps(method)
    async def call(self: Any, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        work = method(self, *args, **kwargs)
        if timeout is None:
            return await work
        owner: Any = self if hasattr(self, "clock") else getattr(self, "_verbs", None) or self._client  # of a client, or of a group of it
        about = args[0] if args else ""
        named = getattr(about, "__name__", "") or (about if isinstance(about, str) else type(about).__name__)
        try:
            return await limit(work, timeout, owner.clock, f"{method.__name__} {named}".rstrip())
        finally:
            work.close()  # where the limit itself was refused, nothing awaits it

    return cast("M", call)
