"""``/metrics`` and ``/metrics/slis``: a scrape reads the counters of the server's parts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from kubeloop.apiserver.admission.chain import AdmissionMetrics
from kubeloop.apiserver.filters import RequestMetrics
from kubeloop.apiserver.flow.control import FlowControl, InFlight
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.server.non_resource_paths import Health, version
from kubeloop.apiserver.storage import prefix_end
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.endpoints.metrics_text import CONTENT_TYPE, Exposition, Labels
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.tasks import Supervisor

try:
    import resource as limits
except ImportError:  # Windows
    limits = None  # type: ignore[assignment]  # checked before use

Samples = Iterator[tuple[Labels, float]]

_STARTED = time.time()


class Metrics:
    """Serves ``/metrics``. Authorization decides who may read it, as for any path."""

    def __init__(
        self,
        *,
        requests: RequestMetrics,
        admission: AdmissionMetrics,
        flow: FlowControl,
        in_flight: InFlight,
        health: Health,
        tasks: Supervisor,
        registry: Registry,
        objects: Objects,
        cache: WatchCache,
    ) -> None:
        """Create the handler from the parts of the server whose counters it reads.

        Args:
            requests: Counters of requests.
            admission: Counters of admission.
            flow: Flow control.
            in_flight: Requests in execution.
            health: Health checks.
            tasks: Background tasks.
            registry: The served resources.
            objects: Objects over storage.
            cache: The watch cache.
        """
        self._requests = requests
        self._admission = admission
        self._flow = flow
        self._in_flight = in_flight
        self._health = health
        self._registry = registry
        self._objects = objects
        self._cache = cache
        self._tasks = tasks

    async def answer(self, _: Request) -> Answer:
        """Return the response of ``/metrics``. As upstream, every HTTP method is accepted."""
        out = Exposition()
        self._of_requests(out)
        self._of_flow_control(out)
        await self._of_storage(out)
        steps = self._admission.steps.items()
        names = ("operation", "rejected", "type")
        out.histogram(
            "apiserver_admission_step_admission_duration_seconds",
            "Time in all admission plug-ins and webhooks of a write.",
            ((dict(zip(names, key, strict=True)), result) for key, result in steps),
        )
        self._of_health(out)
        failures = (({"task": name}, count) for name, count in self._tasks.failures.items())
        out.counter("kubeloop_background_task_failures_total", "Failures of background tasks, which are retried.", failures)
        restarts = (({"task": name}, count) for name, count in self._tasks.restarts.items())
        out.counter("kubeloop_background_task_restarts_total", "Restarts of background tasks after a failure.", restarts)
        _of_process(out)
        return _page(out)

    async def levels_of_service(self, _: Request) -> Answer:
        """Return the response of ``/metrics/slis``."""
        out = Exposition()
        self._of_health(out)
        return _page(out)

    def _of_requests(self, out: Exposition) -> None:
        series = self._requests.series
        out.counter(
            "apiserver_request_total",
            "Requests that were answered, by verb, resource and code.",
            (({"code": str(code), **_with_dry_run(one.labels, one.dry_run)}, count) for one in series for code, count in one.codes.items()),
        )
        done = [one for one in series if one.codes]
        out.histogram(
            "apiserver_request_duration_seconds",
            "Time from a request's arrival to its answer, or to its end when it is a stream.",
            ((_with_dry_run(one.labels, one.dry_run), one.durations) for one in done),
        )
        sized = [(one.labels, one.sizes) for one in done if one.sizes is not None and not one.dry_run]
        out.histogram("apiserver_response_sizes", "Bytes of answers to reads.", sized)
        running = ((one.labels, one.running) for one in series if one.running is not None)
        out.gauge("apiserver_longrunning_requests", "Streams that are open now.", running)
        now = (({"request_kind": "mutating"}, self._in_flight.mutating), ({"request_kind": "readOnly"}, self._in_flight.reading))
        out.gauge("apiserver_current_inflight_requests", "Requests that are carried out now.", now)
        attempts = (({"result": result}, count) for result, count in self._requests.attempts.items())
        out.counter("authentication_attempts", "Requests by how their authentication ended.", attempts)
        users = self._requests.attempts["success"]
        out.counter("authenticated_user_requests", "Requests of users that could be authenticated.", [({"username": "other"}, users)])
        out.counter("apiserver_audit_event_total", "Audit events that were written.", [({}, self._requests.audit_events)])
        audited = (({"level": level}, count) for level, count in self._requests.audit_levels.items())
        out.counter("apiserver_audit_level_total", "Requests by the level at which they were logged.", audited)

    def _of_flow_control(self, out: Exposition) -> None:
        levels = self._flow.levels.values()
        prefix = "apiserver_flowcontrol_"

        def gauge(name: str, help_: str, samples: Samples) -> None:
            out.gauge(prefix + name, help_, samples)

        gauge("nominal_limit_seats", "Seats of a priority level's own.", (({"priority_level": one.name}, one.nominal) for one in levels))
        executing = "Requests of a priority level that are carried out."
        gauge("current_executing_seats", executing, (({"priority_level": one.name}, one.executing) for one in levels))
        waiting = "Requests of a priority level that wait."
        gauge("current_inqueue_seats", waiting, (({"priority_level": one.name}, one.queues.length) for one in levels))
        out.counter(
            f"{prefix}dispatched_requests_total",
            "Requests that were let in.",
            (({"flow_schema": schema, "priority_level": one.name}, count) for one in levels for schema, count in one.dispatched.items()),
        )
        out.counter(
            f"{prefix}rejected_requests_total",
            "Requests that were refused with 429.",
            (
                ({"flow_schema": schema, "priority_level": one.name, "reason": reason}, count)
                for one in levels
                for (schema, reason), count in one.rejected.items()
            ),
        )
        waits = self._flow.waits
        names = ((level, schema) for level, schema in waits.count)
        out.counter(
            "kubeloop_flowcontrol_waited_requests_total",
            "Requests that had to wait.",
            (({"flow_schema": schema, "priority_level": level}, waits.count[level, schema]) for level, schema in names),
        )
        out.counter(
            "kubeloop_flowcontrol_waited_seconds_total",
            "For how long they waited.",
            (({"flow_schema": schema, "priority_level": level}, seconds) for (level, schema), seconds in waits.seconds.items()),
        )

    async def _of_storage(self, out: Exposition) -> None:
        storage = self._objects.storage
        rows: list[tuple[str, str, int]] = []
        seen = set()
        for resource in self._registry:
            prefix = self._objects.prefix(resource, "")
            if prefix in seen or "list" not in resource.verbs:
                continue
            seen.add(prefix)
            result = await storage.range(prefix, prefix_end(prefix), limit=1)
            rows.append((resource.gvr.group, resource.gvr.resource, result.total))
        stored = "Objects that are stored."
        old = (({"resource": f"{resource}.{group}" if group else resource}, total) for group, resource, total in rows)
        out.gauge("apiserver_storage_objects", stored, old)
        out.gauge("apiserver_resource_objects", stored, (({"group": group, "resource": name}, total) for group, name, total in rows))
        out.counter(
            "apiserver_watch_events_total",
            "Events that were sent to watches.",
            (
                ({"group": gvr.group, "resource": gvr.resource, "version": gvr.version}, count)
                for gvr, count in self._cache.events_sent.items()
            ),
        )

    def _of_health(self, out: Exposition) -> None:
        states = [({"name": name, "type": endpoint}, float(good)) for endpoint, name, good in self._health.results()]
        out.gauge("kubernetes_healthcheck", "Whether a check of the server's health succeeds now.", states)


def _with_dry_run(labels: Labels, dry_run: str) -> Labels:
    return {"dry_run": dry_run, **labels}


def _page(out: Exposition) -> Answer:
    return Answer(body=out.text().encode(), content_type=CONTENT_TYPE, verbatim=True)


def _of_process(out: Exposition) -> None:
    data = version()
    names = {
        "build_date": "buildDate",
        "compiler": "compiler",
        "git_commit": "gitCommit",
        "git_tree_state": "gitTreeState",
        "git_version": "gitVersion",
        "go_version": "goVersion",
        "major": "major",
        "minor": "minor",
        "platform": "platform",
    }
    build = {label: data[name] for label, name in names.items()}
    out.gauge("kubernetes_build_info", "What this server is, and which release it behaves like.", [(build, 1)])
    out.counter("process_cpu_seconds_total", "CPU time of the process.", [({}, time.process_time())])
    out.gauge("process_start_time_seconds", "When it began to serve, in seconds since 1970.", [({}, _STARTED)])
    if limits is not None:
        out.gauge("process_max_fds", "Files and connections that it may open.", [({}, limits.getrlimit(limits.RLIMIT_NOFILE)[0])])
    try:
        resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        opened = sum(1 for _ in Path("/proc/self/fd").iterdir())
    except OSError:  # no Linux
        return
    out.gauge("process_resident_memory_bytes", "Memory of the process.", [({}, resident)])
    out.gauge("process_open_fds", "Files and connections that are open.", [({}, opened)])
