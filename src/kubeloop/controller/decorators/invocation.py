"""Calls one handler of one object, in the loop or in a thread; its errors lead to retries of this handler, or to its end."""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Any, Final

from kubeloop.controller.decorators.handlers import DeclaredHandler
from kubeloop.controller.decorators.progress import Memory
from kubeloop.controller.result import TerminalError
from kubeloop.controller.threads import ThreadExecutor
from kubeloop.meta import Conflict, KubeloopError, ObjectKey, Resource
from kubeloop.meta.failure_log import FailureLog, times
from kubeloop.tasks import result_of
from kubeloop.timing import TimeLimit
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from kubeloop.controller.events import EventRecorder
    from kubeloop.timing import Clock

log = logger_with_context("kubeloop.controller.decorators")

#: Conflicts in a row that are not worth a line in the log.
_USUAL_CONFLICTS: Final = 3
#: Seconds until somebody looks again at a thread that went on when its reconcile was cancelled.
_LOOK_AGAIN: Final = 1.0


class _StillRunning(Exception):
    """The thread of an earlier call has not ended."""


class Caller:
    """Calls handlers of one controller. ``errors`` counts failed calls, including abandoned handlers."""

    def __init__(self, controller: object, name: str, clock: Clock, events: EventRecorder) -> None:
        self.errors = 0
        self.last_error = ""
        self._controller = controller
        self._clock = clock
        self._events = events
        self._threads = ThreadExecutor(f"{name}-handler")
        self._failures: FailureLog[tuple[str, ObjectKey]] = FailureLog(log)

    def forget(self, handlers: Iterable[DeclaredHandler], key: ObjectKey) -> None:
        """The object is gone: its failures no longer count."""
        for handler in handlers:
            self._failures.succeeded((handler.id, key))

    def close(self) -> None:
        """Let the threads end, each after what it does now."""
        self._threads.close()

    async def call(self, handler: DeclaredHandler, memory: Memory, obj: Resource, *values: Any) -> float | None:
        """Call it, unless it waits for its next try. None: it is done, by success or because it was given up; else seconds until its time.

        The handler gets a copy of ``obj``, and may change that.
        """
        wait = memory.wait(handler.id, self._clock.now())
        if wait > 0:
            return wait
        try:
            await self._run(handler, memory, obj, values)
        except _StillRunning:
            return _LOOK_AGAIN
        except TerminalError as error:
            self._give_up(handler, memory, obj, error)
            return None
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            return self._failed(handler, memory, obj, error, "something that it waited for was cancelled")
        except KubeloopError as error:
            return self._failed(handler, memory, obj, error, self._failures.text(error))
        except TimeoutError as error:
            after = handler.terms.timeout
            return self._failed(handler, memory, obj, error, f"timed out after {after:g} s" if after is not None else "timed out")
        except Exception as error:  # noqa: BLE001  # whatever it is, it costs this handler a retry and the others nothing
            return self._failed(handler, memory, obj, error, f"{type(error).__name__}: {self._failures.text(error)}", traceback=True)
        memory.succeeded(handler.id)
        self._failures.succeeded((handler.id, obj.object_key()))
        return None

    async def _run(self, handler: DeclaredHandler, memory: Memory, obj: Resource, values: tuple[Any, ...]) -> None:
        method = getattr(self._controller, handler.method)
        twin = copy.deepcopy(obj)
        if not handler.plain:
            async with TimeLimit(self._clock, handler.terms.timeout):
                await method(twin, *values)
            return
        # A thread cannot be stopped: if this is cancelled it goes on, and a later pass waits for its end before it calls it again.
        earlier = memory.running.get(handler.id)
        if earlier is not None and not earlier.done():
            raise _StillRunning
        work = memory.running[handler.id] = self._threads.call(lambda given: method(*given), (twin, *values))
        answer = await result_of(work)
        del memory.running[handler.id]
        if isinstance(answer, Awaitable):
            await answer

    def _failed(
        self, handler: DeclaredHandler, memory: Memory, obj: Resource, error: BaseException, text: str, *, traceback: bool = False
    ) -> float | None:
        memory.running.pop(handler.id, None)
        retry = memory.failed(handler.id, self._clock.now(), handler.terms.backoff)
        limit = handler.terms.retries
        if limit is not None and retry.tries >= limit:
            self._give_up(handler, memory, obj, error, f"failed {retry.tries} times, the last time: {text}")
            return None
        self._count(handler, memory, error, text)
        wait = memory.wait(handler.id, self._clock.now())
        usual = isinstance(error, Conflict) and retry.tries <= _USUAL_CONFLICTS
        shown = self._failures.failed((handler.id, obj.object_key()), error) if traceback else None
        level = logging.DEBUG if usual else logging.ERROR
        failures = times(retry.tries)
        log.log(level, "handler %s of %s: %s%s; next try in %.3f s", handler.id, obj.object_key(), text, failures, wait, exc_info=shown)
        return max(wait, 0.001)

    def _give_up(self, handler: DeclaredHandler, memory: Memory, obj: Resource, error: BaseException, text: str = "") -> None:
        memory.running.pop(handler.id, None)
        memory.succeeded(handler.id)
        self._failures.succeeded((handler.id, obj.object_key()))
        text = text or str(error)
        self._count(handler, memory, error, text)
        log.log(logging.ERROR, "handler %s of %s: %s (given up)", handler.id, obj.object_key(), text)
        self._events.warning(obj, "HandlerFailed", f"{handler.id}: {text}")

    def _count(self, handler: DeclaredHandler, memory: Memory, error: BaseException, text: str) -> None:
        memory.failure = error, f"handler {handler.id}: {text}"
        self.errors += 1
        self.last_error = text
