"""Background: an async function, or an object with an async ``run``, that a manager runs beside its controllers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Protocol, TypeAlias

from kubeloop.controller.builder.context import RunnableContext
from kubeloop.controller.runner.runnable import ReconcileCounts, RunnerStats
from kubeloop.meta import KubeloopError
from kubeloop.meta.type_checks import described
from kubeloop.tasks import end_tasks
from kubeloop.workqueue import QueueStats

Work: TypeAlias = Callable[[], Awaitable[object]] | Callable[[RunnableContext], Awaitable[object]]
"""An async function: ``async def work(): ...``, or ``async def work(context): ...`` with a ``RunnableContext``."""


class NotRunnableError(KubeloopError, TypeError):
    """A manager cannot run this object; the message lists the accepted types."""


class RunnableObject(Protocol):
    """An object with a method ``async def run(self)`` or ``async def run(self, context)``, which a manager runs in the background.

    Unlike a ``Runnable``, it has no method ``stop``: a manager stops it by cancelling ``run``. The context is a ``RunnableContext``.
    """

    @property
    def run(self) -> Work: ...


class Background:
    """Runs an async function, or the ``run`` method of an object, once all caches are synced, until it returns or the manager stops.

    Guarantees
        When the manager stops, the function is cancelled, and has the grace period of the manager to clean up; an exception other than the
        cancellation is then an error. An error stops the manager, which raises it. If the function returns, the manager continues.

    Args:
        work: An async function of no argument or of a ``RunnableContext``, or an object with such a method ``run``.
        name: Name in logs. Empty: the name of the function or class.
        needs_leader: Run the function in one replica only, the leader.

    Raises:
        NotRunnableError: ``work`` is not such a function or object.

    Example:
        >>> async def report() -> None:
        ...     print("caches are synced")
        >>> async with Manager(client, [Background(report, name="report")]):
        ...     await asyncio.sleep(0.2)
        caches are synced
    """

    warm_up = False

    def __init__(self, work: Work | RunnableObject, *, name: str = "", needs_leader: bool = True) -> None:
        function = _function_of(work)
        if function is None:
            raise NotRunnableError(
                f"{_shown(work)} cannot be run by a manager; give a controller, an async function, or an object with 'async def run(self)'"
            )
        self._function = function
        self._arguments = _wanted(function, work)
        self._name = name or getattr(work, "__name__", "") or type(work).__name__
        self.needs_leader = needs_leader
        self._context: RunnableContext | None = None
        self._task: asyncio.Future[object] | None = None
        self._stopping = False

    @property
    def name(self) -> str:
        return self._name

    @property
    def stats(self) -> RunnerStats:
        """Statistics that are all zero, since background work has no queue and no reconciles."""
        return RunnerStats(self.name, 0, QueueStats(0, 0, 0, 0, 0), ReconcileCounts())

    async def connect(self, context: RunnableContext) -> None:
        self._context = context

    async def synced(self, timeout: float) -> None:
        """Return immediately, since background work has no handlers that must see initial objects."""

    async def run(self) -> None:
        if self._stopping:
            return
        self._task = asyncio.ensure_future(self._work())
        try:
            await self._task
        except asyncio.CancelledError:
            own = asyncio.current_task()
            if own is not None and own.cancelling():
                await end_tasks(self._task)
                raise
            if not self._stopping:
                raise

    def stop(self) -> None:
        self._stopping = True
        if self._task is not None:
            self._task.cancel()

    async def close(self) -> None:
        """Do nothing, since background work holds no resources."""

    async def _work(self) -> object:
        given = (self._context,) if self._arguments else ()
        return await self._function(*given)


def _shown(work: object) -> str:
    """Return a function's name, or an object's type, since the fields of an object may be secret."""
    return str(getattr(work, "__qualname__", "")) or described(work)


def _function_of(work: object) -> Callable[..., Awaitable[object]] | None:
    """Return the function to call; None if it is not asynchronous."""
    run = getattr(work, "run", None)
    function = run if run is not None and not isinstance(work, type) else work
    return function if callable(function) and _is_async(function) else None


def _is_async(function: Any) -> bool:
    if isinstance(function, partial):
        return _is_async(function.func)
    call = getattr(function, "__call__", None)  # noqa: B004  # wanted is the method itself: an object may be called asynchronously
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(call)


def _wanted(function: Callable[..., object], work: object) -> int:
    """Return the number of arguments that a function takes: 0, or 1 for the context."""
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    parameters = inspect.signature(function).parameters.values()
    needed = [one for one in parameters if one.kind in kinds and one.default is one.empty]
    keywords = [one.name for one in parameters if one.kind is one.KEYWORD_ONLY and one.default is one.empty]
    if len(needed) > 1 or keywords:
        names = ", ".join([*(one.name for one in needed), *keywords])
        raise NotRunnableError(
            f"{_shown(work)} takes ({names}); a manager passes no argument, or only a RunnableContext: bind the rest with functools.partial"
        )
    return len(needed)
