"""Stall detection: decides when a stream without bytes has lost its server, even if TCP reports a working connection.

``BookmarkInterval`` is the rule, without I/O; ``Watchdog`` applies it with one timer.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubeloop.meta import TransportError
from kubeloop.timing import Clock, TimeLimit, Timer

#: Seconds after its ``timeoutSeconds`` at which a watch is abandoned; also added to the limit derived from bookmarks.
GRACE = 5.0
#: Number of bookmarks on a stream from which their interval is derived.
REGULAR = 3
#: Number of intervals without bytes after which the stream is lost.
MISSED = 3
#: Seconds: bookmarks that are closer together count as one, and are never expected more often.
BURST, SHORTEST = 1.0, 10.0


class BookmarkInterval:
    """Measures the interval of a stream's bookmarks, and derives how long it may be idle.

    The rule: after three bookmarks (or bursts of them), the stream is lost if no byte arrives for three times their longest interval plus
    five seconds. An interval counts as at least ten seconds. Before that there is no limit, since servers need not send bookmarks.
    (kube-apiserver sends one about each minute: so 3 min, instead of the 5 to 10 min of ``timeoutSeconds``.)
    """

    __slots__ = ("_intervals", "_last", "_longest")

    def __init__(self) -> None:
        self._last: float | None = None
        self._intervals = 0
        self._longest = SHORTEST

    def bookmark(self, now: float) -> None:
        """Record a bookmark."""
        if self._last is not None:
            interval = now - self._last
            if interval < BURST:
                return
            self._intervals += 1
            self._longest = max(self._longest, interval)
        self._last = now

    @property
    def limit(self) -> float | None:
        """Seconds without bytes after which the stream counts as lost; None as long as the interval is unknown."""
        return None if self._intervals < REGULAR - 1 else MISSED * self._longest + GRACE


class WatchStalled(TransportError):
    """The server sent nothing for longer than possible with a working connection; the request was ended."""


class Watchdog:
    """Ends an ``async with`` block when no bytes arrived for too long, or when its time is up.

    Args:
        clock: Clock of the limits.
        limit: Returns the allowed seconds without bytes. None: no limit.
        describe: Returns the text of the error.
        end: Time of the clock at which the block ends. None: no end.
    """

    __slots__ = ("_clock", "_describe", "_end", "_last", "_limit", "_scope", "_timer")

    def __init__(self, clock: Clock, limit: Callable[[], float | None], describe: Callable[[], str], end: float | None = None) -> None:
        self._clock = clock
        self._limit = limit
        self._describe = describe
        self._end = end
        self._last = clock.now()
        self._scope: TimeLimit | None = None
        self._timer: Timer | None = None

    def heard(self) -> None:
        """Record that bytes arrived. It is cheap: no timer is changed."""
        self._last = self._clock.now()

    def check(self) -> None:
        """Check the limits now, and set the timer. Called again when the limit has changed."""
        self._rest()
        limit = self._limit()
        deadlines = [deadline for deadline in (self._end, None if limit is None else self._last + limit) if deadline is not None]
        if self._scope is None or not deadlines:
            return
        left = min(deadlines) - self._clock.now()
        if left > 0:
            self._timer = self._clock.call_later(left, self.check)
        else:
            self._scope.end()

    @asynccontextmanager
    async def limit(self) -> AsyncIterator[None]:
        """Apply the limits to the block.

        Raises:
            WatchStalled: a limit was exceeded, and the block was ended.
        """
        try:
            async with TimeLimit(self._clock, None) as self._scope:
                self.check()
                try:
                    yield
                finally:
                    self._rest()
        except TimeoutError:
            if self._scope is None or not self._scope.expired:
                raise
            raise WatchStalled(self._describe()) from None
        finally:
            self._scope = None

    def _rest(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
