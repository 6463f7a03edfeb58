"""Watches over one APIService of another server: looks whether it is available, and at what it serves, again and again.

Source: kube-aggregator pkg/controllers/status/remote (when it looks), pkg/apiserver/handler_discovery.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from kubeloop.apiserver.aggregation.availability import Checks
from kubeloop.apiserver.aggregation.conditions import Finding
from kubeloop.apiserver.aggregation.registered import Registered
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Backoff, Clock

#: Seconds between looks while nothing changes. Upstream waits for 30, and does not look sooner when a request fails.
INTERVAL: Final = 5.0
#: Seconds between readings of what is served.
REFRESH: Final = 60.0

#: Told what was found of a service.
Tell = Callable[[Registered, Finding], Awaitable[None]]
#: Reads what a service serves; False: it could not be read.
Read = Callable[[Registered, Finding], Awaitable[bool]]


class Probe:
    """A task that checks one APIService at intervals, from ``start`` to ``stop``. ``look`` makes it check at once."""

    def __init__(self, service: Registered, checks: Checks, tell: Tell, read: Read, clock: Clock) -> None:
        self.service = service
        self._checks = checks
        self._tell = tell
        self._read = read
        self._clock = clock
        self._due = asyncio.Event()
        self._read_at = float("-inf")
        self._task: SupervisedTask | None = None

    def start(self, tasks: Supervisor) -> None:
        self._task = tasks.start(self._run, name="apiservice-availability")

    def look(self) -> None:
        self._due.set()

    def read_anew(self) -> None:
        """Look at once, and read what is served however lately it was read."""
        self._read_at = float("-inf")
        self._due.set()

    async def stop(self) -> None:
        if self._task is not None:
            await self._task.stop()

    async def _run(self) -> None:
        retries = Backoff(initial=0.1, cap=INTERVAL, jitter=0.1, reset_after=None, clock=self._clock)
        passed = False
        while True:
            self._due.clear()
            pause = INTERVAL
            try:
                finding = await self._checks.check(self.service)
                await self._tell(self.service, finding)
                if finding.passed != passed or self._clock.now() - self._read_at >= REFRESH:
                    self._read_at = self._clock.now()  # before it is read: who wants it read anew meanwhile is heard
                    if not await self._read(self.service, finding):
                        self._read_at = float("-inf")
                passed = finding.passed
                if finding.again:
                    pause = retries.next()
                else:
                    retries = Backoff(initial=0.1, cap=INTERVAL, jitter=0.1, reset_after=None, clock=self._clock)
                if self._task is not None:
                    self._task.recovered(self.service.name)
            except Exception as error:  # noqa: BLE001 - whatever it was, the next check may succeed
                if self._task is not None:
                    self._task.failed(error, self.service.name)
            await self._wait(pause)

    async def _wait(self, seconds: float) -> None:
        timer = self._clock.call_later(seconds, self._due.set)
        try:
            await self._due.wait()
        finally:
            timer.cancel()
