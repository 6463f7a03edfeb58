"""The request scope: the data of one request, the services that handlers use, and admission of objects that are not stored."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from kubeloop.apiserver.admission.chain import Attributes, options_of
from kubeloop.apiserver.authentication import Authenticator
from kubeloop.apiserver.authentication.options import TokenSettings
from kubeloop.apiserver.flow.control import Seat
from kubeloop.apiserver.handlers.kubelet.credentials import KubeletCredentials
from kubeloop.apiserver.handlers.renderer import Renderer
from kubeloop.apiserver.ownership import manager_of
from kubeloop.apiserver.registry.decoding import BODY_LIMIT, Decoded
from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.options import WriteParameters
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.registry.resource import ServedResource
from kubeloop.apiserver.registry.write_request import View, WriteRequest
from kubeloop.apiserver.storage.watch_cache import WatchCache
from kubeloop.apiserver.store.deleter import Deleter
from kubeloop.apiserver.store.reader import Reader
from kubeloop.apiserver.store.writer import Writer
from kubeloop.endpoints.access import ANONYMOUS, Authorizer, User
from kubeloop.endpoints.api_errors import bad_request, too_large
from kubeloop.endpoints.negotiation import Accepted
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.http1.errors import BodyTooLarge
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.time import format_time
from kubeloop.schema import Schemas
from kubeloop.serving.answer import Answer
from kubeloop.serving.request import Request
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

_LONG_RUNNING_VERBS = frozenset({"watch", "proxy"})
_LONG_RUNNING_SUBRESOURCES = frozenset({"attach", "exec", "proxy", "log", "portforward"})


@dataclass(frozen=True, slots=True)
class ServerServices:
    """The parts of the server that handlers use.

    ``default_timeout`` returns the timeout in seconds for a watch without one. ``components`` maps the name of a component that runs in the
    same process to a function that returns its error, or "" if it is healthy. If ``process_pods`` is True, pods and kubelets may have
    loopback addresses.
    """

    schemas: Schemas
    registry: Registry
    objects: Objects
    cache: WatchCache
    reader: Reader
    writer: Writer
    deleter: Deleter
    renderer: Renderer
    authenticator: Authenticator
    token_settings: TokenSettings
    authorizer: Authorizer
    clock: Clock
    default_timeout: Callable[[], float]
    kubelets: KubeletCredentials
    components: dict[str, Callable[[], str]] = field(default_factory=dict)
    process_pods: bool = False


class RequestAudit(Protocol):
    """The audit events of one request (``audit.record``)."""

    def sent(self, obj: JSONObject, default: Callable[[JSONObject], None] | None = None) -> None:
        """Record the decoded body. ``default`` fills in defaults, in a copy."""

    def sent_patch(self, body: bytes) -> None:
        """Record the body of a patch."""

    def answer(self, answer: Answer) -> None:
        """Record the response before it is encoded."""

    def event(self, stage: str, at: datetime | None = None, *, code: int = 0, message: str = "") -> None:
        """Log the event of a stage.

        Args:
            stage: The stage.
            at: Time of the stage; None: the arrival of the request.
            code: Status code of a stream, which has no recorded answer.
            message: Message if there is no answer.
        """


@dataclass(slots=True)
class RequestScope:
    """One request, from its arrival until its response is written.

    The pipeline creates it. Authentication, authorization and routing fill it in, in this order; handlers read it; the audit log, flow
    control, metrics and logs record it. ``started`` is the clock's ``now`` at the arrival.

    Example:
        >>> async def count(scope: RequestScope) -> Answer:
        ...     page = await scope.services.reader.page(scope.resource, scope.namespace, ListOptions(), selection)
        ...     return Answer(200, {"count": len(page.items)})
    """

    services: ServerServices
    request: Request
    info: RequestInfo
    audit_id: str
    started: float
    #: The user whose credentials the request carries; None until it is authenticated.
    authenticated: User | None = None
    #: The user that the request impersonates; None: it impersonates none.
    impersonated: User | None = None
    #: Verb of the constrained impersonation that allowed it; empty: unconstrained or none.
    impersonation_constraint: str = ""
    #: Annotations of the audit events. Every stage may add some.
    annotations: dict[str, str] = field(default_factory=dict)
    #: Texts for Warning headers of the answer.
    warnings: list[str] = field(default_factory=list)
    #: Headers of the answer that stages before the handler add.
    headers: list[tuple[str, str]] = field(default_factory=list)
    #: None: the audit policy omits this request.
    audit: RequestAudit | None = None
    #: The seat of flow control that the request occupies.
    seat: Seat | None = None
    #: True while the request counts as one in flight.
    in_flight: bool = False
    #: True when the path names a resource that is served.
    known: bool = False
    #: The resource, set by ``route``, with the media type and form of the answer.
    resource: ServedResource = field(init=False)
    accepted: Accepted = field(init=False)
    #: Namespace of the request; empty for cluster-scoped resources.
    namespace: str = ""
    #: The body before it was conformed to the kind.
    sent: Any = None

    @property
    def user(self) -> User:
        """The user of the request: the impersonated user, or else the authenticated one, or else ``system:anonymous``."""
        return self.impersonated or self.authenticated or ANONYMOUS

    @property
    def long_running(self) -> bool:
        """Whether the request has no time limit (kube-apiserver's BasicLongRunningRequestCheck)."""
        info = self.info
        return info.verb in _LONG_RUNNING_VERBS or (info.is_resource and info.subresource in _LONG_RUNNING_SUBRESOURCES)

    def route(self, resource: ServedResource, accepted: Accepted) -> None:
        """Set the resource that the path names and the form of the response."""
        self.resource = resource
        self.accepted = accepted
        self.namespace = self.info.namespace if resource.namespaced else ""

    async def body(self) -> bytes:
        """Read the whole body.

        Raises:
            RequestEntityTooLarge: The body has more than 3 MiB.
        """
        try:
            return await self.request.read_body(BODY_LIMIT)
        except BodyTooLarge as error:
            raise too_large(error.limit) from None

    def manager(self, options: WriteParameters) -> str:
        """Return the field manager for the fields that the request writes."""
        return manager_of(options.field_manager, self.request.header("User-Agent"))

    def write(
        self,
        *,
        name: str = "",
        namespace: str | None = None,
        resource: ServedResource | None = None,
        dry_run: bool = False,
        manager: str = "",
        view: View | None = None,
        of_collection: bool = False,
    ) -> WriteRequest:
        """Return a write request for the store.

        Args:
            name: Name of the object; empty: the one in the path.
            namespace: Namespace of the object; None: that of the request.
            resource: The resource with another strategy; None: the resource in the path.
            dry_run: Nothing is stored.
            manager: Field manager; empty leaves ``managedFields`` unchanged.
            view: The form in which admission sees an update; None: the object itself.
            of_collection: The object is one of many that the request deletes.
        """
        info = self.info
        options: JSONObject = {"dryRun": ["All"]} if dry_run else {}
        options |= {key: value for key in ("fieldManager", "fieldValidation") if (value := self.request.parameter(key))}
        return WriteRequest(
            resource or self.resource,
            self.namespace if namespace is None else namespace,
            name or info.name,
            self.user,
            info.subresource,
            dry_run,
            manager,
            time=format_time(self.services.clock.wall()),
            sent=self.sent,
            warnings=self.warnings,
            audit_annotations=self.annotations,
            options=options,
            view=view,
            of_collection=of_collection,
            verb=info.verb,
            name_in_path=info.name if info.name_in_path else "",
        )

    def accept_problems(self, decoded: Decoded, options: WriteParameters, kind: str) -> None:
        """Store the sent body for messages and audit, and report its unknown and repeated fields by the requested field validation.

        They are an error (Strict), warnings (Warn) or ignored (Ignore).

        Raises:
            BadRequest: Validation is strict and there are problems, or the body is rejected whatever its fields.
        """
        self.sent = decoded.sent
        self.audit_sent(decoded.obj)
        if decoded.problems and options.field_validation == "Warn":
            self.warnings += decoded.problems
        elif decoded.problems and options.field_validation != "Ignore":
            raise _strict_error(decoded, kind)
        if decoded.refused is not None:
            raise decoded.refused

    def audit_sent(self, obj: JSONObject) -> None:
        """Record ``obj`` in the audit events as the body of the request."""
        if self.audit is not None:
            own = obj.get("kind") == self.resource.kind
            self.audit.sent(obj, self.resource.strategy.default if own else None)

    def audit_sent_patch(self, body: bytes) -> None:
        """Record the body of a patch in the audit events."""
        if self.audit is not None:
            self.audit.sent_patch(body)


def _strict_error(decoded: Decoded, kind: str) -> ApiError:
    version = str(decoded.obj.get("apiVersion", "")).rpartition("/")[2]
    sent_kind = decoded.obj.get("kind", "")
    return bad_request(
        f'{sent_kind} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(decoded.problems)}'
    )


async def _nothing() -> None:
    pass


async def ask_admission(
    scope: RequestScope,
    obj: JSONObject,
    *,
    kind: GroupVersionKind | None = None,
    name: str = "",
    dry_run: bool = False,
    between: Callable[[], Awaitable[None]] = _nothing,
) -> None:
    """Run admission on an object.

    Args:
        scope: The request.
        obj: The object to create, or the options of a connection.
        kind: Kind of ``obj``; None: that of the resource. A kind that ends in ``Options`` is a connection.
        name: Name of the object; empty: the one in the path.
        dry_run: Nothing is stored.
        between: The resource's own work between mutating and validating admission.

    Raises:
        ApiError: Admission or ``between`` rejects the request.
    """
    write, admission = scope.write(name=name, dry_run=dry_run), scope.services.writer.admission
    connects = kind is not None and kind.kind.endswith("Options")
    try:
        for step in (admission.mutate, admission.validate):
            if step == admission.validate:
                await between()
            operation, options = ("CONNECT", None) if connects else ("CREATE", options_of(write, "CREATE"))
            await step(Attributes(operation, write, obj, None, options, kind))
    finally:
        await write.finish()
