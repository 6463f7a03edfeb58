"""Which events are the same one again: the memory that turns repetition into a count. No I/O, no clock.

Source: client-go tools/record/events_cache.go (eventLogger); behaviour J131.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

#: Distinct events remembered, as upstream; the one unused for longest is forgotten, and would be created anew.
CAPACITY = 4096


class Subject(NamedTuple):
    """The object that an event is about."""

    api_version: str
    kind: str
    namespace: str
    name: str
    uid: str
    resource_version: str = ""


class Occurrence(NamedTuple):
    """Something that happened at ``time``."""

    subject: Subject
    type: str
    reason: str
    message: str
    time: datetime


@dataclass(slots=True)
class Series:
    """An event as it stands at the server: its name, how often it was seen, and when first."""

    namespace: str
    name: str
    count: int
    first: datetime


_Identity = tuple[str, ...]


class SeriesCache:
    """Remembers what was written. Two occurrences are one event if subject (whatever its version), type, reason and message agree."""

    def __init__(self, capacity: int = CAPACITY) -> None:
        self._capacity = capacity
        self._series: OrderedDict[_Identity, Series] = OrderedDict()

    def __len__(self) -> int:
        return len(self._series)

    def find(self, occurrence: Occurrence) -> Series | None:
        identity = _identity(occurrence)
        series = self._series.get(identity)
        if series is not None:
            self._series.move_to_end(identity)
        return series

    def remember(self, occurrence: Occurrence, series: Series) -> None:
        self._series[_identity(occurrence)] = series
        if len(self._series) > self._capacity:
            self._series.popitem(last=False)


def _identity(occurrence: Occurrence) -> _Identity:
    subject = occurrence.subject
    return (*subject[:5], occurrence.type, occurrence.reason, occurrence.message)
