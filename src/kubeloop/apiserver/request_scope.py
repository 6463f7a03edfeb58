"""One request on its way through the server, and what handlers share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kubeloop.apiserver.api_errors import bad_request, too_large
from kubeloop.apiserver.authentication import Authenticator, User
from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings
from kubeloop.apiserver.authorization import Authorizer
from kubeloop.apiserver.decoding import BODY_LIMIT, Decoded
from kubeloop.apiserver.delete import Deleter
from kubeloop.apiserver.get_list import Reader
from kubeloop.apiserver.kubelet.credentials import KubeletCredentials
from kubeloop.apiserver.negotiation import Accepted
from kubeloop.apiserver.objects import Objects
from kubeloop.apiserver.options import WriteOptions
from kubeloop.apiserver.ownership import manager_of
from kubeloop.apiserver.registry import Registry
from kubeloop.apiserver.registry_store import Call, Writer
from kubeloop.apiserver.rendering import Renderer
from kubeloop.apiserver.request_info import RequestInfo
from kubeloop.apiserver.request_state import RequestState
from kubeloop.apiserver.resource import ServedResource
from kubeloop.apiserver.strategy import RequestContext
from kubeloop.apiserver.watch_cache import WatchCache
from kubeloop.http1.errors import BodyTooLarge
from kubeloop.meta.errors import ApiError
from kubeloop.meta.time import format_time
from kubeloop.schema import Schemas
from kubeloop.serving.request import Request
from kubeloop.timing import Clock


@dataclass(frozen=True, slots=True)
class ServerServices:
    """The server's parts, as handlers use them. ``default_timeout`` gives seconds for watches that name none.

    ``components``: by the name of a component that runs beside the server, a function that returns what is wrong with it, "" if nothing.
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


@dataclass(slots=True)
class RequestScope:
    """A request for a served resource, after authorization. ``namespace`` is empty for cluster-scoped resources."""

    parts: ServerServices
    request: Request
    info: RequestInfo
    user: User
    resource: ServedResource
    accepted: Accepted
    namespace: str
    context: RequestContext = field(default_factory=RequestContext)
    #: None: nobody attends the request, as in tests of handlers.
    passage: RequestState | None = None

    async def body(self) -> bytes:
        """The whole body.

        Raises:
            RequestEntityTooLarge: more than 3 MiB.
        """
        try:
            return await self.request.read_body(BODY_LIMIT)
        except BodyTooLarge as fault:
            raise too_large(fault.limit) from None

    def manager(self, options: WriteOptions) -> str:
        """The field manager to whom what the request writes belongs."""
        return manager_of(options.field_manager, self.request.header("User-Agent"))

    def call(self, *, name: str = "", dry_run: bool = False, manager: str = "") -> Call:
        """What the writer needs to know; ``manager`` empty: nobody is to own what is written."""
        self.context.user = self.user.name
        self.context.groups = self.user.groups
        self.context.uid = self.user.uid
        self.context.extra = self.user.extra
        self.context.namespace = self.namespace
        self.context.subresource = self.info.subresource
        self.context.dry_run = dry_run
        self.context.time = format_time(self.parts.clock.wall())
        where = self.resource, self.namespace, name or self.info.name
        call = Call(*where, self.user, self.context, self.info.subresource, dry_run, manager)
        call.verb = self.info.verb
        call.name_in_path = self.info.name if self.info.name_in_path else ""
        call.options = {"dryRun": ["All"]} if dry_run else {}
        call.options |= {name: value for name in ("fieldManager", "fieldValidation") if (value := self.request.parameter(name))}
        return call

    def accept_problems(self, decoded: Decoded, options: WriteOptions, kind: str) -> None:
        """Keeps what was sent for messages; unknown and repeated fields become an error (Strict), warnings (Warn), nothing (Ignore).

        Raises:
            BadRequest; also where the body is refused whatever its fields.
        """
        self.context.sent = decoded.sent
        self.audit_sent(decoded.obj)
        if decoded.problems and options.field_validation == "Warn":
            self.context.warnings += decoded.problems
        elif decoded.problems and options.field_validation != "Ignore":
            raise self._strict_fault(decoded, kind)
        if decoded.refused is not None:
            raise decoded.refused

    def audit_sent(self, obj: dict[str, Any]) -> None:
        """The audit log may show ``obj`` as what the request sent."""
        if self.passage is not None and self.passage.audit is not None:
            own = obj.get("kind") == self.resource.kind
            self.passage.audit.sent(obj, self.resource.strategy.default if own else None)

    def audit_sent_patch(self, body: bytes) -> None:
        """The same for a patch."""
        if self.passage is not None and self.passage.audit is not None:
            self.passage.audit.sent_patch(body)

    @staticmethod
    def _strict_fault(decoded: Decoded, kind: str) -> ApiError:
        version = str(decoded.obj.get("apiVersion", "")).rpartition("/")[2]
        met = decoded.obj.get("kind", "")
        return bad_request(
            f'{met} in version "{version}" cannot be handled as a {kind}: strict decoding error: {", ".join(decoded.problems)}'
        )
