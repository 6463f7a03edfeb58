"""Whose token it is: signature, issuer, audience, time, and whether account and bound object are still the ones it was issued for.

Source: k8s.io/kubernetes pkg/serviceaccount (jwt.go, claims.go), whose words a TokenReview shows.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import os
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import msgspec

from kubeloop.apiserver.authentication.service_accounts import claims as claims_of
from kubeloop.apiserver.authentication.service_accounts.accounts import (
    ACCOUNTS,
    NODES,
    PODS,
    SECRETS,
    BoundObjects,
    Seen,
    TokenRefused,
    deleted_before,
)
from kubeloop.apiserver.authentication.service_accounts.claims import LEEWAY, Claims, Reference
from kubeloop.apiserver.authentication.service_accounts.legacy import LEGACY_ISSUER, LegacyTokens
from kubeloop.apiserver.authentication.service_accounts.settings import TokenSettings
from kubeloop.endpoints.access import Proof, service_account
from kubeloop.meta.go_quote import go_quoted
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.pki import SignatureInvalid, VerifyingKey
from kubeloop.timing import Clock

#: Verified tokens that are remembered; a thousand of them take about 2 MiB.
_MOST_KNOWN: Final = 4096
#: Characters of a token beyond which it is not: whoever may have tokens chooses their audiences.
_LONGEST_KNOWN: Final = 4096
#: What upstream's library says of everything that is wrong with a signature.
_BAD_SIGNATURE: Final = "go-jose/go-jose: error in cryptographic primitive"


@dataclass(slots=True)
class _Known:
    """A token whose signature was verified: whose it is while ``revisions`` stay and, if given, ``until`` has not come."""

    claims: Claims
    proof: Proof
    revisions: tuple[tuple[str, int], ...]
    until: float = float("inf")


class AccountTokens:
    """Verifies tokens of service accounts.

    Guarantees
        A token ends with its time, its account or its bound object: at once when they are gone, after a minute when they are being deleted.
        A signature is verified once for as long as the token is remembered (by a keyed hash; the token itself is not kept).

    Not guaranteed
        That a token of another issuer is nobody's: it is not looked at (None).
    """

    def __init__(self, settings: TokenSettings, objects: BoundObjects, clock: Clock, legacy: LegacyTokens) -> None:
        self._settings = settings
        self._objects = objects
        self._clock = clock
        self._legacy = legacy
        self._keys = {key.key_id: key for key in settings.all_keys}
        self._issuers = frozenset((*settings.issuers, LEGACY_ISSUER))
        self._known: OrderedDict[bytes, _Known] = OrderedDict()
        self._hash_key = os.urandom(32)

    async def authenticate(self, token: str, audiences: tuple[str, ...]) -> Proof | None:
        """``audiences``: of whom one must be meant.

        Raises:
            TokenRefused: it is of an issuer that is believed, and not in force.
        """
        mark = hashlib.blake2b(token.encode("utf-8", "surrogatepass"), key=self._hash_key, digest_size=32).digest()
        now = self._clock.wall().timestamp()
        known = self._known.get(mark)
        if known is not None:
            claims = known.claims
            if not claims.fault(now) and now < known.until and await self._objects.unchanged(known.revisions):
                self._remember(mark, known)
                return self._meant(claims, known.proof, audiences, now)
            self._known.pop(mark, None)
        else:
            if self._issuer(token) not in self._issuers:
                return None
            keys = self._candidates(token)
            if keys is None:
                return None
            claims = self._verified(token, keys)
        self._meant_for(claims, audiences)
        seen = Seen()
        if claims.issuer == LEGACY_ISSUER:
            proof, until = await self._legacy.proof(token, claims, seen, now)
        else:
            proof, until = await self._proof(claims, seen, now), float("inf")
        if not seen.ending and len(token) <= _LONGEST_KNOWN:
            self._remember(mark, _Known(claims, proof, tuple(seen.revisions), until))
        return self._meant(claims, proof, audiences, now)

    def _remember(self, mark: bytes, known: _Known) -> None:
        self._known[mark] = known
        self._known.move_to_end(mark)
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)

    @staticmethod
    def _issuer(token: str) -> str:
        """Of a token in compact form, not to be trusted; empty of anything else."""
        parts = token.split(".")
        if len(parts) != 3:
            return ""
        try:
            told = msgspec.json.decode(_unbase64(parts[1]), type=_Issued)
        except (ValueError, RecursionError):
            return ""
        return told.iss

    def _candidates(self, token: str) -> tuple[VerifyingKey, ...] | None:
        """The keys that may have signed it; None: it is no token after all.

        Raises:
            TokenRefused: it names a key that is not known.
        """
        head, _, rest = token.partition(".")
        try:
            _unbase64(rest.rpartition(".")[2])
            header = json.loads(_unbase64(head))
        except (ValueError, RecursionError):
            return None
        if not isinstance(header, dict) or not isinstance(header.get("kid", ""), str):
            return None
        named = header.get("kid", "")
        keys = tuple(self._keys.values()) if not named else tuple(key for name, key in self._keys.items() if name == named)
        if not keys:
            raise TokenRefused("invalid signature, no keys found")
        return keys

    def _verified(self, token: str, keys: tuple[VerifyingKey, ...]) -> Claims:
        for key in keys:
            try:
                claims = claims_of.read(key.verify(token))
            except SignatureInvalid:
                continue
            except (ValueError, RecursionError) as fault:
                raise TokenRefused(str(fault)) from None
            if claims.issuer not in self._issuers:
                raise TokenRefused(f"token issuer {go_quoted(claims.issuer)} is invalid")
            return claims
        raise TokenRefused(_BAD_SIGNATURE)

    def _meant_for(self, claims: Claims, audiences: tuple[str, ...]) -> tuple[str, ...]:
        named = claims.audiences or self._settings.audiences
        both = tuple(one for one in named if one in audiences)
        if not both:
            raise TokenRefused(f"token audiences {_go_list(named)} is invalid for the target audiences {_go_list(audiences)}")
        return both

    def _meant(self, claims: Claims, proof: Proof, audiences: tuple[str, ...], now: float) -> Proof:
        both = self._meant_for(claims, audiences)
        annotations = proof.annotations
        warn_after = claims.kubernetes.get("warnafter")
        if isinstance(warn_after, int) and warn_after and now > warn_after:
            told = f"subject: {claims.subject}, seconds after warning threshold: {int(now) - warn_after}"
            annotations = {**annotations, "authentication.k8s.io/stale-token": told}
        return Proof(proof.user, both, annotations, proof.warnings)

    async def _proof(self, claims: Claims, seen: Seen, now: float) -> Proof:
        """Of a token that a TokenRequest was answered with.

        Raises:
            TokenRefused
        """
        fault = claims.fault(now)
        if fault:
            raise TokenRefused(fault)
        namespace = str(claims.kubernetes.get("namespace") or "")
        account = claims.reference("serviceaccount") or Reference("")
        found = await self._objects.get(ACCOUNTS, namespace, account.name, seen)
        if found is None:
            raise TokenRefused(f"serviceaccounts {go_quoted(account.name)} not found")
        uid = found["metadata"]["uid"]
        if uid != account.uid:
            raise TokenRefused(f"service account UID ({uid}) does not match claim ({account.uid})")
        before = now - LEEWAY
        if deleted_before(found, before):
            raise TokenRefused(f"service account {namespace}/{account.name} has been deleted")
        secret, pod, node = (claims.reference(kind) for kind in ("secret", "pod", "node"))
        if secret is not None:
            await self._check_bound(SECRETS, "secret", namespace, secret, seen, before)
        if pod is not None:
            await self._check_bound(PODS, "pod", namespace, pod, seen, before)
        elif node is not None:
            await self._check_bound(NODES, "node", "", node, seen, before)
        extra: dict[str, tuple[str, ...]] = {}
        if claims.token_id:
            extra["authentication.kubernetes.io/credential-id"] = (f"JTI={claims.token_id}",)
        if node is not None and node.name:
            extra["authentication.kubernetes.io/node-name"] = (node.name,)
            if node.uid:
                extra["authentication.kubernetes.io/node-uid"] = (node.uid,)
        if pod is not None and pod.name and pod.uid:
            extra["authentication.kubernetes.io/pod-name"] = (pod.name,)
            extra["authentication.kubernetes.io/pod-uid"] = (pod.uid,)
        return Proof(service_account(namespace, account.name, account.uid, extra))

    async def _check_bound(
        self, gvr: GroupVersionResource, kind: str, namespace: str, wanted: Reference, seen: Seen, before: float
    ) -> None:
        found = await self._objects.get(gvr, namespace, wanted.name, seen)
        if found is not None and found["metadata"]["uid"] != wanted.uid:
            raise TokenRefused(f"{kind} UID ({found['metadata']['uid']}) does not match service account {kind} ref claim ({wanted.uid})")
        if found is None or deleted_before(found, before):
            raise TokenRefused("service account token has been invalidated")


class _Issued(msgspec.Struct):
    iss: str = ""


def _unbase64(text: str) -> bytes:
    """Base64 for URLs without padding, and nothing else.

    Raises:
        ValueError
    """
    if "=" in text:
        raise ValueError("padding")
    try:
        return base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, UnicodeEncodeError) as fault:
        raise ValueError(str(fault)) from None


def _go_list(texts: Iterable[str]) -> str:
    return f"[{' '.join(map(go_quoted, texts))}]"
