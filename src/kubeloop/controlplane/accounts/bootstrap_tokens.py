"""Controllers of bootstrap tokens: one signs the public ConfigMap ``cluster-info`` with them, the other deletes expired tokens.

A token is never logged, and no error contains it.
Source: Kubernetes pkg/controller/bootstrap; k8s.io/cluster-bootstrap (token/jws, util/secrets); RFC 7515, appendix F (detached content).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from operator import attrgetter

from kubeloop.api.core.v1 import ConfigMap, Secret
from kubeloop.client import DeleteOptions
from kubeloop.controller import Controller, Predicate, Result, WatchedKind
from kubeloop.meta import Conflict, NotFound, ObjectKey
from kubeloop.meta.time import parse_time

TOKEN = "bootstrap.kubernetes.io/token"  # noqa: S105  # the type of a Secret
TOKENS_NAMESPACE = "kube-system"
CLUSTER_INFO = ObjectKey("", "kube-public", "cluster-info")
#: The key of the signed text, and the prefix of the keys of signatures, in ``cluster-info``.
CONTENT, SIGNATURE = "kubeconfig", "jws-kubeconfig-"
_NAME = re.compile("bootstrap-token-([a-z0-9]{6})")

_is_token = Predicate(lambda event: event.head.value("type") == TOKEN and event.head.namespace == TOKENS_NAMESPACE, ("type",))
_is_cluster_info = Predicate(lambda event: (event.head.namespace, event.head.name) == (CLUSTER_INFO.namespace, CLUSTER_INFO.name))


def expiry_of(token: Secret) -> datetime | None:
    """Return when a bootstrap token expires, or None if it does not expire. A malformed time counts as expired."""
    text = _text(token, "expiration")
    if not text:
        return None
    try:
        return parse_time(text)
    except ValueError:
        return datetime.min.replace(tzinfo=UTC)


def signing_key(token: Secret, now: datetime) -> tuple[str, str] | None:
    """Return the id and the secret of a token, or None if the token is malformed, has expired or may not be used for signing."""
    name = _NAME.fullmatch(token.metadata.name)
    token_id, secret = _text(token, "token-id"), _text(token, "token-secret")
    if name is None or name[1] != token_id or not secret or _text(token, "usage-bootstrap-signing") != "true":
        return None
    expiry = expiry_of(token)
    return None if expiry is not None and expiry <= now else (token_id, secret)


def detached_signature(content: str, token_id: str, secret: str) -> str:
    """Return the compact JWS (HS256) of a text, without the text."""
    header = _base64(json.dumps({"alg": "HS256", "kid": token_id}, separators=(",", ":")).encode())
    signed = f"{header}.{_base64(content.encode())}"
    return f"{header}..{_base64(hmac.digest(secret.encode(), signed.encode(), hashlib.sha256))}"


def signed(data: dict[str, str], tokens: Iterable[Secret], now: datetime) -> dict[str, str]:
    """Return the data of ``cluster-info`` with signatures by exactly the given tokens.

    Args:
        data: The present data, which is returned unchanged if it has no text to sign.
        tokens: The bootstrap tokens. Tokens that may not sign are ignored; of two tokens with the same id the first one counts.
        now: The present time.
    """
    if CONTENT not in data:
        return data
    keys: dict[str, str] = {}
    for token in tokens:
        key = signing_key(token, now)
        if key is not None:
            keys.setdefault(*key)
    unsigned = {name: text for name, text in data.items() if not name.startswith(SIGNATURE)}
    return unsigned | {f"{SIGNATURE}{token_id}": detached_signature(data[CONTENT], token_id, secret) for token_id, secret in keys.items()}


class BootstrapSigner(
    Controller[ConfigMap],
    predicates=[_is_cluster_info],
    watches=[WatchedKind(Secret, to=lambda _: [CLUSTER_INFO], predicates=(_is_token,))],
    name="bootstrap-signer-controller",
):
    """Signs ``cluster-info`` with each bootstrap token, so that a client that knows a token can trust the ConfigMap."""

    async def reconcile(self, cluster_info: ConfigMap) -> None:
        tokens = self.lister(Secret).list(TOKENS_NAMESPACE, field_selector={"type": TOKEN})
        data = signed(cluster_info.data, sorted(tokens, key=attrgetter("metadata.name")), self.clock.wall())
        if data == cluster_info.data:
            return
        cluster_info.data = data
        try:
            await self.client.update(cluster_info)
        except (Conflict, NotFound):
            return  # The watch reports the change.


class BootstrapTokenCleaner(Controller[Secret], predicates=[_is_token], name="token-cleaner-controller"):
    """Deletes bootstrap tokens when they expire."""

    async def reconcile(self, token: Secret) -> Result | None:
        expiry = expiry_of(token)
        if expiry is None or token.type != TOKEN:
            return None
        left = (expiry - self.clock.wall()).total_seconds()
        if left > 0:
            return Result(requeue_after=left)
        try:
            await self.client.delete(token, options=DeleteOptions(uid=token.metadata.uid))
        except (Conflict, NotFound):
            return None  # The token is deleted, or another Secret of the same name has replaced it.
        return None


def _text(secret: Secret, key: str) -> str:
    return secret.data.get(key, b"").decode("utf-8", "replace")


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
