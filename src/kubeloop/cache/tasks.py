"""Background tasks of a cache: how they end, and how other tasks wait for their progress without polling.

An error that leaves the block of the tasks is raised unchanged, not wrapped in a group as by ``asyncio.TaskGroup``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Protocol

from kubeloop.meta import DeadlineError, KubeloopError
from kubeloop.tasks import finish, wait_within
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context


class InformerStopped(KubeloopError):
    """The informer, or the handler, has stopped: it emits no more events and accepts no more handlers."""


class Progress:
    """Wakes tasks that wait for informers, handlers or clusters to make progress; one for all informers of a factory."""

    __slots__ = ("_clock", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all waiters so that they check their condition again."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, done: Callable[[], bool], timeout: float | None = None, missing: Callable[[], str] | None = None) -> None:
        """Wait until ``done()`` returns true. Exceptions of ``done`` propagate. ``timeout`` is in seconds of the clock.

        Raises:
            DeadlineError: the timeout expired; ``missing()`` supplies the message.
        """
        late = False

        def expire() -> None:
            nonlocal late
            late = True
            self.notify()

        timer = None if timeout is None else self._clock.call_later(timeout, expire)
        try:
            while not done():
                if late:
                    raise DeadlineError(f"after {timeout:g} s: {missing() if missing else 'still waiting'}")
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.add(future)
                try:
                    await future
                finally:
                    self._waiting.discard(future)
        finally:
            if timer is not None:
                timer.cancel()


class Syncing(Protocol):
    """An ``InformerFactory``, a ``Registration``, or another object with ``wait_synced``."""

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until this object has synced. ``timeout`` is in seconds.

        Raises:
            DeadlineError: the timeout expired; the message says what has not synced.
        """


async def all_synced(*parts: Syncing, timeout: float = 120.0) -> None:
    """Wait until several informers, registrations or the like have synced. ``timeout`` is in seconds, for all of them together.

    Raises:
        DeadlineError: the timeout of one or more parts expired; the message joins their messages.
        Exception: any other error of a part, raised immediately.
    """
    await _all(part.wait_synced(timeout) for part in parts)


class Draining(Protocol):
    """A handler's registration, or another object with ``wait_drained``."""

    async def wait_drained(self, timeout: float = 120.0) -> None:
        """Wait until the handler has returned from every event that was offered before this call. ``timeout`` is in seconds.

        Raises:
            DeadlineError: the timeout expired; the message says how many events wait.
        """


async def all_drained(registrations: Iterable[Draining], timeout: float = 120.0) -> None:
    """Wait until each handler has returned from every event that was offered before this call. ``timeout`` is in seconds.

    Raises:
        DeadlineError: the timeout expired; the message says how many events wait for each handler.
    """
    await _all(registration.wait_drained(timeout) for registration in registrations)


async def _all(waits: Iterable[Awaitable[None]]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    late: list[str] = []
    try:
        for done in asyncio.as_completed(tasks):
            try:
                await done
            except DeadlineError as error:
                late.append(str(error))
    finally:
        for task in tasks:
            task.cancel()
        # The first error is raised; the errors of the other waits add nothing, and waits have no side effects.
        await asyncio.gather(*tasks, return_exceptions=True)
    if late:
        raise DeadlineError("; ".join(dict.fromkeys(late)))


#: Seconds after which a task that ignored its cancellation is cancelled again ...
PATIENCE = 5.0
#: ... and how many times, before it is abandoned so that the caller can continue to stop.
ATTEMPTS = 3

_LOG = logger_with_context("kubeloop.cache")


async def end(tasks: Iterable[asyncio.Task[None]], clock: Clock) -> None:
    """Cancel the tasks and wait until they have ended, even if the caller is cancelled meanwhile.

    The current task (a handler that removes its own informer) is not waited for: its cancellation is raised here.

    Not guaranteed
        The end of a task that swallows every cancellation: after ``ATTEMPTS`` times ``PATIENCE`` seconds it is logged and abandoned.
    """
    left = {task for task in tasks if not task.done()}
    if asyncio.current_task() in left:
        await _end(left, clock)
    elif left:
        await finish(_end(left, clock))


async def _end(left: set[asyncio.Task[None]], clock: Clock) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        for task in left:
            task.cancel()
        if await wait_within(clock, PATIENCE, *left):
            return
        left = {task for task in left if not task.done()}
        for task in left:
            then = "cancelling it again" if attempt < ATTEMPTS else "left behind, still running"
            _LOG.warning("%s is still running although it was cancelled %g s ago; %s", task.get_name(), PATIENCE, then)


class Tasks:
    """The background tasks of one ``async with`` block.

    Guarantees
        After ``close`` none of the tasks runs. If a task fails, which only a bug causes, the block is cancelled and ``close`` raises the
        error, so that a program never continues with a stale cache. (For a task that ignores its cancellation see ``end``.)
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._parent = asyncio.current_task()
        self._running: set[asyncio.Task[None]] = set()
        self._crash: BaseException | None = None
        self._closing = False

    def create(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = asyncio.create_task(work, name=name)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def close(self) -> None:
        """Cancel all tasks, wait for their ends, and raise the error of a failed task."""
        self._closing = True
        try:
            await end(self._running, self._clock)
        finally:
            crash, self._crash = self._crash, None
            if crash is not None:
                if self._parent is not None:
                    self._parent.uncancel()
                raise crash

    def _done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if task.cancelled() or (error := task.exception()) is None or self._crash is not None:
            return
        self._crash = error
        if not self._closing and self._parent is not None:
            self._parent.cancel()
