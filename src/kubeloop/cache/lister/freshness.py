"""Freshness: waits until a cache shows a version, or this process's own writes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from kubeloop.cache.lister.mutation_cache import MutationCache, PendingDelete, PendingWrite
from kubeloop.cache.tasks import InformerStopped, Progress
from kubeloop.meta.strconv import decimal


class Reached(Protocol):
    """One watch and the version that it has reached."""

    @property
    def description(self) -> str:
        """The watched objects in words."""

    @property
    def namespace(self) -> str | None:
        """The watched namespace; None for all."""

    @property
    def version(self) -> str:
        """The resourceVersion that the watch has reached."""

    @property
    def moved(self) -> float:
        """Latest time at which ``version`` may have changed, on the clock of ``Write.sent``."""

    @property
    def failure(self) -> Exception | None:
        """Error of the watch's last request, or None."""


class Freshness:
    """Waits until the watches of one informer have reached a version.

    Args:
        description: The informer's objects, for errors.
        overlay: The informer's unconfirmed writes.
        progress: Wakes the waiting tasks.
        feeds: Returns the watches and their versions.
    """

    def __init__(self, description: str, overlay: MutationCache, progress: Progress, feeds: Callable[[], Sequence[Reached]]) -> None:
        self._description = description
        self._overlay = overlay
        self._progress = progress
        self._feeds = feeds
        self._waiting = 0
        self._stopped = False

    def moved(self) -> None:
        """Wake the waiting tasks, because the cache has changed."""
        if self._waiting:
            self._progress.notify()

    def stop(self) -> None:
        """Record that the informer has stopped, and wake the waiting tasks."""
        self._stopped = True
        self._progress.notify()

    async def wait(self, version: str | None, timeout: float) -> None:
        """Wait until the cache has reached a version, or shows all earlier writes of this process. See ``Lister.wait_fresh``."""
        if version is None:
            writes = self._overlay.unconfirmed()
            done, missing = self._writes(writes)
        else:
            done, missing = self._version(version)
        self._waiting += 1
        try:
            await self._progress.until(done, timeout, missing)
        finally:
            self._waiting -= 1

    def _writes(self, writes: list[PendingWrite | PendingDelete]) -> tuple[Callable[[], bool], Callable[[], str]]:
        def done() -> bool:
            writes[:] = [write for write in writes if not self._overlay.confirmed(write)]
            return not writes or self._raise_if_stopped()

        def missing() -> str:
            names = [f"{each.namespace}/{each.name}" if each.namespace else each.name for each in writes[:3]]
            more = f" and {len(writes) - 3} more" if len(writes) > 3 else ""
            return f"{self._description}: the watch has not shown our own writes of {', '.join(names)}{more}; {self._state()}"

        return done, missing

    def _version(self, version: str) -> tuple[Callable[[], bool], Callable[[], str]]:
        required = decimal(version)
        if required is None:
            raise ValueError(f'min_resource_version="{version}" is not a number: such versions have no order')

        def done() -> bool:
            return all((decimal(feed.version) or 0) >= required for feed in self._feeds()) or self._raise_if_stopped()

        def missing() -> str:
            return f"{self._description}: waiting for version {version}; {self._state()}"

        return done, missing

    def _raise_if_stopped(self) -> bool:
        """Return False while the informer runs.

        Raises:
            InformerStopped: the informer has stopped, so the wait would never end.
        """
        if self._stopped:
            raise InformerStopped(f"the informer of {self._description} has stopped; its cache no longer changes")
        return False

    def _state(self) -> str:
        feeds = self._feeds()
        states = []
        for feed in feeds:
            state = f"at version {feed.version}" if feed.version else "not listed yet"
            prefix = f"{feed.description} are " if len(feeds) > 1 else "it is "
            states.append(prefix + state + (f" (last failure: {feed.failure})" if feed.failure else ""))
        return ", ".join(states)
