"""Workers over a queue on a fake clock, with a reconcile whose outcomes are scripted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Self

from kubeloop.controller.result import Result
from kubeloop.controller.runner.workers import Workers
from kubeloop.meta import ObjectKey
from kubeloop.timing import FakeClock
from kubeloop.workqueue import ExponentialLimiter, PriorityQueue

KEY = ObjectKey("test", "shop", "web")
OTHER = ObjectKey("test", "shop", "db")


class Bench:
    """A queue, workers and a scripted reconcile: outcomes by key are used up from the left; then success."""

    def __init__(
        self, reconcile: Callable[[ObjectKey], Awaitable[Result | None]] | None = None, *, count: int = 1, timeout: float | None = None
    ) -> None:
        self.clock = FakeClock()
        self.queue: PriorityQueue[ObjectKey] = PriorityQueue(ExponentialLimiter(1, 60), self.clock)
        self.script: list[Callable[[], Result | None]] = []
        self.calls: list[tuple[ObjectKey, float]] = []
        self.priorities: list[int] = []
        self.outcomes: list[str] = []
        self.workers = Workers(
            "bench",
            reconcile or self.reconcile,
            self.queue,
            count,
            cluster="test",
            clock=self.clock,
            timeout=timeout,
            observe=lambda name, seconds, outcome: self.outcomes.append(outcome),
        )
        self.start = self.clock.now()

    async def reconcile(self, key: ObjectKey) -> Result | None:
        self.calls.append((key, self.clock.now() - self.start))
        self.priorities.append(self.queue.priority_of(key))
        return self.script.pop(0)() if self.script else None

    def fails(self, error: BaseException) -> None:
        def fail() -> None:
            raise error

        self.script.append(fail)

    def succeeds(self, result: Result | None = None) -> None:
        self.script.append(lambda: result)

    async def __aenter__(self) -> Self:
        self.task = asyncio.ensure_future(self.workers.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.workers.stop()
        await asyncio.wait_for(self.task, 5)

    @property
    def times(self) -> list[float]:
        return [time for _, time in self.calls]
