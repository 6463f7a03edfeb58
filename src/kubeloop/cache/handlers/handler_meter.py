"""Measures the calls of one handler, and logs a warning when a synchronous handler has blocked the event loop.

``describe``, ``metrics`` and ``leaks`` read the measurements; no decision depends on them.
"""

from __future__ import annotations

from kubeloop.transport import logger_with_context

#: Seconds: a synchronous handler that takes longer is logged, because it blocks the event loop.
SLOW = 0.1
#: Minimum seconds between two warnings about one handler.
WARN_EVERY = 60.0

_LOG = logger_with_context("kubeloop.cache")


class HandlerMeter:
    """Counts and times the calls of one handler.

    Guarantees
        ``seconds`` and ``longest`` are measured from call to return on the informer's clock, including the time that an ``async`` handler
        waits. A synchronous handler that takes longer than ``limit`` seconds is named in the log with object and duration, at most once a
        minute; the next warning includes the number of suppressed warnings.

    Not guaranteed
        Detection of an ``async`` handler that blocks between its awaits: use asyncio's debug mode (``loop.slow_callback_duration``).
    """

    __slots__ = ("_last_warning", "_passed_over", "began", "calls", "failures", "key", "limit", "longest", "name", "seconds", "slow")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Seconds after which a synchronous call is logged; ``math.inf`` for never.
        self.limit = SLOW
        self.calls = 0
        self.failures = 0
        self.seconds = 0.0
        self.longest = 0.0
        #: Number of synchronous calls that took longer than ``limit``.
        self.slow = 0
        #: Key of the object in the current call ("" if there is no call), and when the call began.
        self.key = ""
        self.began = 0.0
        self._last_warning = -WARN_EVERY
        self._passed_over = 0

    def running(self, now: float) -> float:
        """Return the duration of the current call in seconds; 0 if there is none."""
        return now - self.began if self.key else 0.0

    def done(self, now: float, plain: bool) -> None:
        """Record the end of the current call. ``plain``: the handler is synchronous, so it blocked the event loop."""
        took = now - self.began
        self.calls += 1
        self.seconds += took
        if took > self.longest:
            self.longest = took
        if plain and took > self.limit:
            self._warn(took, now)
        self.key = ""

    def _warn(self, took: float, now: float) -> None:
        self.slow += 1
        if now - self._last_warning < WARN_EVERY:
            self._passed_over += 1
            return
        more = f" ({self._passed_over} more such calls since the last warning)" if self._passed_over else ""
        self._last_warning, self._passed_over = now, 0
        _LOG.warning(
            "handler %s kept the event loop waiting for %.0f ms on %s%s; make it async, or hand long work to a queue or a thread",
            self.name,
            took * 1000,
            self.key,
            more,
        )
