"""The rollout of a Deployment from its old ReplicaSets to the new one, and their revisions, as pure computation.

No I/O and no clock: the Deployment controller executes the decisions.
Source: Kubernetes pkg/controller/deployment (rolling.go, sync.go) and its util/deployment_util.go.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.codec import decode, to_dict
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.controller_utils import scaled_value
from kubeloop.controlplane.workloads.template import HASH_LABEL, same_template, template_hash, with_hash
from kubeloop.meta import IntOrString


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of a rollout: the maximum number of pods above ``replicas``, and of unavailable pods."""

    replicas: int
    surge: int
    unavailable: int

    @classmethod
    def resolve(cls, replicas: int, max_surge: IntOrString | None, max_unavailable: IntOrString | None) -> Bounds:
        """Resolve the fields of ``spec.strategy.rollingUpdate``: numbers, or percentages of ``replicas`` (surge rounded up, the other
        down).

        If both are zero, a rollout would never progress: then one pod may be unavailable (ResolveFenceposts).
        """
        surge = scaled_value(max_surge, replicas, up=True)
        unavailable = scaled_value(max_unavailable, replicas, up=False)
        if surge == 0 and unavailable == 0:
            unavailable = 1
        return cls(replicas, surge, min(unavailable, replicas))

    @property
    def most(self) -> int:
        return self.replicas + self.surge

    @property
    def least_available(self) -> int:
        return self.replicas - self.unavailable


@dataclass(frozen=True, slots=True)
class Set:
    """A ReplicaSet during a rollout. ``before`` is the maximum of pods of its Deployment when it was last scaled (annotation)."""

    name: str
    replicas: int
    available: int
    created: datetime
    desired: int | None = None
    before: int | None = None


def new_size(bounds: Bounds, new: Set | None, old: Iterable[Set]) -> int:
    """Return the present target size of the new ReplicaSet, given the sizes of the old ones. Without one: its initial size."""
    now = new.replicas if new else 0
    if now >= bounds.replicas:
        return bounds.replicas
    total = now + sum(one.replicas for one in old)
    if total >= bounds.most:
        return now
    return now + min(bounds.most - total, bounds.replicas - now)


def shrink_old(bounds: Bounds, new: Set, old: Sequence[Set]) -> dict[str, int]:
    """Return changed sizes of the old ReplicaSets: first unavailable pods are removed, then as many as the new ones replace."""
    oldest_first = sorted(old, key=lambda replica_set: (replica_set.created, replica_set.name))
    sizes = {one.name: one.replicas for one in oldest_first}
    pods = new.replicas + sum(sizes.values())
    # Pods of the new set that are not available yet must not be counted as a replacement for the old ones.
    budget = pods - bounds.least_available - (new.replicas - new.available)
    if budget <= 0:
        return {}
    cleanup = budget
    for one in oldest_first:
        unhealthy = min(sizes[one.name] - one.available, cleanup)
        if unhealthy > 0:
            sizes[one.name] -= unhealthy
            cleanup -= unhealthy
    spare = new.available + sum(one.available for one in oldest_first) - bounds.least_available
    # A status may still count pods that a set is about to delete (upstream trusts it): never more than sizes allow.
    spare = min(spare, cleanup)
    for one in oldest_first:
        step = min(sizes[one.name], max(spare, 0))
        sizes[one.name] -= step
        spare -= step
    return {one.name: sizes[one.name] for one in oldest_first if sizes[one.name] != one.replicas}


def rescale(bounds: Bounds, new: Set | None, old: Sequence[Set], *, rolling: bool, status_replicas: int) -> dict[str, int]:
    """Return the sizes that change when the Deployment itself is scaled: one ReplicaSet gets all outside of a rollout, else in proportion.

    Args:
        bounds: The limits of the rollout.
        new: The new ReplicaSet; None if there is none.
        old: The old ReplicaSets.
        rolling: Whether the strategy is RollingUpdate.
        status_replicas: The Deployment's counted pods.

    Returns:
        New sizes by name.
    """
    sets = [*old, new] if new else list(old)
    active = [one for one in sets if one.replicas > 0]
    if len(active) <= 1:
        one = active[0] if active else new or max(old, key=lambda replica_set: replica_set.created, default=None)
        return {one.name: bounds.replicas} if one and one.replicas != bounds.replicas else {}
    if new and new.desired == bounds.replicas == new.replicas == new.available:
        return {one.name: 0 for one in old if one.replicas > 0}
    if not rolling:
        return {}
    allowed = bounds.most if bounds.replicas > 0 else 0
    to_add = allowed - sum(one.replicas for one in active)
    if to_add == 0:
        return {}
    # Larger sets take the rounding error; among equals the newer grow first and the older shrink first.
    direction = -1 if to_add > 0 else 1
    ordered = sorted(active, key=lambda replica_set: (-replica_set.replicas, direction * replica_set.created.timestamp()))
    sizes: dict[str, int] = {}
    added = 0
    for one in ordered:
        part = _proportion(one, bounds, to_add - added, status_replicas)
        sizes[one.name] = one.replicas + part
        added += part
    sizes[ordered[0].name] = max(sizes[ordered[0].name] + to_add - added, 0)
    return {one.name: sizes[one.name] for one in ordered if sizes[one.name] != one.replicas}


def _proportion(replica_set: Set, bounds: Bounds, left: int, status_replicas: int) -> int:
    if bounds.replicas == 0:
        part = -replica_set.replicas
    else:
        before = replica_set.before or status_replicas or bounds.most
        part = math.floor(replica_set.replicas * bounds.most / before + 0.5) - replica_set.replicas
    return min(part, left) if left > 0 else max(part, left)


# The ReplicaSets of a Deployment: which is the new one, its object, and the annotations with revision and size.


REVISION = "deployment.kubernetes.io/revision"
HISTORY = "deployment.kubernetes.io/revision-history"
DESIRED = "deployment.kubernetes.io/desired-replicas"
MOST = "deployment.kubernetes.io/max-replicas"
_NOT_COPIED = {REVISION, HISTORY, DESIRED, MOST, "kubectl.kubernetes.io/last-applied-configuration", "deprecated.deployment.rollback.to"}
_BEGINNING = datetime.min.replace(tzinfo=UTC)


def template_of(obj: Deployment | ReplicaSet) -> dict[str, Any]:
    """Return the pod template as a separate tree, with every field the server sent."""
    template: dict[str, Any] = copy.deepcopy(to_dict(obj)["spec"]["template"])
    return template


def split(deployment: Deployment, sets: Iterable[ReplicaSet]) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
    """Return the ReplicaSet with the Deployment's template (the oldest, if there are several), and all others, oldest first."""
    ordered = sorted(sets, key=lambda replica_set: (replica_set.metadata.creation_timestamp or _BEGINNING, replica_set.metadata.name))
    desired = template_of(deployment)
    new = next((one for one in ordered if same_template(template_of(one), desired)), None)
    return new, [one for one in ordered if one is not new]


def revision(obj: Deployment | ReplicaSet) -> int:
    """Return the revision number, or 0 if there is none."""
    text = obj.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def next_revision(old: Iterable[ReplicaSet]) -> int:
    return max(map(revision, old), default=0) + 1


def new_name(deployment: Deployment) -> tuple[str, str]:
    """Return name and hash of a new ReplicaSet."""
    value = template_hash(template_of(deployment), deployment.status.collision_count)
    return f"{deployment.metadata.name}-{value}", value


def fresh(deployment: Deployment, number: int, replicas: int, bounds: Bounds) -> ReplicaSet:
    """Return the ReplicaSet of the Deployment's present template, not created yet.

    Args:
        deployment: The Deployment.
        number: Its revision.
        replicas: Its size.
        bounds: The limits of the rollout.

    Returns:
        The object to create.
    """
    name, value = new_name(deployment)
    template = with_hash(template_of(deployment), value)
    spec = to_dict(deployment)["spec"]
    selector = copy.deepcopy(spec["selector"])
    selector["matchLabels"] = {**(selector.get("matchLabels") or {}), HASH_LABEL: value}
    document = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": name,
            "namespace": deployment.metadata.namespace,
            "labels": template["metadata"]["labels"],
            "annotations": copied_annotations(deployment) | {REVISION: str(number)} | measure(bounds),
        },
        "spec": {"replicas": replicas, "minReadySeconds": spec.get("minReadySeconds") or 0, "selector": selector, "template": template},
    }
    made = decode(ReplicaSet, msgspec.json.encode(document))
    set_controller_reference(deployment, made)
    return made


def copied_annotations(deployment: Deployment) -> dict[str, str]:
    return {name: value for name, value in deployment.metadata.annotations.items() if name not in _NOT_COPIED}


def measure(bounds: Bounds) -> dict[str, str]:
    """Return the annotations that a ReplicaSet needs to be scaled in proportion later."""
    return {DESIRED: str(bounds.replicas), MOST: str(bounds.most)}


def new_annotations(deployment: Deployment, new: ReplicaSet, number: int) -> dict[str, str]:
    """Return the annotations for the new ReplicaSet: the Deployment's, and revision ``number``; its former revision goes into the history.

    A ReplicaSet that becomes the new one again (a rollback) gets the next number.
    """
    desired = {**new.metadata.annotations, **copied_annotations(deployment)}
    before = revision(new)
    if before < number:
        desired[REVISION] = str(number)
        if before:
            history = new.metadata.annotations.get(HISTORY, "")
            desired[HISTORY] = f"{history},{before}" if history else str(before)
    return desired


def as_set(replica_set: ReplicaSet) -> Set:
    annotations = replica_set.metadata.annotations
    return Set(
        replica_set.metadata.name,
        size(replica_set),
        replica_set.status.available_replicas or 0,
        replica_set.metadata.creation_timestamp or _BEGINNING,
        _number(annotations.get(DESIRED)),
        _number(annotations.get(MOST)),
    )


def size(replica_set: ReplicaSet) -> int:
    return 1 if replica_set.spec.replicas is None else replica_set.spec.replicas


def expendable(old: Sequence[ReplicaSet], limit: int) -> list[ReplicaSet]:
    """Return old ReplicaSets beyond the history limit, lowest revision first; only empty ones without pending changes."""
    idle = [
        one
        for one in old
        if size(one) == 0
        and one.status.replicas == 0
        and one.metadata.generation <= (one.status.observed_generation or 0)
        and one.metadata.deletion_timestamp is None
    ]
    surplus = len(idle) - limit
    return sorted(idle, key=revision)[:surplus] if surplus > 0 else []


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isdigit() else None
