"""Hints: the user's next step after an error response of an API server, if the server's message does not contain it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kubeloop.meta.errors import ApiError

# k8s.io/apiserver pkg/endpoints/handlers/responsewriters/errors.go (forbiddenMessage).
_FORBIDDEN = re.compile(
    r'cannot (?P<verb>\S+) resource "(?P<resource>[^"]+)" in API group "(?P<group>[^"]*)"'
    r'(?: in the namespace "(?P<namespace>[^"]+)"| at the cluster scope)?'
)
_PATH = re.compile(r'cannot (?P<verb>\S+) path "(?P<path>[^"]+)"')


def way_out(error: ApiError) -> str:
    """Return a short hint; empty if there is none, or if the message contains it."""
    status = error.status
    match status.reason:
        case "Unauthorized":
            return "log in again or renew the credentials; kubeloop config explain says where they come from"
        case "Forbidden":
            return _grant(status.message)
        case "Conflict" if error.has_cause("FieldManagerConflict"):
            return "leave these fields out, or take them over with force=True"
        case "Conflict" if "the object has been modified" in status.message:
            return "client.change reads, changes and repeats"
        case "" | "InternalError" if "resourceVersion should not be set on objects to be created" in status.message:
            return "it was read from a server: give a copy new metadata, ObjectMeta(name=...)"
        case "AlreadyExists":
            return "create_or_update and apply change the existing object"
        case "Expired" | "Gone":
            return "list again and go on from there"
        case "TooManyRequests" if error.retry_after:
            return f"try again in {error.retry_after} s"
    return ""


def refused_access(error: ApiError) -> tuple[str, str] | None:
    """Return the verb, and the resource with its group or the path, that a Forbidden refuses; None if the message does not name them."""
    found = _FORBIDDEN.search(error.status.message)
    if found is not None:
        return found["verb"], f"{found['resource']}.{found['group']}" if found["group"] else found["resource"]
    path = _PATH.search(error.status.message)
    return (path["verb"], path["path"]) if path is not None else None


def _grant(message: str) -> str:
    """Return the command that grants the permission, for an administrator."""
    found = _FORBIDDEN.search(message)
    if found is not None:
        resource, _, subresource = found["resource"].partition("/")
        what = f"{resource}.{found['group']}" if found["group"] else resource
        what += f"/{subresource}" if subresource else ""
        where = f" -n {found['namespace']}" if found["namespace"] else ""
        kind = "role" if where else "clusterrole"
        return f"what it takes: kubectl create {kind} NAME --verb={found['verb']} --resource={what}{where}, bound to that user"
    path = _PATH.search(message)
    if path is not None:
        return f"what it takes: kubectl create clusterrole NAME --verb={path['verb']} --non-resource-url={path['path']}, bound to that user"
    return ""
