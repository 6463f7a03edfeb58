"""Silence: when a stream from which nothing comes has lost its server, whatever TCP says of the connection.

The rule is pure (``BookmarkInterval``); ``Watchdog`` keeps it with one timer, however often something is heard.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubeloop.meta import TransportError
from kubeloop.timing import Clock, TimeLimit, Timer

#: A watch that outlives its own ``timeoutSeconds`` by this much, in seconds, is abandoned; also the margin of the rhythm below.
GRACE = 5.0
#: After so many bookmarks on one stream their rhythm is known.
REGULAR = 3
#: So many intervals without anything are silence.
MISSED = 3
#: Bookmarks that come closer together than this, in seconds, are one. None is expected more often than this.
BURST, SHORTEST = 1.0, 10.0


class BookmarkInterval:
    """Measures the interval of a stream's bookmarks, and derives how long it may be idle.

    The rule: once three bookmarks (or bursts of them) have come, the stream is lost when for three times the longest interval between
    them, plus five seconds, nothing came at all: no event, no bookmark, no byte. An interval counts as ten seconds at least. Before that
    nothing follows from silence: servers need not send bookmarks. (kube-apiserver sends one about each minute: so 3 min, instead of the
    5 to 10 min of ``timeoutSeconds``.)
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
        """Seconds without bytes after which the stream counts as lost; None while that is unknown."""
        return None if self._intervals < REGULAR - 1 else MISSED * self._longest + GRACE


class WatchStalled(TransportError):
    """The server sent nothing for longer than possible with a working connection; the request was ended."""


class Watchdog:
    """Ends a block when no bytes arrived for too long, or when its time is up.

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
        """Something came. Cheap: no timer is touched."""
        self._last = self._clock.now()

    def look(self) -> None:
        """See to it now; again when the limit has become another."""
        self._rest()
        limit = self._limit()
        deadlines = [deadline for deadline in (self._end, None if limit is None else self._last + limit) if deadline is not None]
        if self._scope is None or not deadlines:
            return
        left = min(deadlines) - self._clock.now()
        if left > 0:
            self._timer = self._clock.call_later(left, self.look)
        else:
            self._scope.end()

    @asynccontextmanager
    async def attend(self) -> AsyncIterator[None]:
        """The block.

        Raises:
            WatchStalled: it was ended.
        """
        try:
            async with TimeLimit(self._clock, None) as self._scope:
                self.look()
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
