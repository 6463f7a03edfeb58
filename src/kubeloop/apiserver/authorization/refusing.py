"""What somebody is told who may not. Source: k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (ForbiddenStatusError)."""

from __future__ import annotations

from kubeloop.apiserver import api_errors
from kubeloop.apiserver.authorization.access import Access, Authorizer
from kubeloop.meta.errors import ApiError
from kubeloop.meta.go_quote import go_quoted
from kubeloop.meta.kinds import GroupResource


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
