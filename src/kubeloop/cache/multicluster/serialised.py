"""In turn: one handler behind several informers is still called for one event at a time."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable
from typing import Generic, TypeVar

from kubeloop.cache.handlers.event import Event
from kubeloop.cache.handlers.registration import Handler
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)


class SerialisedHandler(Generic[R]):
    """A handler that shares a lock with others: while one of them is awaited, none of them begins.

    Waiting handlers run in the order of their arrival, so that informers with many and with few events take turns.
    """

    __slots__ = ("__qualname__", "_handler", "_lock")

    def __init__(self, handler: Handler[R], lock: asyncio.Lock) -> None:
        self._handler = handler
        self._lock = lock
        self.__qualname__ = str(getattr(handler, "__qualname__", handler))

    def __call__(self, event: Event[R]) -> object:
        if self._lock.locked():
            return self._later(event)
        # A plain function stays one: it needs no lock, since nothing else runs meanwhile, and who measures plain calls can.
        result = self._handler(event)
        return self._finish(result) if inspect.isawaitable(result) else result

    async def _later(self, event: Event[R]) -> None:
        async with self._lock:
            result = self._handler(event)
            if inspect.isawaitable(result):
                await result

    async def _finish(self, result: Awaitable[object]) -> None:
        try:
            await self._lock.acquire()
        except BaseException:
            if inspect.iscoroutine(result):
                result.close()
            raise
        try:
            await result
        finally:
            self._lock.release()
