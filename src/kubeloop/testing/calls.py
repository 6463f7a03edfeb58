"""What a server was asked for, as a test compares it: ``Call``; and which requests a fault is for: ``on``."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.apiserver.registry.registry import Registry
from kubeloop.apiserver.request.info import request_info
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.resource import Resource, kind_info
from kubeloop.serving.request import Request

#: Which requests a fault is for.
Matches = Callable[[Request], bool]


def every(_: Request) -> bool:
    """Matches all requests."""
    return True


@dataclass(slots=True)
class Call:
    """One request for a resource. Equal are calls of the same first six fields; ``Call("get", "Pod", "shop", "web-0")`` is written by hand.

    ``kind`` is empty where the server serves no such resource; ``name`` is that of the path, and so empty for ``create``. ``body`` is the
    JSON tree that was sent: an object, a patch, options of a deletion; None if there was none, bytes if it was another format.
    ``user`` is the name in the client's certificate, ``code`` the HTTP status of the answer; 0: not answered yet, or broken off.
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


def call_of(request: Request, registry: Registry | None) -> Call | None:
    """Without its body; None for what is no resource (discovery, health)."""
    info = request_info(request)
    if not info.is_resource:
        return None
    gvr = GroupVersionResource(info.group, info.version, info.resource)
    served = registry.get(gvr) if registry is not None else None
    kind = served.kind if served is not None else ""
    name = info.name if info.name_in_path else ""
    sent = request.header("Content-Type")
    return Call(info.verb, kind, info.namespace, name, info.subresource, None, gvr, request.query, sent, _user(request))


def _user(request: Request) -> str:
    parts = (part for name in (request.peer_certificate or {}).get("subject", ()) for part in name)
    return next((value for kind, value in parts if kind == "commonName"), "")


def body_tree(raw: bytes) -> Any:
    """The JSON tree of a body; other formats stay bytes, nothing is None."""
    if not raw:
        return None
    try:
        return msgspec.json.decode(raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return raw


def on(verb: str = "*", kind: type[Resource] | str = "*", namespace: str = "*", name: str = "*") -> Matches:
    """Requests of a verb (``get``, ``list``, ``watch``, ``create``, ``update``, ``patch``, ``delete``, ``deletecollection``) and a kind.

    ``kind`` is a class or a plural (``"pods"``): without subresources, which are said so: ``"pods/status"``, ``"pods/*"``, ``"*/scale"``.
    ``*`` stands for any, of kinds with their subresources too. A custom kind is named by its plural where only discovery can tell it.

    Raises:
        ValueError: a class that does not say its plural.
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
