"""Tracer: notes when functions of interest are called and return, without changing them. For one thread and a short while.

It uses the interpreter's profiling hook: what runs is the program as it always is, only slower.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import CodeType, FrameType
from typing import Any, Literal

#: What a station says of a call: bytes in hand (None: nothing to count), and a few words. None: not this call.
Saying = tuple[int | None, str] | None
Look = Callable[[dict[str, Any], Any], Saying]


@dataclass(frozen=True, slots=True)
class Station:
    """A place on the path. ``function`` is looked at when it is called, or when it returns; ``look`` gets its variables and its answer."""

    name: str
    where: str
    function: Callable[..., Any]
    when: Literal["call", "return"]
    look: Look


@dataclass(frozen=True, slots=True)
class StationVisit:
    """The event at a station: microseconds since the first one."""

    station: Station
    at: float
    size: int | None
    words: str


class Tracer:
    """Collects visits. The first call of a station counts, calls after it do not: it is one event that is followed."""

    def __init__(self, stations: list[Station]) -> None:
        self._stations: dict[tuple[CodeType, str], Station] = {}
        for station in stations:
            code = station.function.__code__
            self._stations[(code, station.when)] = station
        self._codes = {code for code, _ in self._stations}
        self._found: dict[str, tuple[int, Station, int | None, str]] = {}

    @contextmanager
    def tracing(self) -> Iterator[None]:
        """What this thread runs inside is looked at. Not to be nested, nor used beside a profiler or debugger."""
        sys.setprofile(self._hook)
        try:
            yield
        finally:
            sys.setprofile(None)

    def visits(self) -> list[StationVisit]:
        """In the order in which the event came by."""
        found = sorted(self._found.values(), key=lambda each: each[0])
        first = found[0][0] if found else 0
        return [StationVisit(station, (at - first) / 1000, size, words) for at, station, size, words in found]

    def _hook(self, frame: FrameType, event: str, answer: Any) -> None:
        if frame.f_code not in self._codes:
            return
        now = time.perf_counter_ns()
        station = self._stations.get((frame.f_code, event))
        if station is None or station.name in self._found:
            return
        saying = station.look(frame.f_locals, answer)
        if saying is not None:
            self._found[station.name] = (now, station, *saying)
