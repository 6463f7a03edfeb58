"""Limits concurrent requests: fewer when the server reports too many, more again as it succeeds.

First come, first served. A congestion window like TCP's (RFC 5681): halved by a refusal, increased by one with each full window of
successes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

#: Maximum number of concurrent requests; more have to wait. Streams are not counted: a watch would occupy its slot for minutes.
MAX_REQUESTS = 100
#: Minimum number: a lease must be renewed also while lists are refused (the server limits each priority level separately).
MIN_REQUESTS = 10


class InFlightLimiter:
    """``async with limiter: ...`` is one request. For one event loop."""

    def __init__(self, most: int = MAX_REQUESTS, least: int = MIN_REQUESTS) -> None:
        self._most = most
        self._least = min(least, most)
        self._window = float(most)
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def window(self) -> int:
        """The present maximum of concurrent requests."""
        return int(self._window)

    @property
    def waiting(self) -> int:
        return sum(not one.done() for one in self._waiting)

    def refused(self) -> None:
        """Record a 429 of the server."""
        self._window = max(self._window / 2, float(self._least))

    def answered(self) -> None:
        """Record a successful request."""
        if self._window < self._most:
            self._window = min(self._window + 1 / self._window, float(self._most))
            self._wake()

    async def __aenter__(self) -> None:
        if self._taken < self.window and not self._waiting:
            self._taken += 1
            return
        turn = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        try:
            await turn  # the releaser has passed its slot on
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._taken -= 1
                self._wake()
            elif turn in self._waiting:  # else another request was passed this slot, and skipped the turn
                self._waiting.remove(turn)
            raise

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._taken -= 1
        self._wake()

    def _wake(self) -> None:
        while self._waiting and self._taken < self.window:
            turn = self._waiting.popleft()
            if not turn.done():
                self._taken += 1
                turn.set_result(None)
