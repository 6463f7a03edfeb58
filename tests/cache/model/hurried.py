"""A clock that runs many times as fast as the machine's, and jumps on request: back-offs of seconds pass in milliseconds of a test."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta


class _Timer:
    __slots__ = ("_clock", "_handle", "callback", "due")

    def __init__(self, clock: HurriedClock, due: float, callback: Callable[[], object]) -> None:
        self._clock = clock
        self.due = due
        self.callback = callback
        self._handle: asyncio.TimerHandle | None = None
        self.arm()

    def arm(self) -> None:
        """Be called when ``due`` comes, as the clock stands now."""
        if self._handle is not None:
            self._handle.cancel()
        left = max(self.due - self._clock.now(), 0.0) / self._clock.factor
        self._handle = asyncio.get_running_loop().call_later(left, self._fire)

    def cancel(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        self._clock.timers.discard(self)

    def _fire(self) -> None:
        self._clock.timers.discard(self)
        self.callback()


class HurriedClock:
    """A ``Clock``. One second of the machine is ``factor`` seconds of this one.

    Not guaranteed
        Precision: what takes the machine a millisecond takes ``factor`` milliseconds here, so time limits must be generous.
    """

    def __init__(self, factor: float = 100.0) -> None:
        self.factor = factor
        self.timers: set[_Timer] = set()
        self._began = time.monotonic()
        self._jumped = 0.0

    def now(self) -> float:
        return (time.monotonic() - self._began) * self.factor + self._jumped

    def wall(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.now())

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _Timer:
        timer = _Timer(self, self.now() + max(seconds, 0.0), callback)
        self.timers.add(timer)
        return timer

    def jump(self, seconds: float) -> None:
        """All at once it is so much later: the machine was suspended, or time was set."""
        self._jumped += seconds
        for timer in list(self.timers):
            timer.arm()
