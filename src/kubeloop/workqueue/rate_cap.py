"""A limit for the whole process: how many items a second its queues hand out together."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque

from kubeloop.timing import Clock, SystemClock, Timer, TokenBucket

#: A timer that is set for less would not move a clock.
_SHORTEST = 1e-6


class RateCap:
    """At most ``rate`` items a second, after ``burst`` at once, from all queues that were given it. More wait; nothing is dropped.

    Guarantees
        Workers pass in the order in which they came, whichever queue they work for. What one takes is decided when it passes, so that an
        item of high priority does not wait behind others. A worker that is cancelled or finds its queue empty leaves its turn to the next.

    For one event loop, not thread-safe.

    Raises:
        ValueError: ``rate`` not above 0 or ``burst`` below 1.
    """

    def __init__(self, rate: float, burst: int = 1, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._bucket = TokenBucket(rate, burst, self._clock)
        self._waiters: deque[asyncio.Future[bool]] = deque()
        self._timer: Timer | None = None

    def try_pass(self) -> bool:
        """Pass now, if that is possible and no other worker waits."""
        return not self._waiters and self._bucket.try_take()

    def line_up(self) -> asyncio.Future[bool]:
        """Return a future that is True when the turn has come. A caller that does not use the turn gives it back."""
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._arm()
        return waiter

    def leave(self, waiter: asyncio.Future[bool]) -> None:
        """Wait no longer: the answer is False, unless it is known already."""
        with contextlib.suppress(ValueError):
            self._waiters.remove(waiter)
        if not waiter.done():
            waiter.set_result(False)
        if not self._waiters and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def give_back(self) -> None:
        """A turn that came is not used."""
        self._bucket.give_back()
        if self._waiters:
            self._serve()

    def change(self, rate: float, burst: int) -> None:
        """From now on so many a second, and so many at once; waiting workers pass at the new rate.

        Raises:
            ValueError: as at first; nothing is changed then.
        """
        self._bucket = TokenBucket(rate, burst, self._clock)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._serve()

    def _arm(self) -> None:
        if self._timer is None:
            wait = self._bucket.reserve()
            self._bucket.give_back()
            self._timer = self._clock.call_later(max(wait, _SHORTEST), self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._serve()

    def _serve(self) -> None:
        while self._waiters:
            if self._waiters[0].done():
                self._waiters.popleft()
            elif self._bucket.try_take():
                self._waiters.popleft().set_result(True)
            else:
                self._arm()
                return
