"""Deadline: cancels what runs within it when its time has come, by the clock that the controller was given."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from kubeloop.timing import Clock, Timer


class Deadline:
    """``with Deadline(clock, seconds) as deadline:`` in a task. ``expired`` tells afterwards whether it was this that cancelled.

    As ``asyncio.timeout``, which knows the loop's clock only; what was cancelled by it leaves as ``TimeoutError``.
    """

    __slots__ = ("_cancelling", "_clock", "_seconds", "_task", "_timer", "expired")

    def __init__(self, clock: Clock, seconds: float) -> None:
        self._clock = clock
        self._seconds = seconds
        self._task: asyncio.Task[object] | None = None
        self._timer: Timer | None = None
        self._cancelling = 0
        self.expired = False

    def __enter__(self) -> Self:
        task = self._task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._timer = self._clock.call_later(self._seconds, self._expire)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        assert self._timer is not None
        assert self._task is not None
        self._timer.cancel()
        # Behaviour R210: it counts only if this, and not the end of the program, was the cause.
        if self.expired and self._task.uncancel() <= self._cancelling and isinstance(error, asyncio.CancelledError):
            raise TimeoutError from error

    def _expire(self) -> None:
        self.expired = True
        if self._task is not None:
            self._task.cancel()
