"""Whether a replica's memory grows with past events, rather than with present objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from tests.soak.controllers.notes import Account

#: Seconds in which caches, queues and the allocator find their size.
_FIRST = 60.0
#: What a replica may have at the end of what it had after its first minute of work.
_ALLOWED = 1.1


@dataclass(frozen=True, slots=True)
class Growth:
    """MiB of a replica after its first minute of work, at the end, and the seconds between the two."""

    replica: str
    first: float
    last: float
    seconds: float

    @property
    def too_much(self) -> bool:
        return self.last > self.first * _ALLOWED

    def __str__(self) -> str:
        return f"memory of {self.replica}: {self.first:.0f} MiB after its first minute, {self.last:.0f} MiB {self.seconds:.0f} s later"


def growth(accounts: Mapping[str, Account]) -> list[Growth]:
    """Of replicas that worked for longer than a minute. The minute begins with the first reconcile; a standby has no work yet."""
    found = []
    for name, account in accounts.items():
        if not account.intervals:
            continue
        began = min(interval.start for interval in account.intervals)
        later = [(when, size) for when, size in account.memory if when > began + _FIRST]
        if len(later) > 3:
            # Not one sample alone: objects on their way at that moment are not kept memory.
            first, last = median(size for _, size in later[:3]), median(size for _, size in later[-3:])
            found.append(Growth(name, first, last, later[-1][0] - later[0][0]))
    return found
