"""How many requests run at the same time: fewer when the server says that it has too many, more again as it answers.

First come, first served. A window as TCP's (RFC 5681): halved by a refusal, opened by one with each full window of answers.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType

#: At most so many requests at the same time; more wait. Streams are not counted: a watch would hold its place for minutes.
MAX_REQUESTS = 100
#: Never fewer: a lease must be renewed also while lists are refused (the server limits each priority level by itself).
MIN_REQUESTS = 10


class InFlightLimiter:
    """``async with places: ...`` is one request. For one event loop."""

    def __init__(self, most: int = MAX_REQUESTS, least: int = MIN_REQUESTS) -> None:
        self._most = most
        self._least = min(least, most)
        self._window = float(most)
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def window(self) -> int:
        """How many may run at the same time now."""
        return int(self._window)

    @property
    def waiting(self) -> int:
        return sum(not one.done() for one in self._waiting)

    def refused(self) -> None:
        """The server answered that it has too many requests (429)."""
        self._window = max(self._window / 2, float(self._least))

    def answered(self) -> None:
        """The server took a request."""
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
            await turn  # whoever ends it has taken the place
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._taken -= 1
                self._wake()
            elif turn in self._waiting:  # else somebody who left was faster, and passed it over
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
