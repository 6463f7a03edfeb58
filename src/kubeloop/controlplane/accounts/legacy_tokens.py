"""Cleaner of legacy service account tokens: it marks tokens that have not been used for a long time as invalid, and later deletes them.

It touches only Secrets that their service account lists: old versions of Kubernetes generated these Secrets, not users.
Source: Kubernetes pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go; KEP-2799.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, TypeAlias

from kubeloop.api.core.v1 import ConfigMap, Pod, Secret, ServiceAccount
from kubeloop.client import DeleteOptions
from kubeloop.codec import to_dict
from kubeloop.controller import KeyController, Predicate, Result
from kubeloop.meta import Conflict, Invalid, KubeloopError, NotFound, ObjectKey

TOKEN = "kubernetes.io/service-account-token"  # noqa: S105  # the type of a Secret
LAST_USED, INVALID_SINCE = "kubernetes.io/legacy-token-last-used", "kubernetes.io/legacy-token-invalid-since"
_ACCOUNT, _ACCOUNT_UID = "kubernetes.io/service-account.name", "kubernetes.io/service-account.uid"
#: The ConfigMap of kube-system in which the API server records the day on which it began to track the use of tokens, and its key.
TRACKING, _SINCE = "kube-apiserver-legacy-service-account-token-tracking", "since"
#: Seconds between two sweeps.
PERIOD = 24 * 3600.0
#: The time for which a token must have been unused before it is marked as invalid, and then invalid before it is deleted.
UNUSED = timedelta(days=365)
_SWEEP = ObjectKey("", "", "")

_never = Predicate(lambda event: False, ("type",))  # noqa: ARG005  # sweeps are triggered by time, not by changes
Decision: TypeAlias = Literal["leave", "mark", "delete"]


def decide(secret: Secret, now: datetime, unused: timedelta) -> Decision:
    """Return whether to leave a generated token that no pod mounts, to mark it as invalid, or to delete it.

    Args:
        secret: The Secret of the token.
        now: The present time.
        unused: The time for which the token must have been unused, and then invalid.
    """
    oldest = now - unused
    created = secret.metadata.creation_timestamp
    if secret.type != TOKEN or created is None or created >= oldest or secret.metadata.deletion_timestamp is not None:
        return "leave"
    labels = secret.metadata.labels
    if LAST_USED in labels:
        used = _day(labels[LAST_USED])
        if used is None or used >= oldest.date():
            return "leave"
    invalid_since = _day(labels.get(INVALID_SINCE, ""))
    if invalid_since is None:
        return "mark"
    return "leave" if invalid_since >= oldest.date() else "delete"


def is_tracked_long_enough(since: str, now: datetime, unused: timedelta) -> bool:
    """Return whether the API server has tracked the use of tokens for at least a given time.

    Args:
        since: The day on which tracking began, such as ``2026-01-31``; tracking counts from the end of this day. A malformed day means
            that it has not been tracked.
        now: The present time.
        unused: The required time.
    """
    day = _day(since)
    return day is not None and now >= datetime(day.year, day.month, day.day, tzinfo=UTC) + timedelta(days=1) + unused


def _day(text: str) -> date | None:
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC).date() if len(text) == 10 else None
    except ValueError:
        return None


def secrets_of(pod: Pod) -> set[str]:
    """Return the names of all Secrets to which a pod refers: pull secrets, environment and volumes."""
    return set(_secrets(to_dict(pod).get("spec") or {}))


#: Fields that hold the name of a Secret, and fields that hold a reference to one.
_NAMES, _REFERENCES = frozenset({"secretName"}), frozenset({"secret", "secretRef", "secretKeyRef", "nodePublishSecretRef"})


def _secrets(tree: Any) -> Iterator[str]:
    if isinstance(tree, list):
        for item in tree:
            yield from _secrets(item)
    elif isinstance(tree, dict):
        for key, value in tree.items():
            if key in _NAMES and isinstance(value, str):
                yield value
            elif key == "imagePullSecrets":
                yield from (one["name"] for one in value if one.get("name"))
            elif key in _REFERENCES and isinstance(value, dict) and isinstance(value.get("name"), str):
                yield value["name"]
            else:
                yield from _secrets(value)


class LegacyTokenCleaner(
    KeyController[Secret], predicates=[_never], reads=[ServiceAccount, Pod], name="legacy-serviceaccount-token-cleaner-controller"
):
    """Marks and deletes unused generated tokens once a day.

    Guarantees:
        A token is deleted only if the API server has tracked the use of tokens for the time ``unused``, the token has not been used and has
        been marked as invalid for that time, and no pod mounts it. A token that changes during a sweep is left to the next one.

    Args:
        period: Seconds between two sweeps.
        unused: The time for which a token must have been unused before it is marked, and then invalid before it is deleted.
    """

    def __init__(self, *, period: float = PERIOD, unused: timedelta = UNUSED) -> None:
        self._period = period
        self._unused = unused

    async def start(self) -> None:
        self.enqueue(_SWEEP)

    async def reconcile(self, key: ObjectKey) -> Result:  # noqa: ARG002  # there is one key
        now = self.clock.wall()
        if await self._is_tracked(now):
            mounted: dict[str, set[str]] = {}
            for secret in self.lister(Secret).list(field_selector={"type": TOKEN}):
                decision = decide(secret, now, self._unused)
                if decision != "leave" and self._is_generated(secret) and secret.metadata.name not in self._mounted(secret, mounted):
                    await self._execute(secret, decision, now)
        return Result(requeue_after=self._period)

    async def _is_tracked(self, now: datetime) -> bool:
        try:
            tracking = await self.client.get(ConfigMap, TRACKING, namespace="kube-system")
        except NotFound:
            self.log.warning("no legacy tokens are cleaned up: the API server has no ConfigMap %s", TRACKING)
            return False
        return is_tracked_long_enough(tracking.data.get(_SINCE, ""), now, self._unused)

    def _is_generated(self, secret: Secret) -> bool:
        """Return whether the service account of a token lists it; otherwise a user created the token."""
        annotations = secret.metadata.annotations
        account = self.lister(ServiceAccount).get(annotations.get(_ACCOUNT, ""), secret.metadata.namespace)
        if account is None or annotations.get(_ACCOUNT_UID, account.metadata.uid) != account.metadata.uid:
            return False
        return any(one.name == secret.metadata.name for one in account.secrets)

    def _mounted(self, secret: Secret, known: dict[str, set[str]]) -> set[str]:
        namespace = secret.metadata.namespace
        if namespace not in known:
            known[namespace] = {name for pod in self.lister(Pod).each(namespace) for name in secrets_of(pod)}
        return known[namespace]

    async def _execute(self, secret: Secret, decision: Decision, now: datetime) -> None:
        """Mark or delete one token. A failure is logged, and the next sweep retries."""
        metadata = secret.metadata
        try:
            if decision == "mark":
                change = {"metadata": {"uid": metadata.uid, "labels": {INVALID_SINCE: now.strftime("%Y-%m-%d")}}}
                await self.client.patch(Secret, metadata.name, change, namespace=metadata.namespace)
            else:
                options = DeleteOptions(uid=metadata.uid, resource_version=metadata.resource_version)
                await self.client.delete(secret, options=options)
        except (Conflict, Invalid, NotFound):
            return  # The token was changed, deleted, or replaced by another Secret of the same name.
        except KubeloopError as error:
            self.log.warning("cannot %s the token %s/%s: %s", decision, metadata.namespace, metadata.name, error)
