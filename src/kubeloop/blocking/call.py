"""A coroutine that runs on the shared event loop while another thread waits for its result."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Coroutine
from contextvars import Context
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
Work: TypeAlias = Callable[["RunningCall[T]"], Coroutine[Any, Any, T]]

_HERE = os.path.dirname(__file__)  # noqa: PTH120 - compared with the file names of code objects


class RunningCall(Generic[T]):
    """A running coroutine; ``wait`` may be called once. ``in_waiting_thread`` lets the coroutine run functions in the waiting thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Work[T], context: Context | None = None) -> None:
        self._loop = loop
        self._work = work
        self._context = context
        self._task: asyncio.Task[T] | None = None
        self._error: BaseException | None = None
        self._dropped = False
        #: Functions that the waiting thread runs; None: the coroutine has ended.
        self._jobs: SimpleQueue[Callable[[], None] | None] = SimpleQueue()

    @property
    def value(self) -> T:
        assert self._task is not None
        return self._task.result()

    def wait(self) -> BaseException | None:
        """Run the coroutine and wait until it ends. Return its error, without frames of this package, or None if it succeeded."""
        try:
            self._loop.call_soon_threadsafe(self._start)
            while (job := self._jobs.get()) is not None:
                job()
        except BaseException:
            self._drop()
            raise
        task = self._task
        if task is None:
            error = self._error
        elif task.cancelled():
            error = RuntimeError("kubeloop.blocking was ended while this call waited")
        else:
            error = task.exception()
        self._error = None
        return error if error is None else _clean(error)

    def in_waiting_thread(self, function: Callable[..., object]) -> Callable[..., Coroutine[Any, Any, object]]:
        """Return an async function that runs ``function`` in the waiting thread, which may make other blocking calls meanwhile."""

        async def ask(*args: object) -> object:
            answer: asyncio.Future[object] = self._loop.create_future()
            self._jobs.put(partial(self._do, function, args, answer))
            return await answer

        return ask

    def _start(self) -> None:
        if self._dropped:
            self._jobs.put(None)
            return
        try:
            self._task = self._loop.create_task(self._work(self), context=self._context)
        except Exception as error:  # noqa: BLE001 - raised where it is waited for
            self._error = error
            self._jobs.put(None)
            return
        self._task.add_done_callback(lambda _: self._jobs.put(None))

    def _drop(self) -> None:
        """Cancel the coroutine and wait until it has cleaned up."""
        self._dropped = True
        self._loop.call_soon_threadsafe(self._cancel)
        while self._jobs.get() is not None:
            pass
        if self._task is not None and not self._task.cancelled():
            self._task.exception()  # retrieved, so that asyncio does not warn about it

    def _cancel(self) -> None:
        # An ended coroutine may have notified the waiting thread already, which was interrupted before it saw that.
        if self._task is None or self._task.done():
            self._jobs.put(None)
        else:
            self._task.cancel()

    def _do(self, function: Callable[..., object], args: tuple[object, ...], answer: asyncio.Future[object]) -> None:
        try:
            value = function(*args)
        except Exception as error:  # noqa: BLE001 - raised where it is awaited
            resolve_future(self._loop, answer, None, error)
        else:
            resolve_future(self._loop, answer, value)


def resolve_future(loop: asyncio.AbstractEventLoop, future: asyncio.Future[object], value: object, error: Exception | None = None) -> None:
    """Set the result or error of a future of the loop from another thread. Does nothing if the future is done.

    Args:
        loop: The future's loop.
        future: The future.
        value: The result.
        error: The error. None: ``value`` is the result.
    """

    def settle() -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    with contextlib.suppress(RuntimeError):  # the loop has ended
        loop.call_soon_threadsafe(settle)


def _clean(error: BaseException) -> BaseException:
    """Return the error with a traceback that begins at the first frame outside this package."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None and trace.tb_frame.f_code.co_filename.startswith(_HERE):
        trace = trace.tb_next
    return error.with_traceback(trace)
