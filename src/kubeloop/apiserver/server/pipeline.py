"""The pipeline of a request, from authentication to encoding. An error at any stage becomes a Status.

Authentication, impersonation, flow control, authorization, routing, negotiation, the handler (decoding, defaults, field ownership,
admission, validation, storage: see ``store.writer``), encoding. An unexpected error is logged, and the client gets an InternalError.
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

from kubeloop.apiserver.authentication import requested_impersonation
from kubeloop.apiserver.authorization.impersonation import Impersonation
from kubeloop.apiserver.filters import RequestFilters
from kubeloop.apiserver.flow.control import RejectedByFlowControl
from kubeloop.apiserver.handlers.kubelet.connecters import find_connecter
from kubeloop.apiserver.handlers.routes import NoRoute, check_name_in_path, find_handler, find_resource
from kubeloop.apiserver.handlers.scope import RequestScope, ServerServices
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.storage import StorageFailed
from kubeloop.endpoints import api_errors
from kubeloop.endpoints.access import User, access_of, forbidden
from kubeloop.endpoints.audit_id import AUDIT_ID, audit_id_of
from kubeloop.endpoints.negotiation import Accepted, negotiate
from kubeloop.endpoints.request_info import PREFIXES, RequestInfo, request_info
from kubeloop.endpoints.responses import NO_SNIFFING, Takeovers, finish, not_found_page, status_answer, text
from kubeloop.endpoints.tables import has_tables
from kubeloop.http1.errors import BodyMalformed
from kubeloop.meta.errors import ApiError, Forbidden
from kubeloop.meta.strconv import go_quoted
from kubeloop.serving.answer import Answer, Reply
from kubeloop.serving.request import Request
from kubeloop.timing import TimeLimit

# The time limit of a request: --request-timeout, or less if the request names one (``?timeout=5s``).
# Source: k8s.io/apiserver pkg/endpoints/filters/request_deadline.go, pkg/server/filters/timeout.go; Go's time.ParseDuration.


_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([^\d.]*)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

# Upstream writes it before negotiation, without kind and version.
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


def time_limit_of(request: Request, limit: float) -> float:
    """Return the time limit of a request in seconds: its ``timeout`` parameter if that is between 0 and ``limit``, else ``limit``.

    Raises:
        BadRequest: The parameter is no duration.
    """
    requested = request.parameter("timeout")
    if not requested:
        return limit
    try:
        seconds = parse_duration(requested)
    except ValueError as error:
        raise api_errors.bad_request(f"invalid timeout specified in the request URL - {error}") from None
    return seconds if 0 < seconds < limit else limit


def timeout_answer() -> Answer:
    """Return the response to a request that exceeded its time limit (504)."""
    return Answer(504, body=_TIMED_OUT + b"\n", content_type="text/plain; charset=utf-8", verbatim=True)


def parse_duration(text: str) -> float:
    """Parse a duration in Go's format (``1h2m3.5s``), and return it in seconds.

    Raises:
        ValueError: The text is not a duration; the message is that of Go.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest) or not at:
        match = _AMOUNT.match(rest, at)
        if not match:
            raise ValueError(f"time: invalid duration {go_quoted(text)}")
        amount, unit = match.groups()
        if not unit:
            raise ValueError(f"time: missing unit in duration {go_quoted(text)}")
        if unit not in _SECONDS:
            raise ValueError(f"time: unknown unit {go_quoted(unit)} in duration {go_quoted(text)}")
        total, at = total + float(amount) * _SECONDS[unit], match.end()
    return -total if text.startswith("-") else total


_LOG = logging.getLogger("kubeloop.apiserver")


class _NotAllowed(Exception):
    """Authorization forbids the request. The response has one more header than a rejection by an admission plug-in."""

    def __init__(self, refusal: Forbidden) -> None:
        super().__init__(str(refusal))
        self.refusal = refusal


#: Handles requests for one path.
Action = Callable[[Request], Awaitable[Answer]]


class DocumentHandler(Protocol):
    """Serves a group of non-resource paths: discovery, OpenAPI, health, version."""

    def answer(self, request: Request) -> Answer | None:
        """Return the response, or None if another handler serves the path. May raise ApiError."""


#: A double slash here misses all upstream routes; later in the path it is ignored.
_UNOWNED = ("//", "/apis//")
#: Verbs of one object, by name.
_BY_NAME = frozenset({"get", "update", "patch", "delete"})
#: Maximum seconds to stop reading from a connection after a 429, so that a client that ignores Retry-After cannot use up capacity.
_HOLD = 1.0
_NO_CACHE = ("Cache-Control", "no-cache, private")


class NonResourcePaths:
    """The non-resource paths of the server: document handlers in the order in which they were added, then actions."""

    def __init__(self, actions: Mapping[str, Action]) -> None:
        """Create the table of paths. ``actions`` maps a path to its handler."""
        self._actions = actions
        self._documents: list[DocumentHandler] = []

    def add(self, *documents: DocumentHandler) -> None:
        """Add a document handler. Handlers that were added earlier take precedence."""
        self._documents += documents

    async def answer(self, request: Request) -> Answer:
        """Return the response to a request.

        Raises:
            NoRoute: No document handler and no action has this path.
        """
        for document in self._documents:
            answer = document.answer(request)
            if answer is not None:
                return answer
        action = self._actions.get(request.path)
        if action is None:
            raise NoRoute
        return await action(request)


#: Handles requests for aggregated APIs: (request, user, audit ID) -> reply; None: the path is one of this server.
Delegate = Callable[[Request, User, str], Awaitable[Reply] | None]


class Pipeline:
    """The pipeline that handles all requests. It raises only CancelledError."""

    def __init__(self, services: ServerServices, operation: RequestFilters, paths: NonResourcePaths, delegate: Delegate) -> None:
        """Create the pipeline.

        Args:
            services: Parts of the server for handlers.
            operation: Audit log, flow control, metrics and logs.
            paths: Serves requests for non-resource paths.
            delegate: Serves requests for aggregated APIs.
        """
        self._services = services
        self._impersonation = Impersonation(services.authorizer)
        self._operation = operation
        self._paths = paths
        self._delegate = delegate

    async def handle(self, request: Request) -> Reply:
        """Return the reply to a request."""
        scope = RequestScope(self._services, request, request_info(request), audit_id_of(request), self._services.clock.now())
        try:
            reply = await self._reply(scope)
        except asyncio.CancelledError:
            self._operation.left(scope)
            raise
        self._operation.answered(scope, reply)
        return reply

    async def _reply(self, scope: RequestScope) -> Reply:
        request = scope.request
        try:
            answer = await self._in_time(scope)
        except NoRoute:
            answer = not_found_page()
        except RejectedByFlowControl as refusal:
            answer = text("Too many requests, please try again later.\n", 429)
            answer.headers.append(("Retry-After", str(refusal.retry_after)))
            answer.hold = _HOLD * random.random()  # random, so that clients do not retry at the same time
        except _NotAllowed as refusal:
            answer = status_answer(refusal.refusal.status)
            answer.headers.append(NO_SNIFFING)
        except BodyMalformed as error:
            answer = status_answer(api_errors.internal(str(error)).status)
        except ApiError as refusal:
            answer = status_answer(refusal.status)
        except StorageFailed as error:
            answer = status_answer(api_errors.internal_error(str(error)).status)
        except RecursionError:
            # Stored objects nest less (see ``decoding``): the body of this request is too deep.
            answer = status_answer(api_errors.bad_request("the body of the request exceeded max depth").status)
        except Exception:  # noqa: BLE001 - the last resort: a client gets a Status, the log gets the traceback
            _LOG.exception("%s %s failed", request.method, request.path)
            answer = status_answer(api_errors.internal_error("the server met an unexpected condition; its log has the details").status)
        if isinstance(answer, Takeovers):
            return answer
        answer.headers.append((AUDIT_ID, scope.audit_id))
        answer.headers += scope.headers
        if not any(name == "Cache-Control" for name, _ in answer.headers):
            answer.headers.append(_NO_CACHE)
        answer.headers += [("Warning", f"299 - {_quoted(one)}") for one in dict.fromkeys(scope.warnings)]
        if isinstance(answer, Answer):
            self._operation.formed(scope, answer)
            finish(request, answer)
        return answer

    async def _in_time(self, scope: RequestScope) -> Reply:
        if scope.long_running:
            return await self._stages(scope)
        clock, end = self._services.clock, scope.started + time_limit_of(scope.request, self._operation.options.request_timeout)
        left = end - clock.now()
        if left <= 0:
            return timeout_answer()
        try:
            async with TimeLimit(clock, left) as limit:
                return await self._stages(scope)
        except TimeoutError:
            if limit.expired:
                return timeout_answer()
            raise

    async def _stages(self, scope: RequestScope) -> Reply:
        request, info = scope.request, scope.info
        user = scope.authenticated = await self._services.authenticator.authenticate(request, scope.warnings, scope.annotations)
        self._operation.identified(scope)
        if info.verb in PREFIXES and info.is_resource and not info.resource:
            return _unclear(request)
        user = await self._authorize(scope, user)
        if request.path.startswith(_UNOWNED) or not request.path.startswith("/"):
            raise NoRoute
        delegated = self._delegate(request, user, scope.audit_id)
        if delegated is not None:
            return await delegated
        if not info.is_resource:
            return await self._paths.answer(request)
        resource = find_resource(self._services.registry, info)
        if resource.deprecation_warning and resource.custom:
            scope.warnings.append(resource.deprecation_warning)
        handler = find_handler(resource, info, request.method)
        scope.known = True  # set late, because clients may request any number of subresources
        if resource.deprecation_warning and not resource.custom:  # upstream adds it in routes, and verbs that are not served have none
            scope.warnings.append(resource.deprecation_warning)
        # The backend of a connecting subresource chooses the form of its answer.
        accepted = Accepted() if find_connecter(info) else self._accepted(request, resource, info)
        if info.verb in _BY_NAME:
            check_name_in_path(info)
        scope.route(resource, accepted)
        answer = await handler(scope)
        if isinstance(answer, Answer) and not answer.content_type and answer.status != 204:
            answer.content_type = accepted.media_type
        return answer

    async def _authorize(self, scope: RequestScope, user: User) -> User:
        """Resolve impersonation, wait for a seat, and authorize the request. Return the user under whom the request is served."""
        request, info, authorizer = scope.request, scope.info, self._services.authorizer
        await authorizer.prepare(user)
        access = access_of(user, info)
        impersonation = requested_impersonation(request)
        try:
            if impersonation is not None:
                user, scope.impersonation_constraint = self._impersonation.authorize(access, impersonation)
                scope.impersonated = user
                await authorizer.prepare(user)
                access = structs.replace(access, user=user)
            await self._operation.admitted(scope, user)
            decision = authorizer.authorize(access)
            allowed = "allow" if decision.allowed else "forbid"
            scope.annotations |= {"authorization.k8s.io/decision": allowed, "authorization.k8s.io/reason": decision.reason}
            if not decision.allowed:
                raise forbidden(access, decision.reason)
        except Forbidden as refusal:
            raise _NotAllowed(refusal) from None
        return user

    @staticmethod
    def _accepted(request: Request, resource: ServedResource, info: RequestInfo) -> Accepted:
        tables = resource.custom or has_tables(resource.gvr.resource, info.subresource, resource.verbs)
        return negotiate(request.header("Accept"), info.verb, custom=resource.custom, tables=tables)


def _unclear(request: Request) -> Answer:
    """Return upstream's response to a path that ends after ``watch`` or ``proxy``."""
    url = request.path + (f"?{request.query_string}" if request.query_string else "")
    reason = f'Internal Server Error: "{url}": failed to create RequestInfo: unable to determine kind and namespace from url, {url}\n'
    return text(reason.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"), 500)


def _quoted(text: str) -> str:
    """Return the text of a warning as a quoted string (RFC 9110), without line breaks and other control characters."""
    clean = "".join(each if each.isprintable() else " " for each in " ".join(text.splitlines()))
    return '"' + clean.replace("\\", "\\\\").replace('"', '\\"') + '"'
