"""The interface of authorizers: users, the attributes of a request, decisions, and the rules that apply to a user.

Decisions are synchronous and use only data in memory, so that CEL expressions and admission plug-ins can request them too.
Source: k8s.io/apiserver pkg/authorization/authorizer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from kubeloop.endpoints import api_errors
from kubeloop.endpoints.request_info import RequestInfo
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.selectors import FieldTerm, parse_field_selector
from kubeloop.meta.strconv import go_quoted
from kubeloop.types import JSONObject

# Users, as authentication produces them and all later stages of a request use them; and the built-in groups of Kubernetes.
#
# Source: Kubernetes documentation, "Authenticating" and "Using RBAC Authorization" (default groups).


AUTHENTICATED = "system:authenticated"
UNAUTHENTICATED = "system:unauthenticated"
MASTERS = "system:masters"


@dataclass(frozen=True, slots=True)
class User:
    """An authenticated user. ``extra`` holds the attributes that authenticators and impersonation add."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
#: The identity under which the server itself writes objects.
SYSTEM = User("system:apiserver", (MASTERS,))


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a successful authentication.

    ``audiences`` are the requested audiences that the token is valid for. ``annotations`` are added to the audit event, and ``warnings``
    are sent to the client.
    """

    user: User
    audiences: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def service_account(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]] | None = None) -> User:
    """Return the user that represents a service account.

    Args:
        namespace: The namespace of the service account.
        name: The name of the service account.
        uid: The uid of the service account.
        extra: Additional attributes, such as the pod that the token is bound to.
    """
    groups = "system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


def authenticated(user: User) -> User:
    """Return ``user`` with the group system:authenticated added, unless the user is anonymous."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


class Access(msgspec.Struct, frozen=True):
    """The attributes of a request that authorizers decide on (upstream's authorizer.Attributes).

    If ``is_resource`` is false, only ``verb`` and ``path`` are set. ``fields`` are the terms of the field selector that can be parsed.
    A term that is left out makes the request wider, never narrower.
    """

    user: User
    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    is_resource: bool = True
    fields: tuple[FieldTerm, ...] = ()


class Decision(msgspec.Struct, frozen=True, gc=False):
    """The decision of an authorizer.

    If neither ``allowed`` nor ``denied`` is set, the authorizer has no opinion. A request is forbidden if no authorizer has an opinion.
    """

    allowed: bool
    denied: bool = False
    reason: str = ""


#: The decision of an authorizer that has no rule for the request.
NO_OPINION = Decision(False)


@dataclass(slots=True)
class Rules:
    """The rules that apply to a user.

    ``incomplete`` says that an authorizer cannot list all its rules; ``error`` may hold the reason.
    """

    resources: list[JSONObject] = field(default_factory=list)
    paths: list[JSONObject] = field(default_factory=list)
    incomplete: bool = False
    error: str = ""


class Authorizer(Protocol):
    """The interface of authorizers. They decide from data in memory and never raise."""

    def authorize(self, access: Access) -> Decision: ...

    def rules(self, user: User, namespace: str) -> Rules:
        """Return the rules that allow actions of ``user`` in ``namespace`` and on objects without a namespace."""

    async def prepare(self, user: User) -> None:
        """Load the data that decisions about ``user`` need. The request pipeline awaits this once, before any decision."""


def access_of(user: User, info: RequestInfo) -> Access:
    """Return the attributes of a request that ``user`` sent."""
    if not info.is_resource:
        return Access(user, info.verb, path=info.path, is_resource=False)
    fields = parsed_fields(info.field_selector) if info.field_selector else ()
    where = info.group, info.version, info.resource, info.subresource, info.namespace, info.name
    return Access(user, info.verb, *where, info.path, True, fields)


def parsed_fields(text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector, or no terms if the selector cannot be parsed."""
    try:
        return parse_field_selector(text).terms
    except ValueError:
        return ()


# The error of a forbidden request. Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (ForbiddenStatusError).


def require(authorizer: Authorizer, access: Access) -> None:
    """Check that an authorizer allows a request.

    Raises:
        Forbidden: The authorizer does not allow it. The message is that of kube-apiserver.
    """
    decision = authorizer.authorize(access)
    if not decision.allowed:
        raise forbidden(access, decision.reason)


def forbidden(access: Access, reason: str = "") -> ApiError:
    why = _harmless(_cannot(access))
    if reason:
        why = f"{why}: {reason}"
    if not access.is_resource:
        return api_errors.forbidden_path(why)
    return api_errors.forbidden(GroupResource(access.group, access.resource), access.name, why)


def _cannot(access: Access) -> str:
    who = f"User {go_quoted(access.user.name)} cannot {access.verb}"
    if not access.is_resource:
        return f"{who} path {go_quoted(access.path)}"
    resource = f"{access.resource}/{access.subresource}" if access.subresource else access.resource
    where = f"in the namespace {go_quoted(access.namespace)}" if access.namespace else "at the cluster scope"
    return f"{who} resource {go_quoted(resource)} in API group {go_quoted(access.group)} {where}"


def _harmless(text: str) -> str:
    """Escape the characters that a browser would interpret as markup."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
