"""The sender of one sink: a queue, a correlator and a task that writes to the server. Senders do not wait for each other.

Rules of sending: client-go tools/record/event.go, tools/events/event_broadcaster.go.
"""

# Behaviours J134-J136, J139.

from __future__ import annotations

import asyncio
import random
import threading
from collections import Counter, deque
from collections.abc import Mapping

from kubeloop.controller.events.correlation import Correlator, EventWrite
from kubeloop.controller.events.drop_log import DropLog, DropReason
from kubeloop.controller.events.occurrence import Occurrence
from kubeloop.controller.events.sinks import EventWriter
from kubeloop.meta import AlreadyExists, ApiError, DeadlineError, DecodeError, TransportError
from kubeloop.tasks import end_tasks, wait_within
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context


class EventCounts:
    """Counts of events since the start, for one sink.

    ``recorded``: occurrences. ``sent``: successful requests. ``coalesced``: occurrences that only raised a count, which is written later.
    """

    def __init__(self) -> None:
        self.sent = 0
        self.coalesced = 0
        self._recorded = 0
        self._dropped: Counter[DropReason] = Counter()
        self._lock = threading.Lock()

    @property
    def recorded(self) -> int:
        return self._recorded

    @property
    def dropped(self) -> Mapping[DropReason, int]:
        """Number of dropped occurrences by reason, as a copy."""
        with self._lock:
            return dict(self._dropped)

    def record(self) -> None:
        with self._lock:
            self._recorded += 1

    def drop(self, why: DropReason, number: int = 1) -> None:
        with self._lock:
            self._dropped[why] += number


_LOG = logger_with_context("kubeloop.controller.events")

#: client-go's limits: waiting events, attempts to send an event, seconds between attempts.
QUEUE = 1000
TRIES = 12
PAUSE = 10.0
#: Seconds until the next event is sent after an unexpected error.
_AFTER_DEFECT = 1.0


class EventSender:
    """Sends occurrences in the order in which they were put.

    Guarantees
        ``put`` returns at once and may be called from any thread; occurrences beyond the limit are dropped and counted. No error of the
        server or of the caller's functions ends the task. ``close`` leaves no task behind.

    Args:
        name: Name of the component, for logs.
        correlator: Combines repeated occurrences.
        writer: Writes events.
        clock: Clock of delays.
        rng: Source of jitter.
    """

    def __init__(self, name: str, correlator: Correlator, writer: EventWriter, *, clock: Clock, rng: random.Random) -> None:
        self.counts = EventCounts()
        self._name = name
        self._correlator, self._writer = correlator, writer
        self._clock, self._rng = clock, rng
        self._drop_log = DropLog(clock)
        self._waiting: deque[Occurrence] = deque()
        self._wake = asyncio.Event()
        self._resume = asyncio.Event()
        self._idle = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = 0
        self._task: asyncio.Task[None] | None = None
        self._closing = False

    @property
    def waiting(self) -> int:
        """Number of waiting occurrences."""
        return len(self._waiting)

    def start(self) -> None:
        """Start the task that sends occurrences, beginning with the waiting ones."""
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._task = asyncio.create_task(self._run(), name=self._name)
        self._wake.set()

    def put(self, occurrence: Occurrence) -> None:
        """Add an occurrence to the queue, or drop it if the queue is full or closed."""
        self.counts.record()
        if self._closing or len(self._waiting) >= QUEUE:
            self._drop("closed" if self._closing else "full", occurrence)
            return
        self._waiting.append(occurrence)
        if self._loop is None or threading.get_ident() == self._thread:
            self._wake.set()
            return
        try:
            self._loop.call_soon_threadsafe(self._wake.set)
        except RuntimeError:
            _LOG.debug("the event loop has ended; events are no longer sent")

    async def close(self, flush: float) -> None:
        """Send each waiting occurrence once, for up to ``flush`` seconds in total, and stop. Unsent occurrences are dropped and counted."""
        self._closing = True
        task, self._task = self._task, None
        if task is None:
            self._drop_log.report(at_end=True)
            return
        self._wake.set()
        self._resume.set()
        try:
            await wait_within(self._clock, flush, task)
        finally:
            if not task.done():
                await end_tasks(task, logger=_LOG)
                _LOG.warning("%d events could not be sent in %.1f s and are dropped", len(self._waiting) + 1, flush)
                self.counts.drop("closed", len(self._waiting) + 1)
                self._waiting.clear()
            self._drop_log.report(at_end=True)

    async def _run(self) -> None:
        while True:
            try:
                if await self._step():
                    return
            except Exception:  # noqa: BLE001 - logged
                # An unexpected error loses the events of one step, not the later ones.
                _LOG.exception("%s: events could not be sent and are dropped", self._name)
                await self._clock.sleep(_AFTER_DEFECT)

    async def _step(self) -> bool:
        """Send the due events, or wait for them. Return True once everything was sent after ``close``."""
        self._drop_log.report()
        for write in self._correlator.due():
            await self._deliver(write)
        if self._waiting:
            for write in self._observe(self._waiting.popleft()):
                await self._deliver(write)
        elif self._closing:
            for write in self._correlator.rest():
                await self._deliver(write)
            return True
        else:
            await self._rest()
        return False

    async def _rest(self) -> None:
        self._wake.clear()
        if self._waiting or self._closing:
            return
        due = [seconds for seconds in (self._correlator.next_due(), self._drop_log.next_due) if seconds is not None]
        timer = self._clock.call_later(min(due), self._wake.set) if due else None
        try:
            await self._wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def _observe(self, occurrence: Occurrence) -> tuple[EventWrite, ...]:
        try:
            verdict = self._correlator.observe(occurrence)
        except Exception as error:  # noqa: BLE001  # a key function of the caller's: whatever it raises, the sender must outlive it
            self._drop("failed", occurrence, f"{type(error).__name__}: {error}")
            return ()
        if verdict.spam:
            self._drop("spam", occurrence)
        elif not verdict.writes:
            self.counts.coalesced += 1
        return verdict.writes

    async def _deliver(self, write: EventWrite) -> None:
        for attempt in range(TRIES):
            try:
                await self._writer.write(write)
            except AlreadyExists as error:
                if not write.exists and attempt == 0:
                    self._refused(write, error)
                    return
                if not write.exists:
                    # An earlier attempt succeeded although its response was lost: no other process makes this name.
                    self.counts.sent += 1
                    return
                # The event was missing at the patch but exists at the creation: the next attempt patches it.
                _LOG.debug('event "%s" exists again', write.occurrence.reason)
            except ApiError as error:
                self._refused(write, error)
                return
            except (TransportError, DeadlineError, DecodeError) as error:
                _LOG.debug('event "%s" not sent: %s', write.occurrence.reason, error)
            except Exception as error:  # noqa: BLE001  # a request that cannot be made will not be made next time either
                self._drop("failed", write.occurrence, f"{type(error).__name__}: {error}")
                return
            else:
                self.counts.sent += 1
                return
            if self._closing or attempt == TRIES - 1:
                break
            await self._pause(attempt)
        self._drop("unanswered", write.occurrence)

    async def _pause(self, attempt: int) -> None:
        # The first pause is random, so that the clients of a server that comes back do not all write at once.
        seconds = PAUSE * (self._rng.random() if attempt == 0 else 1.0)
        self._resume.clear()
        timer = self._clock.call_later(seconds, self._resume.set)
        try:
            if not self._closing:
                await self._resume.wait()
        finally:
            timer.cancel()

    def _refused(self, write: EventWrite, error: ApiError) -> None:
        self.counts.drop("refused")
        # The usual cases: the namespace is being deleted, so nothing can be created; or another program's event has that name.
        usual = error.has_cause("NamespaceTerminating") or isinstance(error, AlreadyExists)
        # The server's message may quote the event; the fields are enough.
        fields = ", ".join(cause.field for cause in error.causes if cause.field)
        said = (
            f"{error.status.reason} {error.status.code}{f' ({fields})' if fields else ''}"
            if error.status.code in (400, 422)
            else str(error)
        )
        self._log_drop("refused", write.occurrence, said, quiet=usual)

    def _drop(self, why: DropReason, occurrence: Occurrence, detail: str = "") -> None:
        self.counts.drop(why)
        self._log_drop(why, occurrence, detail or _WORDS[why], quiet=why == "spam")

    def _log_drop(self, why: DropReason, occurrence: Occurrence, detail: str, *, quiet: bool) -> None:
        if quiet:
            _LOG.debug('event "%s" is dropped: %s', occurrence.reason, detail)
        else:
            self._drop_log.dropped(why, f'event "{occurrence.reason}" is dropped: {detail}')


_WORDS: Mapping[DropReason, str] = {
    "full": f"{QUEUE} events are already queued",
    "spam": "too many about this object",
    "unanswered": "the server does not answer",
    "closed": "the recorder is closed",
}
