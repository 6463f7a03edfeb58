"""Filters around every request: audit events, flow control, metrics and logs. The pipeline calls them at each stage."""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

from kubeloop.apiserver.audit.policy import COMPLETE, LEVELS, RECEIVED, STARTED
from kubeloop.apiserver.builtin.bootstrap.objects import FLOW_CONTROL_GROUP
from kubeloop.apiserver.flow.control import FlowControl, FlowLimits, InFlight
from kubeloop.apiserver.handlers.scope import RequestAudit, RequestScope
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.resource_controller import follow_objects
from kubeloop.apiserver.storage.watch_cache import ROOT, WatchCache
from kubeloop.endpoints.access import User
from kubeloop.endpoints.metrics_text import Histogram
from kubeloop.serving.answer import Answer, Reply, StreamingResponse
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.audit.log import AuditLog
    from kubeloop.apiserver.audit.policy import AuditPolicy

#: Buckets of kube-apiserver's histograms, in seconds and in bytes.
SECONDS: Final = (0.005, 0.025, 0.05, 0.1, 0.2, 0.4, 0.6, 0.8, 1, 1.25, 1.5, 2, 3, 4, 5, 6, 8, 10, 15, 20, 30, 45, 60)
BYTES: Final = (1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9)

_VERBS = {"create": "POST", "update": "PUT", "deletecollection": "DELETE"}
_CONNECTING = frozenset({"exec", "attach", "portforward", "proxy"})
#: Paths with separate series. All other paths share one, because clients may request any number of paths.
_PATHS = ("/healthz", "/livez", "/readyz", "/metrics", "/version", "/openapi/v2", "/openapi/v3", "/apis", "/api", "/openid/v1/jwks")
_READING = frozenset({"GET", "LIST"})
_APPLY = "application/apply-patch"


class Series:
    """The counters of requests with the same labels."""

    __slots__ = ("codes", "dry_run", "durations", "labels", "running", "sizes")

    def __init__(self, labels: Mapping[str, str], dry_run: str) -> None:
        self.labels = labels
        self.dry_run = dry_run
        self.codes: Counter[int] = Counter()
        #: Number of open streams; None: there was no stream yet.
        self.running: int | None = None
        self.durations = Histogram(SECONDS)
        self.sizes = Histogram(BYTES) if labels["verb"] in _READING else None


class RequestMetrics:
    """Counts requests. All requests for unknown resources share one series, so that no client can add series."""

    def __init__(self) -> None:
        self._series: dict[tuple[object, ...], Series] = {}
        #: Result of authentication -> number of requests.
        self.attempts: Counter[str] = Counter()
        self.audit_levels: Counter[str] = Counter()
        self.audit_events = 0

    @property
    def series(self) -> list[Series]:
        return list(self._series.values())

    def series_of(self, scope: RequestScope) -> Series:
        """Return the series of a request."""
        info, request = scope.info, scope.request
        dry_run = "All" if request.query.get("dryRun") else ""
        applied = info.verb == "patch" and request.header("Content-Type").startswith(_APPLY)
        if scope.known:
            key: tuple[object, ...] = (
                info.verb,
                info.group,
                info.version,
                info.resource,
                info.subresource,
                bool(info.namespace),
                info.name_in_path,
                dry_run,
                applied,
            )
        else:
            key = (request.method if request.method in _METHODS else "other", _path(info.path))
        series = self._series.get(key)
        if series is None:
            series = self._series[key] = Series(_labels(scope, applied=applied), dry_run)
        return series

    def ended(self, series: Series, status: int, seconds: float, size: int | None) -> None:
        """Count a request at its end.

        Args:
            series: The series of the request.
            status: Status code.
            seconds: Duration of the request.
            size: Bytes of the response; None for a stream.
        """
        series.codes[status] += 1
        durations = series.durations
        durations.counts[bisect_left(SECONDS, seconds)] += 1
        durations.sum += seconds
        if size is not None and series.sizes is not None:
            series.sizes.counts[bisect_left(BYTES, size)] += 1
            series.sizes.sum += size


_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def _path(path: str) -> str:
    return next((one for one in _PATHS if path == one or path.startswith(f"{one}/")), "")


def _labels(scope: RequestScope, *, applied: bool) -> dict[str, str]:
    info = scope.info
    if not scope.known:
        verb = scope.request.method
        names = ("", "", "", "", _path(info.path), verb if verb in _METHODS else "other", "")
    else:
        verb = "APPLY" if applied else "CONNECT" if info.subresource in _CONNECTING else _VERBS.get(info.verb, info.verb.upper())
        named = info.name_in_path or info.verb == "create"
        level = "resource" if named else "namespace" if info.namespace else "cluster"
        names = ("apiserver", info.group, info.resource, level, info.subresource, verb, info.version)
    return dict(zip(("component", "group", "resource", "scope", "subresource", "verb", "version"), names, strict=True))


# The request log: one record per request, with the field names of k8s.io/apiserver pkg/server/httplog.


_LOG = logging.getLogger("kubeloop.apiserver.requests")


def log_request(scope: RequestScope, status: int, seconds: float) -> None:
    """Log a request without secrets: no header that may hold a credential, no token of the query, no body."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    from kubeloop.apiserver.audit.record import request_uri

    request = scope.request
    fields: dict[str, Any] = {
        "verb": scope.info.verb.upper(),
        "URI": request_uri(request),
        "latency": f"{seconds * 1000:.3f}ms",
        "userAgent": request.header("User-Agent"),
        "audit-ID": scope.audit_id,
        "srcIP": request.remote,
    }
    if scope.authenticated is not None:
        fields["user"] = scope.authenticated.name
    if scope.seat is not None:
        fields["apf_pl"], fields["apf_fs"] = scope.seat.flow.level.name, scope.seat.flow.schema.name
    fields["resp"] = status
    _LOG.info("HTTP", extra={"fields": fields})


_SWITCHED = 101


@dataclass(frozen=True, slots=True)
class Auditing:
    """The policy and the log of audit events."""

    policy: AuditPolicy
    log: AuditLog


@dataclass(frozen=True, slots=True)
class OperationOptions:
    """Options of the filters. Times are in seconds.

    Attributes:
        auditing: Audit policy and log. None: there is no audit log.
        flow: Limits of concurrent requests.
        request_timeout: Time limit of requests, except streams.
        shutdown_delay: Time from the signal to the end of listening.
        shutdown_grace: Maximum time for running requests at the end.
        watch_grace: Time over which the ends of watches are spread. 0: all watches end at once.
    """

    auditing: Auditing | None = None
    flow: FlowLimits = field(default_factory=FlowLimits)
    request_timeout: float = 60.0
    shutdown_delay: float = 0.0
    shutdown_grace: float = 2.0
    watch_grace: float = 0.0


class RequestFilters:
    """The filters of one server: audit events, flow control, metrics and logs of its requests."""

    def __init__(self, clock: Clock, options: OperationOptions | None = None) -> None:
        self._clock = clock
        self.options = options or OperationOptions()
        self._auditing = self.options.auditing
        self.in_flight = InFlight(self.options.flow)
        self.metrics = RequestMetrics()
        self.flow = FlowControl(self.options.flow, clock)

    def start(self) -> None:
        """Open the audit log. Raises ConfigError if the audit log cannot be written."""
        if self._auditing is not None:
            self._auditing.log.open()

    async def watch(self, objects: Objects, cache: WatchCache) -> None:
        """Apply the stored FlowSchemas and PriorityLevelConfigurations, and each later change. The cache must have been started."""
        group = f"{ROOT}{FLOW_CONTROL_GROUP}"
        await follow_objects(f"{group}/prioritylevelconfigurations/", self.flow.put_level, objects, cache, wait=True)
        await follow_objects(f"{group}/flowschemas/", self.flow.put_schema, objects, cache, wait=True)

    async def stop(self) -> None:
        """Write the remaining audit events. The caller must have waited for the last requests."""
        if self._auditing is not None:
            await self._auditing.log.close()

    def identified(self, scope: RequestScope) -> None:
        """Record that the request is authenticated (``scope.authenticated``)."""
        if self._auditing is not None:
            self._audit(scope, self._auditing)
            if scope.audit is not None:
                scope.audit.event(RECEIVED)

    async def admitted(self, scope: RequestScope, user: User) -> None:
        """Wait until flow control admits the request of ``user``.

        Raises:
            RejectedByFlowControl: There is no capacity.
        """
        verb = scope.info.verb
        if scope.long_running and verb != "watch":
            return
        limits = self.options.flow
        if not limits.fair:
            self.in_flight.check(verb, user)
        elif (flow := self.flow.flow_of(user, scope.info)) is not None:
            scope.headers += flow.headers
            scope.seat = await self.flow.admit(flow)
        self.in_flight.enter(verb)
        scope.in_flight = True

    def formed(self, scope: RequestScope, answer: Answer) -> None:
        """Record the response before it is encoded."""
        if scope.authenticated is None and self._auditing is not None and scope.audit is None:
            self._audit(scope, self._auditing)  # rejected before it was authenticated
        if scope.audit is not None:
            scope.audit.answer(answer)

    def answered(self, scope: RequestScope, reply: Reply) -> None:
        """Record that the reply is sent. The end of a stream is recorded when it closes."""
        if scope.in_flight:
            # Leave in the next turn of the loop, after the available part of the reply has been written, because that is work too.
            asyncio.get_running_loop().call_soon(self._leave, scope)
        self._count(scope, reply)
        record, long = self._taken(scope), scope.long_running
        if record is None:
            return
        if isinstance(reply, Answer):
            # A request without authentication is logged once, with the stage at which long-running requests start.
            if long or scope.authenticated is None:
                record.event(STARTED, self._clock.wall())
            if scope.authenticated is not None:
                record.event(COMPLETE, self._clock.wall())
            return
        code = reply.status if isinstance(reply, StreamingResponse) else _SWITCHED
        if long:
            record.event(STARTED, self._clock.wall(), code=code)
        reply.close = _both(reply.close, lambda: record.event(COMPLETE, self._clock.wall(), code=code))

    def left(self, scope: RequestScope) -> None:
        """Record that the client closed the connection before the response."""
        if scope.in_flight:
            self._leave(scope)
        if (record := self._taken(scope)) is not None:
            if scope.long_running:
                record.event(STARTED, self._clock.wall(), code=200, message="Connection closed early")
            record.event(COMPLETE, self._clock.wall(), code=200, message="Connection closed early")

    @staticmethod
    def _taken(scope: RequestScope) -> RequestAudit | None:
        """Return the audit record and remove it from the scope, because a reference cycle would keep both alive during a long watch."""
        record, scope.audit = scope.audit, None
        return record

    def _count(self, scope: RequestScope, reply: Reply) -> None:
        metrics = self.metrics
        metrics.attempts["success" if scope.authenticated is not None else "error"] += 1
        series = metrics.series_of(scope)
        if isinstance(reply, Answer):
            log_request(scope, reply.status, self._clock.now() - scope.started)
            metrics.ended(series, reply.status, self._clock.now() - scope.started, len(reply.body or b""))
            return
        series.running = (series.running or 0) + 1
        status = reply.status if isinstance(reply, StreamingResponse) else _SWITCHED

        def over() -> None:
            series.running = (series.running or 1) - 1
            log_request(scope, status, self._clock.now() - scope.started)
            metrics.ended(series, status, self._clock.now() - scope.started, None)

        reply.close = _both(reply.close, over)

    def _leave(self, scope: RequestScope) -> None:
        self.in_flight.leave(scope.info.verb)
        if scope.seat is not None:
            self.flow.release(scope.seat)

    def _audit(self, scope: RequestScope, auditing: Auditing) -> None:
        logged = auditing.policy.decide(scope.authenticated, scope.info)
        self.metrics.audit_levels[LEVELS[logged.level]] += 1
        if logged.level:
            from kubeloop.apiserver.audit.record import AuditRecord

            scope.audit = AuditRecord(scope, logged, self._log, self._arrival(scope))

    def _log(self, event: bytes) -> None:
        assert self._auditing is not None
        self.metrics.audit_events += 1
        self._auditing.log.add(event)

    def _arrival(self, scope: RequestScope) -> datetime:
        return self._clock.wall() - timedelta(seconds=self._clock.now() - scope.started)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            first()
        finally:
            second()

    return run
