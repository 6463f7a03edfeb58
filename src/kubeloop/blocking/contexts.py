"""Asynchronous context managers as ordinary context managers."""

from __future__ import annotations

import asyncio
import contextvars
import logging
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, TypeVar

from kubeloop.blocking.call import RunningCall
from kubeloop.blocking.loop import LoopThread
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.blocking")

T = TypeVar("T")

_Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


class EnteredContext(Generic[T]):
    """An asynchronous context manager that one task enters and leaves on behalf of a waiting thread.

    Guarantees
        The same task enters and leaves the manager, as in a coroutine, so that its task groups, timeouts and context variables work.
        If the body of the ``with`` block is interrupted (Ctrl-C, ``sys.exit``), the manager sees a cancellation, as in a coroutine.
    """

    def __init__(self, loop: LoopThread, manager: AbstractAsyncContextManager[T]) -> None:
        self._loop = loop
        self._manager = manager
        self._task: asyncio.Task[bool | None] | None = None
        self._entered: asyncio.Future[T] | None = None
        self._leaving: asyncio.Future[_Raised] | None = None

    def enter(self) -> T:
        __tracebackhide__ = True
        if self._task is not None:
            raise RuntimeError("this block has been entered already; call the method again for another one")
        try:
            return self._loop.call(self._enter)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Leave the context because the caller of ``enter`` was interrupted, so that its body will not run."""
        self._loop.post(self._abandon)

    def leave(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        __tracebackhide__ = True
        if error is not None and not isinstance(error, Exception):
            kind, error, trace = asyncio.CancelledError, asyncio.CancelledError(), None
        return self._loop.call(lambda _: self._leave((kind, error, trace)))

    async def _enter(self, _: RunningCall[T]) -> T:
        loop = asyncio.get_running_loop()
        self._entered, self._leaving = loop.create_future(), loop.create_future()
        self._task = loop.create_task(self._hold(self._entered, self._leaving), context=contextvars.copy_context())
        try:
            await asyncio.wait((self._task, self._entered), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await end_tasks(self._task, expected=(KubeloopError,), logger=_LOG)
            raise
        if not self._entered.done():
            await self._task  # raises
        return self._entered.result()

    async def _hold(self, entered: asyncio.Future[T], leaving: asyncio.Future[_Raised]) -> bool | None:
        entered.set_result(await self._manager.__aenter__())
        try:
            raised = await leaving
        except asyncio.CancelledError as error:
            return await self._manager.__aexit__(type(error), error, error.__traceback__)
        return await self._manager.__aexit__(*raised)

    async def _leave(self, raised: _Raised) -> bool:
        task, leaving = self._task, self._leaving
        if task is None or leaving is None:
            raise RuntimeError("this block was never entered")
        if not leaving.done():
            leaving.set_result(raised)
        try:
            suppressed = await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
            return False  # the cancellation that was passed to the manager, or another one: the body's error says more
        return bool(suppressed) and raised[0] is not asyncio.CancelledError

    def _abandon(self) -> None:
        if self._task is not None and not self._task.done():
            self._task.cancel()


class BlockingContext(Generic[T]):
    """The result of a method that opens a resource: ``with client.pods.exec_stream(...) as session``."""

    def __init__(self, loop: LoopThread, manager: AbstractAsyncContextManager[Any], keep: object = None) -> None:
        self._held = EnteredContext(loop, manager)
        self._loop = loop
        self._keep = keep

    def __enter__(self) -> T:
        __tracebackhide__ = True
        from kubeloop.blocking.wrappers import wrap

        try:
            entered: T = wrap(self._held.enter(), self._loop, self._keep)
        except BaseException:
            self._held.abandon()
            raise
        return entered

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> bool:
        __tracebackhide__ = True
        return self._held.leave(kind, error, trace)
