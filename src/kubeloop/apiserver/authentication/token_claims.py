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
    """A token of an accepted issuer is not valid. The message does not contain the token."""


ACCOUNTS: Final = GroupVersionResource("", "v1", "serviceaccounts")
SECRETS: Final = GroupVersionResource("", "v1", "secrets")
PODS: Final = GroupVersionResource("", "v1", "pods")
NODES: Final = GroupVersionResource("", "v1", "nodes")


@dataclass(slots=True)
class ReadObjects:
    """The storage keys that the verification of a token has read, with their revisions.

    ``ending`` is True if one of the objects is being deleted, so that the result depends on the time.
    """

    revisions: list[tuple[str, int]] = field(default_factory=list)
    ending: bool = False


class BoundObjects:
    """Reads the objects to which tokens are bound. Recorded reads can be checked for changes without reading again."""

    def __init__(self, objects: Objects, registry: Registry) -> None:
        self._objects = objects
        self._registry = registry

    async def get(self, gvr: GroupVersionResource, namespace: str, name: str, seen: ReadObjects | None = None) -> JSONObject | None:
        """Return an object, shared and read-only, or None.

        Args:
            gvr: The resource.
            namespace: Namespace; empty for cluster-scoped resources.
            name: Name of the object.
            seen: Records the read.
        """
        resource = self._registry.get(gvr)
        if resource is None or not name:
            return None
        result = await self._objects.get(resource, namespace, name)
        if result is None:
            return None
        if seen is not None:
            seen.revisions.append((result.kv.key, result.revision))
            seen.ending = seen.ending or "deletionTimestamp" in result.obj["metadata"]
        return result.obj

    async def unchanged(self, revisions: tuple[tuple[str, int], ...]) -> bool:
        """Return whether the objects still have these revisions."""
        storage = self._objects.storage
        for key, revision in revisions:
            result, _ = await storage.get(key)
            if result is None or result.mod_revision != revision:
                return False
        return True


def deleted_before(obj: JSONObject, moment: float) -> bool:
    """Return whether the deletion of an object was requested before ``moment`` (seconds since 1970).

    For a pod the end of its grace period counts, as upstream.
    """
    stamp = obj["metadata"].get("deletionTimestamp")
    return stamp is not None and parse_time(stamp).timestamp() < moment


#: Seconds by which the clocks of signer and verifier may differ.
LEEWAY: Final = 60.0
_KUBERNETES: Final = "kubernetes.io"


@dataclass(frozen=True, slots=True)
class ObjectReference:
    """An object by name and uid, as in the claims of a token."""

    name: str
    uid: str = ""

    def tree(self) -> JSONObject:
        """Return the reference as JSON."""
        return {"name": self.name, "uid": self.uid} if self.uid else {"name": self.name}

    @classmethod
    def to(cls, obj: JSONObject) -> ObjectReference:
        """Return a reference to an object."""
        metadata = obj["metadata"]
        return cls(metadata["name"], metadata["uid"])


@dataclass(frozen=True, slots=True)
class TokenBinding:
    """The objects to which a token is bound. A token that is bound to a pod also names the pod's node, without being bound to the node."""

    pod: ObjectReference | None = None
    secret: ObjectReference | None = None
    node: ObjectReference | None = None


def build_claims(
    issuer: str, account: JSONObject, bound: TokenBinding, audiences: Sequence[str], now: datetime, lasts: int, warn_after: int = 0
) -> JSONObject:
    """Return the claims of a new token.

    Args:
        issuer: The issuer.
        account: The service account.
        bound: The objects to which the token is bound.
        audiences: The audiences.
        now: Time of issue.
        lasts: Seconds of validity.
        warn_after: Seconds after which the use of the token is reported; 0: never.

    Returns:
        The claims as JSON.
    """
    start = int(now.timestamp())
    metadata = account["metadata"]
    data: JSONObject = {"namespace": metadata["namespace"], "serviceaccount": ObjectReference.to(account).tree()}
    data |= {kind: one.tree() for kind, one in (("pod", bound.pod), ("secret", bound.secret), ("node", bound.node)) if one is not None}
    if warn_after:
        data["warnafter"] = start + warn_after
    return {
        "iss": issuer,
        "sub": f"system:serviceaccount:{metadata['namespace']}:{metadata['name']}",
        "aud": list(audiences),
        "exp": start + lasts,
        "iat": start,
        "nbf": start,
        "jti": str(uuid.uuid4()),
        _KUBERNETES: data,
    }


@dataclass(frozen=True, slots=True)
class Claims:
    """The claims of a token. Times are in seconds since 1970. A missing claim is None."""

    issuer: str
    subject: str
    audiences: tuple[str, ...]
    expires: int | None
    begins: int | None
    issued: int | None
    token_id: str
    rest: JSONObject

    def fault(self, now: float) -> str:
        """Return why the token is not valid at ``now`` (seconds since 1970), or "" if it is."""
        if self.begins is not None and now + LEEWAY < self.begins:
            return "service account token is not valid yet"
        if self.expires is not None and now - LEEWAY > self.expires:
            return "service account token has expired"
        if self.issued is not None and now + LEEWAY < self.issued:
            return "service account token is issued in the future"
        return ""

    @property
    def kubernetes(self) -> JSONObject:
        """The claim ``kubernetes.io``."""
        data = self.rest.get(_KUBERNETES)
        return data if isinstance(data, dict) else {}

    def reference(self, kind: str) -> ObjectReference | None:
        """Return the reference of a kind: ``serviceaccount``, ``pod``, ``secret`` or ``node``."""
        data = self.kubernetes.get(kind)
        if not isinstance(data, dict):
            return None
        return ObjectReference(_text(data.get("name")), _text(data.get("uid")))


def parse_claims(payload: bytes) -> Claims:
    """Parse the claims of a token whose signature was verified.

    Raises:
        ValueError: The payload is no JSON object, or a claim has another type than in RFC 7519.
    """
    tree = msgspec.json.decode(payload)
    if not isinstance(tree, dict):
        raise ValueError("claims are not a JSON object")  # noqa: TRY004 - callers expect ValueError for every invalid token
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
        raise ValueError("a time is not a number")  # noqa: TRY004 - as above
    return int(value)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
