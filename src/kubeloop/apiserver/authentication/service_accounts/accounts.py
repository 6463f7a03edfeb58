"""Service accounts and what tokens are bound to, as they are now. Source: k8s.io/kubernetes pkg/serviceaccount (claims.go, legacy.go)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.registry.registry import Registry
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.meta.time import parse_time
from kubeloop.types import JSONObject


class TokenRefused(Exception):
    """A token of an issuer that is believed is not in force. The text never holds the token."""


ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
PODS: Final = GroupVersionResource("", "v1", "pods")
NODES: Final = GroupVersionResource("", "v1", "nodes")


@dataclass(slots=True)
class Seen:
    """What was looked at: keys in storage, with the revision of each. ``ending``: one of them is being deleted, so that time decides."""

    revisions: list[tuple[str, int]] = field(default_factory=list)
    ending: bool = False


class BoundObjects:
    """Reads objects by name. What was ``Seen`` can be told to be unchanged without reading it again."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects = objects
        self._registry = registry

    async def get(self, gvr: GroupVersionResource, namespace: str, name: str, seen: Seen | None = None) -> JSONObject | None:
        """The shared tree, or None. Never change it."""
        resource = self._registry.get(gvr)
        if resource is None or not name:
            return None
        found = await self._objects.get(resource, namespace, name)
        if found is None:
            return None
        if seen is not None:
            seen.revisions.append((found.kv.key, found.revision))
            seen.ending = seen.ending or "deletionTimestamp" in found.obj["metadata"]
        return found.obj

    async def unchanged(self, revisions: tuple[tuple[str, int], ...]) -> bool:
        storage = self._objects.storage
        for key, revision in revisions:
            found, _ = await storage.get(key)
            if found is None or found.mod_revision != revision:
                return False
        return True


def deleted_before(obj: JSONObject, moment: float) -> bool:
    """Whether its deletion was asked for before ``moment`` (seconds since 1970). A pod counts from the end of its grace, as upstream."""
    stamp = obj["metadata"].get("deletionTimestamp")
    return stamp is not None and parse_time(stamp).timestamp() < moment
