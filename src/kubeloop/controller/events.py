"""Event recorder: tells users what a controller did to an object, as ``kubectl describe`` and ``kubectl get events`` show it.

Recording never waits, never raises for what the server says, and never slows a reconcile: what cannot be sent is dropped and counted.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import socket
import time
from collections import deque
from types import TracebackType
from typing import Literal, Self

from kubeloop.api.core.v1 import Event, EventSource, ObjectReference
from kubeloop.client import Client
from kubeloop.controller.event_series import Occurrence, Series, SeriesCache, Subject
from kubeloop.meta import ApiError, KubeloopError, NotFound, ObjectMeta, Resource, TransportError, format_time
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context

log = logger_with_context(__name__)

EventType = Literal["Normal", "Warning"]

#: client-go's figures: events that wait to be sent, tries of one event, seconds between tries (tools/record/event.go).
QUEUE = 1000
TRIES = 12
PAUSE = 10.0
#: Seconds that the end of a recorder waits for what is still to be sent, unless told otherwise.
FLUSH = 2.0
#: Names of events end in a number that must differ within a nanosecond too.
_SEQUENCE = itertools.count()
_LONGEST_MESSAGE = 1024


class EventRecorder:
    """Writes core/v1 Events on behalf of ``component``.

    Guarantees
        The same event again (subject, type, reason and message) raises ``count`` and ``lastTimestamp`` of the first one by a PATCH.
        Events are sent in the order in which they were recorded, by one task. ``event`` may be called from any thread.

    Not guaranteed
        That an event arrives: more than 1000 waiting are dropped, as are those that the server refuses. See ``sent`` and ``dropped``.

    An async context manager: leaving it sends what waits for up to ``flush`` seconds.
    """

    def __init__(
        self, client: Client, component: str, *, clock: Clock | None = None, flush: float = FLUSH, rng: random.Random | None = None
    ) -> None:
        self.sent = 0
        self.dropped = 0
        self.last: Occurrence | None = None
        self._client = client
        self._component = component
        self._host = socket.gethostname()
        self._clock = clock or SystemClock()
        self._flush = flush
        self._rng = rng or random.Random()
        self._known = SeriesCache()
        self._waiting: deque[Occurrence] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        self._task = asyncio.create_task(self._run(), name=f"events-{self._component}")
        self._wake.set()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._closed = True
        if self._task is None:
            return
        try:
            if self._waiting or not self._idle.is_set():
                await asyncio.wait_for(self._idle.wait(), self._flush)
        except TimeoutError:
            log.warning("%d events could not be sent in %.1f s and are dropped", len(self._waiting) + 1, self._flush)
        finally:
            self._task.cancel()
            await asyncio.wait([self._task])
            self._task = None

    def normal(self, obj: Resource, reason: str, message: str) -> None:
        """Something worth knowing happened to ``obj``."""
        self.event(obj, "Normal", reason, message)

    def warning(self, obj: Resource, reason: str, message: str) -> None:
        """Something went wrong with ``obj`` that a person may have to put right."""
        self.event(obj, "Warning", reason, message)

    def event(self, obj: Resource, type: EventType, reason: str, message: str) -> None:  # noqa: A002  # the field's own name
        """Record an event. ``reason`` is a CamelCase word for machines, ``message`` a sentence for people (cut at 1024 characters)."""
        if self._closed or len(self._waiting) >= QUEUE:
            self._drop("the recorder is closed" if self._closed else f"{QUEUE} events wait already", reason)
            return
        metadata = obj.metadata
        subject = Subject(obj.api_version, obj.kind, metadata.namespace, metadata.name, metadata.uid, metadata.resource_version)
        occurrence = Occurrence(subject, type, reason, message[:_LONGEST_MESSAGE], self._clock.wall().replace(microsecond=0))
        self.last = occurrence
        self._waiting.append(occurrence)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        while True:
            while self._waiting:
                self._idle.clear()
                occurrence = self._waiting.popleft()
                try:
                    await self._deliver(occurrence)
                except Exception:
                    # Whatever is wrong with one event, the recorder must outlive it.
                    self.dropped += 1
                    log.exception('event "%s" is dropped', occurrence.reason)
            self._idle.set()
            self._wake.clear()
            if not self._waiting:
                await self._wake.wait()

    async def _deliver(self, occurrence: Occurrence) -> None:
        """Tries again when no answer came, never when the server said no (behaviour J134)."""
        for attempt in range(TRIES):
            try:
                await self._write(occurrence)
            except TransportError as error:
                log.debug("event %s not sent: %s", occurrence.reason, error)
            except KubeloopError as error:
                self._drop(str(error), occurrence.reason)
                return
            else:
                self.sent += 1
                return
            # The first pause is random, so that the clients of a server that comes back do not all write at once.
            await self._clock.sleep(PAUSE * (self._rng.random() if attempt == 0 else 1.0))
        self._drop(f"no answer in {TRIES} tries", occurrence.reason)

    async def _write(self, occurrence: Occurrence) -> None:
        series = self._known.find(occurrence)
        if series is not None:
            change = {"count": series.count + 1, "lastTimestamp": format_time(occurrence.time)}
            try:
                await self._client.patch(Event, series.name, change, type="merge", namespace=series.namespace)
            except NotFound:
                pass  # It has expired at the server (behaviour J135): create it anew.
            else:
                series.count += 1
                return
        count, first = (series.count + 1, series.first) if series is not None else (1, occurrence.time)
        event = self._event(occurrence, count)
        event.first_timestamp = first
        await self._create(event)
        self._known.remember(occurrence, Series(event.metadata.namespace, event.metadata.name, count, first))

    async def _create(self, event: Event) -> None:
        try:
            await self._client.create(event)
        except ApiError as error:
            # The usual case at the end of a namespace's life: nothing new may be created there.
            if error.has_cause("NamespaceTerminating"):
                raise KubeloopError(f'namespace "{event.metadata.namespace}" is being deleted') from error
            raise

    def _event(self, occurrence: Occurrence, count: int) -> Event:
        subject = occurrence.subject
        # Events about cluster-scoped objects live in "default" (behaviour J137).
        namespace = subject.namespace or "default"
        number = (time.time_ns() + next(_SEQUENCE)) & 0xFFFFFFFFFFFFFFFF
        return Event(
            metadata=ObjectMeta(name=f"{subject.name}.{number:x}", namespace=namespace),
            involved_object=ObjectReference(
                api_version=subject.api_version,
                kind=subject.kind,
                namespace=subject.namespace,
                name=subject.name,
                uid=subject.uid,
                resource_version=subject.resource_version,
            ),
            type=occurrence.type,
            reason=occurrence.reason,
            message=occurrence.message,
            source=EventSource(component=self._component, host=self._host),
            first_timestamp=occurrence.time,
            last_timestamp=occurrence.time,
            count=count,
            reporting_component=self._component,
        )

    def _drop(self, why: str, reason: str) -> None:
        self.dropped += 1
        log.info('event "%s" is dropped: %s', reason, why)
