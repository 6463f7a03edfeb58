"""Sinks: the two event APIs, with the requests that create and change events. Each sink has its own memory (behaviour J137)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from kubeloop.api.core.v1 import Event as CoreEvent
from kubeloop.api.core.v1 import EventSource, ObjectReference
from kubeloop.client import Client
from kubeloop.controller.events.correlation import CoreCorrelator, Correlator, EventLimits, EventWrite
from kubeloop.controller.events.occurrence import LONGEST_WORD, EventSubject, cut
from kubeloop.controller.events.series import SeriesCorrelator
from kubeloop.meta import NotFound, ObjectMeta, Resource, format_time
from kubeloop.meta.names import qualified_name
from kubeloop.meta.time import format_micro_time
from kubeloop.timing import Clock


class EventReporter(NamedTuple):
    """Who says it: the controller, and the machine that it runs on."""

    component: str
    host: str


class EventWriter(Protocol):
    """Makes the server say what a ``EventWrite`` says."""

    async def write(self, write: EventWrite) -> None:
        """One attempt.

        Raises:
            ApiError, TransportError, DeadlineError, DecodeError: as the client.
        """


class CoreWriter:
    """Events of core/v1."""

    def __init__(self, client: Client, source: EventReporter) -> None:
        self._client, self._source = client, source

    async def write(self, write: EventWrite) -> None:
        change = {"count": write.count, "lastTimestamp": format_time(write.last), "message": write.occurrence.message}
        await _patch_or_create(self._client, write, change, self.event(write))

    def event(self, write: EventWrite) -> CoreEvent:
        """The whole event."""
        occurrence, source = write.occurrence, self._source
        return CoreEvent(
            metadata=_metadata(write),
            involved_object=_reference(occurrence.subject),
            related=_reference(occurrence.related) if occurrence.related is not None else None,
            type=occurrence.type,
            reason=occurrence.reason,
            action=occurrence.action or None,
            message=occurrence.message,
            source=EventSource(component=source.component, host=source.host),
            first_timestamp=write.first.replace(microsecond=0),
            last_timestamp=write.last.replace(microsecond=0),
            count=write.count,
            reporting_component=source.component,
            reporting_instance=source.host,
        )


class SeriesWriter:
    """Events of events.k8s.io/v1."""

    def __init__(self, client: Client, source: EventReporter) -> None:
        self._client, self._source = client, source

    async def write(self, write: EventWrite) -> None:
        change = {"series": {"count": write.count, "lastObservedTime": format_micro_time(write.last)}}
        await _patch_or_create(self._client, write, change, self.event(write))

    def event(self, write: EventWrite) -> Resource:
        """The whole event. Without an action, which this API asks for, the reason stands for it."""
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
            pass  # It has expired at the server (behaviour J135).
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
    """A place for events; anything with these two methods will do."""

    @property
    def api(self) -> str:
        """Its name in metrics."""

    def correlator(self, clock: Clock) -> Correlator:
        """A new memory: which occurrences are written, and which are only counted."""

    def writer(self, client: Client, source: EventReporter) -> EventWriter:
        """Writes there on behalf of ``source``; ``client`` is the recorder's."""


@dataclass(frozen=True, slots=True)
class CoreEvents:
    """Events of core/v1: similar ones are combined, the same again is a count, too many about one object are dropped (``limits``).

    ``client`` None is that of the recorder.
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
    """Events of events.k8s.io/v1: repetition is a series, written when it starts, each 30 min and when it is over.

    ``client`` None is that of the recorder.
    """

    client: Client | None = None
    api: ClassVar[str] = "events.k8s.io/v1"

    def correlator(self, clock: Clock) -> Correlator:
        return SeriesCorrelator(clock)

    def writer(self, client: Client, source: EventReporter) -> EventWriter:
        """
        Raises:
            ValueError: the component is no qualified name, and the server would refuse every event.
        """
        wrong = qualified_name(source.component)
        if wrong:
            raise ValueError(f'"{source.component}" cannot be the reporting controller of an event: {"; ".join(wrong)}')
        return SeriesWriter(self.client or client, source)
