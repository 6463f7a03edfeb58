"""The workers of one controller: they take keys from its queue, call reconcile, and handle its result.

Outcomes: controller-runtime pkg/internal/controller/controller.go reconcileHandler.
"""

# Behaviours R203-R206, R209, R210.

from __future__ import annotations

import asyncio
import itertools
import logging
import secrets
from collections.abc import Awaitable, Callable, Hashable
from contextvars import copy_context
from typing import Generic, TypeVar

from kubeloop.controller.builder.context import Gate
from kubeloop.controller.result import PartlyFailed, Result, TerminalError
from kubeloop.controller.runner.runnable import ReconcileCounts, is_panic
from kubeloop.meta import Conflict, KubeloopError
from kubeloop.meta.failure_log import ExcInfo, FailureLog, times
from kubeloop.timing import Clock, SystemClock, TimeLimit, Timer
from kubeloop.transport import log_context, log_fields, logger_with_context
from kubeloop.workqueue import Queue, QueueShutDown

# Reconciles that do not return are logged and their workers are replaced, so that other keys go on.
#
# One timer for all of a controller's reconciles: setting one for each would cost more than most reconciles.


#: Seconds after which a reconcile without a time limit is logged; again each time its age has doubled.
SLOW = 60.0
#: Seconds that a reconcile has to end after it was cancelled, before its worker is replaced.
TO_END = 1.0
#: Maximum number of replaced workers: each uses memory, and maybe a thread, until its reconcile ends.
MOST = 100

_LOG = logger_with_context("kubeloop.controller.runner")


class ReconcileTimer:
    """Time and state of one running reconcile."""

    __slots__ = ("began", "hangs", "key", "look")

    def __init__(self, key: str, began: float, look: float) -> None:
        self.key = key
        self.began = began
        #: Time of the next check.
        self.look = look
        self.hangs = False


class SlowReconcileMonitor:
    """Logs reconciles that exceed their time limit.

    Guarantees
        A reconcile that has not ended a second after its ``timeout`` is logged with its class and advice; its key stays in work, and
        ``substitute`` is called once for it. A reconcile without a time limit is logged after a minute.

    Args:
        clock: Clock of the limits.
        counts: Counts of the controller; ``hanging`` changes.
        owner: Name of the controller's class, for messages.
        timeout: Seconds. None: no limit.
        substitute: Starts another worker.
    """

    def __init__(self, clock: Clock, counts: ReconcileCounts, owner: str, timeout: float | None, substitute: Callable[[], None]) -> None:
        self._clock = clock
        self._counts = counts
        self._owner = owner
        self._timeout = timeout
        self._first = SLOW if timeout is None else timeout + TO_END
        self._substitute = substitute
        self._turns: set[ReconcileTimer] = set()
        self._timer: Timer | None = None

    def begin(self, key: str, now: float) -> ReconcileTimer:
        turn = ReconcileTimer(key, now, now + self._first)
        self._turns.add(turn)
        if self._timer is None:
            self._timer = self._clock.call_later(self._first, self._look)
        return turn

    def end(self, turn: ReconcileTimer) -> None:
        self._turns.discard(turn)
        if turn.hangs:
            self._counts.hanging -= 1
            _LOG.warning("%s: the reconcile of %s has ended, after %.0f s", self._owner, turn.key, self._clock.now() - turn.began)

    def close(self) -> None:
        """Stop the checks."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        now = self._clock.now()
        self._timer = None
        for turn in tuple(self._turns):  # A substitute may begin its first reconcile immediately, if tasks are eager.
            if turn.look <= now:
                self._report(turn, now)
        if self._turns:
            self._timer = self._clock.call_later(max(0.0, min(turn.look for turn in self._turns) - now), self._look)

    def _report(self, turn: ReconcileTimer, now: float) -> None:
        age = now - turn.began
        turn.look = now + max(age, SLOW)
        if self._timeout is None:
            _LOG.warning(
                "%s: the reconcile of %s has not returned for %.0f s; its key and a worker are blocked until it does. If it waits for "
                "something, return Result(requeue_after=...) instead; or give the class timeout=... seconds",
                self._owner,
                turn.key,
                age,
            )
            return
        _LOG.error(
            "%s: the reconcile of %s has been running for %.0f s although it was cancelled after %g s (timeout=); "
            "its key stays blocked until it returns, other keys continue. "
            "A thread cannot be cancelled: give its calls a time limit, or write async def "
            "reconcile; an async one must not catch CancelledError",
            self._owner,
            turn.key,
            age,
            self._timeout,
        )
        if not turn.hangs:
            turn.hangs = True
            self._counts.hanging += 1
            if self._counts.hanging <= MOST:
                self._substitute()
            else:
                _LOG.error("%s: %d reconciles hang; the limit of replacement workers is reached", self._owner, self._counts.hanging)


K = TypeVar("K", bound=Hashable)
#: Called after each reconcile with the controller's name, seconds, and success, error, requeue or requeue_after.
Observe = Callable[[str, float, str], None]

#: Number of conflicts in a row that are not logged.
_USUAL_CONFLICTS = 3


class Workers(Generic[K]):
    """Runs ``reconcile`` for keys of ``queue``, ``count`` at a time and never two at once for one key.

    Guarantees
        An error, whatever its type, is logged with the key, and the key is retried with growing delay until it succeeds.
        No error of a reconcile ends a worker, not even ``SystemExit``; only ``KeyboardInterrupt`` passes.
        ``stop`` lets running reconciles end and starts no others. A reconcile occupies its key until it has ended, however long that takes;
        a reconcile that exceeds its time limit, or runs very long, is logged (see ``SlowReconcileMonitor``) and delays no other key.
        Log records of a reconcile carry cluster, controller, key and ``reconcile``, a unique id.

    A reconcile in a thread cannot be cancelled; its key is retried only after it has ended.

    Args:
        name: Name of the controller, for logs.
        reconcile: Called with each key.
        queue: The keys.
        count: Number of workers.
        cluster: Name of the cluster, for logs.
        clock: Clock of time limits. None: the system's monotonic clock.
        timeout: Seconds after which a reconcile is cancelled, which counts as an error. None: no limit.
        gate: Pauses the workers. None: they never pause.
        observe: Called with each result and its duration.
        failed: Called with each error, before its key is added again.
        owner: Name of the controller's class, for messages.
        advised: Permissions that were already explained (``FailureLog``).

    Raises:
        ValueError: ``count`` is below 1.
    """

    def __init__(
        self,
        name: str,
        reconcile: Callable[[K], Awaitable[Result | None]],
        queue: Queue[K],
        count: int = 1,
        *,
        cluster: str = "",
        clock: Clock | None = None,
        timeout: float | None = None,
        gate: Gate | None = None,
        observe: Observe | None = None,
        failed: Callable[[K, BaseException], None] | None = None,
        owner: str = "",
        advised: set[tuple[str, str]] | None = None,
    ) -> None:
        if count < 1:
            raise ValueError(f"controller {name} needs at least 1 worker, not {count}")
        self.counts = ReconcileCounts()
        self.gate = gate or Gate()
        self._name = name
        self._cluster = cluster
        self._reconcile = reconcile
        self._queue = queue
        self._count = count
        self._clock = clock or SystemClock()
        self._timeout = timeout
        self._observe = observe
        self._on_failure = failed
        self._failures: FailureLog[K] = FailureLog(_LOG, advised)
        self._stopping = False
        self._numbers = itertools.count(1)
        self._overdue = SlowReconcileMonitor(self._clock, self.counts, f"{owner or name}", timeout, self._substitute)
        self._group: asyncio.TaskGroup | None = None
        self._context = copy_context()
        self._running = 0

    async def run(self) -> None:
        """Work until ``stop``, or until the queue is shut down and empty. Cancelling the call cancels running reconciles."""
        with log_context(cluster=self._cluster, controller=self._name):
            self._context = copy_context()
            try:
                async with asyncio.TaskGroup() as self._group:
                    for _ in range(self._count):
                        self._add_worker()
            finally:
                self._overdue.close()

    def stop(self) -> None:
        """Take no more keys: ``run`` returns once the running reconciles have ended. Keys that still wait are dropped."""
        self._stopping = True
        self._queue.shut_down()
        self.gate.resume()

    def resize(self, count: int) -> None:
        """Set the number of workers. Surplus workers end after their present keys.

        Raises:
            ValueError: ``count`` is less than 1.
        """
        if count < 1:
            raise ValueError(f"controller {self._name} needs at least 1 worker, not {count}")
        self._count = count
        while not self._stopping and self._group is not None and self._running < count + self.counts.hanging:
            self._add_worker()

    def _add_worker(self) -> None:
        assert self._group is not None
        self._running += 1
        # Not the caller's context: a leader's fence and the log fields are those of the run.
        self._group.create_task(self._work(), name=f"{self._name}-worker-{next(self._numbers)}", context=self._context.copy())

    def _substitute(self) -> None:
        """Start another worker in place of one whose reconcile hangs, so that other keys are processed."""
        if not self._stopping and self._group is not None:
            self._add_worker()

    async def _work(self) -> None:
        queue, counts, overdue, gate, now = self._queue, self.counts, self._overdue, self.gate, self._clock.now
        about = log_fields()
        run, numbers = secrets.token_hex(4), itertools.count(1)
        observe = self._observe
        try:
            # If the reconcile has ended although a substitute was started, there is one worker too many.
            while self._running <= self._count + counts.hanging:
                try:
                    key = await queue.get()
                except QueueShutDown:
                    return
                try:
                    if gate.paused:
                        await gate.wait_until_fresh()
                    if self._stopping:
                        return
                    name = str(key)
                    about(key=name, reconcile=f"{run}-{next(numbers)}")
                    counts.active += 1
                    counts.last_key = name
                    started = now()
                    turn = overdue.begin(name, started)
                    try:
                        outcome = await self._attempt(key)
                    finally:
                        overdue.end(turn)
                        took = now() - started
                        counts.active -= 1
                        counts.reconciles += 1
                        counts.seconds += took
                    if observe is not None:
                        observe(self._name, took, outcome)
                finally:
                    queue.done(key)
        finally:
            self._running -= 1

    async def _attempt(self, key: K) -> str:
        """Reconcile a key once and handle the outcome. Return the outcome as a label of metrics."""
        deadline: TimeLimit | None = None
        try:
            if self._timeout is None:
                result = await self._reconcile(key)
            else:
                async with TimeLimit(self._clock, self._timeout) as deadline:
                    result = await self._reconcile(key)
            if result is None:
                self.counts.successes += 1
                self._queue.forget(key)
                self._failures.succeeded(key)
                return "success"
            if not isinstance(result, Result):
                raise TypeError(f"reconcile must return a Result or None, not {type(result).__name__}")
        except Exception as error:  # noqa: BLE001  # whatever it is, it must not end the worker
            return self._failed(key, error, deadline)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():
                raise
            # Something that the reconcile awaited was cancelled, not this worker: a task group would end the worker silently.
            self._retry(key, "something that reconcile waited for was cancelled", error)
            return "error"
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001  # SystemExit: a reconcile does not end the program; its manager does
            return self._failed(key, error, deadline)
        return self._again(key, result)

    def _again(self, key: K, result: Result) -> str:
        """Handle a successful reconcile: add the key again if the result requests it. Return the outcome as a label of metrics."""
        counts, queue = self.counts, self._queue
        self._failures.succeeded(key)
        # Behaviour R206: the key keeps its priority.
        priority = queue.priority_of(key) if result.priority is None else result.priority
        if result.requeue:
            counts.requeues += 1
            counts.requeues_asked += 1
            queue.add_rate_limited(key, priority=priority)
            return "requeue"
        queue.forget(key)
        if isinstance(result, PartlyFailed):
            self._count_error(key, result.error, result.text)
            if result.requeue_after is not None:
                counts.requeues += 1
                queue.add_after(key, result.requeue_after, priority=priority)
            return "error"
        if result.requeue_after is None:
            counts.successes += 1
            return "success"
        counts.requeues += 1
        counts.requeues_after += 1
        queue.add_after(key, result.requeue_after, priority=priority)
        return "requeue_after"

    def _failed(self, key: K, error: BaseException, deadline: TimeLimit | None) -> str:
        counts = self.counts
        if isinstance(error, TerminalError):
            counts.terminal_errors += 1
            self._count_error(key, error)
            self._queue.forget(key)
            self._failures.succeeded(key)
            _LOG.error("%s %s: %s (not retried until it changes)", self._name, key, self._failures.text(error))
        elif isinstance(error, TimeoutError) and not isinstance(error, KubeloopError):
            if deadline is not None and deadline.expired:
                counts.timeouts += 1
                self._retry(key, f"reconcile was cancelled after {self._timeout} s", error)
            else:
                self._retry(key, "timed out", error)
        elif isinstance(error, Conflict):
            # Conflicts are frequent, and the retry reads the other write: they are logged only if they continue.
            self._retry(key, str(error), error, level=logging.DEBUG if self._queue.retries(key) < _USUAL_CONFLICTS else logging.INFO)
        elif isinstance(error, KubeloopError):
            self._retry(key, self._failures.text(error), error)
        else:
            counts.panics += is_panic(error)
            what = f"reconcile raised {type(error).__name__}: {error}"
            if isinstance(error, SystemExit):
                what = f"reconcile raised {error!r}, which does not end the program (ask its manager: manager.request_stop())"
            self._retry(key, what, error, exc_info=self._failures.failed(key, error))
        return "error"

    def _retry(self, key: K, message: str, error: BaseException, *, level: int = logging.ERROR, exc_info: ExcInfo | None = None) -> None:
        self._count_error(key, error)
        self.counts.requeues += 1
        delay = self._queue.add_rate_limited(key, priority=self._queue.priority_of(key))
        failures = times(self._queue.retries(key))
        _LOG.log(level, "%s %s: %s%s; next try in %.3f s", self._name, key, message, failures, delay, exc_info=exc_info)

    def _count_error(self, key: K, error: BaseException, text: str = "") -> None:
        self.counts.errors += 1
        self.counts.last_error = text or str(error) or type(error).__name__
        self.counts.last_error_key = str(key)
        if self._on_failure is not None:
            self._on_failure(key, error)
