"""Tasks that live as long as a block, and how they end.

Unlike with ``asyncio.TaskGroup`` an error of the block leaves it as it is, not wrapped in a group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable

from kubeloop.tasks import finish, wait_within
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

#: A task that goes on although it was cancelled is cancelled again after so many seconds ...
PATIENCE = 5.0
#: ... so often, and then left to itself: whoever stops must be able to go on.
ATTEMPTS = 3

_log = logger_with_context("kubeloop.cache")


async def end(tasks: Iterable[asyncio.Task[None]], clock: Clock) -> None:
    """Cancel the tasks and wait for their ends, also when the caller is cancelled meanwhile.

    A task that ends itself, as a handler does that removes its own informer, is not waited for: its cancellation is raised here.

    Not guaranteed
        The end of one that swallows every cancellation: after ``ATTEMPTS`` times ``PATIENCE`` seconds it is named in the log and left.
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
            _log.warning("%s goes on although it was cancelled %g s ago; %s", task.get_name(), PATIENCE, then)


class Tasks:
    """Background tasks of one block.

    Guarantees
        After ``close`` none of them runs. If one fails, which only a defect does, the block is cancelled and ``close`` raises that error:
        a program never runs on with a cache that stands still. (For one that ignores its cancellation see ``end``.)
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
        """Cancel all, wait for their ends, raise what one of them failed with."""
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
