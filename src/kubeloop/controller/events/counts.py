"""What one sink has done, in numbers. Any thread may record, so the numbers have a lock."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Literal

#: ``invalid``: no event could be made of it. ``full``: too many waited. ``spam``: too many about one object. ``refused``: by the server.
#: ``unanswered``: no answer in all tries. ``failed``: a function of the caller's raised. ``closed``: after the end, or not sent before it.
DropReason = Literal["invalid", "full", "spam", "refused", "unanswered", "failed", "closed"]


class EventCounts:
    """Since the start. ``recorded`` is what was asked for, ``sent`` requests that succeeded, ``counted`` occurrences that only raised a
    number kept here until it is written."""

    def __init__(self) -> None:
        self.sent = 0
        self.counted = 0
        self._recorded = 0
        self._dropped: Counter[DropReason] = Counter()
        self._lock = threading.Lock()

    @property
    def recorded(self) -> int:
        return self._recorded

    @property
    def dropped(self) -> Mapping[DropReason, int]:
        """A copy, by reason."""
        with self._lock:
            return dict(self._dropped)

    def record(self) -> None:
        with self._lock:
            self._recorded += 1

    def drop(self, why: DropReason, number: int = 1) -> None:
        with self._lock:
            self._dropped[why] += number
