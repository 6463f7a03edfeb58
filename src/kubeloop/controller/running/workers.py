"""The workers of one controller: they take keys off its queue, call reconcile, and decide what its outcome means.

Outcomes: controller-runtime pkg/internal/controller/controller.go reconcileHandler (behaviours R203-R205, R209, R210).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Hashable
from dataclasses import dataclass
from typing import Generic, TypeVar

from kubeloop.controller.running.result import Result, TerminalError
from kubeloop.meta import Conflict, KubeloopError
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import log_context, logger_with_context
from kubeloop.workqueue import QueueShutDown, WorkQueue

log = logger_with_context(__name__)

K = TypeVar("K", bound=Hashable)

#: Conflicts in a row that are not worth a line in the log.
_USUAL_CONFLICTS = 3


@dataclass(slots=True)
class ReconcileCounts:
    """Since the start. ``errors`` includes terminal errors and timeouts; ``seconds`` is wall-clock time spent in reconciles."""

    active: int = 0
    reconciles: int = 0
    errors: int = 0
    terminal_errors: int = 0
    timeouts: int = 0
    requeues: int = 0
    seconds: float = 0.0
    last_key: str = ""
    last_error: str = ""


class Workers(Generic[K]):
    """Runs ``reconcile`` for keys of ``queue``, ``count`` at a time and never two at once for one key.

    Guarantees
        An error, whatever its type, costs a log line that names the key, and a retry with growing delay until the key succeeds.
        A worker never dies of a reconcile. ``stop`` lets running reconciles end and starts no other.

    ``timeout`` seconds after its start a reconcile is cancelled, which counts as an error; None never does so. (A reconcile that runs in a
    thread cannot be cancelled; its key is retried only after it has ended.)
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        queue: WorkQueue[K],
        count: int = 1,
        *,
        cluster: str = "",
        clock: Clock | None = None,
        timeout: float | None = None,
    ) -> None:
        if count < 1:
            raise ValueError(f"controller {name} needs at least 1 worker, not {count}")
        self.counts = ReconcileCounts()
        self._name = name
        self._cluster = cluster
        self._reconcile = reconcile
        self._queue = queue
        self._count = count
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._stopping = False

    async def run(self) -> None:
        """Work until ``stop``, or until the queue is shut down and empty. Cancelling it cancels running reconciles."""
        with log_context(cluster=self._cluster, controller=self._name):
            async with asyncio.TaskGroup() as group:
                for number in range(self._count):
                    group.create_task(self._work(), name=f"{self._name}-worker-{number}")

    def stop(self) -> None:
        """Take nothing more: ``run`` returns once the running reconciles have ended. Keys that still wait are dropped."""
        self._stopping = True
        self._queue.shut_down()

    async def _work(self) -> None:
        queue = self._queue
        while True:
            try:
                key = await queue.get()
            except QueueShutDown:
                return
            try:
                if self._stopping:
                    return
                await self._turn(key)
            finally:
                queue.done(key)

    async def _turn(self, key: K) -> None:
        counts = self.counts
        counts.active += 1
        counts.last_key = str(key)
        started = self._clock.now()
        try:
            with log_context(key=str(key)):
                await self._attempt(key)
        finally:
            counts.active -= 1
            counts.reconciles += 1
            counts.seconds += self._clock.now() - started

    async def _attempt(self, key: K) -> None:
        deadline = asyncio.timeout(self._timeout)
        try:
            async with deadline:
                result = await self._reconcile(key)
            if result is not None and not isinstance(result, Result):
                raise TypeError(f"reconcile must return a Result or None, not {type(result).__name__}")
        except TerminalError as error:
            self.counts.terminal_errors += 1
            self._failed(error)
            self._queue.forget(key)
            log.log(logging.ERROR, "%s %s: %s (not tried again until it changes)", self._name, key, error)
        except TimeoutError as error:
            if deadline.expired():
                self.counts.timeouts += 1
                self._retry(key, f"reconcile was cancelled after {self._timeout} s", error)
            else:
                self._retry(key, "timed out", error)
        except Conflict as error:
            # Writers meet all the time, and the next try reads what the other one wrote: worth a line only if it goes on.
            self._retry(key, str(error), error, level=logging.DEBUG if self._queue.retries(key) < _USUAL_CONFLICTS else logging.INFO)
        except KubeloopError as error:
            self._retry(key, str(error), error)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that the reconcile awaited was cancelled, not this worker: a task group would let the worker vanish without a word.
            self._retry(key, "something that reconcile waited for was cancelled", error)
        except Exception as error:
            delay = self._retry(key, f"{type(error).__name__}: {error}", error, level=logging.DEBUG)
            log.exception("%s %s: reconcile raised; next try in %.3f s", self._name, key, delay)
        else:
            self._queue.forget(key)
            if result is not None and result.requeue_after is not None:
                self.counts.requeues += 1
                self._queue.add_after(key, result.requeue_after)

    def _retry(self, key: K, message: str, error: BaseException, *, level: int = logging.ERROR) -> float:
        self._failed(error)
        self.counts.requeues += 1
        delay = self._queue.add_rate_limited(key)
        log.log(level, "%s %s: %s; next try in %.3f s", self._name, key, message, delay)
        return delay

    def _failed(self, error: BaseException) -> None:
        self.counts.errors += 1
        self.counts.last_error = str(error) or type(error).__name__
