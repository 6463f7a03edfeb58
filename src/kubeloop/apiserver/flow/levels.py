"""Priority levels: how many requests of each may be carried out at a time, and what becomes of those beyond."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kubeloop.apiserver.flow.queues import FairQueues

JSONObject = dict[str, Any]


class Level:
    """A PriorityLevelConfiguration at work. ``nominal`` is its share of seats; ``exempt`` has no limit, ``queues`` None means refusing."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.uid = ""
        self.exempt = False
        self.reject = False
        self.shares = 0
        self.lendable_percent = 0
        self.borrowing_percent: int | None = None
        self.queue_length = 0
        self.queues = FairQueues()
        self._shape = (0, 0)
        self.nominal = 0
        #: Its part of the loop's time. Nobody has more of it than who is exempt.
        self.weight = 1
        self.executing = 0
        #: Seconds that its requests have taken, by ``weight``.
        self.virtual = 0.0
        self.dispatched: Counter[str] = Counter()
        #: By schema and reason.
        self.rejected: Counter[tuple[str, str]] = Counter()

    def configure(self, obj: JSONObject) -> None:
        """Take over another state of the object; who waits goes on waiting."""
        spec = obj.get("spec") or {}
        self.uid = obj["metadata"].get("uid") or ""
        self.exempt = spec.get("type") == "Exempt"
        how = spec.get("exempt" if self.exempt else "limited") or {}
        shares = how.get("nominalConcurrencyShares")
        self.shares = shares if shares is not None else 0 if self.exempt else 30
        self.lendable_percent = how.get("lendablePercent") or 0
        self.borrowing_percent = how.get("borrowingLimitPercent")
        response = how.get("limitResponse") or {}
        self.reject = not self.exempt and response.get("type") != "Queue"
        queuing = response.get("queuing") or {}
        self.queue_length = queuing.get("queueLengthLimit") or 50
        shape = (0, 0) if self.exempt or self.reject else (queuing.get("queues") or 64, queuing.get("handSize") or 8)
        if shape != self._shape and not self.queues.length:
            self.queues, self._shape = FairQueues(*shape), shape

    @property
    def lendable(self) -> int:
        return round(self.nominal * self.lendable_percent / 100)

    @property
    def most(self) -> float:
        """Seats at most, borrowed ones among them."""
        if self.exempt:
            return math.inf
        return math.inf if self.borrowing_percent is None else self.nominal + round(self.nominal * self.borrowing_percent / 100)

    def has_seat(self, levels: Iterable[Level]) -> bool:
        """One of its own, or one that another level lends and does not use."""
        if self.exempt or self.executing < max(1, self.nominal):  # one at a time, however small its share
            return True
        if self.executing >= self.most:
            return False
        lent = sum(min(one.lendable, max(0, one.nominal - one.executing)) for one in levels if not one.exempt and one is not self)
        borrowed = sum(max(0, one.executing - one.nominal) for one in levels if not one.exempt)
        return borrowed < lent


def share_out(levels: Iterable[Level], seats: int) -> None:
    """Give each level its part of ``seats``, rounded up as upstream does."""
    levels = list(levels)
    total = sum(level.shares for level in levels) or 1
    for level in levels:
        level.nominal = math.ceil(seats * level.shares / total)
        level.weight = max(1, seats if level.exempt else level.nominal)
