"""Manager: starts controllers, and everything that they need, in order, and stops them gracefully in the reverse order.

Order: HTTP servers, webhooks, caches of all clusters (synced), runnables without leader election, warm-up, runnables that need the leader.
The lease is released after everything else has ended. Source: controller-runtime pkg/manager.
"""

from __future__ import annotations  # behaviours S219-S222

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from kubeloop.cache import InformerFactory, InformerStopped
from kubeloop.client import Client
from kubeloop.client.mapper import ALL_NAMESPACES
from kubeloop.controller.builder.context import RunnableContext
from kubeloop.controller.errors import ErrorCollector, GraceExceeded, ManagerError
from kubeloop.controller.manager.background import Background
from kubeloop.controller.manager.clusters import ClusterSet, Manageable, ManagedCluster, OnCluster, OnEachCluster, runnable_of
from kubeloop.controller.manager.group import (
    Group,
    GroupEntry,
    append_all,
    connect,
    failure_of,
    log_start,
    stop_on_signals,
    unless_stopped,
    wait_synced,
)
from kubeloop.controller.manager.reconcile_metrics import ReconcileFigures
from kubeloop.controller.reader.reader import CacheScope
from kubeloop.controller.runner.runnable import Runnable, RunnerStats
from kubeloop.meta import KubeloopError
from kubeloop.meta.failure_log import shortened
from kubeloop.tasks import close_all
from kubeloop.timing import Clock, SystemClock
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import QueueTimes, RateCap

if TYPE_CHECKING:
    from kubeloop.controller.election import LeaderElector, LeaseConfig
    from kubeloop.controller.manager.endpoints import Endpoints
    from kubeloop.controller.manager.http_endpoints import EndpointServers
    from kubeloop.controller.manager.leadership import Leadership
    from kubeloop.controller.manager.settings import ManagerSettings, SettingsFile
    from kubeloop.controller.manager.settings.reloader import SettingsReloader
    from kubeloop.controller.sharding import ShardConfig, ShardMember

__all__ = ["GraceExceeded", "Manager", "ManagerError"]

_LOG = logger_with_context("kubeloop.controller.manager")


class Manager:
    """Runs controllers on one cluster, or on several.

    Guarantees
        No reconcile starts before every informer is synced and has shown its initial objects to every handler.
        With ``leader_election``, runnables that need the leader (controllers by default) run only while this process holds the lease. A
        lost lease cancels them at once, without a grace period, and ``run`` raises ``LeaseLost``. Their log records carry
        ``lease_transitions``, the number of the term. A stop releases the lease when they have ended.
        After the manager has stopped, no task runs, no thread can start another reconcile, and no watch is open.
        If a runnable fails permanently (not a reconcile: reconciles are retried), everything stops and ``run`` raises that error.

    Args:
        client: The client of the first cluster. Clients stay open.
        controllers: Controllers, async functions, objects (``Background``), ``OnCluster`` and ``OnEachCluster``.
        informers: The informers of the first cluster. None: the manager creates them.
        clusters: Clients of further clusters.
        servers: Context managers that are entered first and left last, such as webhook servers.
        leader_election: Run in one of several replicas. None: run without election.
        sharding: Replicas share the keys of all controllers, instead of electing a leader.
        endpoints: Addresses of probes, metrics and debug pages.
        settings: A file (YAML, TOML; read again when it changes) with the environment, or settings. They override the arguments.
        namespace: Namespace of all caches.
        scope: Cached objects by namespace, selector and kind, instead of ``namespace``.
        sync_timeout: Seconds in which caches must sync.
        grace: Seconds for running work and unsent events on a stop; then work is cancelled. None or less than 0: no limit. 0: at once.
        rate_cap: Reconciles per second of all controllers together. None: no limit.
        clock: Clock of all delays.

    Raises:
        DeadlineError: the caches did not sync in time; the message has the reasons.
        Forbidden, Unauthorized, UntrustedCertificate: a cache cannot be filled; raised without waiting for the time limit.
        GraceExceeded: from ``stop`` and ``run``; work had to be cancelled.
        ManagerError: arguments that exclude each other.

    Example:
        >>> class Printer(Controller[ConfigMap]):
        ...     async def reconcile(self, config_map: ConfigMap) -> None: ...
        >>> async with Manager(client, [Printer()]) as manager:  # in a program: await manager.run()
        ...     print(manager.phase)
        running
    """

    def __init__(
        self,
        client: Client,
        controllers: Iterable[Manageable | OnCluster | OnEachCluster] = (),
        *,
        informers: InformerFactory | None = None,
        clusters: Iterable[Client] = (),
        servers: Iterable[AbstractAsyncContextManager[Any]] = (),
        leader_election: LeaseConfig | None = None,
        sharding: ShardConfig | None = None,
        endpoints: Endpoints | None = None,
        settings: SettingsFile | ManagerSettings | Path | str | None = None,
        namespace: str = ALL_NAMESPACES,
        scope: CacheScope | None = None,
        sync_timeout: float = 120.0,
        grace: float | None = 30.0,
        rate_cap: RateCap | None = None,
        clock: Clock | None = None,
    ) -> None:
        if namespace != ALL_NAMESPACES and scope is not None:
            raise ManagerError("namespace and scope are both given; use CacheScope(namespaces=...) only")
        self._clock = clock or SystemClock()
        self._governor: SettingsReloader | None = None
        scope = scope or CacheScope(namespaces=namespace)
        if settings is not None:
            from kubeloop.controller.manager.settings.reloader import SettingsReloader

            self._governor = SettingsReloader(settings, self._clock)
            chosen = self._governor.settings
            endpoints = chosen.endpoints(endpoints)
            leader_election = chosen.leader_election.config() if chosen.leader_election is not None else leader_election
            scope = scope if chosen.namespaces is None else replace(scope, namespaces=chosen.namespaces)
            grace = grace if chosen.grace is None else chosen.grace
            sync_timeout = sync_timeout if chosen.sync_timeout is None else chosen.sync_timeout
            rate_cap = self._governor.cap or rate_cap
        self._elected = leader_election is not None
        self._advised: set[tuple[str, str]] = set()
        self._shards: ShardMember | None = None
        if sharding is not None:
            from kubeloop.controller.manager.leadership import shard_member

            self._shards = shard_member(client, sharding, leader_election, self._clock)
        #: Seconds; None for no limit.
        self.grace = grace if grace is None or grace >= 0 else None
        self._sync_timeout = sync_timeout
        self._rate_cap = rate_cap
        self._scope = scope
        self._namespace = None if namespace == ALL_NAMESPACES else namespace
        self.informers = informers or InformerFactory(client, clock=self._clock)
        self._figures = ReconcileFigures()
        self._queue_metrics = QueueTimes if endpoints is not None and endpoints.metrics else None
        self._clusters = ClusterSet(self._new_context)
        self._main = self._clusters.add(client, self.informers, owned=informers is None)
        self._servers = list(servers)
        self._entries: list[GroupEntry] = []
        self._makers: list[OnEachCluster] = []
        self._others = Group(self._ended, self._clock)
        self._leaders = Group(self._ended, self._clock)
        self._leadership: Leadership | None = None
        if leader_election is not None:
            from kubeloop.controller.manager.leadership import Leadership

            self._leadership = Leadership(client, leader_election, self._clock, lead=self._lead, lost=self._lost, failed=self._failed)
        self._observed: EndpointServers | None = None
        if endpoints is not None:
            from kubeloop.controller.manager.http_endpoints import EndpointServers

            self._observed = EndpointServers(self, endpoints, self._figures, self._clock, [self._governor, self._shards, *self._servers])
        self._over, self._leading = asyncio.Event(), asyncio.Event()
        self._failures = ErrorCollector()
        self._stack = AsyncExitStack()
        self._phase, self._context = "new", copy_context()
        for other in clusters:
            self._clusters.add(other, InformerFactory(other, clock=self._clock), owned=True)
        for controller in controllers:
            self._append(controller)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            await self.stop()
        except Exception:
            if error is None:
                raise
            _LOG.exception("the manager failed, too")  # The caller sees the error of the block.

    async def run(self, *, signals: bool = True) -> None:
        """Start the manager, run until ``request_stop``, a signal, a cancellation or a failure, and stop.

        ``signals``: SIGINT and SIGTERM stop the manager gracefully (main thread only); a second one ends the process at once.
        """
        try:
            with stop_on_signals(self.request_stop, enabled=signals):
                async with self:
                    await self.wait()
        except KubeloopError as error:
            if _LOG.isEnabledFor(logging.DEBUG):
                raise
            raise shortened(error) from error.__cause__  # the message is enough; only frames of the user's code add information

    async def wait(self) -> None:
        """Wait until the manager should be stopped: ``request_stop`` was called, a runnable failed, or the lease was lost."""
        await self._over.wait()

    async def wait_leading(self) -> None:
        """Wait until work that needs the leader has begun or, without leader election, until the manager has started."""
        await self._leading.wait()

    def request_stop(self) -> None:
        """Make ``run`` and ``wait`` return. This method does not wait for that."""
        self._over.set()

    async def start(self) -> None:
        """Start the manager. Return when all caches are synced and reconciles have begun, or when this replica is a candidate.

        If ``request_stop`` is called meanwhile, the manager is stopped on return.

        Raises:
            ManagerError: the manager was started before. It can be started only once.
        """
        if self._phase != "new":
            raise ManagerError("this manager was started already; make a new one")
        self._phase, self._context = "starting", copy_context()
        try:
            begun = await unless_stopped(self._start(), self._over)
        except BaseException:
            await self._tear_down(0)
            raise
        if not begun:
            await self._tear_down(self.grace)
            self._failures.raise_all()

    async def add(self, runnable: Manageable | OnCluster | OnEachCluster) -> None:
        """Add a runnable. If the manager runs already, start the runnable and return when it is synced.

        A runnable that needs the leader waits until this replica leads.

        Raises:
            ManagerError: the manager is stopping or has stopped, or its caches still sync.
        """
        self._check_open("new", "running")
        added = self._append(runnable)
        if self._phase == "running":
            await self._start_late(added)

    async def add_cluster(self, client: Client) -> None:
        """Add a cluster. If the manager runs already, its ``OnEachCluster`` controllers run on the cluster when this method returns.

        Raises:
            ManagerError: a cluster of that name exists already; or the manager is in a phase in which ``add`` raises.
        """
        self._check_open("new", "running")
        cluster = self._clusters.add(client, InformerFactory(client, clock=self._clock), owned=True)
        try:
            entries = append_all(self._entries, *((runnable_of(maker.make(cluster.name), cluster.name), cluster) for maker in self._makers))
            if self._phase == "running":
                self._stack.push_async_callback(cluster.leave)
                await cluster.enter()
                if self._leadership is not None:
                    self._leadership.cover(client)
                await self._start_late(entries)
        except BaseException:
            self._entries = [entry for entry in self._entries if entry.cluster is not cluster]
            self._clusters.remove(cluster.name)
            await cluster.leave()
            raise

    async def remove_cluster(self, name: str) -> None:
        """Stop the runnables of a cluster within the grace period, and remove the cluster. Its client stays open.

        Raises:
            ManagerError: there is no such cluster, or it is the first one, in which the manager has its Lease.
            GraceExceeded: a runnable had to be cancelled.
        """
        cluster = self._clusters.named(name)
        if cluster is self._main:
            raise ManagerError(f'"{name}" is the manager\'s own cluster and cannot be removed')
        entries = [entry for entry in self._entries if entry.cluster is cluster]
        self._clusters.remove(name)
        self._entries = [entry for entry in self._entries if entry.cluster is not cluster]
        late: list[str] = []
        try:
            for group in (self._leaders, self._others):
                late += await group.remove(entries).stop(self.grace)
        finally:
            for entry in entries:
                await entry.runnable.close()
            await cluster.leave()
        if late and self.grace:
            raise GraceExceeded(self.grace, late)

    async def stop(self) -> None:
        """Stop gracefully. Stopping twice, or without a start, does nothing.

        Raises:
            Exception: the error of a failed part, or ``GraceExceeded``; several errors as an ``ExceptionGroup``.
        """
        if self._phase != "running":
            return
        self._phase = "stopping"
        await self._tear_down(0 if self._leadership is not None and self._leadership.lost else self.grace)
        self._failures.raise_all()

    @property
    def phase(self) -> str:
        """The phase: new, starting, running, stopping or stopped."""
        return self._phase

    @property
    def is_leader(self) -> bool:
        """Whether work that needs the leader may run here now; always true without leader election."""
        return self._leadership is None or self._leadership.elector.is_leader

    @property
    def client(self) -> Client:
        """The client of the first cluster."""
        return self._main.client

    @property
    def elector(self) -> LeaderElector | None:
        """The elector of this process; None without leader election."""
        return self._leadership.elector if self._leadership is not None else None

    @property
    def urls(self) -> Mapping[str, str]:
        """URLs of the endpoints while the manager runs, by option of ``Endpoints``: health, metrics, debug."""
        return dict(self._observed.urls) if self._observed is not None else {}

    @property
    def runnables(self) -> Sequence[Runnable]:
        """All runnables, running or not."""
        return [entry.runnable for entry in self._entries]

    @property
    def clusters(self) -> Mapping[str, ManagedCluster]:
        """The clusters by name, in the order in which they were added."""
        return self._clusters.by_name

    @property
    def stats(self) -> Sequence[RunnerStats]:
        """State of each controller at this moment, in the order of the arguments."""
        return [entry.runnable.stats for entry in self._entries if not isinstance(entry.runnable, Background)]

    def _new_context(self, client: Client, informers: InformerFactory) -> RunnableContext:
        if self._shards is not None:
            self._shards.cover(client)
        return RunnableContext(
            client,
            informers,
            self._clock,
            self._namespace,
            self.grace,
            self._sync_timeout,
            scope=self._scope,
            observe=self._figures,
            queue_metrics=self._queue_metrics,
            ownership=self._shards.of if self._shards is not None else None,
            workers=self._governor.workers if self._governor is not None else {},
            rate_cap=self._rate_cap,
            elected=self._elected,
            advised=self._advised,
        )

    def _append(self, runnable: Manageable | OnCluster | OnEachCluster) -> list[GroupEntry]:
        if isinstance(runnable, OnCluster):
            return append_all(self._entries, (runnable_of(runnable.runnable), self._clusters.named(runnable.cluster)))
        if not isinstance(runnable, OnEachCluster):
            return append_all(self._entries, (runnable_of(runnable), self._main))
        entries = append_all(self._entries, *((runnable_of(runnable.make(one.name), one.name), one) for one in self._clusters))
        self._makers.append(runnable)
        return entries

    async def _start(self) -> None:
        if self._governor is not None:
            await self._stack.enter_async_context(self._governor.for_manager(self))
        if self._observed is not None:
            await self._stack.enter_async_context(self._observed)
        for server in self._servers:
            await self._stack.enter_async_context(server)
        early = [one for one in self._entries if self._leadership is None or not one.runnable.needs_leader or one.runnable.warm_up]
        # Before the informers start, so that each lists once with the paths and indexes of all controllers.
        await connect(early)
        for cluster in self._clusters:
            self._stack.push_async_callback(cluster.leave)
            await cluster.enter()
        await self._sync(self._others_of(early))
        self._phase = "running"
        self._launch(self._others, self._others_of(early))
        await self._sync([one for one in early if one.runnable.needs_leader])
        if self._leadership is None:
            if self._shards is not None:
                self._shards.start()
            self._launch(self._leaders, [one for one in self._entries if one.runnable.needs_leader and one.task is None])
            self._leading.set()
        else:
            for cluster in self._clusters:
                self._leadership.cover(cluster.client)
            await self._leadership.begin()

    async def _lead(self) -> None:
        """Start the runnables that need the leader, because this replica leads now."""
        self._leaders.begin()  # Runnables that are added from here on start immediately.
        entries = [one for one in self._entries if one.runnable.needs_leader and one.task is None]
        cold = [one for one in entries if not one.connected]
        await connect(cold)
        await self._sync(cold)
        self._launch(self._leaders, entries)
        self._leading.set()

    def _lost(self, error: BaseException) -> None:
        """Cancel the runnables that need the leader, because the lease was lost (behaviour S220)."""
        self._leaders.cancel_soon()
        self._failed(error)

    def _failed(self, error: BaseException) -> None:
        if self._leadership is None or not self._leadership.repeats(error):
            self._failures.add(error)
        self._over.set()

    async def _start_late(self, entries: Sequence[GroupEntry]) -> None:
        # The caller may be a reconcile, whose fence and log fields must not apply to the added runnable.
        await asyncio.create_task(self._start_added(entries), context=self._context.copy())

    async def _start_added(self, entries: Sequence[GroupEntry]) -> None:
        try:
            now = [one for one in entries if self._leaders.begun or not one.runnable.needs_leader or one.runnable.warm_up]
            await connect(now)
            await self._sync(now)
            self._check_open("running")
        except BaseException as error:
            for entry in entries:
                self._entries.remove(entry)
                await entry.runnable.close()
            if isinstance(error, InformerStopped):
                self._check_open("running")  # The awaited work has ended because of the stop.
            raise
        self._launch(self._others, self._others_of(now))
        if self._leaders.begun:
            self._launch(self._leaders, [one for one in now if one.runnable.needs_leader and one.task is None])

    def _check_open(self, *phases: str) -> None:
        if self._phase not in phases:
            raise ManagerError(f"the manager is {self._phase}; nothing can be added")

    @staticmethod
    def _others_of(entries: Iterable[GroupEntry]) -> list[GroupEntry]:
        return [one for one in entries if not one.runnable.needs_leader and one.task is None]

    async def _sync(self, entries: Iterable[GroupEntry]) -> None:
        await wait_synced(self._clusters, entries, self._entries, self._clock, self._sync_timeout)

    def _launch(self, group: Group, entries: Sequence[GroupEntry]) -> None:
        if entries:
            log_start(_LOG, entries)
        group.launch(entries)

    def _ended(self, entry: GroupEntry) -> None:
        error = failure_of(entry, stopping=self._phase != "running" or self._over.is_set())
        if error is not None:
            _LOG.error("controller %s failed: %s", entry.runnable.name, error)
            self._failed(error)

    async def _tear_down(self, grace: float | None) -> None:
        """Stop all parts in the reverse order of the start. If a step fails or is cancelled, the others still run; errors are collected."""
        self._phase = "stopping"
        deadline = None if grace is None else self._clock.now() + grace
        late: list[str] = []

        async def end(group: Group) -> None:
            late.extend(await group.stop(0 if grace == 0 else None if deadline is None else max(deadline - self._clock.now(), 0.001)))

        async with AsyncExitStack() as last:
            last.callback(setattr, self, "_phase", "stopped")
            last.push_async_callback(self._failures.kept, self._release)
            last.push_async_callback(self._failures.kept, self._stack.aclose)
            for entry in self._entries:
                last.push_async_callback(self._failures.kept, entry.runnable.close)
            last.push_async_callback(end, self._others)
            last.push_async_callback(end, self._leaders)
            if self._leadership is not None:
                last.push_async_callback(self._leadership.withdraw)
        if late and grace:
            error = GraceExceeded(grace, late)
            _LOG.warning("%s", error)
            self._failures.add(error)

    async def _release(self) -> None:
        shards, leadership = self._shards, self._leadership
        at_work = [one.name for one in self.runnables if (shards or one.needs_leader) and getattr(one, "in_threads", 0) > 0]
        if at_work and (shards or leadership):
            _LOG.warning("the lease is not released, but expires: threads of %s are still running", ", ".join(at_work))
        releases = [leadership.release if leadership is not None else None, shards.leave if shards is not None else None]
        await close_all(*(partial(release, give_back=not at_work) for release in releases if release is not None))
