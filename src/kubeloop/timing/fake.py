"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

#: How many turns of the loop follow each timer, so that woken tasks can run, finish their awaits and set more timers.
_TURNS = 20


class _FakeTimer:
    __slots__ = ("callback",)

    def __init__(self, callback: Callable[[], object]) -> None:
        self.callback: Callable[[], object] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    """A ``Clock`` for tests: time passes only in ``advance``.

    >>> clock = FakeClock()
    >>> reminder = asyncio.create_task(clock.sleep(60))
    >>> await clock.advance(59)
    >>> reminder.done()
    False
    >>> await clock.advance(1)
    >>> reminder.done()
    True

    Guarantees
        Timers and sleepers wake in the order of their times, equal times in the order in which they were set, each with the clock
        exactly at its time. A sleeper that sleeps again wakes within the same ``advance`` if its time has come.

    Not guaranteed
        Work that waits for real I/O may be unfinished when ``advance`` returns, because it runs only a few turns of the loop per timer.
    """

    def __init__(self, wall: datetime = datetime(2026, 1, 1, tzinfo=UTC)) -> None:
        self._now = 1000.0
        self._wall = wall
        self._timers: list[tuple[float, int, _FakeTimer]] = []
        self._order = itertools.count()

    def now(self) -> float:
        return self._now

    def wall(self) -> datetime:
        return self._wall

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not woken.done():
                woken.set_result(None)

        timer = self.call_later(seconds, wake)
        try:
            await woken
        finally:
            timer.cancel()

    def call_later(self, seconds: float, callback: Callable[[], object]) -> _FakeTimer:
        timer = _FakeTimer(callback)
        heapq.heappush(self._timers, (self._now + max(seconds, 0.0), next(self._order), timer))
        return timer

    @property
    def waiting(self) -> int:
        """Return the number of pending timers and sleepers."""
        return sum(timer.callback is not None for _, _, timer in self._timers)

    @property
    def next_due(self) -> float | None:
        """Return the seconds until the first pending timer or sleeper is due; None if nothing is pending."""
        dues = [due for due, _, timer in self._timers if timer.callback is not None]
        return min(dues) - self._now if dues else None

    async def advance(self, seconds: float) -> None:
        """Let ``seconds`` pass and wake everything that becomes due on the way."""
        until = self._now + seconds
        await self._settle()
        while self._timers and self._timers[0][0] <= until:
            due, _, timer = heapq.heappop(self._timers)
            callback = timer.callback
            if callback is None:
                continue
            self._move_to(due)
            timer.cancel()
            callback()
            await self._settle()
        self._move_to(until)

    def step_wall(self, seconds: float) -> None:
        """Change the time of day without time passing, as an administrator or NTP does."""
        self._wall += timedelta(seconds=seconds)

    def _move_to(self, now: float) -> None:
        self._wall += timedelta(seconds=now - self._now)
        self._now = now

    @staticmethod
    async def _settle() -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
