"""Series of events.k8s.io/v1: the same event again is a number that is written now and then. No I/O; time is the clock's.

Figures: client-go tools/events/event_broadcaster.go, KEP-383; behaviours J138, J139.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from kubeloop.controller.events.correlation import CorrelationResult, EventWrite, LruDict, namespace_of
from kubeloop.controller.events.occurrence import Occurrence, event_name
from kubeloop.timing import Clock

#: Seconds without another occurrence after which a series is over, and between two writes of a running series.
FINISH = 360.0
REFRESH = 1800.0
CAPACITY = 4096


@dataclass(slots=True)
class _Series:
    """An event as it stands here. ``seen``, ``written``: seconds of the clock; ``told``: the count that the server has been told."""

    write: EventWrite
    seen: float
    written: float
    told: int = 1


class SeriesCorrelator:
    """Two occurrences are isomorphic if they agree in type, reason, action, object and related object; versions and messages do not count.

    Guarantees
        The first of them is created, the second starts a series with count 2 and is written once; later ones are counted here. A series is
        written again ``refresh`` seconds after its last write, so that the server does not let it expire, and for the last time ``finish``
        seconds after its last occurrence; it is over then, and the next occurrence is another event. At most ``capacity`` events are
        remembered; a dropped series is written first.

    Differs from client-go: that takes an object with another resourceVersion for another object, and finishes series when a timer of
    6 min passes, so up to 12 min after their last occurrence.
    """

    def __init__(
        self,
        clock: Clock,
        *,
        finish: float = FINISH,
        refresh: float = REFRESH,
        capacity: int = CAPACITY,
        name: Callable[[str], str] = event_name,
    ) -> None:
        self._clock, self._finish, self._refresh, self._name = clock, finish, refresh, name
        #: In the order of their last occurrences.
        self._series: LruDict[Hashable, _Series] = LruDict(capacity)
        #: Those with a count, in the order of their last writes.
        self._counted: LruDict[Hashable, _Series] = LruDict(capacity)

    def observe(self, occurrence: Occurrence) -> CorrelationResult:
        now, identity = self._clock.now(), _identity(occurrence)
        late = self._finished(now)
        series = self._series.get(identity)
        if series is None:
            write = EventWrite(
                namespace_of(occurrence), self._name(occurrence.subject.name), occurrence, 1, occurrence.time, occurrence.time, exists=False
            )
            forgotten = self._series.put(identity, _Series(write, now, now))
            if forgotten is not None:
                self._counted.pop(_identity(forgotten.write.occurrence))
                late += _untold(forgotten)
            return CorrelationResult((*late, write))
        series.seen = now
        series.write = replace(series.write, count=series.write.count + 1, last=occurrence.time, exists=True)
        if series.write.count == 2:
            late.append(self._tell(identity, series, now))
        return CorrelationResult(tuple(late))

    def due(self) -> list[EventWrite]:
        now = self._clock.now()
        writes = self._finished(now)
        while (found := self._counted.oldest()) is not None and now - found[1].written >= self._refresh:
            writes.append(self._tell(*found, now))
        return writes

    def next_due(self) -> float | None:
        now = self._clock.now()
        oldest, longest = self._series.oldest(), self._counted.oldest()
        dues = [oldest[1].seen + self._finish] if oldest else []
        dues += [longest[1].written + self._refresh] if longest else []
        return max(min(dues) - now, 0.0) if dues else None

    def rest(self) -> list[EventWrite]:
        return [write for series in self._counted.values() for write in _untold(series)]

    def _tell(self, identity: Hashable, series: _Series, now: float) -> EventWrite:
        series.written, series.told = now, series.write.count
        self._counted.put(identity, series)
        return series.write

    def _finished(self, now: float) -> list[EventWrite]:
        writes: list[EventWrite] = []
        while (found := self._series.oldest()) is not None and now - found[1].seen >= self._finish:
            self._series.pop(found[0])
            self._counted.pop(found[0])
            writes += _untold(found[1])
        return writes


def _untold(series: _Series) -> list[EventWrite]:
    return [series.write] if series.write.count > series.told else []


def _identity(occurrence: Occurrence) -> Hashable:
    subject, related = occurrence.subject, occurrence.related
    return (
        *subject.identity,
        subject.field_path,
        occurrence.type,
        occurrence.reason,
        occurrence.action,
        related.identity if related is not None else (),
    )
