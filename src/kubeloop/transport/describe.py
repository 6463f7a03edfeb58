"""Says in words what a request asks for, from its path; for error messages only."""

from __future__ import annotations

from collections.abc import Mapping

_VERBS = {"GET": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


def describe(method: str, path: str, query: Mapping[str, object] | None = None) -> str:
    """``get pods "web-0" in namespace "shop"``; paths that name no resource are given as they are (``GET /version``)."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        rest, group = parts[2:], ""
    elif parts[0] == "apis" and len(parts) > 3:
        rest, group = parts[3:], parts[1]
    else:
        return f"{method} {path}"
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    resource = f"{rest[0]}.{group}" if group else rest[0]
    name = rest[1] if len(rest) > 1 else ""
    if len(rest) > 2:
        resource = f"{resource}/{'/'.join(rest[2:])}"
    verb = _VERBS.get(method, method)
    if method == "GET" and not name:
        verb = "watch" if query and query.get("watch") else "list"
    elif method == "DELETE" and not name:
        verb = "delete collection of"
    return " ".join(
        part for part in (verb, resource, f'"{name}"' if name else "", f'in namespace "{namespace}"' if namespace else "") if part
    )
