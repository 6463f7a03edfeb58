"""Describes a request in words, from its path: for messages, logs and spans only, never for decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_VERBS = {"GET": "get", "HEAD": "get", "POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


class RequestDescription(NamedTuple):
    """The parts of a request. ``verb`` is Kubernetes'; for a path without a resource it is the HTTP method, and the rest is empty."""

    verb: str
    group: str = ""
    version: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""


def asked(method: str, path: str, query: Mapping[str, object] | None = None) -> RequestDescription:
    """Parse a request as the server's request info does."""
    parts = path.strip("/").split("/")
    if parts[0] == "api" and len(parts) > 2:
        rest, group, version = parts[2:], "", parts[1]
    elif parts[0] == "apis" and len(parts) > 3:
        rest, group, version = parts[3:], parts[1], parts[2]
    else:
        return RequestDescription(method)
    namespace = ""
    if rest[0] == "namespaces" and len(rest) > 2 and rest[2] not in ("status", "finalize"):
        namespace, rest = rest[1], rest[2:]
    name = rest[1] if len(rest) > 1 else ""
    verb = _VERBS.get(method, method)
    if method == "GET" and not name:
        verb = "watch" if query and query.get("watch") else "list"
    elif method == "DELETE" and not name:
        verb = "deletecollection"
    return RequestDescription(verb, group, version, rest[0], "/".join(rest[2:]), namespace, name)


def describe(method: str, path: str, query: Mapping[str, object] | None = None) -> str:
    """Return a text such as ``get pods "web-0" in namespace "shop"``; a path without a resource stays as it is (``GET /version``)."""
    found = asked(method, path, query)
    if not found.resource:
        return f"{method} {path}"
    verb = "delete collection of" if found.verb == "deletecollection" else found.verb
    resource = f"{found.resource}.{found.group}" if found.group else found.resource
    if found.subresource:
        resource = f"{resource}/{found.subresource}"
    name = f'"{found.name}"' if found.name else ""
    return " ".join(part for part in (verb, resource, name, f'in namespace "{found.namespace}"' if found.namespace else "") if part)
