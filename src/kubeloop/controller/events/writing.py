"""Events as the two APIs want them, and the requests that create and change them."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

from kubeloop.api.core.v1 import Event as CoreEvent
from kubeloop.api.core.v1 import EventSource, ObjectReference
from kubeloop.client import Client
from kubeloop.controller.events.correlation import Write
from kubeloop.controller.events.occurrence import LONGEST_WORD, Subject, cut
from kubeloop.meta import NotFound, ObjectMeta, Resource, format_time
from kubeloop.meta.time import format_micro_time


class Source(NamedTuple):
    """Who says it: the controller, and the machine that it runs on."""

    component: str
    host: str


class Writer(Protocol):
    """Makes the server say what a ``Write`` says."""

    async def write(self, write: Write) -> None:
        """One attempt.

        Raises:
            ApiError, TransportError, DeadlineError, DecodeError: as the client.
        """


class CoreWriter:
    """Events of core/v1."""

    def __init__(self, client: Client, source: Source) -> None:
        self._client, self._source = client, source

    async def write(self, write: Write) -> None:
        change = {"count": write.count, "lastTimestamp": format_time(write.last), "message": write.occurrence.message}
        await _patch_or_create(self._client, write, change, self.event(write))

    def event(self, write: Write) -> CoreEvent:
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

    def __init__(self, client: Client, source: Source) -> None:
        self._client, self._source = client, source

    async def write(self, write: Write) -> None:
        change = {"series": {"count": write.count, "lastObservedTime": format_micro_time(write.last)}}
        await _patch_or_create(self._client, write, change, self.event(write))

    def event(self, write: Write) -> Resource:
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


async def _patch_or_create(client: Client, write: Write, change: dict[str, Any], event: Resource) -> None:
    if write.exists:
        try:
            await client.patch(type(event), write.name, change, type="merge", namespace=write.namespace)
        except NotFound:
            pass  # It has expired at the server (behaviour J135).
        else:
            return
    await client.create(event)


def _metadata(write: Write) -> ObjectMeta:
    return ObjectMeta(name=write.name, namespace=write.namespace, annotations=dict(write.occurrence.annotations))


def _reference(subject: Subject) -> ObjectReference:
    return ObjectReference(
        api_version=subject.api_version,
        kind=subject.kind,
        namespace=subject.namespace or None,
        name=subject.name,
        uid=subject.uid or None,
        resource_version=subject.resource_version or None,
        field_path=subject.field_path or None,
    )
