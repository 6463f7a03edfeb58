"""The question that authorization answers, and its answers: may this user do that, and all that somebody may do.

Decisions are synchronous: they come from memory, also inside the evaluation of an expression or an admission plug-in.
Source: k8s.io/apiserver pkg/authorization/authorizer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

import msgspec

from kubeloop.apiserver.request import api_errors
from kubeloop.apiserver.request.info import RequestInfo
from kubeloop.apiserver.request.users import User
from kubeloop.meta.errors import ApiError
from kubeloop.meta.go_quote import go_quoted
from kubeloop.meta.kinds import GroupResource
from kubeloop.meta.selectors import FieldTerm, parse_field_selector
from kubeloop.types import JSONObject


class Access(msgspec.Struct, frozen=True):
    """Something that ``user`` wants to do. ``is_resource`` False: only ``verb`` and ``path`` mean anything.

    ``fields`` are the terms of the field selector, as far as they could be read: leaving one out asks for more, never for less.
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
    """Neither ``allowed`` nor ``denied``: nobody has an opinion, which refuses a request. ``reason`` may be empty."""

    allowed: bool
    denied: bool = False
    reason: str = ""


#: Of an authorizer that knows nothing of the matter.
NO_OPINION = Decision(False)


@dataclass(slots=True)
class Rules:
    """All that somebody may do, in the words of roles. ``incomplete``: there is more, that cannot be told; ``error`` may say why."""

    resources: list[JSONObject] = field(default_factory=list)
    paths: list[JSONObject] = field(default_factory=list)
    incomplete: bool = False
    error: str = ""


class Authorizer(Protocol):
    """Decides from what is in memory; never raises."""

    def authorize(self, access: Access) -> Decision: ...

    def rules(self, user: User, namespace: str) -> Rules:
        """What ``user`` may do in ``namespace`` and outside of any."""

    async def prepare(self, user: User) -> None:
        """Awaited once before decisions about ``user``: brings into memory what is not kept there for everybody."""


def access_of(user: User, info: RequestInfo) -> Access:
    """What a request asks for."""
    if not info.is_resource:
        return Access(user, info.verb, path=info.path, is_resource=False)
    fields = parsed_fields(info.field_selector) if info.field_selector else ()
    where = info.group, info.version, info.resource, info.subresource, info.namespace, info.name
    return Access(user, info.verb, *where, info.path, True, fields)


def parsed_fields(text: str) -> tuple[FieldTerm, ...]:
    """The terms of a field selector; none of one that cannot be read."""
    try:
        return parse_field_selector(text).terms
    except ValueError:
        return ()


# What somebody is told who may not. Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (ForbiddenStatusError).


def require(authorizer: Authorizer, access: Access) -> None:
    """Nothing, where it is allowed.

    Raises:
        Forbidden: in Kubernetes' words.
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
