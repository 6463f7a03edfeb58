"""Progress: wakes those who wait for something to become true, when it may have, instead of polling."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from kubeloop.meta import DeadlineError
from kubeloop.timing import Clock


class Progress:
    """One for all informers of a factory: changes are rare (a sync, a failure, the end of a handler), waiters few."""

    __slots__ = ("_clock", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Something changed: everybody looks again."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, done: Callable[[], bool], timeout: float | None = None, missing: Callable[[], str] | None = None) -> None:
        """Return when ``done()``; whatever ``done`` raises is raised here. ``timeout`` in seconds of the clock.

        Raises:
            DeadlineError: not in time; the text is what ``missing()`` says then.
        """
        late = False

        def expire() -> None:
            nonlocal late
            late = True
            self.notify()

        timer = None if timeout is None else self._clock.call_later(timeout, expire)
        try:
            while not done():
                if late:
                    raise DeadlineError(f"after {timeout:g} s: {missing() if missing else 'still waiting'}")
                future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                self._waiting.add(future)
                try:
                    await future
                finally:
                    self._waiting.discard(future)
        finally:
            if timer is not None:
                timer.cancel()
