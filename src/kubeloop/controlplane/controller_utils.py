"""Functions that several controllers share: ownership claims, readiness of pods, and the order in which surplus pods are deleted."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TypeVar

from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.controller import controller_of
from kubeloop.meta import Invalid, NotFound, Resource, Selector

# Ownership claims of controllers: a controller adopts orphans that match its selector and releases objects that no longer match.
# Source: Kubernetes pkg/controller/controller_ref_manager.go.


R = TypeVar("R", bound=Resource)


async def claim(client: Client, owner: Resource, candidates: Iterable[R], selector: Selector) -> list[R]:
    """Adopt and release objects; return those of ``candidates`` that belong to ``owner`` afterwards.

    An owner that is being deleted neither adopts nor releases. Before it adopts an object, the owner is read from the server: a cache may
    still show an owner that was deleted and created again, and two owners would fight over the object.

    Args:
        client: Writes owner references.
        owner: The controller's object.
        candidates: Objects of the owner's namespace.
        selector: Selects the objects to adopt.
    """
    claimed: list[R] = []
    adopting: bool | None = None
    for obj in candidates:
        reference = controller_of(obj)
        matches = selector.matches(obj.metadata.labels)
        if reference is not None:
            if reference.uid != owner.metadata.uid:
                continue
            if matches:
                claimed.append(obj)
            elif owner.metadata.deletion_timestamp is None:
                await release(client, owner.metadata.uid, obj)
        elif matches and obj.metadata.deletion_timestamp is None and owner.metadata.deletion_timestamp is None:
            if adopting is None:
                adopting = await _may_adopt(client, owner)
            if adopting and (adopted := await _adopt(client, owner, obj)) is not None:
                claimed.append(adopted)
    return claimed


async def release(client: Client, owner_uid: str, obj: Resource) -> None:
    """Remove one owner reference from ``obj``, unless the object is gone or has been replaced."""
    await _patch_owners(client, obj, [{"$patch": "delete", "uid": owner_uid}])


async def _may_adopt(client: Client, owner: Resource) -> bool:
    try:
        live = await client.get_metadata(type(owner), owner.metadata.name, namespace=owner.metadata.namespace or None)
    except NotFound:
        return False
    return live.metadata.uid == owner.metadata.uid and live.metadata.deletion_timestamp is None


async def _adopt(client: Client, owner: Resource, obj: R) -> R | None:
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return await _patch_owners(client, obj, [reference])


async def _patch_owners(client: Client, obj: R, references: list[dict[str, object]]) -> R | None:
    # The uid in the patch is a precondition: the server refuses to change it, so an object of the same name is never changed.
    change = {"metadata": {"uid": obj.metadata.uid, "ownerReferences": references}}
    with contextlib.suppress(NotFound, Invalid):
        return await client.patch(type(obj), obj.metadata.name, change, type="strategic", namespace=obj.metadata.namespace or None)
    return None


# The deletion order of the pods of a ReplicaSet that has too many.
# Source: Kubernetes pkg/controller/controller_utils.go ActivePodsWithRanks; KEP-2255 (pod-deletion-cost).


DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_NEVER = datetime.max.replace(tzinfo=UTC)


def is_ready(pod: Pod) -> bool:
    """Return whether the condition Ready of a pod is true."""
    return any(condition.type == "Ready" and condition.status == "True" for condition in pod.status.conditions)


def ready_since(pod: Pod) -> datetime | None:
    """Return when the pod last became ready, or None if it is not ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return condition.last_transition_time
    return None


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Return whether the pod has been ready for at least ``min_ready_seconds``."""
    since = ready_since(pod)
    if not is_ready(pod):
        return False
    return min_ready_seconds == 0 or (since is not None and (now - since).total_seconds() >= min_ready_seconds)


def is_active(pod: Pod) -> bool:
    """Return whether the pod is neither finished nor being deleted."""
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def deletion_order(pods: Iterable[Pod], neighbours: dict[str, int], now: datetime) -> list[Pod]:
    """Sort pods, first to be deleted first.

    Unassigned pods come before assigned ones, pending before running, not ready before ready, cheap before expensive, on crowded nodes
    before others, recently ready before long ready, restarted before not restarted, young before old.

    ``neighbours`` is the number of pods of the same Deployment, or else ReplicaSet, on each node. Ages are compared on a logarithmic
    scale, as upstream, so that the uid decides, practically at random, among pods of similar age.
    """

    def rank(pod: Pod) -> tuple[object, ...]:
        node = pod.spec.node_name or ""
        restarts = max((container.restart_count for container in pod.status.container_statuses), default=0)
        return (
            bool(node),
            _PHASES.get(pod.status.phase or "", 0),
            is_ready(pod),
            _cost(pod),
            -neighbours.get(node, 0),
            _age(ready_since(pod), now) if is_ready(pod) else 0.0,
            -restarts,
            _age(pod.metadata.creation_timestamp, now),
            pod.metadata.uid,
        )

    return sorted(pods, key=rank)


def _cost(pod: Pod) -> int:
    try:
        return int(pod.metadata.annotations.get(DELETION_COST, "0"))
    except ValueError:
        return 0


def _age(since: datetime | None, now: datetime) -> float:
    seconds = (now - (since or _NEVER)).total_seconds()
    return math.floor(math.log2(seconds)) if seconds >= 1 else -1.0
