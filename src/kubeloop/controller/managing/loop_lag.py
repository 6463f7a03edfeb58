"""Loop lag: how late the event loop is. What blocks it (a plain handler, a long computation) delays lease, watches and probes alike."""

from __future__ import annotations

from typing import Self

from kubeloop.controller.managing.probes import Unhealthy
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Clock

#: Seconds between two measurements.
PERIOD = 1.0
#: Seconds of lag from which on a process is not healthy: the time in which a leader must renew its lease (client-go's default).
LIMIT = 10.0


class LoopLag:
    """Measures, once a second, how much later than asked for a timer goes off. ``async with`` it.

    ``last`` and ``longest`` in seconds. ``tasks`` runs the measurements.
    """

    def __init__(self, clock: Clock, tasks: Supervisor, limit: float = LIMIT) -> None:
        self.last = 0.0
        self.longest = 0.0
        self._clock = clock
        self._limit = limit
        self._tasks = tasks
        self._task: SupervisedTask | None = None

    def check(self) -> None:
        """Raises Unhealthy: the last measurement was above the limit."""
        if self.last > self._limit:
            raise Unhealthy(f"the event loop was {self.last:.1f} s late; something blocks it (see /debug/tasks, /debug/profile)")

    async def __aenter__(self) -> Self:
        self._task = self._tasks.start(self._measure, name="loop-lag")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await self._task.stop()

    async def _measure(self) -> None:
        while True:
            due = self._clock.now() + PERIOD
            await self._clock.sleep(PERIOD)
            self.last = max(self._clock.now() - due, 0.0)
            self.longest = max(self.longest, self.last)
