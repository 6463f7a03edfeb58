"""Group: runnables that start together and stop together, within what is left of the manager's grace."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial

from kubeloop.controller.manager.clusters import ManagedCluster
from kubeloop.controller.manager.errors import ManagerError
from kubeloop.controller.runner.runnable import Runnable
from kubeloop.controller.runner.runner import Runner
from kubeloop.meta.repr import counted
from kubeloop.tasks import wait_within
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import log_context, logger_with_context

log = logger_with_context(__name__)

#: Seconds that something may take to end when it is cancelled, before the log says so.
PATIENCE = 5.0
#: Characters of the names of what starts, so that the line of a text log has at most 120.
_NAMES_WIDTH = 24


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


def append_all(entries: list[Entry], *made: tuple[Runnable, ManagedCluster]) -> list[Entry]:
    """Append what was made, all of it or nothing. Returns what was appended.

    Raises:
        ManagerError: a name is taken.
    """
    names = {entry.runnable.name for entry in entries}
    for runnable, _ in made:
        if runnable.name in names:
            raise ManagerError(f'two controllers are named "{runnable.name}"; give one of them name="..."')
        names.add(runnable.name)
    appended = [Entry(*one) for one in made]
    entries += appended
    return appended


async def connect(entries: Iterable[Entry]) -> None:
    """Connect each to what its cluster has for it, one after the other."""
    for entry in entries:
        with log_context(cluster=entry.cluster.name):
            await entry.runnable.connect(entry.cluster.surroundings)
        entry.connected = True


def log_start(log: logging.Logger, entries: Sequence[Entry]) -> None:
    """Log what starts in one line: a few names, or the number of controllers, with the names at DEBUG."""
    names = ", ".join(entry.runnable.name for entry in entries)
    if len(names) <= _NAMES_WIDTH:
        log.info("caches are synced, starting: %s", names)
        return
    controllers = sum(isinstance(entry.runnable, Runner) for entry in entries)
    more = len(entries) - controllers
    log.info("caches are synced, starting %s%s", counted(controllers, "controller"), f" and {more} more" if more else "")
    log.debug("starting: %s", names)


class Group:
    """Some of a manager's runnables. ``ended`` is called with each whose ``run`` is over, before anybody who waits for it.

    Guarantees
        All of them run under the context variables that were in force when the group began, a leader's fence among them, whoever adds them.
    """

    def __init__(self, ended: Callable[[Entry], None], clock: Clock | None = None, *, patience: float = PATIENCE) -> None:
        self._clock: Clock = clock or SystemClock()
        self._ended = ended
        self._patience = patience
        self._entries: dict[Entry, None] = {}
        self._context: Context | None = None

    @property
    def begun(self) -> bool:
        return self._context is not None

    def begin(self) -> None:
        """From now on what is added runs, under what is in force here."""
        self._context = copy_context()

    def launch(self, entries: Iterable[Entry]) -> None:
        """Start ``run`` of each; the group begins with it, if it had not. Records logged there carry the cluster."""
        if self._context is None:
            self.begin()
        assert self._context is not None
        for entry in entries:
            self._context.copy().run(self._run, entry)

    def _run(self, entry: Entry) -> None:
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
                await wait_within(self._clock, seconds, *tasks)
                late = [entry.runnable.name for task, entry in tasks.items() if not task.done()]
        finally:  # A cancellation of whoever stops ends the grace.
            await self.cancel()
        return late

    async def cancel(self) -> None:
        """End all at once. What does not end when it is cancelled is named in the log, and waited for all the same."""
        self.cancel_soon()
        tasks = {entry.task: entry.runnable.name for entry in self._entries if entry.task is not None}
        if not tasks:
            return
        await wait_within(self._clock, self._patience, *tasks)
        stubborn = [task for task in tasks if not task.done()]
        if stubborn:
            names = ", ".join(name for task, name in tasks.items() if task in stubborn)
            text = (
                "%s: cancelled %g s ago and not ended yet: does it catch CancelledError? Waiting for it; a second signal ends the process"
            )
            log.error(text, names, self._patience)
            await asyncio.wait(stubborn)

    def cancel_soon(self) -> None:
        """Cancel all, without waiting for their end."""
        for entry in self._entries:
            entry.runnable.stop()
            if entry.task is not None:
                entry.task.cancel()

    def remove(self, entries: Iterable[Entry]) -> Group:
        """A group of these alone; they are of this one no longer."""
        part = Group(self._ended, self._clock)
        for entry in entries:
            if self._entries.pop(entry, self) is None:
                part._entries[entry] = None
        return part

    def _over(self, entry: Entry, _: asyncio.Task[None]) -> None:
        self._ended(entry)
