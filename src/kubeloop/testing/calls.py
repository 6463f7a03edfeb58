"""``RecordedCall``: one request as a test compares it; and ``on``: selects the requests for a fault."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.apiserver.registry.registry import Registry
from kubeloop.endpoints.request_info import request_info
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.resource import Resource, kind_info
from kubeloop.serving.request import Request

#: Selects the requests for a fault.
Matches = Callable[[Request], bool]


def every(_: Request) -> bool:
    """Match all requests."""
    return True


@dataclass(slots=True)
class RecordedCall:
    """One request for a resource, as a server received it. Two calls are equal if their first six fields are.

    Attributes:
        verb: Such as ``get``, ``list`` or ``create``.
        kind: Empty if the server has no such resource.
        namespace: Empty for cluster-scoped kinds and all namespaces.
        name: The name in the path; empty for ``create``.
        subresource: Such as ``status``.
        body: The sent JSON tree: an object, a patch, options of a deletion. None: no body; bytes: another format.
        resource: Group, version and resource.
        query: The query of the URL.
        content_type: Media type of the body.
        user: Name in the client's certificate.
        code: HTTP status of the response; 0: none yet, or the connection broke.

    Example:
        >>> RecordedCall("delete", "Pod", "shop", "web-0").writes
        True
    """

    verb: str
    kind: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    body: Any = None
    resource: GroupVersionResource = field(default=GroupVersionResource("", "", ""), compare=False)
    query: dict[str, list[str]] = field(default_factory=dict, compare=False)
    content_type: str = field(default="", compare=False)
    user: str = field(default="", compare=False)
    code: int = field(default=0, compare=False)

    @property
    def writes(self) -> bool:
        return self.verb not in ("get", "list", "watch")


def call_of(request: Request, registry: Registry | None) -> RecordedCall | None:
    """Return the call that a request makes, without its body; None for a path without a resource (discovery, health)."""
    info = request_info(request)
    if not info.is_resource:
        return None
    gvr = GroupVersionResource(info.group, info.version, info.resource)
    served = registry.get(gvr) if registry is not None else None
    kind = served.kind if served is not None else ""
    name = info.name if info.name_in_path else ""
    sent = request.header("Content-Type")
    return RecordedCall(info.verb, kind, info.namespace, name, info.subresource, None, gvr, request.query, sent, _user(request))


def _user(request: Request) -> str:
    parts = (part for name in (request.peer_certificate or {}).get("subject", ()) for part in name)
    return next((value for kind, value in parts if kind == "commonName"), "")


def body_tree(raw: bytes) -> Any:
    """Return the JSON tree of a body; other formats stay bytes, an empty body is None."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw


def on(verb: str = "*", kind: type[Resource] | str = "*", namespace: str = "*", name: str = "*") -> Matches:
    """Return a function that matches requests by verb, kind, namespace and name.

    Args:
        verb: ``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete`` or ``deletecollection``; ``*``: any.
        kind: A class or a plural (``"pods"``), without subresources; with them: ``"pods/status"``, ``"pods/*"``, ``"*/scale"``. ``*``:
            any, with subresources. Use the plural of a custom kind that only discovery knows.
        namespace: The namespace; ``*``: any.
        name: The name of the object; ``*``: any.

    Returns:
        A function of a request.

    Raises:
        ValueError: The class does not have a plural.
    """
    if isinstance(kind, str):
        plural, slash, subresource = kind.partition("/")
        subresource = subresource if slash or plural != "*" else "*"
        group = "*"
    else:
        info = kind_info(kind)
        if info.plural is None:
            raise ValueError(f'{info.gvk.kind} does not say its plural: name it instead, as "pods"')
        plural, subresource, group = info.plural, "", info.gvk.group

    def matches(request: Request) -> bool:
        asked = request_info(request)
        wanted = (
            (verb, asked.verb),
            (plural, asked.resource),
            (group, asked.group),
            (subresource, asked.subresource),
            (namespace, asked.namespace),
            (name, asked.name),
        )
        return asked.is_resource and all(one in ("*", found) for one, found in wanted)

    return matches
