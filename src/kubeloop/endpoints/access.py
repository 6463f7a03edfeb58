"""The question that authorization answers, and its answers: may this user do that, and all that somebody may do.

Decisions are synchronous: they come from memory, also inside the evaluation of an expression or an admission plug-in.
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

# Users as all stages of a request see them, and the groups of Kubernetes itself.
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
#: The server itself, where it writes objects.
SYSTEM = User("system:apiserver", (MASTERS,))


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a successful authentication.

    ``audiences`` are those of the token among the requested ones; ``annotations`` go into the audit log, ``warnings`` to the client.
    """

    user: User
    audiences: tuple[str, ...] = ()
    annotations: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


def service_account(namespace: str, name: str, uid: str, extra: Mapping[str, tuple[str, ...]] | None = None) -> User:
    """Return the user that a service account is.

    Args:
        namespace: The namespace of the service account.
        name: Its name.
        uid: Its uid.
        extra: Additional values, such as the pod that its token is bound to.
    """
    groups = "system:serviceaccounts", f"system:serviceaccounts:{namespace}", AUTHENTICATED
    return User(f"system:serviceaccount:{namespace}:{name}", groups, uid, extra or {})


def authenticated(user: User) -> User:
    """Return ``user`` as a member of system:authenticated, unless it is anonymous."""
    if user.name == ANONYMOUS.name or AUTHENTICATED in user.groups or UNAUTHENTICATED in user.groups:
        return user
    return User(user.name, (*user.groups, AUTHENTICATED), user.uid, user.extra)


class Access(msgspec.Struct, frozen=True):
    """The attributes of a request that authorizers decide on (upstream's authorizer.Attributes).

    ``is_resource`` False: only ``verb`` and ``path`` are set. ``fields`` are the terms of the field selector that can be parsed: a missing
    term widens the request, never narrows it.
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
    """The decision of an authorizer. Neither ``allowed`` nor ``denied`` means no opinion; a request with no other opinion is forbidden."""

    allowed: bool
    denied: bool = False
    reason: str = ""


#: The decision of an authorizer that has no rule for the request.
NO_OPINION = Decision(False)


@dataclass(slots=True)
class Rules:
    """The rules of a user. ``incomplete``: an authorizer cannot list all its rules; ``error`` may give the reason."""

    resources: list[JSONObject] = field(default_factory=list)
    paths: list[JSONObject] = field(default_factory=list)
    incomplete: bool = False
    error: str = ""


class Authorizer(Protocol):
    """Decide from memory. Never raises."""

    def authorize(self, access: Access) -> Decision: ...

    def rules(self, user: User, namespace: str) -> Rules:
        """What ``user`` may do in ``namespace`` and outside of any."""

    async def prepare(self, user: User) -> None:
        """Load into memory what decisions about ``user`` need. The pipeline awaits this once before them."""


def access_of(user: User, info: RequestInfo) -> Access:
    """Return the attributes of a request of ``user``."""
    if not info.is_resource:
        return Access(user, info.verb, path=info.path, is_resource=False)
    fields = parsed_fields(info.field_selector) if info.field_selector else ()
    where = info.group, info.version, info.resource, info.subresource, info.namespace, info.name
    return Access(user, info.verb, *where, info.path, True, fields)


def parsed_fields(text: str) -> tuple[FieldTerm, ...]:
    """Return the terms of a field selector; no terms if it cannot be parsed."""
    try:
        return parse_field_selector(text).terms
    except ValueError:
        return ()


# The error of a forbidden request. Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (ForbiddenStatusError).


def require(authorizer: Authorizer, access: Access) -> None:
    """Check that an authorizer allows a request.

    Raises:
        Forbidden: It does not; the message is that of kube-apiserver.
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
    """What a browser would take for markup, escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
