"""What rules know about a request, and about the metadata of an object before they see all of it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import msgspec

from kubeloop.endpoints.access import User


@dataclass(frozen=True, slots=True)
class RewriteContext:
    """The request whose answer rules change; texts are empty where a request has no such part.

    >>> context = RewriteContext(User("ann"), "get", "", "v1", "pods", "", "shop", "web-0", "kubectl/v1.36.0")
    >>> context.with_verb("list").verb
    'list'
    """

    user: User
    verb: str
    group: str
    version: str
    resource: str
    subresource: str
    namespace: str
    name: str
    user_agent: str

    def with_verb(self, verb: str) -> RewriteContext:
        return replace(self, verb=verb)

    def request_values(self) -> dict[str, Any]:
        """Return the variable ``request`` of expressions."""
        return {
            "verb": self.verb,
            "group": self.group,
            "version": self.version,
            "resource": self.resource,
            "subresource": self.subresource,
            "namespace": self.namespace,
            "name": self.name,
            "userAgent": self.user_agent,
        }

    def user_values(self) -> dict[str, Any]:
        """Return the variable ``user`` of expressions."""
        user = self.user
        extra = {key: list(values) for key, values in user.extra.items()}
        return {"name": user.name, "uid": user.uid, "groups": list(user.groups), "extra": extra}

    def callable_argument(self) -> MappingProxyType[str, Any]:
        """Return the second argument of a Python callable: the variable ``request``, and the user as its member ``user``."""
        return MappingProxyType({**self.request_values(), "user": MappingProxyType(self.user_values())})


class HeadMetadata(msgspec.Struct):
    """The part of an object's metadata that is enough for most decisions, as a decoder projects it.

    >>> msgspec.json.decode(b'{"name": "web-0", "labels": {"app": "web"}, "uid": "1"}', type=HeadMetadata).labels
    {'app': 'web'}
    """

    name: str = ""
    namespace: str = ""
    labels: dict[str, str] | None = None
