"""Observed: a running manager's probes, metrics and debug pages, on the addresses of its ``Endpoints``."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self

from kubeloop.controller.events import EventRecorder
from kubeloop.controller.managing.clusters import ManagedCluster
from kubeloop.controller.managing.endpoints import Endpoints
from kubeloop.controller.managing.loop_lag import LoopLag
from kubeloop.controller.managing.probes import Probe, Unhealthy
from kubeloop.controller.managing.reconcile_figures import ReconcileFigures
from kubeloop.controller.managing.site import Route, Site
from kubeloop.controller.running.runnable import Runnable, RunnerStats
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.controller.election import LeaderElector


log = logger_with_context(__name__)


class Subject(Protocol):
    """What is shown: a manager."""

    @property
    def phase(self) -> str: ...
    @property
    def clusters(self) -> Mapping[str, ManagedCluster]: ...
    @property
    def stats(self) -> Iterable[RunnerStats]: ...
    @property
    def runnables(self) -> Iterable[Runnable]: ...
    @property
    def elector(self) -> LeaderElector | None: ...


class Observed:
    """Serves while its block lasts. ``urls`` by option (health, metrics, debug) then."""

    def __init__(
        self, subject: Subject, endpoints: Endpoints, figures: ReconcileFigures, clock: Clock, parts: Sequence[object] = ()
    ) -> None:
        """``parts``: what runs beside the runnables; the ``tasks`` of both, where they have such, are shown too."""
        self.urls: dict[str, str] = {}
        self._subject = subject
        self._endpoints = endpoints
        self._figures = figures
        self._clock = clock
        self.tasks = Supervisor(clock, log)
        self._parts = [self, *parts]
        self._lag = LoopLag(clock, self.tasks)
        self._stack = AsyncExitStack()
        self._registry: CollectorRegistry | None = None
        self._shown: set[str] = set()
        self._queues: dict[str, object] = {}
        self._recorders: dict[str, object] = {}
        self._healthz, self._readyz = Probe("healthz"), Probe("readyz")
        self._healthz.add("event-loop", self._lag.check)
        if subject.elector is not None:
            self._healthz.add("leader-election", subject.elector.check)
        self._readyz.add("informers", self._check_informers)
        self._readyz.add("shutdown", self._check_shutdown)
        self._readyz.add("background-tasks", self._check_tasks)
        for probe, checks in ((self._healthz, endpoints.healthz), (self._readyz, endpoints.readyz)):
            for name, check in checks.items():
                probe.add(name, check)

    async def __aenter__(self) -> Self:
        try:
            await self._stack.enter_async_context(self._lag)
            for option, routes in self._routes().items():
                address = self._endpoints.address(option)
                if address is None:
                    continue
                secret = option != "health"
                site = Site(
                    option,
                    address,
                    routes,
                    self._clock,
                    certificate=self._endpoints.certificate if secret else None,
                    access=self._endpoints.access if secret else None,
                )
                await self._stack.enter_async_context(site)
                self._parts.append(site)
                self.urls[option] = site.url
        except BaseException:
            await self._stack.aclose()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    def _routes(self) -> dict[str, list[Route]]:
        from kubeloop.controller.managing.debugging.pages import DebugPages

        debug = DebugPages(self._subject, self._clock)
        return {"health": [self._healthz.answer, self._readyz.answer], "metrics": [self._metrics], "debug": [debug.answer]}

    def _check_informers(self) -> None:
        if self._subject.phase in ("new", "starting"):
            waiting = [one.waiting_for() for cluster in self._subject.clusters.values() for one in cluster.informers if not one.synced]
            raise Unhealthy("starting; " + ("not synced: " + "; ".join(waiting) if waiting else "the caches have not begun"))
        unsynced = [one.waiting_for() for cluster in self._subject.clusters.values() for one in cluster.informers if not one.synced]
        if unsynced:
            raise Unhealthy("not synced: " + "; ".join(unsynced))

    def _supervisors(self) -> list[Supervisor]:
        """The owners of all background tasks that a part or a runnable names."""
        parts = [*self._parts, *self._subject.runnables]
        return [tasks for one in parts if isinstance(tasks := getattr(one, "tasks", None), Supervisor)]

    def _check_tasks(self) -> None:
        failed = {name for tasks in self._supervisors() for name in tasks.failures if not tasks.healthy(name)}
        if failed:
            raise Unhealthy(f"failed, and tried again: {', '.join(sorted(failed))}; the log says why")

    def _check_shutdown(self) -> None:
        if self._subject.phase in ("stopping", "stopped"):
            raise Unhealthy("the manager is stopping")

    async def _metrics(self, request: Request) -> Answer | None:
        if request.path != "/metrics":
            return None
        if request.method not in ("GET", "HEAD"):
            return Answer(405, body=b"405 method not allowed\n", content_type="text/plain; charset=utf-8", headers=[("Allow", "GET, HEAD")])
        from prometheus_client import REGISTRY
        from prometheus_client.exposition import choose_encoder

        from kubeloop.controller.managing.metrics import Merged

        encode, content_type = choose_encoder(request.header("Accept"))
        given = REGISTRY if self._endpoints.registry is None else self._endpoints.registry
        merged = Merged(self._showing(), given)
        # In a thread: of many informers a scrape takes tens of milliseconds. Everything that is shown may be read there.
        body: bytes = await asyncio.to_thread(encode, merged)
        headers: list[tuple[str, str]] = []
        if "gzip" in request.header("Accept-Encoding"):
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        return Answer(200, body=body, content_type=content_type, headers=headers, verbatim=True)

    def _showing(self) -> CollectorRegistry:
        """The manager's own registry, with whatever came since the last scrape."""
        from prometheus_client import CollectorRegistry

        from kubeloop.controller.managing.metrics import ControllerMetrics, TaskMetrics

        subject = self._subject
        if self._registry is None:
            self._registry = CollectorRegistry()
            self._registry.register(ControllerMetrics(lambda: list(subject.stats), self._figures, lambda: self._lag.last))
            self._registry.register(TaskMetrics(self._supervisors))
            if subject.elector is not None:
                subject.elector.metrics(self._registry)
        for name, cluster in subject.clusters.items():
            if name not in self._shown:
                cluster.client.transport.metrics(self._registry)
                cluster.informers.metrics(self._registry, name="manager")
        self._shown = set(subject.clusters)
        self._show_queues(self._registry)
        self._show_events(self._registry)
        return self._registry

    def _show_queues(self, registry: CollectorRegistry) -> None:
        from kubeloop.workqueue.prometheus import metrics_of

        collector = metrics_of(registry)
        queues: dict[str, Any] = {one.name: queue for one in self._subject.runnables if (queue := getattr(one, "queue", None)) is not None}
        for name in [name for name, queue in self._queues.items() if queues.get(name) is not queue]:
            collector.remove(name)
            del self._queues[name]
        for name, queue in queues.items():
            if name not in self._queues:
                collector.add(name, queue)
                self._queues[name] = queue

    def _show_events(self, registry: CollectorRegistry) -> None:
        for one in self._subject.runnables:
            recorder = getattr(one, "events", None)
            if isinstance(recorder, EventRecorder) and self._recorders.get(one.name) is not recorder:
                recorder.metrics(registry)
                self._recorders[one.name] = recorder
