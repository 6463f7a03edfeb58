"""Waiting for several parts at once: informers, handlers, whole clusters. Nothing polls."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from typing import Any, Protocol

from kubeloop.cache.handlers.registration import Registration
from kubeloop.meta import DeadlineError


class Syncing(Protocol):
    """An ``Informers``, a ``Registration``, or anything made of such."""

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Return when it has synced. Seconds.

        Raises:
            DeadlineError: not in time; the text says what is missing.
        """


async def all_synced(*parts: Syncing, timeout: float = 120.0) -> None:
    """Return when all of them have synced. Seconds.

    Raises:
        DeadlineError: some have not in time; the text is that of each of them.
        Whatever one of them raises else, at once.
    """
    await _all(part.wait_synced(timeout) for part in parts)


async def all_told(registrations: Iterable[Registration[Any]], timeout: float = 120.0) -> None:
    """Return when each of these handlers has returned from all that was offered to it before this call. Seconds.

    Raises:
        DeadlineError: some have not in time; the text says how much waits for each.
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
