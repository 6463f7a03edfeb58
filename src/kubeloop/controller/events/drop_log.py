"""The log of dropped events: a few lines, however many events are dropped."""

from __future__ import annotations

import threading
from typing import Literal

from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

_LOG = logger_with_context("kubeloop.controller.events")

#: ``invalid``: the event is invalid. ``full``: too many waited. ``spam``: too many about one object. ``refused``: by the server.
#: ``unanswered``: no response. ``failed``: a function of the caller raised. ``closed``: after the end, or not sent before it.
DropReason = Literal["invalid", "full", "spam", "refused", "unanswered", "failed", "closed"]

#: Seconds for which further drops of a reason are only counted.
INTERVAL = 60.0


class _Interval:
    """The drops of one reason since the last line: their number and the text of the last one."""

    def __init__(self, end: float) -> None:
        self.end = end
        self.number = 0
        self.last = ""


class DropLog:
    """Logs dropped events: the first of a reason at once, those of the next ``INTERVAL`` seconds as one line with their number.

    It may be called from any thread.

    Args:
        clock: Measures the intervals.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._intervals: dict[DropReason, _Interval] = {}
        self._lock = threading.Lock()

    @property
    def next_due(self) -> float | None:
        """Seconds until ``report`` has something to log; None if no drop is unlogged."""
        with self._lock:
            ends = [interval.end for interval in self._intervals.values() if interval.number]
        return max(0.0, min(ends) - self._clock.now()) if ends else None

    def dropped(self, why: DropReason, text: str) -> None:
        """Log a dropped event, or count it if an event of the same reason was logged shortly before.

        Args:
            why: The reason.
            text: A sentence about the event; the log shows the last one of an interval.
        """
        self.report()
        with self._lock:
            interval = self._intervals.get(why)
            if interval is not None:
                interval.number += 1
                interval.last = text
                return
            self._intervals[why] = _Interval(self._clock.now() + INTERVAL)
        _LOG.warning("%s", text)

    def report(self, *, at_end: bool = False) -> None:
        """Log the numbers of all intervals that are over; ``at_end``: of all intervals."""
        now = self._clock.now()
        with self._lock:
            over = {why: interval for why, interval in self._intervals.items() if at_end or interval.end <= now}
            for why, interval in over.items():
                del self._intervals[why]
                if interval.number:
                    self._intervals[why] = _Interval(now + INTERVAL)
        for why, interval in over.items():
            if interval.number:
                words = "event is" if interval.number == 1 else "events are"
                _LOG.warning("%d more %s dropped (%s); the last: %s", interval.number, words, why, interval.last)
