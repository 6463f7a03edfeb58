"""The way of a request through the server, stage by stage. Each stage has one place; a refusal at any of them becomes a Status.

authentication, impersonation, authorization, routing, negotiation, the verb (decoding, defaulting, admission, validation, field ownership,
storage: see ``writing``), encoding. Nothing unexpected reaches a client: it is logged, and the answer is InternalError.
"""

from __future__ import annotations

import asyncio
import logging
import random
import re
from collections.abc import Awaitable, Callable, Mapping
from typing import Protocol

import msgspec
from msgspec import structs

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.answers import NO_SNIFFING, Answer, Reply, Takeovers, not_found_page, status_answer, text
from kubeloop.apiserver.authentication import User, impersonated
from kubeloop.apiserver.authorization import access_of, forbidden
from kubeloop.apiserver.authorization.impersonation import Impersonation
from kubeloop.apiserver.flow.control import RejectedByFlowControl
from kubeloop.apiserver.instrumentation import Operation
from kubeloop.apiserver.kubelet.connecting import connecting
from kubeloop.apiserver.negotiation import Accepted, negotiate
from kubeloop.apiserver.request_info import PREFIXES, RequestInfo, request_info
from kubeloop.apiserver.request_scope import RequestScope, ServerServices
from kubeloop.apiserver.request_state import AUDIT_ID, RequestState, audit_id_of
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.response_writer import finish
from kubeloop.apiserver.routing import NoRoute, check_name_in_path, find_handler, find_resource
from kubeloop.apiserver.storage import StorageFailed
from kubeloop.apiserver.tables import has_tables
from kubeloop.http1.errors import BodyMalformed
from kubeloop.meta.errors import ApiError, Forbidden
from kubeloop.meta.go_quote import go_quoted
from kubeloop.serving.request import Request
from kubeloop.timing import TimeLimit

# How long a request may take: --request-timeout, or less where it says so itself (``?timeout=5s``).
#
# Source: k8s.io/apiserver pkg/endpoints/filters/request_deadline.go, pkg/server/filters/timeout.go; Go's time.ParseDuration.


_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([^\d.]*)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

# Written before anything is negotiated, and without kind and version, as upstream does.
_TIMED_OUT = msgspec.json.encode(
    {
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout",
        "details": {},
        "code": 504,
    }
)


def allotted(request: Request, most: float) -> float:
    """Seconds. What is longer than ``most``, or nothing, or less, is ``most``.

    Raises:
        BadRequest: the parameter is no duration.
    """
    asked = request.parameter("timeout")
    if not asked:
        return most
    try:
        seconds = parse_duration(asked)
    except ValueError as fault:
        raise api_errors.bad_request(f"invalid timeout specified in the request URL - {fault}") from None
    return seconds if 0 < seconds < most else most


def timed_out() -> Answer:
    """504."""
    return Answer(504, body=_TIMED_OUT + b"\n", content_type="text/plain; charset=utf-8", verbatim=True)


def parse_duration(text: str) -> float:
    """Seconds of a duration in Go's words (``1h2m3.5s``).

    Raises:
        ValueError: in the words of Go.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest) or not at:
        found = _AMOUNT.match(rest, at)
        if not found:
            raise ValueError(f"time: invalid duration {go_quoted(text)}")
        amount, unit = found.groups()
        if not unit:
            raise ValueError(f"time: missing unit in duration {go_quoted(text)}")
        if unit not in _SECONDS:
            raise ValueError(f"time: unknown unit {go_quoted(unit)} in duration {go_quoted(text)}")
        total, at = total + float(amount) * _SECONDS[unit], found.end()
    return -total if text.startswith("-") else total


_LOG = logging.getLogger(__name__)


class _NotAllowed(Exception):
    """Refused by authorization: a Status with one header more than that of an admission plug-in."""

    def __init__(self, refusal: Forbidden) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


#: Does what a request to one path asks for.
Action = Callable[[Request], Awaitable[Answer]]


class Documents(Protocol):
    """Serves paths that are no resources: discovery, OpenAPI, health, version."""

    def answer(self, request: Request) -> Answer | None:
        """None when the path is none of its own; ApiErrors become Statuses."""


#: Slashes too many here lead past upstream's routes; further on in a path some are passed over.
_NOBODYS = ("//", "/apis//")
#: What is done to one object, by its key.
_BY_NAME = frozenset({"get", "update", "patch", "delete"})
#: Seconds at most for which a connection is not read after a refusal for want of room, so that who does not wait as told takes none.
_HOLD = 1.0
_NO_CACHE = ("Cache-Control", "no-cache, private")


class Pipeline:
    """Answers requests; never raises but for cancellation.

    ``documents`` are asked in order for what is no resource, then ``actions``, by exact path.
    """

    def __init__(self, parts: ServerServices, actions: Mapping[str, Action] | None = None, operation: Operation | None = None) -> None:
        self._parts = parts
        self._impersonation = Impersonation(parts.authorizer)
        self._operation = operation or Operation(parts.clock)
        self._actions = dict(actions or {})
        self.documents: list[Documents] = []
        #: Answers what is another server's, of whom, and under which audit ID; None: the path is this server's own.
        self.elsewhere: Callable[[Request, User, str], Awaitable[Reply] | None] | None = None

    async def handle(self, request: Request) -> Reply:
        passage = RequestState(request, request_info(request), audit_id_of(request), self._parts.clock.now())
        try:
            reply = await self._reply(passage)
        except asyncio.CancelledError:
            self._operation.left(passage)
            raise
        self._operation.answered(passage, reply)
        return reply

    async def _reply(self, passage: RequestState) -> Reply:
        request = passage.request
        warnings: list[str] = []
        try:
            answer = await self._in_time(passage, warnings)
        except NoRoute:
            answer = not_found_page()
        except RejectedByFlowControl as refusal:
            answer = text("Too many requests, please try again later.\n", 429)
            answer.headers.append(("Retry-After", str(refusal.retry_after)))
            answer.hold = _HOLD * random.random()  # not all at once again
        except _NotAllowed as refusal:
            answer = status_answer(refusal.refusal.status)
            answer.headers.append(NO_SNIFFING)
        except BodyMalformed as fault:
            answer = status_answer(api_errors.internal(str(fault)).status)
        except ApiError as refusal:
            answer = status_answer(refusal.status)
        except StorageFailed as fault:
            answer = status_answer(api_errors.internal_error(str(fault)).status)
        except RecursionError:
            # What is stored nests less (see ``decoding``): it is the body of this request that was too deep to be looked at.
            answer = status_answer(api_errors.bad_request("the body of the request exceeded max depth").status)
        except Exception:  # noqa: BLE001 - the last resort: a client gets a Status, the log gets the traceback
            _LOG.exception("%s %s failed", request.method, request.path)
            answer = status_answer(api_errors.internal_error("the server met an unexpected condition; its log has the details").status)
        if isinstance(answer, Takeovers):
            return answer
        answer.headers.append((AUDIT_ID, passage.audit_id))
        answer.headers += passage.headers
        if not any(name == "Cache-Control" for name, _ in answer.headers):
            answer.headers.append(_NO_CACHE)
        answer.headers += [("Warning", f"299 - {_quoted(one)}") for one in dict.fromkeys(warnings)]
        if isinstance(answer, Answer):
            self._operation.formed(passage, answer)
            finish(request, answer)
        return answer

    async def _in_time(self, passage: RequestState, warnings: list[str]) -> Reply:
        if passage.long_running:
            return await self._stages(passage, warnings)
        clock, end = self._parts.clock, passage.started + allotted(passage.request, self._operation.options.request_timeout)
        left = end - clock.now()
        if left <= 0:
            return timed_out()
        try:
            async with TimeLimit(clock, left) as limit:
                return await self._stages(passage, warnings)
        except TimeoutError:
            if limit.expired:
                return timed_out()
            raise

    async def _stages(self, passage: RequestState, warnings: list[str]) -> Reply:
        request, info = passage.request, passage.info
        user = passage.user = await self._parts.authenticator.authenticate(request, warnings, passage.annotations)
        self._operation.identified(passage)
        if info.verb in PREFIXES and info.is_resource and not info.resource:
            return _unclear(request)
        user = await self._authorize(passage, user)
        if request.path.startswith(_NOBODYS) or not request.path.startswith("/"):
            raise NoRoute
        elsewhere = self.elsewhere(request, user, passage.audit_id) if self.elsewhere is not None else None
        if elsewhere is not None:
            return await elsewhere
        if not info.is_resource:
            return await self._path(request)
        resource = find_resource(self._parts.registry, info)
        if resource.deprecation_warning and resource.custom:
            warnings.append(resource.deprecation_warning)
        handler = find_handler(resource, info, request.method)
        passage.known = True  # only now: anybody may think of any number of subresources
        if resource.deprecation_warning and not resource.custom:  # said by the route, of which there is none for what cannot be done
            warnings.append(resource.deprecation_warning)
        # What a connecting subresource answers is its backend's affair.
        accepted = Accepted() if connecting(info) else self._accepted(request, resource, info)
        namespace = info.namespace if resource.namespaced else ""
        if info.verb in _BY_NAME:
            check_name_in_path(info)
        exchange = RequestScope(self._parts, request, info, user, resource, accepted, namespace, passage=passage)
        try:
            answer = await handler(exchange)
            if isinstance(answer, Answer) and not answer.content_type and answer.status != 204:
                answer.content_type = accepted.media_type
            return answer
        finally:
            warnings += exchange.context.warnings
            passage.annotations |= exchange.context.audit_annotations

    async def _authorize(self, passage: RequestState, user: User) -> User:
        """As whom the request is served."""
        request, info, authorizer = passage.request, passage.info, self._parts.authorizer
        await authorizer.prepare(user)
        access = access_of(user, info)
        wanted = impersonated(request)
        try:
            if wanted is not None:
                user, passage.impersonated_by = self._impersonation.judge(access, wanted)
                passage.impersonated = user
                await authorizer.prepare(user)
                access = structs.replace(access, user=user)
            await self._operation.admitted(passage, user)
            decision = authorizer.authorize(access)
            allowed = "allow" if decision.allowed else "forbid"
            passage.annotations |= {"authorization.k8s.io/decision": allowed, "authorization.k8s.io/reason": decision.reason}
            if not decision.allowed:
                raise forbidden(access, decision.reason)
        except Forbidden as refusal:
            raise _NotAllowed(refusal) from None
        return user

    @staticmethod
    def _accepted(request: Request, resource: ServedResource, info: RequestInfo) -> Accepted:
        tables = has_tables(resource, info.subresource)
        return negotiate(request.header("Accept"), info.verb, custom=resource.custom, tables=tables)

    async def _path(self, request: Request) -> Answer:
        for one in self.documents:
            answer = one.answer(request)
            if answer is not None:
                return answer
        action = self._actions.get(request.path)
        if action is None:
            raise NoRoute
        return await action(request)


def _unclear(request: Request) -> Answer:
    """A path that says ``watch`` or ``proxy`` and not of what, which upstream gives up before anything else is looked at."""
    url = request.path + (f"?{request.query_string}" if request.query_string else "")
    why = f'Internal Server Error: "{url}": failed to create RequestInfo: unable to determine kind and namespace from url, {url}\n'
    return text(why.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), 500)


def _quoted(text: str) -> str:
    """A warning's text as a quoted string of RFC 9110, without line breaks and other controls, which no header may hold."""
    clean = "".join(each if each.isprintable() else " " for each in " ".join(text.splitlines()))
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'
