"""Claims of service account tokens, and the objects to which the claims bind a token.

Source: k8s.io/kubernetes pkg/serviceaccount (claims.go, legacy.go); RFC 7519.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

import msgspec

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


#: Seconds by which the clocks of those who sign and verify may differ.
LEEWAY: Final = 60.0
_KUBERNETES: Final = "kubernetes.io"


@dataclass(frozen=True, slots=True)
class Reference:
    """An object by name and uid, as it was when the token was issued."""

    name: str
    uid: str = ""

    def tree(self) -> JSONObject:
        return {"name": self.name, "uid": self.uid} if self.uid else {"name": self.name}

    @classmethod
    def to(cls, obj: JSONObject) -> Reference:
        metadata = obj["metadata"]
        return cls(metadata["name"], metadata["uid"])


@dataclass(frozen=True, slots=True)
class Bound:
    """What a token ends with. A pod's token tells its node as well, which it is not bound to."""

    pod: Reference | None = None
    secret: Reference | None = None
    node: Reference | None = None


def written(
    issuer: str, account: JSONObject, bound: Bound, audiences: Sequence[str], now: datetime, lasts: int, warn_after: int = 0
) -> JSONObject:
    """The claims of a new token. ``lasts`` and ``warn_after`` in seconds from ``now``; 0: no warning."""
    start = int(now.timestamp())
    metadata = account["metadata"]
    told: JSONObject = {"namespace": metadata["namespace"], "serviceaccount": Reference.to(account).tree()}
    told |= {kind: one.tree() for kind, one in (("pod", bound.pod), ("secret", bound.secret), ("node", bound.node)) if one is not None}
    if warn_after:
        told["warnafter"] = start + warn_after
    return {
        "iss": issuer,
        "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
        "aud": list(audiences),
        "exp": start + lasts,
        "iat": start,
        "nbf": start,
        "jti": str(uuid.uuid4()),
        _KUBERNETES: told,
    }


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token says, all of it as its signer wrote it. Times in seconds since 1970, None: not said."""

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    expires: int | None
    begins: int | None
    issued: int | None
    token_id: str
    rest: JSONObject

    def fault(self, now: float) -> str:
        """Why it is not in force at ``now``; empty when it is."""
        if self.begins is not None and now + LEEWAY < self.begins:
            return "service account token is not valid yet"
        if self.expires is not None and now - LEEWAY > self.expires:
            return "service account token has expired"
        if self.issued is not None and now + LEEWAY < self.issued:
            return "service account token is issued in the future"
        return ""

    @property
    def kubernetes(self) -> JSONObject:
        told = self.rest.get(_KUBERNETES)
        return told if isinstance(told, dict) else {}

    def reference(self, kind: str) -> Reference | None:
        """``serviceaccount``, ``pod``, ``secret`` or ``node``."""
        told = self.kubernetes.get(kind)
        if not isinstance(told, dict):
            return None
        return Reference(_text(told.get("name")), _text(told.get("uid")))


def read(payload: bytes) -> Claims:
    """The claims of a token whose signature was verified.

    Raises:
        ValueError: no JSON object, or a claim of another type than RFC 7519 says.
    """
    tree = msgspec.json.decode(payload)
    if not isinstance(tree, dict):
        raise ValueError("claims are no JSON object")  # noqa: TRY004 - to whoever verifies, the token is wrong
    audience = tree.get("aud") or []
    audiences = [audience] if isinstance(audience, str) else audience
    if not isinstance(audiences, list) or not all(isinstance(one, str) for one in audiences):
        raise ValueError("aud is neither text nor a list of texts")
    return Claims(
        issuer=_text(tree.get("iss")),
        subject=_text(tree.get("sub")),
        audiences=tuple(audiences),
        expires=_time(tree.get("exp")),
        begins=_time(tree.get("nbf")),
        issued=_time(tree.get("iat")),
        token_id=_text(tree.get("jti")),
        rest=tree,
    )


def _time(value: Any) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("a time is no number")  # noqa: TRY004 - as above
    return int(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
