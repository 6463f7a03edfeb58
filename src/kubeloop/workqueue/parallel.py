"""Runs independent pieces of work with limited concurrency."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeVar

P = TypeVar("P")


async def parallelize(
    work: Callable[[P], Awaitable[object]], pieces: Iterable[P], *, workers: int = 16, until: asyncio.Event | None = None
) -> None:
    """Await ``work`` once for each of ``pieces``, at most ``workers`` at a time, and return when all have ended.

    Source: client-go util/workqueue/parallelizer.go, ParallelizeUntil; here an event loop takes the place of goroutines.

    Args:
        work: Called with each piece.
        pieces: Read as workers become free, so they may be many, lazy or endless.
        workers: Maximum number of concurrent calls.
        until: Once it is set, no further piece is started; running ones end. None: all pieces are started.

    Raises:
        ValueError: fewer than one worker.
        ExceptionGroup: pieces failed. The first failure cancels the running ones and starts no other.
    """
    if workers < 1:
        raise ValueError(f"parallelize needs at least 1 worker, not {workers}")
    left = iter(pieces)

    async def one_after_another() -> None:
        while until is None or not until.is_set():
            try:
                piece = next(left)
            except StopIteration:
                return
            await work(piece)

    async with asyncio.TaskGroup() as group:
        for _ in range(workers):
            group.create_task(one_after_another())
