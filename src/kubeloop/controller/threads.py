"""Threads for synchronous reconciles: reused, one per running call, and daemonic so that they do not keep the program from ending.

``concurrent.futures`` waits for its threads at the exit of the interpreter; a reconcile that never returns would block the exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import Callable
from typing import Any, TypeAlias

_Job: TypeAlias = tuple[Callable[[Any], Any], Any, contextvars.Context, "asyncio.Future[Any]", asyncio.AbstractEventLoop]


class ThreadExecutor:
    """Runs functions in threads, as many as there are concurrent calls. A function sees the context variables of its caller."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._idle = 0
        self._made = 0
        self._alive = 0

    def call(self, function: Callable[[Any], Any], argument: Any) -> asyncio.Future[Any]:
        """Run a function in a thread, and return a future of its result. Cancelling the future does not stop the thread."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        if self._idle:
            self._idle -= 1
        else:
            self._made += 1
            self._alive += 1
            threading.Thread(target=self._work, name=f"{self._name}-{self._made}", daemon=True).start()
        self._jobs.put((function, argument, contextvars.copy_context(), future, loop))
        return future

    @property
    def busy(self) -> int:
        """Number of threads that run a call."""
        return self._made - self._idle

    def close(self) -> None:
        """Stop the threads, each after its current call, without waiting for that."""
        for _ in range(self._alive):
            self._jobs.put(None)
        self._alive = 0

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            function, argument, context, future, loop = job
            result: Any = None
            failure: BaseException | None = None
            try:
                result = context.run(function, argument)
            except BaseException as error:  # noqa: BLE001  # the future passes it on to the caller, in the loop's thread
                failure = error
            try:
                loop.call_soon_threadsafe(self._tell, future, result, failure)
            except RuntimeError:  # The loop has ended, so there is no caller.
                return
            del job, function, argument, context, future, result, failure  # The wait for the next job must keep no object alive.

    def _tell(self, future: asyncio.Future[Any], result: Any, failure: BaseException | None) -> None:
        self._idle += 1
        if future.done():
            return
        if failure is None:
            future.set_result(result)
        elif isinstance(failure, StopIteration | GeneratorExit):  # Neither can be set as a future's exception.
            future.set_exception(RuntimeError(f"raised {failure!r}"))
        else:
            future.set_exception(failure)
