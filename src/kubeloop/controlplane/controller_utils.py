"""Functions that several controllers share: ownership claims, readiness of pods, deletion order, and numbers or percentages."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Head, Lister
from kubeloop.client import Client
from kubeloop.controller import Predicate, controller_of
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import CoreEvents
from kubeloop.controller.events.sinks import EventReporter, EventWriter
from kubeloop.meta import IntOrString, Invalid, NotFound, ObjectKey, Resource, Selector
from kubeloop.timing import Clock

# Ownership claims of controllers: a controller adopts orphans that match its selector and releases objects that no longer match.
# Source: Kubernetes pkg/controller/controller_ref_manager.go.


R = TypeVar("R", bound=Resource)


@dataclass(frozen=True, slots=True)
class ComponentEvents(CoreEvents):
    """Writes Events whose source has a component and no host, like those of kube-controller-manager.

    Args:
        component: The component, if upstream's component has another name than the controller. Empty: the name of the controller.
    """

    component: str = ""

    def writer(self, client: Client, source: EventReporter) -> EventWriter:
        return CoreEvents.writer(self, client, source._replace(component=self.component or source.component, host=""))


async def claim(client: Client, owner: Resource, candidates: Iterable[R], selector: Selector, *, finalizer: str = "") -> list[R]:
    """Adopt and release objects; return those of ``candidates`` that ``owner`` controls afterwards.

    An owner that is being deleted neither adopts nor releases. Before an adoption the owner is read from the server: a cache may still show
    an owner that was deleted and created again, and two owners would compete for the object.

    Args:
        client: Writes owner references.
        owner: The controller's object.
        candidates: Objects of the owner's namespace.
        selector: Selects the objects to adopt.
        finalizer: Added to adopted objects, and removed from released ones. Empty: none.
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
                await release(client, owner.metadata.uid, obj, finalizer=finalizer)
        elif matches and obj.metadata.deletion_timestamp is None and owner.metadata.deletion_timestamp is None:
            if adopting is None:
                adopting = await _may_adopt(client, owner)
            if adopting and (adopted := await _adopt(client, owner, obj, finalizer)) is not None:
                claimed.append(adopted)
    return claimed


async def release(client: Client, owner_uid: str, obj: Resource, *, finalizer: str = "") -> None:
    """Remove an owner reference, and optionally a finalizer, from an object, unless the object was deleted or replaced.

    Args:
        client: Writes the object.
        owner_uid: Uid of the owner.
        obj: The object.
        finalizer: The finalizer to remove. Empty: none.
    """
    removal = {"$deleteFromPrimitiveList/finalizers": [finalizer]} if finalizer else {}
    await _patch_owners(client, obj, [{"$patch": "delete", "uid": owner_uid}], **removal)


async def claim_heads(
    client: Client,
    owner: Resource,
    lister: Lister[R],
    orphans: Iterable[Head],
    selector: Selector,
    accepts: Callable[[Head], bool] = lambda _: True,
) -> list[Head]:
    """Adopt and release objects like ``claim``, and return the heads of the objects that ``owner`` controls afterwards.

    Args:
        client: Writes owner references.
        owner: The controller's object.
        lister: Lists the owned kind; it has the index ``OWNER_INDEX``.
        orphans: Objects of the owner's namespace that may have no controller.
        selector: Selects the objects to adopt.
        accepts: A further condition that owned objects must meet.

    Returns:
        The heads of the owned objects.
    """
    uid, namespace, deleting = owner.metadata.uid, owner.metadata.namespace, owner.metadata.deletion_timestamp is not None
    claimed: list[Head] = []
    for head in lister.heads_by_index(OWNER_INDEX, uid):
        reference = head.controller
        if reference is None or reference.uid != uid:
            continue
        if selector.matches(head.labels) and accepts(head):
            claimed.append(head)
        elif not deleting:
            await release(client, uid, lister.decoded(head))
    if deleting:
        return claimed
    matching = [
        head for head in orphans if head.controller is None and not head.deleting and selector.matches(head.labels) and accepts(head)
    ]
    if matching and await _may_adopt(client, owner):
        for head in matching:
            await _adopt(client, owner, lister.decoded(head), "")
            adopted = lister.head(head.name, namespace)
            if adopted is not None and adopted.controller is not None and adopted.controller.uid == uid:
                claimed.append(adopted)
    return claimed


class ReconcilePacer:
    """Delays reconciles of objects with many dependents, so that their cost does not grow with the square of the number of dependents.

    Without a delay, each of a thousand pods that become ready causes a reconcile that reads a thousand pods. The first reconcile after a
    pause is never delayed.
    """

    #: Dependents per second. A set of 1,000 pods that all change is reconciled four times in a second.
    RATE = 4_000.0
    #: Seconds between two reconciles at most.
    LONGEST = 1.0
    #: Objects with fewer dependents are not delayed.
    LEAST = 50

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._due: dict[ObjectKey, float] = {}

    def seconds_left(self, key: ObjectKey, size: int) -> float:
        """Return the seconds to wait before reconciling an object with ``size`` dependents; 0 allows, and records, a reconcile now."""
        if size < self.LEAST:
            return 0.0
        now = self._clock.now()
        left = self._due.get(key, now) - now
        if left > 0:
            return left
        self._due = {other: due for other, due in self._due.items() if due > now}
        self._due[key] = now + min(size / self.RATE, self.LONGEST)
        return 0.0


#: Matches events after which an object without a controller may be adopted: it is new, its labels changed, or it lost its controller.
adoptable = Predicate(
    lambda event: (
        event.head.controller is None and (event.old is None or event.old.controller is not None or event.old.labels != event.head.labels)
    )
)


class OrphanNames:
    """An index of the objects of one kind without a controller, which events keep up to date.

    It avoids a scan of the namespace at each reconcile. A watch of the kind calls ``note`` for each event that matches ``adoptable``.
    """

    def __init__(self) -> None:
        self._names: dict[str, set[str]] = {}

    def note(self, head: Head) -> bool:
        """Record the object of an event if it has no controller, and return whether it has none. ``head`` may be an earlier state."""
        if head.controller is not None:
            return False
        self._names.setdefault(head.namespace, set()).add(head.name)
        return True

    def heads(self, lister: Lister[R], namespace: str) -> list[Head]:
        """Return the heads of the objects of a namespace that exist and have no controller."""
        names = self._names.get(namespace, set())
        found = {name: lister.head(name, namespace) for name in sorted(names)}
        orphans = {name: head for name, head in found.items() if head is not None and head.controller is None}
        names.intersection_update(orphans)
        return list(orphans.values())


async def _may_adopt(client: Client, owner: Resource) -> bool:
    try:
        live = await client.get_metadata(type(owner), owner.metadata.name, namespace=owner.metadata.namespace or None)
    except NotFound:
        return False
    return live.metadata.uid == owner.metadata.uid and live.metadata.deletion_timestamp is None


async def _adopt(client: Client, owner: Resource, obj: R, finalizer: str) -> R | None:
    reference = {
        "apiVersion": owner.api_version,
        "kind": owner.kind,
        "name": owner.metadata.name,
        "uid": owner.metadata.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }
    return await _patch_owners(client, obj, [reference], **({"finalizers": [finalizer]} if finalizer else {}))


async def _patch_owners(client: Client, obj: R, references: list[dict[str, object]], **metadata: object) -> R | None:
    # The uid in the patch is a precondition: the server refuses to change it, so an object of the same name is never changed.
    change = {"metadata": {"uid": obj.metadata.uid, "ownerReferences": references, **metadata}}
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
    """Return when a pod became ready, or None if it is not ready."""
    for condition in pod.status.conditions:
        if condition.type == "Ready" and condition.status == "True":
            return condition.last_transition_time
    return None


def is_available(pod: Pod, min_ready_seconds: int, now: datetime) -> bool:
    """Return whether a pod has been ready for at least ``min_ready_seconds``."""
    since = ready_since(pod)
    if not is_ready(pod):
        return False
    return min_ready_seconds == 0 or (since is not None and (now - since).total_seconds() >= min_ready_seconds)


def is_active(pod: Pod) -> bool:
    """Return whether a pod is neither finished nor being deleted."""
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def deletion_order(pods: Iterable[Pod], neighbours: dict[str, int], now: datetime) -> list[Pod]:
    """Sort pods by the order in which a ReplicaSet deletes them.

    Unassigned pods come before assigned ones, pending before running, not ready before ready, a low deletion cost before a high one, pods
    on nodes with many related pods before others, recently ready before long ready, more restarts before fewer, young before old.

    ``neighbours`` is the number of pods of the same Deployment, or else ReplicaSet, by node. Ages are compared on a logarithmic scale, as
    upstream, so that the uid decides, practically at random, among pods of similar age.
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


def scaled_value(value: IntOrString | None, total: int, *, up: bool) -> int:
    """Return a number, or a percentage such as ``25%`` of ``total``, rounded up or down. None and malformed texts give 0."""
    if isinstance(value, int):
        return value
    text = (value or "").strip()
    if not text.endswith("%") or not text[:-1].isdigit():
        return 0
    part = total * int(text[:-1]) / 100
    return math.ceil(part) if up else math.floor(part)
