"""Who may do what. Fails closed: role-based access control is not implemented, so only administrators may do anything.

Allowed: group system:masters and the server's own controllers, everything; everybody, GET of /healthz, /livez, /readyz and /version.
All else gets the 403 that Kubernetes gives to somebody without roles.
"""

from __future__ import annotations

from kubeloop.apiserver import refusals
from kubeloop.apiserver.authentication import MASTERS, User
from kubeloop.apiserver.request_info import RequestInfo

#: The identity of the built-in controllers: a client certificate that only the server's own process gets.
CONTROLLERS = "system:kube-controller-manager"

PUBLIC_PATHS = ("/healthz", "/livez", "/readyz", "/version")


def authorize(user: User, info: RequestInfo) -> None:
    """Raises Forbidden, in Kubernetes' words, for what ``user`` may not do."""
    if MASTERS in user.groups or user.name == CONTROLLERS:
        return
    if not info.is_resource:
        if info.verb in ("get", "head") and any(info.path == one or info.path.startswith(f"{one}/") for one in PUBLIC_PATHS):
            return
        raise refusals.forbidden_path(f'User "{user.name}" cannot {info.verb} path "{info.path}"')
    raise refusals.forbidden(info.group_resource, info.name, denied(user, info, info.verb))


def denied(user: User, info: RequestInfo, verb: str) -> str:
    """Why, after ``pods is forbidden:``."""
    resource = f"{info.resource}/{info.subresource}" if info.subresource else info.resource
    where = f'in the namespace "{info.namespace}"' if info.namespace else "at the cluster scope"
    return f'User "{user.name}" cannot {verb} resource "{resource}" in API group "{info.group}" {where}'


def authorize_impersonation(user: User, info: RequestInfo) -> None:
    """Only administrators may act as somebody else.

    Raises:
        Forbidden
    """
    if MASTERS in user.groups:
        return
    raise refusals.forbidden(info.group_resource, info.name, denied(user, info, f"impersonate-on:user-info:{info.verb}"))
