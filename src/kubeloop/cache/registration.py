"""Registration: one handler's place in an informer, with a buffer of its own, so that a slow handler delays nobody else."""

from __future__ import annotations

import asyncio
import inspect
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

from kubeloop.cache.event import Event, EventType
from kubeloop.cache.handler_meter import HandlerMeter
from kubeloop.cache.progress import Progress
from kubeloop.meta import KubeloopError, Resource
from kubeloop.timing import Clock
from kubeloop.transport import log_field, logger_with_context

R = TypeVar("R", bound=Resource)
#: A plain function runs on the loop and should return soon; an ``async`` one is awaited, in both cases one event after the other.
Handler = Callable[[Event[R]], object]

#: A buffer longer than this is worth a warning: its handler is slower than the changes come.
WARN_AT = 10_000
#: Events handled before other tasks get their turn.
TURN = 100

_log = logger_with_context("kubeloop.cache")


class InformerStopped(KubeloopError):
    """The informer, or the handler, has stopped: nothing more comes from it, and it takes no more handlers."""


class HandlerFailed(KubeloopError):
    """A handler raised on an initial object: it has not seen everything, and never will."""


class Registration(Generic[R]):
    """What ``informer.on_event`` returns.

    Guarantees
        The handler sees the events of its informer in order, one at a time. If it raises, the error is logged with the object's key
        and the next event follows; other handlers notice nothing. Log records carry cluster, informer, handler and key.
        ``synced`` only after the informer has synced AND the handler has returned from every initial event. A handler that failed
        on an initial event never is; ``wait_synced`` says so.

    Not guaranteed
        That waiting events are handled before the informer stops: they are dropped.
    """

    def __init__(
        self,
        name: str,
        clock: Clock,
        progress: Progress,
        resync: float,
        added: Handler[R] | None,
        updated: Handler[R] | None,
        deleted: Handler[R] | None,
    ) -> None:
        self.name = name
        self.resync = resync
        self._clock = clock
        self._progress = progress
        self._handlers = {EventType.ADDED: added, EventType.UPDATED: updated, EventType.RESYNC: updated, EventType.DELETED: deleted}
        self._buffer: deque[Event[R] | None] = deque()
        self._wake = asyncio.Event()
        self._removed = False
        self._running = False
        self._warned = False
        self._failed = ""
        self._why = ""
        self.synced = False
        self.meter = HandlerMeter(name)
        #: What makes its resyncs; ends with it.
        self.timer: asyncio.Task[None] | None = None

    @property
    def pending(self) -> int:
        """Events that wait for the handler."""
        return len(self._buffer)

    def oldest(self, now: float) -> float:
        """Seconds that the event at the front has waited; 0 if none waits."""
        first = next((event for event in self._buffer if event is not None), None)
        return 0.0 if first is None else max(0.0, now - first.received)

    @property
    def failed(self) -> str:
        """The key of the initial object that the handler failed on, "" if none."""
        return self._failed

    @property
    def active(self) -> bool:
        return not self._removed

    def remove(self) -> None:
        """No event is delivered any more; what waits is dropped. A callback that runs may still finish. May be called twice."""
        self._removed = True
        self._buffer.clear()
        self._wake.set()
        if self.timer is not None:
            self.timer.cancel()
        self._progress.notify()

    async def wait_removed(self) -> None:
        """Wait until the last callback has returned. Not from within the handler itself."""
        await self._progress.until(lambda: not self._running)

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the handler has seen every object that was there at its beginning. Seconds.

        Raises:
            HandlerFailed: at once: it raised on an initial object. InformerStopped: it was removed, or its informer ended, before.
            DeadlineError: not in time; the text says how much waits.
        """
        await self._progress.until(self._check, timeout, lambda: f"handler {self.name} has {len(self._buffer)} events waiting")

    def _check(self) -> bool:
        if self._failed:
            raise HandlerFailed(f"handler {self.name} failed on {self._failed}: {self._why}")
        if self._removed and not self.synced:
            raise InformerStopped(f"handler {self.name} was removed before it had seen everything")
        return self.synced

    # ------------------------------------------------------------------------------------------------- the informer's side

    def offer(self, event: Event[R]) -> None:
        if self._removed:
            return
        self._buffer.append(event)
        if not self._wake.is_set():
            self._wake.set()
        if len(self._buffer) >= WARN_AT and self.synced and not self._warned:
            self._warned = True
            _log.warning("handler %s is slow: %d events wait for it", self.name, len(self._buffer))

    def initial_end(self) -> None:
        """What was offered up to here is the handler's initial state."""
        self._buffer.append(None)
        self._wake.set()

    async def run(self) -> None:
        self._running = True
        about = log_field("key")
        try:
            while not self._removed:
                await self._wake.wait()
                self._wake.clear()
                await self._drain(about)
        finally:
            self._running = False
            self._removed = True  # for good: an informer does not start again
            self._buffer.clear()
            self._progress.notify()

    async def _drain(self, about: Callable[[str], None]) -> None:
        turn = 0
        buffer, meter, now = self._buffer, self.meter, self._clock.now
        while buffer and not self._removed:
            event = buffer.popleft()
            if event is None:
                self.synced = not self._failed
                self._progress.notify()
                continue
            handler = self._handlers[event.type]
            if handler is not None:
                head = event.head
                meter.key = key = f"{head.namespace}/{head.name}" if head.namespace else head.name
                about(key)
                meter.began = now()
                plain = True
                try:
                    result = handler(event)
                    if inspect.isawaitable(result):
                        plain = False
                        await result
                except Exception as error:  # noqa: BLE001 - a handler may raise anything; it must not cost others their events
                    self._contain(event, error)
                except asyncio.CancelledError as error:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    # Something that the handler waited for was cancelled, not the handler: it would vanish without a word.
                    self._contain(event, error)
                finally:
                    meter.done(now(), plain)
            turn += 1
            if turn >= TURN:
                turn = 0
                await asyncio.sleep(0)
        if self._warned and len(buffer) < WARN_AT // 2:
            self._warned = False

    def _contain(self, event: Event[R], error: BaseException) -> None:
        self.meter.failures += 1
        if event.initial and not self._failed:
            self._failed = str(event.key)
            self._why = f"{type(error).__name__}: {error}"
            self._progress.notify()
        _log.exception("handler %s failed on %s %s; going on with the next event", self.name, event.type.value, event.key)
