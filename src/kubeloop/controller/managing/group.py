"""Group: runnables that start together and stop together, within what is left of the manager's grace."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from kubeloop.controller.managing.clusters import ManagedCluster
from kubeloop.controller.running.runnable import Runnable
from kubeloop.transport import log_context


@dataclass(slots=True, eq=False)
class Entry:
    """One runnable, its cluster, and how far it has come."""

    runnable: Runnable
    cluster: ManagedCluster
    connected: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()


class Group:
    """Some of a manager's runnables. ``ended`` is called with each whose ``run`` is over, before anybody who waits for it."""

    def __init__(self, ended: Callable[[Entry], None]) -> None:
        self._ended = ended
        self._entries: dict[Entry, None] = {}
        self.begun = False

    def launch(self, entries: Iterable[Entry]) -> None:
        """Start ``run`` of each. Records logged there carry the cluster, and what is in force here."""
        self.begun = True
        for entry in entries:
            with log_context(cluster=entry.cluster.name):
                entry.task = asyncio.create_task(entry.runnable.run(), name=f"controller-{entry.runnable.name}")
            self._entries[entry] = None
            entry.task.add_done_callback(partial(self._over, entry))

    async def stop(self, seconds: float | None) -> list[str]:
        """Ask all to end, wait so long (None: for ever; 0: not at all), cancel what is late. Its names; nothing runs any more then."""
        for entry in self._entries:
            entry.runnable.stop()
        tasks = {entry.task: entry for entry in self._entries if entry.task is not None}
        late: list[str] = []
        try:
            if tasks and seconds != 0:
                _, pending = await asyncio.wait(tasks, timeout=seconds)
                late = [entry.runnable.name for task, entry in tasks.items() if task in pending]
        finally:  # A cancellation of whoever stops ends the grace.
            await self.cancel()
        return late

    async def cancel(self) -> None:
        """End all at once."""
        self.cancel_soon()
        tasks = [entry.task for entry in self._entries if entry.task is not None]
        if tasks:
            await asyncio.wait(tasks)

    def cancel_soon(self) -> None:
        """Cancel all, without waiting for their end."""
        for entry in self._entries:
            entry.runnable.stop()
            if entry.task is not None:
                entry.task.cancel()

    def remove(self, entries: Iterable[Entry]) -> Group:
        """A group of these alone; they are of this one no longer."""
        part = Group(self._ended)
        for entry in entries:
            if self._entries.pop(entry, self) is None:
                part._entries[entry] = None
        return part

    def _over(self, entry: Entry, _: asyncio.Task[None]) -> None:
        self._ended(entry)
