"""Event recorder: records events about objects, which ``kubectl describe`` and ``kubectl events`` show to users.

Recording never waits, raises or delays a reconcile: events that cannot be sent are dropped and counted.
"""

from __future__ import annotations

import asyncio
import random
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Self

from kubeloop.client import Client
from kubeloop.controller.events.drop_log import DropLog
from kubeloop.controller.events.occurrence import EventType, Occurrence, occurrence_of
from kubeloop.controller.events.sender import EventCounts, EventSender
from kubeloop.controller.events.sinks import CoreEvents, EventReporter, EventSink
from kubeloop.meta import Resource
from kubeloop.tasks import close_all, finish
from kubeloop.timing import Clock, SystemClock

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

#: Default seconds for which a recorder waits for unsent events at its end.
FLUSH = 2.0


class EventRecorder:
    """Writes events of a component about objects, as ``kubectl describe`` shows them.

    Guarantees
        ``event`` returns at once, raises nothing, and may be called from any thread. Events are sent in the order in which they were
        recorded, by one task for each sink. A repeated event is not created again: its count or series grows.
        Memory is bounded: 1000 waiting events, 4096 remembered ones.

    Not guaranteed
        Delivery. These events are dropped: events that the server rejects or does not answer in 12 attempts 10 s apart, events beyond 1000
        waiting ones, too many about one object (core/v1), and invalid events. See ``dropped``, ``counts`` and ``metrics``.

    The recorder is an async context manager: leaving it sends waiting events for up to ``flush`` seconds. Events that were recorded before
    it is entered are sent when it is entered.

    Args:
        client: The client of the cluster.
        component: Name of the reporting component. A sink's API limits its length and characters.
        sinks: APIs to write to. Empty: core/v1; ``[SeriesEvents()]``: events.k8s.io/v1.
        clock: Clock of times and delays. None: the system's clock.
        flush: Seconds for which leaving the context waits for unsent events.
        rng: Source of jitter. None: a new ``random.Random``.

    Raises:
        ValueError: a sink's API would reject the component.

    Example:
        >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
        >>> async with EventRecorder(client, "my-operator") as events:
        ...     events.warning(settings, "Incomplete", "the key url is missing")
        >>> events.sent
        1
    """

    def __init__(
        self,
        client: Client,
        component: str,
        *,
        sinks: Sequence[EventSink] = (),
        clock: Clock | None = None,
        flush: float = FLUSH,
        rng: random.Random | None = None,
    ) -> None:
        self.last: Occurrence | None = None
        self.component = component
        self._clock = clock or SystemClock()
        self._flush = flush
        self._invalid = EventCounts()
        self._drop_log = DropLog(self._clock)
        self._endings: list[Callable[[], None]] = []
        source, chance = EventReporter(component, socket.gethostname()), rng or random.Random()
        self._senders = [
            (
                sink.api,
                EventSender(
                    f"events-{component}", sink.correlator(self._clock), sink.writer(client, source), clock=self._clock, rng=chance
                ),
            )
            for sink in sinks or (CoreEvents(),)
        ]

    async def __aenter__(self) -> Self:
        for _, sender in self._senders:
            sender.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            await asyncio.gather(*(sender.close(self._flush) for _, sender in self._senders))
        finally:
            self._drop_log.report(at_end=True)
            endings, self._endings = self._endings, []
            for end in endings:
                end()
            # A cancellation may arrive before a sender has begun to close.
            await finish(close_all(*(partial(sender.close, 0.0) for _, sender in self._senders)))

    def normal(
        self,
        obj: Resource,
        reason: str,
        message: object,
        *,
        action: str = "",
        related: Resource | None = None,
        field_path: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event of type Normal. The arguments are those of ``event``.

        Args:
            obj: The object that the event is about.
            reason: A CamelCase word for machines.
            message: A sentence or an error for people.
            action: See ``event``.
            related: See ``event``.
            field_path: See ``event``.
            annotations: See ``event``.
        """
        self.event(obj, "Normal", reason, message, action=action, related=related, field_path=field_path, annotations=annotations)

    def warning(
        self,
        obj: Resource,
        reason: str,
        message: object,
        *,
        action: str = "",
        related: Resource | None = None,
        field_path: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event of type Warning, for problems that a person may have to solve. The arguments are those of ``event``.

        Args:
            obj: The object that the event is about.
            reason: A CamelCase word for machines.
            message: A sentence or an error for people.
            action: See ``event``.
            related: See ``event``.
            field_path: See ``event``.
            annotations: See ``event``.
        """
        self.event(obj, "Warning", reason, message, action=action, related=related, field_path=field_path, annotations=annotations)

    def event(
        self,
        obj: Resource,
        type: EventType,  # noqa: A002  # the field's own name
        reason: str,
        message: object,
        *,
        action: str = "",
        related: Resource | None = None,
        field_path: str = "",
        annotations: Mapping[str, str] | None = None,
    ) -> None:
        """Record an event. Everyone with access to events can read the message: put no secrets in it.

        Args:
            obj: The object that the event is about.
            type: "Normal" or "Warning".
            reason: A CamelCase word for machines (cut at 128 bytes).
            message: A sentence or an error for people (cut at 1024 bytes).
            action: The action that was taken or tried; a CamelCase word.
            related: Another object that the event concerns.
            field_path: The part of ``obj`` that the event is about, such as ``spec.containers{nginx}``.
            annotations: Annotations of the event.
        """
        try:
            occurrence = occurrence_of(
                obj,
                type,
                reason,
                message,
                self._clock.wall(),
                action=action,
                related=related,
                field_path=field_path,
                annotations=annotations,
            )
        except Exception as error:  # noqa: BLE001  # a wrong argument must not end a reconcile
            self._invalid.record()
            self._invalid.drop("invalid")
            self._drop_log.dropped("invalid", f"event is dropped: {error}")
            return
        self.last = occurrence
        for _, sender in self._senders:
            sender.put(occurrence)

    @property
    def sent(self) -> int:
        """Number of requests that created or changed an event, of all sinks."""
        return sum(sender.counts.sent for _, sender in self._senders)

    @property
    def dropped(self) -> int:
        """Number of dropped occurrences and writes, of all sinks."""
        return sum(sum(counts.dropped.values()) for _, counts in self.counts)

    @property
    def waiting(self) -> int:
        """Number of unsent occurrences, of all sinks."""
        return sum(sender.waiting for _, sender in self._senders)

    @property
    def counts(self) -> Sequence[tuple[str, EventCounts]]:
        """Counts by API; "" has the occurrences that no API could accept."""
        return [("", self._invalid), *((api, sender.counts) for api, sender in self._senders)]

    def metrics(self, registry: CollectorRegistry | None = None) -> None:
        """Export the counts to a Prometheus registry (None: prometheus_client's default). They remain after the recorder has ended."""
        from kubeloop.controller.metrics import event_metrics

        collector = event_metrics(registry)
        collector.add(self)
        self._endings.append(lambda: collector.remove(self))
