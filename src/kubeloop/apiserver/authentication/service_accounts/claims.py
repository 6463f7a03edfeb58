"""What tokens of service accounts say: claims as Kubernetes writes them, and as they are read again.

Source: k8s.io/kubernetes pkg/serviceaccount/claims.go; RFC 7519.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

import msgspec

from kubeloop.types import JSONObject

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
