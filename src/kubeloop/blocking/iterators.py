"""Asynchronous iterators as ordinary iterators."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import AsyncIterator, Iterator
from typing import Any, Generic, Self, TypeVar

from kubeloop.blocking.call import RunningCall
from kubeloop.blocking.loop import LoopThread

T = TypeVar("T")

_END = object()


class BlockingIterator(Iterator[T], Generic[T]):
    """An iterator that requests each item when the caller needs it. Threads may share it: each item goes to one of them.

    If a ``for`` is left early, the request ends when the iterator is collected; ``close``, or using it with ``with``, ends it at once.
    """

    def __init__(self, loop: LoopThread, source: AsyncIterator[Any], keep: object = None) -> None:
        self._loop = loop
        self._source = source
        self._keep = keep
        self._lock = threading.Lock()
        # One context for all steps, so that a context variable that a generator sets in one step is set in the next.
        self._context = contextvars.copy_context()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> T:
        __tracebackhide__ = True
        from kubeloop.blocking.wrappers import wrap

        with self._lock:
            item = self._loop.call(self._step, self._context)
        if item is _END:
            raise StopIteration
        found: T = wrap(item, self._loop, self._keep)
        return found

    def close(self) -> None:
        """End the iteration. Closing it twice, or after its end, does nothing."""
        __tracebackhide__ = True
        with self._lock:
            self._loop.call(self._close, self._context)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        __tracebackhide__ = True
        self.close()

    async def _step(self, _: RunningCall[Any]) -> Any:
        return await anext(self._source, _END)

    async def _close(self, _: RunningCall[None]) -> None:
        close = getattr(self._source, "aclose", None)
        if close is not None:
            await close()
