"""What attends every request whatever it asks for: audit events, its place among others. ``Pipeline`` tells of the stages as they come."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from kubeloop.apiserver.answers import Answer, Reply, StreamingResponse
from kubeloop.apiserver.audit.stages import COMPLETE, LEVELS, RECEIVED, STARTED
from kubeloop.apiserver.authentication import User
from kubeloop.apiserver.authorization.role_informer import keep
from kubeloop.apiserver.flow.control import FlowControl, FlowLimits
from kubeloop.apiserver.flow.in_flight import InFlight
from kubeloop.apiserver.metrics.requests import RequestMetrics
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.provisioning.flow_control import GROUP
from kubeloop.apiserver.request_state import RequestState
from kubeloop.apiserver.watch_cache import ROOT, WatchCache
from kubeloop.timing import Clock

if TYPE_CHECKING:
    from kubeloop.apiserver.audit.log import AuditLog
    from kubeloop.apiserver.audit.policy import Policy
    from kubeloop.apiserver.audit.record import AuditRecord

# A line in the log for each request. Source: k8s.io/apiserver pkg/server/httplog, whose names the fields have.


_LOG = logging.getLogger("kubeloop.apiserver.requests")


def log_request(passage: RequestState, status: int, seconds: float) -> None:
    """Of what a client sent, the head's harmless parts only: no header that may hold a credential, no token of the query, no body."""
    if not _LOG.isEnabledFor(logging.INFO):
        return
    from kubeloop.apiserver.audit.record import request_uri

    request = passage.request
    fields: dict[str, Any] = {
        "verb": passage.info.verb.upper(),
        "URI": request_uri(request),
        "latency": f"{seconds * 1000:.3f}ms",
        "userAgent": request.header("User-Agent"),
        "audit-ID": passage.audit_id,
        "srcIP": request.remote,
    }
    if passage.user is not None:
        fields["user"] = passage.user.name
    if passage.seat is not None:
        fields["apf_pl"], fields["apf_fs"] = passage.seat.flow.level.name, passage.seat.flow.schema.name
    fields["resp"] = status
    _LOG.info("HTTP", extra={"fields": fields})


_SWITCHED = 101


@dataclass(frozen=True, slots=True)
class Auditing:
    """What is logged, and where."""

    policy: Policy
    log: AuditLog


@dataclass(frozen=True, slots=True)
class OperationOptions:
    """``auditing`` None: no audit log. ``flow``: how many requests at a time. Seconds: ``request_timeout`` for a request that is no
    stream; ``shutdown_delay`` from the signal to the end of listening, ``shutdown_grace`` for answers under way then, and
    ``watch_grace`` over which watches are ended, 0: all at once.
    """

    auditing: Auditing | None = None
    flow: FlowLimits = field(default_factory=FlowLimits)
    request_timeout: float = 60.0
    shutdown_delay: float = 0.0
    shutdown_grace: float = 2.0
    watch_grace: float = 0.0


class Operation:
    """One for a server."""

    def __init__(self, clock: Clock, options: OperationOptions | None = None) -> None:
        self._clock = clock
        self.options = options or OperationOptions()
        self._auditing = self.options.auditing
        self.in_flight = InFlight(self.options.flow)
        self.metrics = RequestMetrics()
        self.flow = FlowControl(self.options.flow, clock)

    def start(self) -> None:
        """Raises ConfigError when the audit log cannot be written."""
        if self._auditing is not None:
            self._auditing.log.open()

    async def watch(self, objects: Objects, cache: WatchCache) -> None:
        """Follow FlowSchemas and PriorityLevelConfigurations as they are stored. The cache has been started."""
        group = f"{ROOT}{GROUP}"
        await keep(f"{group}/prioritylevelconfigurations/", self.flow.put_level, objects, cache, wait=True)
        await keep(f"{group}/flowschemas/", self.flow.put_schema, objects, cache, wait=True)

    async def stop(self) -> None:
        """Write what has not been written; the last requests are over."""
        if self._auditing is not None:
            await self._auditing.log.close()

    def identified(self, passage: RequestState) -> None:
        """It is known who asks (``passage.user``)."""
        if self._auditing is not None:
            self._audit(passage, self._auditing)
            if passage.audit is not None:
                passage.audit.event(RECEIVED)

    async def admitted(self, passage: RequestState, user: User) -> None:
        """Returns when ``user`` is to be served.

        Raises:
            RejectedByFlowControl
        """
        verb = passage.info.verb
        if passage.long_running and verb != "watch":
            return
        limits = self.options.flow
        if not limits.fair:
            self.in_flight.check(verb, user)
        elif (flow := self.flow.flow_of(user, passage.info)) is not None:
            passage.headers += flow.headers
            passage.seat = await self.flow.admit(flow)
        self.in_flight.enter(verb)
        passage.in_flight = True

    def formed(self, passage: RequestState, answer: Answer) -> None:
        """The answer is whole and not yet encoded."""
        if passage.user is None and self._auditing is not None and passage.audit is None:
            self._audit(passage, self._auditing)  # refused before anybody knew from whom it is
        if passage.audit is not None:
            passage.audit.answer(answer)

    def answered(self, passage: RequestState, reply: Reply) -> None:
        """``reply`` goes out now; when that is a stream, its end is told later."""
        if passage.in_flight:
            # When what there is of it has been written, which is work too.
            asyncio.get_running_loop().call_soon(self._leave, passage)
        self._count(passage, reply)
        record, long = self._taken(passage), passage.long_running
        if record is None:
            return
        if isinstance(reply, Answer):
            # Who was not authenticated is logged once, as what goes on for long begins.
            if long or passage.user is None:
                record.event(STARTED, self._clock.wall())
            if passage.user is not None:
                record.event(COMPLETE, self._clock.wall())
            return
        code = reply.status if isinstance(reply, StreamingResponse) else _SWITCHED
        if long:
            record.event(STARTED, self._clock.wall(), code=code)
        reply.close = _both(reply.close, lambda: record.event(COMPLETE, self._clock.wall(), code=code))

    def left(self, passage: RequestState) -> None:
        """The client has gone before there was an answer."""
        if passage.in_flight:
            self._leave(passage)
        if (record := self._taken(passage)) is not None:
            if passage.long_running:
                record.event(STARTED, self._clock.wall(), code=200, message="Connection closed early")
            record.event(COMPLETE, self._clock.wall(), code=200, message="Connection closed early")

    @staticmethod
    def _taken(passage: RequestState) -> AuditRecord | None:
        """Both refer to each other: of a watch that was over they would be left to a collector that seldom looks at what is old."""
        record, passage.audit = passage.audit, None
        return record

    def _count(self, passage: RequestState, reply: Reply) -> None:
        metrics = self.metrics
        metrics.attempts["success" if passage.user is not None else "error"] += 1
        series = metrics.of(passage)
        if isinstance(reply, Answer):
            log_request(passage, reply.status, self._clock.now() - passage.started)
            metrics.ended(series, reply.status, self._clock.now() - passage.started, len(reply.body or b""))
            return
        series.running = (series.running or 0) + 1
        status = reply.status if isinstance(reply, StreamingResponse) else _SWITCHED

        def over() -> None:
            series.running = (series.running or 1) - 1
            log_request(passage, status, self._clock.now() - passage.started)
            metrics.ended(series, status, self._clock.now() - passage.started, None)

        reply.close = _both(reply.close, over)

    def _leave(self, passage: RequestState) -> None:
        self.in_flight.leave(passage.info.verb)
        if passage.seat is not None:
            self.flow.release(passage.seat)

    def _audit(self, passage: RequestState, auditing: Auditing) -> None:
        logged = auditing.policy.of(passage.user, passage.info)
        self.metrics.audit_levels[LEVELS[logged.level]] += 1
        if logged.level:
            from kubeloop.apiserver.audit.record import AuditRecord

            passage.audit = AuditRecord(passage, logged, self._log, self._arrival(passage))

    def _log(self, event: bytes) -> None:
        assert self._auditing is not None
        self.metrics.audit_events += 1
        self._auditing.log.add(event)

    def _arrival(self, passage: RequestState) -> datetime:
        return self._clock.wall() - timedelta(seconds=self._clock.now() - passage.started)


def _both(first: Callable[[], None], second: Callable[[], None]) -> Callable[[], None]:
    def run() -> None:
        try:
            first()
        finally:
            second()

    return run
