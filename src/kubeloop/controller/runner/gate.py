"""Gate: pauses a controller and lets it go on."""

from __future__ import annotations

import asyncio


class Gate:
    """While it is closed no reconcile begins; those under way end. Caches and queue go on to follow the cluster, so nothing is missed.

    For the event loop's thread. Each worker may hold one key while it waits.
    """

    def __init__(self) -> None:
        self._opened: asyncio.Event | None = None

    @property
    def paused(self) -> bool:
        return self._opened is not None

    def pause(self) -> None:
        """Begin no reconcile. Twice does nothing."""
        if self._opened is None:
            self._opened = asyncio.Event()

    def resume(self) -> None:
        """Go on."""
        opened, self._opened = self._opened, None
        if opened is not None:
            opened.set()

    async def passed(self) -> None:
        """Return when it is open."""
        while self._opened is not None:
            await self._opened.wait()
