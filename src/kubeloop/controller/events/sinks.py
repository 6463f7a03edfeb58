"""Sinks: the two event APIs, with the requests that create and change events. Each sink correlates independently."""

# Behaviour J137.

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, NamedTuple, Protocol

from kubeloop.api.core.v1 import Event as CoreEvent
from kubeloop.api.core.v1 import EventSource, ObjectReference
from kubeloop.client import Client
from kubeloop.controller.events.correlation import (
    CoreCorrelator,
    CorrelationResult,
    Correlator,
    EventLimits,
    EventWrite,
    LruDict,
    namespace_of,
)
from kubeloop.controller.events.occurrence import LONGEST_WORD, EventSubject, Occurrence, cut, event_name
from kubeloop.meta import NotFound, ObjectMeta, Resource, format_time
from kubeloop.meta.names import qualified_name
from kubeloop.meta.time import format_micro_time
from kubeloop.timing import Clock

# Series of events.k8s.io/v1: a repeated event raises a count, which is written periodically. No I/O; time is the clock's.
#
# Limits: client-go tools/events/event_broadcaster.go, KEP-383; behaviours J138, J139.


#: Seconds without another occurrence after which a series is over, and between two writes of a running series.
FINISH = 360.0
REFRESH = 1800.0
CAPACITY = 4096


@dataclass(slots=True)
class _Series:
    """The local state of an event. ``seen``, ``written``: seconds of the clock. ``told``: the count that the server has."""

    write: EventWrite
    seen: float
    written: float
    told: int = 1


class SeriesCorrelator:
    """Combines repeated occurrences into series.

    Two occurrences are the same event if type, reason, action, object and related object agree; versions and messages do not count.

    Guarantees
        The first occurrence creates the event. The second starts a series with count 2, which is written once. Later occurrences are only
        counted. A series is written again ``refresh`` seconds after its last write, so that the server does not let it expire, and for the
        last time ``finish`` seconds after its last occurrence. Then the series is over, and the next occurrence is another event. At most
        ``capacity`` events are remembered; a series that is dropped for another one is written first.

    client-go differs: it treats an object with another resourceVersion as another object, and its timer of 6 min finishes a series up to
    12 min after the last occurrence.

    Args:
        clock: Clock of the intervals.
        finish: Seconds without an occurrence after which a series is over.
        refresh: Seconds between two writes of a series.
        capacity: Number of remembered events.
        name: Returns the name of a new event for the name of its object.
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
        #: Events in the order of their last occurrences.
        self._series: LruDict[Hashable, _Series] = LruDict(capacity)
        #: Events with a count, in the order of their last writes.
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


class EventReporter(NamedTuple):
    """The reporter of events: the name of the controller and of its host."""

    component: str
    host: str


class EventWriter(Protocol):
    """Creates and patches events at the server."""

    async def write(self, write: EventWrite) -> None:
        """Try once to write an event.

        Raises:
            ApiError, TransportError, DeadlineError, DecodeError: the errors of the client.
        """


class CoreWriter:
    """Writes events of core/v1."""

    def __init__(self, client: Client, source: EventReporter) -> None:
        self._client, self._source = client, source

    async def write(self, write: EventWrite) -> None:
        change = {"count": write.count, "lastTimestamp": format_time(write.last), "message": write.occurrence.message}
        await _patch_or_create(self._client, write, change, self.event(write))

    def event(self, write: EventWrite) -> CoreEvent:
        """Return the complete event."""
        occurrence, source = write.occurrence, self._source
        return CoreEvent(
            metadata=_metadata(write),
            involved_object=_reference(occurrence.subject),
            related=_reference(occurrence.related) if occurrence.related is not None else None,
            type=occurrence.type,
            reason=occurrence.reason,
            action=occurrence.action or None,
            message=occurrence.message,
            source=EventSource(component=source.component, host=source.host or None),
            first_timestamp=write.first.replace(microsecond=0),
            last_timestamp=write.last.replace(microsecond=0),
            count=write.count,
            reporting_component=source.component,
            reporting_instance=source.host,
        )


class SeriesWriter:
    """Writes events of events.k8s.io/v1."""

    def __init__(self, client: Client, source: EventReporter) -> None:
        self._client, self._source = client, source

    async def write(self, write: EventWrite) -> None:
        change = {"series": {"count": write.count, "lastObservedTime": format_micro_time(write.last)}}
        await _patch_or_create(self._client, write, change, self.event(write))

    def event(self, write: EventWrite) -> Resource:
        """Return the complete event. If the occurrence has no action, which this API requires, the reason is used."""
        from kubeloop.api.events.v1 import Event, EventSeries

        occurrence, source = write.occurrence, self._source
        return Event(
            metadata=_metadata(write),
            event_time=write.first,
            regarding=_reference(occurrence.subject),
            related=_reference(occurrence.related) if occurrence.related is not None else None,
            type=occurrence.type,
            reason=occurrence.reason,
            action=occurrence.action or occurrence.reason,
            note=occurrence.message,
            reporting_controller=source.component,
            reporting_instance=cut(f"{source.component}-{source.host}", LONGEST_WORD),
            series=EventSeries(count=write.count, last_observed_time=write.last) if write.count > 1 else None,
        )


async def _patch_or_create(client: Client, write: EventWrite, change: dict[str, Any], event: Resource) -> None:
    if write.exists:
        try:
            await client.patch(type(event), write.name, change, type="merge", namespace=write.namespace)
        except NotFound:
            pass  # The event has expired at the server (behaviour J135).
        else:
            return
    await client.create(event)


def _metadata(write: EventWrite) -> ObjectMeta:
    return ObjectMeta(name=write.name, namespace=write.namespace, annotations=dict(write.occurrence.annotations))


def _reference(subject: EventSubject) -> ObjectReference:
    return ObjectReference(
        api_version=subject.api_version,
        kind=subject.kind,
        namespace=subject.namespace or None,
        name=subject.name,
        uid=subject.uid or None,
        resource_version=subject.resource_version or None,
        field_path=subject.field_path or None,
    )


class EventSink(Protocol):
    """A destination for events. Any object with these methods can be a sink."""

    @property
    def api(self) -> str:
        """Name of the API in metrics."""

    def correlator(self, clock: Clock) -> Correlator:
        """Return a new correlator, which decides which occurrences are written and which are only counted."""

    def writer(self, client: Client, source: EventReporter) -> EventWriter:
        """Return a writer of events on behalf of ``source``. ``client`` is the recorder's client."""


@dataclass(frozen=True, slots=True)
class CoreEvents:
    """Sink for events of core/v1: similar events are combined, repeated ones counted, and too many about one object dropped (``limits``).

    If ``client`` is None, the recorder's client is used.

    Example:
        >>> from kubeloop import EventRecorder
        >>> recorder = EventRecorder(client, "my-operator", sinks=[CoreEvents(limits=EventLimits(burst=5))])
    """

    client: Client | None = None
    limits: EventLimits = field(default_factory=EventLimits)
    api: ClassVar[str] = "v1"

    def correlator(self, clock: Clock) -> Correlator:
        return CoreCorrelator(self.limits, clock)

    def writer(self, client: Client, source: EventReporter) -> EventWriter:
        return CoreWriter(self.client or client, source)


@dataclass(frozen=True, slots=True)
class SeriesEvents:
    """Sink for events of events.k8s.io/v1: repeated events form a series, written when it starts, every 30 minutes, and at its end.

    If ``client`` is None, the recorder's client is used.

    Example:
        >>> from kubeloop import EventRecorder
        >>> recorder = EventRecorder(client, "my-operator", sinks=[SeriesEvents()])
    """

    client: Client | None = None
    api: ClassVar[str] = "events.k8s.io/v1"

    def correlator(self, clock: Clock) -> Correlator:
        return SeriesCorrelator(clock)

    def writer(self, client: Client, source: EventReporter) -> EventWriter:
        """Return a writer of events on behalf of ``source``.

        Raises:
            ValueError: the component is not a qualified name, so the server would reject every event.
        """
        wrong = qualified_name(source.component)
        if wrong:
            raise ValueError(f'"{source.component}" cannot be the reporting controller of an event: {"; ".join(wrong)}')
        return SeriesWriter(self.client or client, source)
