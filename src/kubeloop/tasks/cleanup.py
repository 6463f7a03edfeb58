"""Functions that end tasks and close parts: all of them end, every error is reported, and the caller's cancellation passes through."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from kubeloop.timing import Clock, TimeLimit

T = TypeVar("T")


async def wait_all(*futures: asyncio.Future[Any] | None) -> None:
    """Wait until all futures are done, even if the caller is cancelled during the wait. The futures are not cancelled.

    This is for work that must not be left running: tasks that were already cancelled, or a thread, which cannot be cancelled.

    Args:
        futures: None is left out, so that an attribute that was never assigned can be given.

    Raises:
        asyncio.CancelledError: The caller was cancelled, and all futures are done.
    """
    cancelled: asyncio.CancelledError | None = None
    own = asyncio.current_task()  # a task that is among them cannot wait for itself
    while left := [future for future in futures if future is not None and future is not own and not future.done()]:
        try:
            await asyncio.wait(left)
        except asyncio.CancelledError as error:
            cancelled = error
    if cancelled is not None:
        raise cancelled


async def wait_within(clock: Clock, seconds: float | None, *futures: asyncio.Future[Any]) -> bool:
    """Wait until all futures are done, but at most ``seconds`` (None: no limit). The futures are not cancelled.

    Returns:
        Whether all of them are done.
    """
    left = [future for future in futures if not future.done()]
    if left and (seconds is None or seconds > 0):
        with contextlib.suppress(TimeoutError):  # the limit's: asyncio.wait raises none
            async with TimeLimit(clock, seconds):
                await asyncio.wait(left)
    return all(future.done() for future in futures)


async def result_of(future: asyncio.Future[T]) -> T:
    """Wait for a future and return its result. If the caller is cancelled, the future is not.

    ``asyncio.shield`` does the same, but from Python 3.14 on it logs an error that the future raises after the cancellation, though the
    caller may still read it.
    """
    await asyncio.wait((future,))
    return future.result()


async def finish(work: Awaitable[T]) -> T:
    """Return the result of ``work``. A cancellation of the caller does not interrupt the work; it is raised when the work has ended.

    Raises:
        Exception: The error of the work.
        asyncio.CancelledError: The caller was cancelled, and the work has ended; an error of the work is the cause.
    """
    task = asyncio.ensure_future(work)
    try:
        await wait_all(task)
    except asyncio.CancelledError as cancelled:
        if not task.cancelled() and (error := task.exception()) is not None:
            raise cancelled from error
        raise
    return task.result()


async def end_tasks(
    *tasks: asyncio.Future[Any] | None,
    expected: tuple[type[Exception], ...] = (),
    logger: logging.Logger | logging.LoggerAdapter[Any] | None = None,
) -> None:
    """Cancel the tasks and wait until all of them have ended, even if the caller is cancelled during the wait.

    ``await task`` under ``suppress(CancelledError)`` is not equivalent, because it also suppresses the cancellation of the caller. Nor is
    ``gather`` with ``return_exceptions``, because it drops the exceptions of the tasks.

    Args:
        tasks: None is left out, so that an attribute that was never assigned can be given.
        expected: Errors with which the tasks may end, such as those of a connection that the peer closed. They are dropped.
        logger: Logs the other errors, each with its traceback, instead of raising them: for blocks that already end with an error.
            The error that the calling block ends with is not logged: the block's caller gets it.

    Raises:
        Exception: The error of a task; an ``ExceptionGroup`` if several tasks failed. Not with ``logger``.
        asyncio.CancelledError: The caller was cancelled, or is one of the tasks. The other tasks have ended; their first error is the
            cause.
    """
    given = [task for task in tasks if task is not None]
    for task in given:
        task.cancel()
    own = asyncio.current_task()
    ends_itself = own in given
    given = [task for task in given if task is not own]
    cancelled: asyncio.CancelledError | None = None
    try:
        await wait_all(*given)
        if ends_itself:
            await asyncio.sleep(0)  # raises the caller's cancellation
    except asyncio.CancelledError as cancellation:
        cancelled = cancellation
    failed = [(task, error) for task in given if not task.cancelled() and isinstance(error := task.exception(), Exception)]
    unexpected = [(task, error) for task, error in failed if not isinstance(error, expected)]
    if logger is not None:
        raised = sys.exception()
        for task, error in unexpected:
            if error is raised:
                continue
            name = task.get_name() if isinstance(task, asyncio.Task) else type(task).__name__
            logger.error("a background task failed (%s, %s)", type(error).__name__, name, exc_info=error)
        unexpected.clear()
    errors = [error for _, error in unexpected]
    if cancelled is not None:
        raise cancelled from (errors[0] if errors else None)
    raise_errors("background tasks failed", errors)


async def close_all(*steps: Callable[[], Awaitable[object]]) -> None:
    """Run every step in order, even if earlier steps raise.

    A cancellation of the caller interrupts the step that runs, which must close its part all the same; then the following steps run.

    Raises:
        Exception: The error of a step; an ``ExceptionGroup`` if several steps raised.
        asyncio.CancelledError: The caller was cancelled. All steps have run; their first error is the cause.
    """
    errors: list[Exception] = []
    cancelled: asyncio.CancelledError | None = None
    for step in steps:
        try:
            await step()
        except asyncio.CancelledError as error:
            cancelled = error
        except Exception as error:  # noqa: BLE001 - raised below, when everything is closed
            errors.append(error)
    if cancelled is not None:
        raise cancelled from (errors[0] if errors else None)
    raise_errors("several parts failed to close", errors)


def raise_errors(message: str, errors: Sequence[Exception]) -> None:
    """Raise the only error, or an exception group if there are several. Do nothing if there are none."""
    if len(errors) == 1:
        raise errors[0]
    if errors:
        raise ExceptionGroup(message, errors)
