"""Manager: starts controllers in order, keeps them running, and stops them gracefully.

Order: informers connect and sync, then reconciles begin; on stop reconciles end first, then events are sent, then informers stop
(controller-runtime pkg/manager; behaviours S219-S222).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Iterable, Sequence
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Any, Self

from kubeloop.cache import Informers
from kubeloop.client import Client
from kubeloop.controller.declaring.controller import ControllerBase
from kubeloop.controller.declaring.surroundings import Surroundings
from kubeloop.controller.managing.scope import CacheScope
from kubeloop.controller.managing.signals import stop_on_signals
from kubeloop.controller.running.runnable import Runnable, RunnerStats
from kubeloop.controller.running.runner import Runner
from kubeloop.meta import KubeloopError
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import log_context, logger_with_context

log = logger_with_context(__name__)


class ManagerError(KubeloopError):
    """The manager is asked for what it cannot do now."""


class Manager:
    """Runs controllers against one cluster.

    ::

        await Manager(client, [FooController()]).run()                 # a program: until SIGINT or SIGTERM

        async with Manager(client, [FooController()]) as manager:      # a test: while the block runs
            ...

    Guarantees
        No reconcile starts before every informer is synced and has shown its initial objects to every handler.
        When it has stopped, nothing of it runs any more: no task, no thread that could start another reconcile, no connection of a watch.
        If a controller fails for good (not a reconcile: those are retried), everything stops and ``run`` raises that error.

    ``sync_timeout`` seconds to sync. ``grace`` seconds for running reconciles to end on stop, then they are cancelled; None waits for
    ever, 0 does not wait; events are sent for as long at most. ``namespace`` restricts all namespaced kinds to one namespace. The client
    stays open; it is the caller's.

    Raises:
        DeadlineError: not synced in time; the text names informers and reasons. Forbidden, Unauthorized, UntrustedCertificate: at once.
    """

    def __init__(
        self,
        client: Client,
        controllers: Iterable[ControllerBase[Any] | Runnable] = (),
        *,
        informers: Informers | None = None,
        namespace: str | None = None,
        sync_timeout: float = 120.0,
        grace: float | None = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self._client = client
        self._clock = clock or SystemClock()
        self._own_informers = informers is None
        self.informers = informers or Informers(client, clock=self._clock)
        self._surroundings = Surroundings(
            client, self.informers, self._clock, namespace, grace, sync_timeout, CacheScope(namespaces=namespace)
        )
        self._sync_timeout = sync_timeout
        self._grace = grace
        self._runnables: list[Runnable] = []
        self._tasks: dict[asyncio.Task[None], Runnable] = {}
        self._over = asyncio.Event()
        self._errors: list[BaseException] = []
        self._stack = AsyncExitStack()
        self._phase = "new"
        for controller in controllers:
            self._append(controller)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            await self.stop()
        except Exception:
            # What went wrong in the block is what the caller must see; the manager's own error is its context.
            if error is None:
                raise
            log.exception("the manager failed, too")

    async def run(self, *, signals: bool = True) -> None:
        """Start, and run until ``request_stop``, a signal, a cancellation or a failure; then stop.

        ``signals``: SIGINT and SIGTERM stop it gracefully, also while it waits for a sync; a second one ends the process at once. (In the
        main thread only.)
        """
        with stop_on_signals(self.request_stop, enabled=signals):
            async with self:
                await self.wait()

    async def wait(self) -> None:
        """Return when the manager should be stopped: ``request_stop`` was called, or a controller failed."""
        await self._over.wait()

    def request_stop(self) -> None:
        """Have ``run`` and ``wait`` return. Returns at once."""
        self._over.set()

    async def start(self) -> None:
        """Return when everything is synced and reconciles have begun; or, stopped, when ``request_stop`` was called meanwhile.

        Raises:
            ManagerError: it was started before. A manager lives once.
        """
        if self._phase != "new":
            raise ManagerError("this manager was started already; make a new one")
        self._phase = "starting"
        try:
            with log_context(cluster=self._client.cluster):
                # Before the informers start: each then lists once, knowing everything that all controllers want to read of its objects.
                begun = await self._unless_stopped(self._connect(self._runnables))
                if begun and self._own_informers:
                    await self._stack.enter_async_context(self.informers)
                begun = begun and await self._unless_stopped(self._sync(self._runnables))
                if begun:
                    self._launch(self._runnables)
        except BaseException:
            await self._tear_down()
            raise
        if begun:
            self._phase = "running"
        else:
            await self._tear_down()

    async def add(self, controller: ControllerBase[Any] | Runnable) -> None:
        """Run one more controller; if the manager runs already, from now on: returns when it is synced.

        Raises:
            ManagerError: the manager is stopping or has stopped.
        """
        if self._phase not in ("new", "running"):
            raise ManagerError(f"the manager is {self._phase}; nothing can be added")
        runnable = self._append(controller)
        if self._phase == "running":
            try:
                await self._connect([runnable])
                await self._sync([runnable])
            except BaseException:
                self._runnables.remove(runnable)
                await runnable.close()
                raise
            self._launch([runnable])

    async def stop(self) -> None:
        """Stop gracefully. Stopping twice, or without a start, does nothing.

        Raises:
            Exception: what a controller failed with; several as an ``ExceptionGroup``.
        """
        if self._phase != "running":
            return
        self._phase = "stopping"
        try:
            for runnable in self._runnables:
                runnable.stop()
            if self._tasks:
                _, late = await asyncio.wait(self._tasks, timeout=self._grace)
                if late and self._grace:
                    names = ", ".join(self._tasks[task].name for task in late)
                    log.warning("not ended within %g s, cancelled: %s", self._grace, names)
        finally:  # A cancellation ends the grace.
            await self._tear_down()
        if len(self._errors) == 1:
            raise self._errors[0]
        if self._errors:
            raise BaseExceptionGroup("several controllers failed", self._errors)

    @property
    def stats(self) -> Sequence[RunnerStats]:
        """A moment of each controller, in the order in which they were given."""
        return [runnable.stats for runnable in self._runnables]

    def _append(self, controller: ControllerBase[Any] | Runnable) -> Runnable:
        runnable: Runnable = Runner(controller) if isinstance(controller, ControllerBase) else controller
        if any(other.name == runnable.name for other in self._runnables):
            raise ManagerError(f'two controllers are named "{runnable.name}"; give one of them name="..."')
        self._runnables.append(runnable)
        return runnable

    async def _unless_stopped(self, work: Coroutine[object, object, None]) -> bool:
        """Whether ``work`` was done before a stop was asked for. A stop cancels it."""
        doing, over = asyncio.ensure_future(work), asyncio.ensure_future(self._over.wait())
        try:
            await asyncio.wait((doing, over), return_when=asyncio.FIRST_COMPLETED)
            if doing.done():
                doing.result()
                return True
            return False
        finally:
            for task in (doing, over):
                task.cancel()
            await asyncio.wait((doing, over))

    async def _connect(self, runnables: Sequence[Runnable]) -> None:
        for runnable in runnables:
            await runnable.connect(self._surroundings)

    async def _sync(self, runnables: Sequence[Runnable]) -> None:
        started = self._clock.now()
        await self.informers.wait_synced(timeout=self._sync_timeout)
        for runnable in runnables:
            await runnable.synced(max(self._sync_timeout - (self._clock.now() - started), 0.0))

    def _launch(self, runnables: Sequence[Runnable]) -> None:
        log.log(logging.INFO, "caches are synced, starting: %s", ", ".join(runnable.name for runnable in runnables))
        for runnable in runnables:
            task = asyncio.create_task(runnable.run(), name=f"controller-{runnable.name}")
            self._tasks[task] = runnable
            task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        name = self._tasks[task].name
        if task.cancelled():
            if self._phase not in ("starting", "running"):
                return
            error: BaseException | None = ManagerError(f'controller "{name}" ended: something that its start waited for was cancelled')
        else:
            error = task.exception()
        if error is not None:
            self._errors.append(error)
            log.error("controller %s failed: %s", name, error)
            self._over.set()

    async def _tear_down(self) -> None:
        self._phase = "stopping"
        for runnable in self._runnables:
            runnable.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        for runnable in reversed(self._runnables):
            await runnable.close()
        await self._stack.aclose()
        self._phase = "stopped"
