"""The HTTP servers of a running manager for probes, metrics and debug pages, on the addresses of its ``Endpoints``."""

from __future__ import annotations

import asyncio
import gzip
import ssl
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any, Protocol, Self, TypeAlias

from kubeloop.controller.events import EventRecorder
from kubeloop.controller.manager.clusters import ManagedCluster
from kubeloop.controller.manager.endpoints import Address, Endpoints, HealthProbe, Unhealthy
from kubeloop.controller.manager.reconcile_metrics import ReconcileFigures
from kubeloop.controller.runner.runnable import Runnable, RunnerStats
from kubeloop.meta import ConfigError
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request
from kubeloop.tasks import SupervisedTask, Supervisor, close_all
from kubeloop.timing import Clock
from kubeloop.transport import logger_with_context

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

    from kubeloop.controller.election import LeaderElector
    from kubeloop.controller.manager.access import EndpointAccess
    from kubeloop.controller.webhooks.tls import CertificateSource, ServingCertificate
    from kubeloop.serving.listener import Listener

#: Seconds between two measurements of the event loop's lag.
PERIOD = 1.0
#: Seconds of lag from which on a process is unhealthy: the renew deadline of a leader (client-go's default).
LIMIT = 10.0


class LoopLag:
    """Measures once a second how late a timer fires, which shows how busy the event loop is.

    ``last`` and ``longest`` are in seconds. ``tasks`` runs the measurements.
    """

    def __init__(self, clock: Clock, tasks: Supervisor, limit: float = LIMIT) -> None:
        self.last = 0.0
        self.longest = 0.0
        self._clock = clock
        self._limit = limit
        self._tasks = tasks
        self._task: SupervisedTask | None = None

    def check(self) -> None:
        """Check the lag of the event loop. Raises Unhealthy if the last measurement was above the limit."""
        if self.last > self._limit:
            raise Unhealthy(f"the event loop was {self.last:.1f} s late; something blocks it (see /debug/tasks, /debug/profile)")

    async def __aenter__(self) -> Self:
        self._task = self._tasks.start(self._measure, name="loop-lag")
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._task is not None:
            await self._task.stop()

    async def _measure(self) -> None:
        while True:
            due = self._clock.now() + PERIOD
            await self._clock.sleep(PERIOD)
            self.last = max(self._clock.now() - due, 0.0)
            self.longest = max(self.longest, self.last)


_LOG = logger_with_context("kubeloop.controller.manager")

Route: TypeAlias = Callable[[Request], Awaitable[Answer | None]]
"""Returns the response to a request, or None if another route serves the path."""


class HttpEndpoint:
    """Serves HTTP routes at one address within ``async with``. ``url`` is its address inside the block.

    Args:
        option: Name of the option, for messages.
        address: The address.
        routes: The routes.
        clock: Clock of time limits.
        certificate: Serve over TLS. None: plain HTTP.
        access: Decides which requests may read. None: all.

    Raises:
        ConfigError: raised when entered: the address is in use or belongs to another machine, the certificate is not usable, a package is
            missing.
    """

    def __init__(
        self,
        option: str,
        address: Address,
        routes: Sequence[Route],
        clock: Clock,
        *,
        certificate: CertificateSource | None = None,
        access: EndpointAccess | None = None,
    ) -> None:
        self.option = option
        self.url = ""
        self._address = address
        self._routes = routes
        self._clock = clock
        self._certificate = certificate
        self._access = access
        self._listener: Listener | None = None
        self._context: ssl.SSLContext | None = None
        self.tasks = Supervisor(clock, _LOG)

    async def __aenter__(self) -> Self:
        try:
            from kubeloop.serving.listener import Listener
        except ModuleNotFoundError as error:
            raise ConfigError(f'{self.option}: serving needs the package {error.name}: pip install "kubeloop[server]"') from None
        if self._certificate is not None:
            self._context = await self._secured(self._certificate)
        self._listener = Listener(self._answer, self._context, host=self._address.host, port=self._address.port)
        try:
            await self._listener.bind()
        except ConfigError as error:
            raise ConfigError(f"{self.option}={str(self._address)!r}: {error}") from None
        try:
            await self._listener.serve()
        except BaseException:
            await self._listener.close()
            raise
        scheme = "http" if self._context is None else "https"
        self.url = f"{scheme}://{Address(self._address.host or '127.0.0.1', self._listener.port)}"
        if (certificate := self._certificate) is not None:
            self.tasks.start(lambda: certificate.watch(self._changed), name=f"certificate-{self.option}")
        return self

    async def __aexit__(self, *_: object) -> None:
        steps = [] if self._listener is None else [self._listener.close]
        await close_all(self.tasks.stop, *steps)

    async def _secured(self, certificate: CertificateSource) -> ssl.SSLContext:
        from kubeloop.controller.webhooks.tls import server_tls

        context = server_tls(await certificate.open(None, self._clock))
        if self._access is not None and self._access.authorities:
            context.load_verify_locations(cadata=self._access.authorities.decode())
            # A client without a certificate gets a 401 response instead of a failed handshake.
            context.verify_mode = ssl.CERT_OPTIONAL
        return context

    def _changed(self, serving: ServingCertificate) -> None:
        from kubeloop.controller.webhooks.tls import change_certificate

        assert self._context is not None
        change_certificate(self._context, serving)

    async def _answer(self, request: Request) -> Reply:
        if self._access is not None:
            refused = await self._access.admit(request)
            if refused is not None:
                return refused
        for route in self._routes:
            answer = await route(request)
            if answer is not None:
                return answer
        return Answer(404, body=b"404 page not found\n", content_type="text/plain; charset=utf-8")


class ObservedManager(Protocol):
    """The attributes of a manager that its endpoints show."""

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


class EndpointServers:
    """Serves the endpoints of a manager within ``async with``. Inside it, ``urls`` has their addresses by option (health, metrics, debug).

    Args:
        subject: The manager.
        endpoints: The configured addresses.
        figures: Times and results of reconciles.
        clock: Clock of time limits.
        parts: Other parts of the manager; the background tasks of a part with an attribute ``tasks`` are shown too.
    """

    def __init__(
        self, subject: ObservedManager, endpoints: Endpoints, figures: ReconcileFigures, clock: Clock, parts: Sequence[object] = ()
    ) -> None:
        self.urls: dict[str, str] = {}
        self._subject = subject
        self._endpoints = endpoints
        self._figures = figures
        self._clock = clock
        self.tasks = Supervisor(clock, _LOG)
        self._parts = [self, *parts]
        self._lag = LoopLag(clock, self.tasks)
        self._stack = AsyncExitStack()
        self._registry: CollectorRegistry | None = None
        self._shown: set[str] = set()
        self._queues: dict[str, object] = {}
        self._recorders: dict[str, object] = {}
        self._healthz, self._readyz = HealthProbe("healthz", clock), HealthProbe("readyz", clock)
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
                site = HttpEndpoint(
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
        from kubeloop.controller.manager.debug_pages import DebugPages

        debug = DebugPages(self._subject, self._clock)
        return {"health": [self._healthz.answer, self._readyz.answer], "metrics": [self._metrics], "debug": [debug.answer]}

    def _check_informers(self) -> None:
        if self._subject.phase in ("new", "starting"):
            waiting = [one.waiting_for() for cluster in self._subject.clusters.values() for one in cluster.informers if not one.synced]
            raise Unhealthy("starting; " + ("not synced: " + "; ".join(waiting) if waiting else "the caches have not started"))
        unsynced = [one.waiting_for() for cluster in self._subject.clusters.values() for one in cluster.informers if not one.synced]
        if unsynced:
            raise Unhealthy("not synced: " + "; ".join(unsynced))

    def _supervisors(self) -> list[Supervisor]:
        """Return the supervisors of the background tasks of all parts and runnables."""
        parts = [*self._parts, *self._subject.runnables]
        return [tasks for one in parts if isinstance(tasks := getattr(one, "tasks", None), Supervisor)]

    def _check_tasks(self) -> None:
        failed = {name for tasks in self._supervisors() for name in tasks.failures if not tasks.healthy(name)}
        if failed:
            raise Unhealthy(f"failed, retrying: {', '.join(sorted(failed))}; the log has the reason")

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

        from kubeloop.controller.manager.metrics import Merged

        encode, content_type = choose_encoder(request.header("Accept"))
        given = REGISTRY if self._endpoints.registry is None else self._endpoints.registry
        merged = Merged(self._showing(), given)
        # In a thread: with many informers a scrape takes tens of milliseconds. All values may be read in any thread.
        body: bytes = await asyncio.to_thread(encode, merged)
        headers: list[tuple[str, str]] = []
        if "gzip" in request.header("Accept-Encoding"):
            body = await asyncio.to_thread(gzip.compress, body, 1)
            headers = [("Content-Encoding", "gzip"), ("Vary", "Accept-Encoding")]
        return Answer(200, body=body, content_type=content_type, headers=headers, verbatim=True)

    def _showing(self) -> CollectorRegistry:
        """Return the manager's registry, with collectors for everything that was added since the last scrape."""
        from prometheus_client import CollectorRegistry

        from kubeloop.controller.manager.metrics import ControllerMetrics, TaskMetrics

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
