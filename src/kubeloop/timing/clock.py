"""Clocks, and time limits that use them. Everything with a delay or a time limit gets a clock, so that tests control the time."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from types import TracebackType
from typing import Protocol, Self, TypeVar

T = TypeVar("T")


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Prevent the call. Cancelling twice, or after the call, does nothing."""


class Clock(Protocol):
    """Source of time: reads the monotonic time and the time of day, sleeps, and schedules calls. Seconds are floats."""

    def now(self) -> float:
        """Return monotonic seconds, for durations and deadlines. The start is arbitrary, so do not show them to people."""

    def wall(self) -> datetime:
        """Return the time of day as an aware datetime in UTC, for timestamps in objects. It may jump."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``. The wait can be cancelled; zero or less yields to the event loop once."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` on the running loop after ``seconds``. Return a timer that can cancel the call; it needs no task.

        Raises:
            RuntimeError: No event loop is running (system clock).
        """


class SystemClock:
    """The ``Clock`` of the machine: its monotonic clock, its time of day, and the event loop's timers.

    >>> clock = SystemClock()
    >>> start = clock.now()
    >>> await clock.sleep(0.01)
    >>> clock.now() > start
    True
    """

    __slots__ = ()

    # The function itself, not a wrapper: queues and connections read the time several times per item, and the wrapper took half of that.
    now = staticmethod(time.monotonic)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)


class TimeLimit:
    """Cancels an ``async with`` block when its time is over, and raises ``TimeoutError``. It is ``asyncio.timeout`` for any ``Clock``.

    Guarantees:
        The caller's own cancellation passes through. A ``TimeoutError`` that the block raised itself leaves ``expired`` False.

    Example:
        >>> async with TimeLimit(SystemClock(), 0.01):
        ...     await asyncio.sleep(60)
        Traceback (most recent call last):
            ...
        TimeoutError
    """

    __slots__ = ("_clock", "_scope", "_seconds", "_timer")

    def __init__(self, clock: Clock, seconds: float | None) -> None:
        """Create a limit.

        Args:
            clock: Measures the time.
            seconds: Counted from the start of the block. None and infinity: no limit. Zero or less: the first wait of the block ends it.
        """
        self._clock = clock
        self._seconds = None if seconds == math.inf else seconds
        self._scope = asyncio.timeout(None)
        self._timer: Timer | None = None

    @property
    def expired(self) -> bool:
        """Whether the limit ended the block."""
        return self._scope.expired()

    async def __aenter__(self) -> Self:
        await self._scope.__aenter__()
        if self._seconds is not None:
            if self._seconds > 0:
                self._timer = self._clock.call_later(self._seconds, self.end)
            else:
                self.end()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        await self._scope.__aexit__(kind, error, trace)

    def end(self) -> None:
        """End the block now, as if its time were over. Call this method only while the block runs."""
        if not self._scope.expired():
            self._scope.reschedule(asyncio.get_running_loop().time())


async def within(clock: Clock, seconds: float | None, work: Awaitable[T]) -> T:
    """Return the result of ``work``; cancel it when ``seconds`` have passed.

    Raises:
        TimeoutError: ``seconds`` have passed.
    """
    async with TimeLimit(clock, seconds):
        return await work
