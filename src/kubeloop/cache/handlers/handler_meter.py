"""What one handler's calls cost, in plain numbers; says so when a plain function has kept the whole loop waiting.

Read by ``describe``, ``metrics`` and ``leaks``; never decides anything.
"""

from __future__ import annotations

from kubeloop.transport import logger_with_context

#: A plain handler that takes longer than this, in seconds, held up everything else on the loop: worth a warning.
SLOW = 0.1
#: Seconds between two such warnings about one handler.
WARN_EVERY = 60.0

_log = logger_with_context("kubeloop.cache")


class HandlerMeter:
    """Calls of one handler: how many, how long.

    Guarantees
        ``seconds`` and ``longest`` are times of the informer's clock from call to return; of an ``async`` handler waiting included.
        A plain handler that takes longer than ``limit`` seconds is named in the log with object and duration, at most once a minute;
        the next warning says how many were passed over.

    Not guaranteed
        To notice an ``async`` handler that blocks between its awaits: asyncio's debug mode does (``loop.slow_callback_duration``).
    """

    __slots__ = ("_last_warning", "_passed_over", "began", "calls", "failures", "key", "limit", "longest", "name", "seconds", "slow")

    def __init__(self, name: str) -> None:
        self.name = name
        #: Seconds after which a plain call is worth a warning; ``math.inf`` for never.
        self.limit = SLOW
        self.calls = 0
        self.failures = 0
        self.seconds = 0.0
        self.longest = 0.0
        #: How many plain calls took longer than ``limit``.
        self.slow = 0
        #: The object that is being handled now, "" if none, and since when.
        self.key = ""
        self.began = 0.0
        self._last_warning = -WARN_EVERY
        self._passed_over = 0

    def running(self, now: float) -> float:
        """Seconds since the call that runs now began; 0 if none does."""
        return now - self.began if self.key else 0.0

    def done(self, now: float, plain: bool) -> None:
        """Record the end of the current call. ``plain``: it blocked the event loop."""
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
        _log.warning(
            "handler %s kept the event loop waiting for %.0f ms on %s%s; make it async, or hand long work to a queue or a thread",
            self.name,
            took * 1000,
            self.key,
            more,
        )
