"""Registration: one handler of an informer. It has its own buffer, so that a slow handler delays no other."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.cache.handlers.buffer import Buffer, Replay
from kubeloop.cache.handlers.event import EventFilter, EventType, InformerEvent, Predicate
from kubeloop.cache.handlers.handler_meter import HandlerMeter
from kubeloop.cache.tasks import InformerStopped, Progress
from kubeloop.meta import KubeloopError, Resource
from kubeloop.meta.failure_log import FailureLog, times
from kubeloop.timing import Clock, Timer
from kubeloop.transport import log_field, logger_with_context

R = TypeVar("R", bound=Resource)
#: A synchronous function runs on the loop and should return soon; an ``async`` one is awaited. Both get one event after the other.
#: (A synchronous function gets a single event directly, before the watch is read further; all other events are handled in a task.)
Handler = Callable[[InformerEvent[R]], object]

#: Number of waiting changes above which the slow handler is logged; logged again each time the number doubles.
WARN_AT = 10_000
#: Seconds after which an ``async`` call that has not returned is logged ...
STUCK = 30.0
#: ... and the seconds after which it is logged again.
STUCK_AGAIN = 300.0
#: Number of events, or seconds, after which a handler yields to other tasks.
TURN = 100
TURN_SECONDS = 0.005

_LOG = logger_with_context("kubeloop.cache")


class HandlerFailed(KubeloopError):
    """A handler raised on an initial object, so it will never have handled the complete initial state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Callbacks(Generic[R]):
    """The arguments of ``Informer.on_event``."""

    added: Handler[R] | None = None
    updated: Handler[R] | None = None
    deleted: Handler[R] | None = None
    where: Predicate | None = None
    coalesce: bool = False
    #: Seconds between resyncs, 0 for none.
    resync: float = 0.0
    name: str = ""

    def for_type(self) -> dict[EventType, Handler[R] | None]:
        return {
            EventType.ADDED: self.added,
            EventType.MODIFIED: self.updated,
            EventType.RESYNC: self.updated,
            EventType.DELETED: self.deleted,
        }


class Registration(Generic[R]):
    """One handler of an informer, with its buffer of events. ``Informer.on_event`` returns it.

    Guarantees
        The handler gets the events of its informer in order, one at a time. If it, or its predicate, raises, the error is logged with
        the object's key and the next event follows at once; other handlers are not affected. Log records carry cluster, informer, handler
        and key.
        ``synced`` is True once the informer has synced and the handler has returned from every initial event. It stays False if the handler
        failed on an initial event; ``wait_synced`` raises that error.
        Its buffer has no limit, as the cache must not wait for it. More than ``WARN_AT`` waiting events, and an ``async`` call that takes
        longer than ``STUCK`` seconds, are logged with name and key.

    Not guaranteed
        That waiting events are handled before the informer stops: they are dropped.
        A warning about a plain function that never returns: nothing else runs on the loop then.

    Args:
        callbacks: The handler's functions and options.
        clock: Clock of waits and measurements.
        progress: Wakes tasks that wait for this registration.
        informer_synced: Returns whether the informer has synced. Raises if it never will.
        removed: Called when the registration ends.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     registration = informers.for_kind(Pod).on_event(added=lambda event: print(event.key))
        ...     await registration.wait_synced()
        ...     registration.remove()
    """

    def __init__(
        self,
        callbacks: Callbacks[R],
        clock: Clock,
        progress: Progress,
        informer_synced: Callable[[], bool],
        removed: Callable[[Registration[R]], None],
    ) -> None:
        self.name = callbacks.name
        self.resync = callbacks.resync
        self.synced = False
        self.meter = HandlerMeter(callbacks.name)
        #: The timer of its resyncs; it ends with the registration.
        self.timer: asyncio.Task[None] | None = None
        self._clock = clock
        self._progress = progress
        self._informer_synced = informer_synced
        self._on_removed = removed
        self._handlers = callbacks.for_type()
        self._filter = None if callbacks.where is None else EventFilter[R](callbacks.where)
        self._buffer = Buffer[R](merging=callbacks.coalesce)
        self._wake = asyncio.Event()
        #: Whether no function is ``async``, as far as can be known before a call.
        self._plain = not any(map(inspect.iscoroutinefunction, self._handlers.values()))
        #: The task waits for ``_wake``, and no handler runs.
        self._resting = False
        #: The awaitable that a seemingly synchronous handler returned.
        self._begun: tuple[InformerEvent[R], Awaitable[object]] | None = None
        self._context: Context | None = None
        self._log_key: Callable[[str], None] = log_field("key")
        self._removed = False
        self._task: asyncio.Task[None] | None = None
        self._warn_at = WARN_AT
        self._watchdog: Timer | None = None
        #: Marks in the buffer: number put, number taken, and the number of the mark that ends the initial state.
        self._marks = 0
        self._marks_taken = 0
        self._initial_mark = -1
        self._failed = ""
        self._failure = ""
        self._failures: FailureLog[str] = FailureLog(_LOG)

    @property
    def pending(self) -> int:
        """Number of events that wait for the handler."""
        return len(self._buffer)

    @property
    def merged(self) -> int:
        """Number of waiting changes that were merged into a later one (``coalesce=True``)."""
        return self._buffer.merged

    def oldest(self, now: float) -> float:
        """Return the seconds that the first waiting event has waited; 0 if no event waits."""
        received = self._buffer.oldest()
        return 0.0 if received is None else max(0.0, now - received)

    @property
    def failed(self) -> str:
        """Key of the initial object on which the handler failed; "" if there is none."""
        return self._failed

    @property
    def active(self) -> bool:
        return not self._removed

    def remove(self) -> None:
        """Stop the delivery of events and drop the waiting ones. A running call may still finish. Calling it again does nothing."""
        if self._removed:
            return
        self._removed = True
        self._buffer.clear()
        self._wake.set()
        if self.timer is not None:
            self.timer.cancel()
        self._on_removed(self)
        self._progress.notify()

    async def wait_removed(self, timeout: float | None = None) -> None:
        """Wait until the last call of the handler has returned; return immediately if none runs.

        ``timeout`` is in seconds; None waits for ever.

        Raises:
            RuntimeError: called from within the handler itself, which would wait for its own end.
            DeadlineError: the timeout expired; the message names the object that the handler processes.
        """
        if self._task is not None and self._task is asyncio.current_task():
            raise RuntimeError(f"handler {self.name} waits for its own end; let it return, and wait in another task")
        await self._progress.until(lambda: self._task is None, timeout, lambda: f"handler {self.name} is still processing {self.meter.key}")

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the handler has returned from every object that was cached when it was added. ``timeout`` is in seconds.

        Raises:
            HandlerFailed: the handler raised on an initial object (raised immediately).
            InformerStopped: the handler was removed, or its informer stopped, before the handler had synced.
            Unauthorized, Forbidden, UntrustedCertificate: the informer cannot sync (raised immediately).
            DeadlineError: the timeout expired; the message says how many events wait.
        """
        await self._progress.until(self.check, timeout, self.waiting_for)

    async def wait_drained(self, timeout: float = 120.0) -> None:
        """Wait until the handler has returned from every event offered before this call, or was removed. ``timeout`` is in seconds.

        Raises:
            DeadlineError: the timeout expired; the message says how many events wait.
        """
        mark = self._mark()
        await self._progress.until(lambda: self._marks_taken >= mark or self._removed, timeout, self.waiting_for)

    def check(self) -> bool:
        """Return whether the informer and this handler have synced. Raises the errors of ``wait_synced``, except DeadlineError."""
        if self._failed:
            raise HandlerFailed(f"handler {self.name} failed on {self._failed}: {self._failure}")
        if self._removed and not self.synced:
            raise InformerStopped(f"handler {self.name} was removed before it had seen everything")
        return self._informer_synced() and self.synced

    def waiting_for(self) -> str:
        now = f", at {self.meter.key} for {self.meter.running(self._clock.now()):.0f} s" if self.meter.key else ""
        return f"handler {self.name} has {len(self._buffer)} events waiting{now}"

    # ------------------------------------------------------------------------------------------------- the informer's side

    def offer(self, event: InformerEvent[R]) -> None:
        """Append an event to the buffer. The caller calls ``deliver`` after the last event of a batch."""
        if self._removed:
            return
        changes = self._buffer.put(event)
        if changes >= self._warn_at:
            self._warn_at *= 2
            age = self.oldest(self._clock.now())
            _LOG.warning("handler %s is slow: %d events wait for it, the oldest for %.0f s", self.name, changes, age)

    def deliver(self, *, at_once: bool = False) -> None:
        """Wake the task that handles the offered events. ``at_once``: an idle handler may handle a single event during this call.

        This saves a turn of the loop and a task switch, which take as long as the rest of the work for one event.
        """
        if not self._buffer or self._wake.is_set():
            return
        if not (at_once and self._resting and self._plain and self._context is not None and self._buffer.alone):
            self._wake.set()
            return
        self._resting = False
        try:
            self._context.run(self._handle_one)
        finally:
            self._resting = True

    def replay(self, replay: Replay[R]) -> None:
        """Offer every object of a snapshot. A resync is skipped while the previous one still waits."""
        if not self._removed and not (replay.kind is EventType.RESYNC and self._buffer.resyncing):
            self._buffer.replay(replay)
            self._wake.set()

    def initial_end(self) -> None:
        """Mark the end of the handler's initial events."""
        self._initial_mark = self._mark()

    async def run(self) -> None:
        """Handle the offered events until the registration is removed. Call it once."""
        self._task = asyncio.current_task()
        self._log_key = log_field("key")
        self._context = copy_context()
        try:
            while not self._removed:
                self._resting = True
                try:
                    await self._wake.wait()
                finally:
                    self._resting = False
                self._wake.clear()
                if self._begun is not None:
                    begun, self._begun = self._begun, None
                    await self._finish(*begun)
                await self._drain()
        finally:
            self._task = None
            if self._begun is not None and inspect.iscoroutine(self._begun[1]):
                self._begun[1].close()
            if self._watchdog is not None:
                self._watchdog.cancel()
            self.remove()  # an informer does not start again
            self._progress.notify()

    def _handle_one(self) -> None:
        event = self._buffer.take()
        assert event is not None
        work = self._call(event)
        if work is not None:
            self._plain, self._begun = False, (event, work)
            self._wake.set()

    async def _drain(self) -> None:
        buffer, meter, now = self._buffer, self.meter, self._clock.now
        turn, since = 0, now()
        while not self._removed:
            try:
                event = buffer.take()
            except IndexError:
                break
            if event is None:
                self._marks_taken += 1
                if self._marks_taken == self._initial_mark:
                    self.synced = not self._failed
                self._progress.notify()
                continue
            work = self._call(event)
            if work is not None:
                await self._finish(event, work)
            turn += 1
            if turn >= TURN or meter.began - since > TURN_SECONDS:
                await asyncio.sleep(0)
                turn, since = 0, now()
        if self._warn_at > WARN_AT and buffer.changes < WARN_AT // 2:
            self._warn_at = WARN_AT

    def _call(self, event: InformerEvent[R]) -> Awaitable[object] | None:
        """Call the handler. Return the awaitable that is left (see ``_finish``); None if the call has ended or failed."""
        meter, head = self.meter, event.head
        meter.key = key = f"{head.namespace}/{head.name}" if head.namespace else head.name
        self._log_key(key)
        meter.began = self._clock.now()
        called = False
        try:
            shown = event if self._filter is None else self._filter(event)
            handler = None if shown is None else self._handlers[shown.type]
            if handler is not None and shown is not None:
                called = True
                result = handler(shown)
                if result is not None and inspect.isawaitable(result):
                    return result
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - a handler may raise anything; others must not lose events
            self._ended(called)
            self._contain(event, error)
        else:
            self._ended(called)
        return None

    async def _finish(self, event: InformerEvent[R], work: Awaitable[object]) -> None:
        """Await the awaitable that a handler returned."""
        if self._watchdog is None:
            self._watchdog = self._clock.call_later(STUCK, self._look)
        try:
            await work
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - as above
            self._contain(event, error)
        finally:
            self.meter.done(self._clock.now(), plain=False)

    def _ended(self, called: bool) -> None:
        if called:
            self.meter.done(self._clock.now(), plain=True)
        else:
            self.meter.key = ""

    def _mark(self) -> int:
        if not self._removed:
            self._marks += 1
            self._buffer.put_marker()
            self._wake.set()
        return self._marks

    def _look(self) -> None:
        """Log the current call if it is stuck. One timer serves many calls, since a timer for each would cost more than most calls."""
        self._watchdog = None
        running = self.meter.running(self._clock.now())
        if not running:
            return
        if running >= STUCK:
            _LOG.warning(
                "handler %s has not returned from %s for %.0f s; %d events wait for it", self.name, self.meter.key, running, self.pending
            )
        self._watchdog = self._clock.call_later(STUCK - running if running < STUCK else STUCK_AGAIN, self._look)

    def _contain(self, event: InformerEvent[R], error: BaseException) -> None:
        """Record and log an error of the handler, so that the next event follows. Re-raise the cancellation of this task."""
        if isinstance(error, asyncio.CancelledError):
            # If another task was cancelled, the handler would otherwise end silently.
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise error
        self.meter.failures += 1
        if event.initial and not self._failed:
            self._failed = str(event.key)
            self._failure = f"{type(error).__name__}: {error}"
            self._progress.notify()
        # No pause, unlike client-go's of 1 s: it would hold back the good events behind, and a thousand bad ones for a quarter of an hour.
        text, count = self._failures.text(error), times(self.meter.failures, in_a_row=False)
        summary = f"{type(error).__name__}: {text}{count}"
        shown = self._failures.failed("", error)
        _LOG.error(
            "handler %s failed on %s %s: %s; going on with the next event", self.name, event.type.value, event.key, summary, exc_info=shown
        )
