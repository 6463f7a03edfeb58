"""The clock protocol for everything with a delay or a deadline, so that tests can control the time."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Prevent the call. Cancelling twice, or after the call, does nothing."""


class Clock(Protocol):
    """Two readings and two ways to wait. Seconds are floats; nothing here depends on the time zone."""

    def now(self) -> float:
        """Return monotonic seconds: for durations and deadlines, never to be shown to people."""

    def wall(self) -> datetime:
        """Return the time of day in UTC, aware: for timestamps in objects. It may jump."""

    async def sleep(self, seconds: float) -> None:
        """Return after ``seconds``; yields to the loop once even for zero or less. Cancellable."""

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        """Call ``callback`` on the running loop after ``seconds``. A late timer costs nothing while it waits, unlike a task.

        Raises:
            RuntimeError: no event loop is running (system clock).
        """


class SystemClock:
    """The clocks of the machine."""

    __slots__ = ()

    # The function itself, not a wrapper: queues and connections read the time several times per item, and the wrapper took half of that.
    now = staticmethod(time.monotonic)

    def wall(self) -> datetime:
        return datetime.now(UTC)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def call_later(self, seconds: float, callback: Callable[[], object]) -> Timer:
        return asyncio.get_running_loop().call_later(seconds, callback)
