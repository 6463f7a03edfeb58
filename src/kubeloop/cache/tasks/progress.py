"""Progress: wakes tasks that wait for informers, handlers or clusters. Nothing polls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Protocol

from kubeloop.meta import DeadlineError, KubeloopError
from kubeloop.timing import Clock


class InformerStopped(KubeloopError):
    """The informer, or the handler, has stopped: nothing more comes from it, and it takes no more handlers."""


class Progress:
    """One for all informers of a factory: changes are rare (a sync, a failure, the end of a handler), waiters few."""

    __slots__ = ("_clock", "_waiting")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        """Wake all waiters so that they check their condition again."""
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


class Syncing(Protocol):
    """An ``Informers``, a ``Registration``, or anything made of such."""

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Return when it has synced. Seconds.

        Raises:
            DeadlineError: not in time; the text names the missing parts.
        """


async def all_synced(*parts: Syncing, timeout: float = 120.0) -> None:
    """Return when all of them have synced. Seconds.

    Raises:
        DeadlineError: some have not in time; the text is that of each of them.
        Whatever one of them raises else, at once.
    """
    await _all(part.wait_synced(timeout) for part in parts)


class Draining(Protocol):
    """A handler's registration."""

    async def wait_drained(self, timeout: float = 120.0) -> None:
        """Return when the handler has returned from every event that it was offered before this call. Seconds.

        Raises:
            DeadlineError: not in time; the text says how many events wait.
        """


async def all_drained(registrations: Iterable[Draining], timeout: float = 120.0) -> None:
    """Return when each handler has returned from every event that it was offered before this call. Seconds.

    Raises:
        DeadlineError: not in time; the text says how many events wait for each handler.
    """
    await _all(registration.wait_drained(timeout) for registration in registrations)


async def _all(waits: Iterable[Awaitable[None]]) -> None:
    tasks = [asyncio.ensure_future(wait) for wait in waits]
    late: list[str] = []
    try:
        for done in asyncio.as_completed(tasks):
            try:
                await done
            except DeadlineError as error:
                late.append(str(error))
    finally:
        for task in tasks:
            task.cancel()
        # Waits change nothing: after the first error, which is raised, those of the others tell nothing more.
        await asyncio.gather(*tasks, return_exceptions=True)
    if late:
        raise DeadlineError("; ".join(dict.fromkeys(late)))
