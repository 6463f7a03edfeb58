"""The owner of background tasks: it logs and counts their failures, restarts them with back-off, and ends them together."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self

from kubeloop.tasks.cleanup import end_tasks, raise_errors
from kubeloop.timing import Backoff, Clock, Timer

#: Returns the coroutine of a task: once at its start, and once for each restart.
Work = Callable[[], Coroutine[Any, Any, None]]

_INITIAL: Final = 0.1
_CAP: Final = 30.0


class SupervisedTask:
    """One background task, which is restarted when it fails.

    Its work may report failures of single objects, after which it continues, by ``failed`` and ``recovered``.
    """

    def __init__(self, supervisor: Supervisor, name: str, work: Work, restart: Backoff, subject: str = "") -> None:
        """Start the task. Programs call ``Supervisor.start`` instead.

        Args:
            supervisor: Counts and logs failures.
            name: For the log, the metric and the health check.
            work: Returns the coroutine to run.
            restart: Delays before restarts.
            subject: The object that the task works on, for the log.
        """
        self.name = name
        self.subject = subject
        self._supervisor = supervisor
        self._work = work
        self._restart = restart
        self._faults: set[str] = set()
        self._recovery: Timer | None = None
        self._task = asyncio.create_task(self._run(), name=name)
        self._task.add_done_callback(self._ended)

    @property
    def healthy(self) -> bool:
        """Whether neither the task nor one of its parts has failed without recovering.

        A restarted task is healthy when it has run for as long as the delay before its restart.
        """
        return not self._faults

    @property
    def done(self) -> bool:
        """Whether the work has returned or was stopped. A task that waits for its restart is not done."""
        return self._task.done()

    def failed(self, error: BaseException, part: str = "") -> None:
        """Log and count a failure.

        Args:
            error: The error that was raised.
            part: The name of the object that could not be processed; empty: the task itself failed.
        """
        self._faults.add(part)
        self._supervisor.count_failure(self.name, part or self.subject, error)

    def recovered(self, part: str = "") -> None:
        """Record that a part, or the task itself, works again."""
        self._faults.discard(part)

    async def stop(self) -> None:
        """Cancel the task and return when it has ended."""
        await end_tasks(self._task)

    def cancel(self) -> asyncio.Task[None]:
        """Cancel the task without waiting for its end, and return the asyncio task."""
        self._task.cancel()
        return self._task

    async def _run(self) -> None:
        delay = 0.0
        while True:
            if self._faults and not self._recovery:
                self._recovery = self._supervisor.clock.call_later(delay, self.recovered)
            try:
                await self._work()
            except (Exception, asyncio.CancelledError) as error:
                # Not every CancelledError ends the task: something that the work awaits may have been cancelled.
                own = asyncio.current_task()
                if isinstance(error, asyncio.CancelledError) and (own is None or own.cancelling()):
                    raise
                self.failed(error)
            else:
                self.recovered()
                return
            finally:
                if self._recovery is not None:
                    self._recovery.cancel()
                    self._recovery = None
            delay = self._restart.next()
            await self._supervisor.clock.sleep(delay)
            self._supervisor.restarts[self.name] += 1

    def _ended(self, _: asyncio.Task[None]) -> None:
        self._supervisor.remove(self)


class Supervisor:
    """Starts background tasks and ends them together.

    Guarantees:
        A failure of a task is logged once, with its traceback, and counted; the task is restarted after a delay that grows.
        After ``stop``, none of the tasks runs. The caller's own cancellation passes through.

    Not guaranteed:
        A task that returns is done, and is not restarted.

    Example:
        >>> async with Supervisor(clock, logger) as tasks:
        ...     tasks.start(self._follow_definitions, name="crd-controller", restart=Backoff(0.1, cap=30))
    """

    def __init__(self, clock: Clock, logger: logging.Logger | logging.LoggerAdapter[Any]) -> None:
        self.clock = clock
        self._logger = logger
        self._tasks: dict[SupervisedTask, None] = {}
        #: The tasks of this supervisor and of its children.
        self._family: dict[SupervisedTask, None] = {}
        #: How often tasks failed, by name; a name stands here from the first start on.
        self.failures: Counter[str] = Counter()
        #: How often tasks were started again after a failure, by name.
        self.restarts: Counter[str] = Counter()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self.stop()

    def child(self) -> Supervisor:
        """Return a supervisor whose ``stop`` ends only its own tasks. Their failures and health count in this supervisor as well.

        It is for objects that are created and removed at runtime and whose tasks have the same names.
        """
        result = Supervisor(self.clock, self._logger)
        result._family, result.failures, result.restarts = self._family, self.failures, self.restarts
        return result

    def start(self, work: Work, *, name: str, restart: Backoff | None = None, subject: str = "") -> SupervisedTask:
        """Start a task.

        Args:
            work: Returns the coroutine to run. It is called once more for each restart, and must then begin from the start.
            name: For the log, the metric and the health check. Tasks that do the same may share a name.
            restart: Delays before restarts. Default: 0.1 s, doubling up to 30 s.
            subject: The object that the task works on, for the log.
        """
        self.failures[name] += 0
        self.restarts[name] += 0
        backoff = restart if restart is not None else Backoff(initial=_INITIAL, cap=_CAP, clock=self.clock)
        task = SupervisedTask(self, name, work, backoff, subject)
        self._tasks[task] = self._family[task] = None
        return task

    def healthy(self, name: str) -> bool:
        """Return whether all tasks of this name are healthy."""
        return all(task.healthy for task in self._family if task.name == name)

    def count_failure(self, name: str, part: str, error: BaseException) -> None:
        """Count and log a failure; see ``SupervisedTask.failed``."""
        self.failures[name] += 1
        shown = f"{name}: {part}" if part else name
        self._logger.error("%s failed (%s); retrying", shown, type(error).__name__, exc_info=error)

    def remove(self, task: SupervisedTask) -> None:
        """Forget a task that has ended."""
        self._tasks.pop(task, None)
        self._family.pop(task, None)

    async def stop(self) -> None:
        """Cancel all tasks and return when they have ended.

        Raises:
            Exception: The error of a task that failed while it ended; an ``ExceptionGroup`` if several failed.
            asyncio.CancelledError: The caller was cancelled, and all tasks have ended.
        """
        errors: list[Exception] = []
        cancelled: asyncio.CancelledError | None = None
        while self._tasks:  # a task that ends may start others
            ending = list(self._tasks)
            try:
                await end_tasks(*[task.cancel() for task in ending])
            except asyncio.CancelledError as error:
                cancelled = error
            except Exception as error:  # noqa: BLE001 - raised below, when all have ended
                errors.append(error)
            for task in ending:
                self.remove(task)
        if cancelled is not None:
            raise cancelled from (errors[0] if errors else None)
        raise_errors("background tasks failed", errors)
