"""Groups of runnables that start together and stop together within the manager's grace period, and the signals that stop a program."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import Context, copy_context
from dataclasses import dataclass
from functools import partial

from kubeloop.controller.errors import ManagerError
from kubeloop.controller.manager.clusters import ManagedCluster
from kubeloop.controller.runner.runnable import Runnable
from kubeloop.controller.runner.runner import Runner
from kubeloop.meta import KubeloopError
from kubeloop.meta.repr import counted
from kubeloop.meta.signals import on_signal
from kubeloop.tasks import end_tasks, wait_within
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import log_context, logger_with_context

_LOG = logger_with_context("kubeloop.controller.manager")


async def unless_stopped(work: Coroutine[object, object, None], over: asyncio.Event) -> bool:
    """Run ``work`` until ``over`` is set, which cancels it. Return whether it completed; its error is raised."""
    doing, stopped = asyncio.ensure_future(work), asyncio.ensure_future(over.wait())
    try:
        await asyncio.wait((doing, stopped), return_when=asyncio.FIRST_COMPLETED)
        if doing.done():
            doing.result()
            return True
        return False
    finally:
        await end_tasks(doing, stopped, logger=_LOG)


SIGNALS = (signal.SIGINT, signal.SIGTERM)


@contextmanager
def stop_on_signals(stop: Callable[[], None], *, enabled: bool = True) -> Iterator[None]:
    """Call ``stop`` on the first SIGINT or SIGTERM within the block. The second one ends the process at once, with status 128 + its number.

    The previous handlers are restored at the end. Outside of the main thread, where Python allows no handlers, nothing changes.
    """
    seen = False

    def received(number: signal.Signals) -> None:
        nonlocal seen
        if seen:
            sys.stderr.write(f"{number.name} again: exit at once\n")
            sys.stderr.flush()
            os._exit(128 + number)
        seen = True
        _LOG.warning("%s: stopping; once more to exit at once", number.name)
        stop()

    undo: list[Callable[[], None]] = []
    try:
        undo.extend(on_signal(number, partial(received, number)) for number in (SIGNALS if enabled else ()))
    except (ValueError, RuntimeError) as error:
        _LOG.debug("signals are not handled here: %s", error)
    try:
        yield
    finally:
        for bring_back in undo:
            bring_back()


#: Seconds after which a cancelled runnable that has not ended is logged.
PATIENCE = 5.0
#: Maximum characters of the names in the log of a start, so that the line has at most 120.
_NAMES_WIDTH = 24


@dataclass(slots=True, eq=False)
class GroupEntry:
    """One runnable with its cluster and its state."""

    runnable: Runnable
    cluster: ManagedCluster
    connected: bool = False
    task: asyncio.Task[None] | None = None

    @property
    def running(self) -> bool:
        return self.task is not None and not self.task.done()


def append_all(entries: list[GroupEntry], *made: tuple[Runnable, ManagedCluster]) -> list[GroupEntry]:
    """Append all of these runnables, or none. Return the new entries.

    Raises:
        ManagerError: two runnables have the same name.
    """
    names = {entry.runnable.name for entry in entries}
    for runnable, _ in made:
        if runnable.name in names:
            raise ManagerError(f'two controllers are named "{runnable.name}"; give one of them name="..."')
        names.add(runnable.name)
    appended = [GroupEntry(*one) for one in made]
    entries += appended
    return appended


async def connect(entries: Iterable[GroupEntry]) -> None:
    """Connect each runnable to its cluster, one after the other."""
    for entry in entries:
        with log_context(cluster=entry.cluster.name):
            await entry.runnable.connect(entry.cluster.context)
        entry.connected = True


async def wait_synced(
    clusters: Iterable[ManagedCluster], entries: Iterable[GroupEntry], explained: Iterable[GroupEntry], clock: Clock, timeout: float
) -> None:
    """Wait until the caches of all clusters, and all runnables, are synced.

    Args:
        clusters: The clusters.
        entries: The runnables to wait for.
        explained: Runnables that add advice to the error of a cache, such as missing permissions.
        clock: Clock of the time limit.
        timeout: Seconds for all of them together.

    Raises:
        DeadlineError: the timeout expired; the message names the caches that have not synced. Errors of ``InformerFactory.wait_synced`` are
            raised immediately.
    """
    deadline = clock.now() + timeout
    for cluster in clusters:
        try:
            await cluster.informers.wait_synced(timeout=max(deadline - clock.now(), 0.0))
        except KubeloopError as error:
            for entry in explained:
                if isinstance(entry.runnable, Runner):
                    entry.runnable.explain(error)
            raise
    for entry in entries:
        await entry.runnable.synced(max(deadline - clock.now(), 0.0))


def failure_of(entry: GroupEntry, *, stopping: bool) -> BaseException | None:
    """Return the error with which the task of a runnable ended; None if it returned, or was cancelled by a stop."""
    assert entry.task is not None
    if not entry.task.cancelled():
        return entry.task.exception()
    return None if stopping else ManagerError(f'controller "{entry.runnable.name}" ended: something that it waited for was cancelled')


def log_start(log: logging.Logger, entries: Sequence[GroupEntry]) -> None:
    """Log in one line which runnables start: their names if these are short, otherwise their number, with the names at DEBUG."""
    names = ", ".join(entry.runnable.name for entry in entries)
    if len(names) <= _NAMES_WIDTH:
        log.info("caches are synced, starting: %s", names)
        return
    controllers = sum(isinstance(entry.runnable, Runner) for entry in entries)
    more = len(entries) - controllers
    log.info("caches are synced, starting %s%s", counted(controllers, "controller"), f" and {more} more" if more else "")
    log.debug("starting: %s", names)


class Group:
    """Runnables that start and stop together. ``ended`` is called with each runnable whose ``run`` has ended.

    Guarantees
        All runnables run with the context variables that were current at ``begin`` (among them the check of leadership before each write),
        whichever task adds them. ``ended`` is called before any task that waits for the runnable continues.
    """

    def __init__(self, ended: Callable[[GroupEntry], None], clock: Clock | None = None, *, grace: float = PATIENCE) -> None:
        self._clock: Clock = clock or SystemClock()
        self._ended = ended
        self._grace = grace
        self._entries: dict[GroupEntry, None] = {}
        self._context: Context | None = None

    @property
    def begun(self) -> bool:
        return self._context is not None

    def begin(self) -> None:
        """Begin the group: runnables that are launched from now on run with the present context variables."""
        self._context = copy_context()

    def launch(self, entries: Iterable[GroupEntry]) -> None:
        """Start ``run`` of each runnable, and begin the group if it has not begun. Their log records carry the cluster."""
        if self._context is None:
            self.begin()
        assert self._context is not None
        for entry in entries:
            self._context.copy().run(self._run, entry)

    def _run(self, entry: GroupEntry) -> None:
        with log_context(cluster=entry.cluster.name):
            entry.task = asyncio.create_task(entry.runnable.run(), name=f"controller-{entry.runnable.name}")
        self._entries[entry] = None
        entry.task.add_done_callback(partial(self._over, entry))

    async def stop(self, seconds: float | None) -> list[str]:
        """Stop all runnables, wait ``seconds`` for their end (None: without limit), and cancel the late runnables.

        Returns:
            The names of the late runnables; empty if ``seconds`` is 0.
        """
        for entry in self._entries:
            entry.runnable.stop()
        tasks = {entry.task: entry for entry in self._entries if entry.task is not None}
        late: list[str] = []
        try:
            if tasks and seconds != 0:
                await wait_within(self._clock, seconds, *tasks)
                late = [entry.runnable.name for task, entry in tasks.items() if not task.done()]
        finally:  # A cancellation of the caller ends the grace period.
            await self.cancel()
        return late

    async def cancel(self) -> None:
        """Cancel all runnables and wait for their end without a limit. Runnables that do not end are logged."""
        self.cancel_soon()
        tasks = {entry.task: entry.runnable.name for entry in self._entries if entry.task is not None}
        if not tasks:
            return
        await wait_within(self._clock, self._grace, *tasks)
        stubborn = [task for task in tasks if not task.done()]
        if stubborn:
            names = ", ".join(name for task, name in tasks.items() if task in stubborn)
            text = (
                "%s: cancelled %g s ago and not ended yet: does it catch CancelledError? Waiting for it; a second signal ends the process"
            )
            _LOG.error(text, names, self._grace)
            await asyncio.wait(stubborn)

    def cancel_soon(self) -> None:
        """Cancel all runnables without waiting for their end."""
        for entry in self._entries:
            entry.runnable.stop()
            if entry.task is not None:
                entry.task.cancel()

    def remove(self, entries: Iterable[GroupEntry]) -> Group:
        """Move these runnables to a new group, and return it."""
        part = Group(self._ended, self._clock)
        for entry in entries:
            if self._entries.pop(entry, self) is None:
                part._entries[entry] = None
        return part

    def _over(self, entry: GroupEntry, _: asyncio.Task[None]) -> None:
        self._ended(entry)
