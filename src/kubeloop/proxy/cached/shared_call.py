"""One call at a time for many callers, each of which needs a result that is not older than its request."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

from kubeloop.tasks import end_tasks

T = TypeVar("T")


class SharedCall(Generic[T]):
    """Runs a call for many callers.

    Guarantees
        Each caller gets the result, or the error, of a call that began after the caller asked.
        At most one call runs, and at most one waits.

    Example:
        >>> async def read_version() -> int:
        ...     return 7
        >>> newest = SharedCall(read_version)
        >>> await newest()
        7
    """

    def __init__(self, call: Callable[[], Awaitable[T]]) -> None:
        self._call = call
        self._running: asyncio.Task[T] | None = None
        self._next: asyncio.Task[T] | None = None

    async def __call__(self) -> T:
        """Return the result of a call that begins now or later. Raises its error."""
        if self._next is None:
            self._next = asyncio.ensure_future(self._run(self._running))
            self._next.add_done_callback(_retrieve)
        return await asyncio.shield(self._next)

    async def close(self) -> None:
        """Cancel the calls."""
        # The callers have got, or get, the errors of calls that are done.
        await end_tasks(*[task for task in (self._running, self._next) if task is not None and not task.done()])

    async def _run(self, earlier: asyncio.Task[T] | None) -> T:
        if earlier is not None:
            await asyncio.wait([earlier])
        self._running, self._next = self._next, None
        return await self._call()


def _retrieve(task: asyncio.Task[T]) -> None:
    """Read a task's error, since all its callers may have been cancelled."""
    if not task.cancelled():
        task.exception()
