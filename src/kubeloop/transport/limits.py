"""Limits of a transport's requests: the number of concurrent requests, and pauses after failures."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Mapping
from types import TracebackType
from typing import Self

from kubeloop.meta.errors import ConfigError
from kubeloop.timing import Clock

# Limits concurrent requests: fewer when the server reports too many, more again as it succeeds.
#
# Requests are served in order. The limit is a congestion window like TCP's (RFC 5681): a 429 halves it, and each full window of successes
# increases it by one.


#: Maximum number of concurrent requests; more have to wait. Streams are not counted: a watch would occupy its slot for minutes.
MAX_REQUESTS = 100
#: Minimum number: a lease must be renewed also while lists are refused (the server limits each priority level separately).
MIN_REQUESTS = 10


class InFlightLimiter:
    """Limits the number of concurrent requests. Each request runs within ``async with limiter: ...``. For one event loop."""

    def __init__(self, maximum: int = MAX_REQUESTS, least: int = MIN_REQUESTS) -> None:
        self._most = maximum
        self._least = min(least, maximum)
        self._window = float(maximum)
        self._taken = 0
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def window(self) -> int:
        """The current maximum number of concurrent requests."""
        return int(self._window)

    @property
    def waiting(self) -> int:
        return sum(not one.done() for one in self._waiting)

    def refused(self) -> None:
        """Record that the server returned 429."""
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
            elif turn in self._waiting:  # otherwise ``_wake`` has removed this cancelled turn
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


# A pause before each request while the server fails: doubled by each 429 and 5xx, removed by the first other outcome.
#
# Source: client-go rest/urlbackoff.go, and util/flowcontrol/backoff.go for the reset of a pause; off by default, as in client-go.


_BASE, _LONGEST = "KUBE_CLIENT_BACKOFF_BASE", "KUBE_CLIENT_BACKOFF_DURATION"


class FailureBackoff:
    """The back-off for requests to one server after failures. ``base`` and ``longest`` are in seconds."""

    def __init__(self, base: float, longest: float, clock: Clock) -> None:
        self._base = base
        self._longest = longest
        self._clock = clock
        self._pause = 0.0
        self._failed_at = 0.0

    @classmethod
    def from_environment(cls, clock: Clock, environment: Mapping[str, str] | None = None) -> Self | None:
        """Return the back-off that KUBE_CLIENT_BACKOFF_BASE and KUBE_CLIENT_BACKOFF_DURATION configure, or None if they are not set.

        Both variables are in whole seconds. The back-off is also off if the first is 0.

        Raises:
            ConfigError: a variable is not a whole number of seconds.
        """
        environment = os.environ if environment is None else environment
        texts = [environment.get(name, "") for name in (_BASE, _LONGEST)]
        if not all(texts):
            return None
        for name, text in zip((_BASE, _LONGEST), texts, strict=True):
            if not (text.isascii() and text.isdecimal() and len(text) < 10):
                raise ConfigError(f'{name} is "{text}"; write whole seconds, or leave it out')
        return cls(float(texts[0]), float(texts[1]), clock) if int(texts[0]) else None

    def pause(self) -> float:
        """Return the seconds to wait before the next request."""
        # Old failures do not count.
        return 0.0 if self._clock.now() - self._failed_at > 2 * self._longest else self._pause

    def outcome(self, status: int | None) -> None:
        """Record the status of a response. None means no response; as in client-go, that does not count as an overloaded server."""
        if status is not None and (status == 429 or status >= 500):
            self._pause = min((self.pause() * 2) or self._base, self._longest)
            self._failed_at = self._clock.now()
        else:
            self._pause = 0.0
