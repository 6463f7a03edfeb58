"""Tasks that live as long as a block. Unlike ``asyncio.TaskGroup`` an error of the block leaves it as it is, not wrapped in a group."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine


class Tasks:
    """Background tasks of one block.

    Guarantees
        After ``close`` none of them runs. If one fails, which only a defect does, the block is cancelled and ``close`` raises that error:
        a program never runs on with a cache that stands still.
    """

    def __init__(self) -> None:
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
        for task in self._running:
            task.cancel()
        try:
            if self._running:
                await asyncio.wait(set(self._running))
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
