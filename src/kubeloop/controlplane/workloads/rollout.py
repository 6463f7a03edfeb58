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
    """The limits of a rollout: the desired number of pods, and the maximum numbers of pods above it and of unavailable pods."""

    replicas: int
    surge: int
    unavailable: int

    @classmethod
    def resolve(cls, replicas: int, max_surge: IntOrString | None, max_unavailable: IntOrString | None) -> Bounds:
        """Return the limits for the fields of ``spec.strategy.rollingUpdate``, which are numbers or percentages of ``replicas``.

        The surge is rounded up, and the number of unavailable pods down. If both are zero, one pod may be unavailable, because a rollout
        would never progress otherwise (upstream's ResolveFenceposts).
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
class ReplicaSetSize:
    """The size of a ReplicaSet during a rollout.

    ``desired`` and ``before`` are the desired and the maximum number of pods of the Deployment when the ReplicaSet was last scaled, from
    the annotations ``DESIRED`` and ``MOST``.
    """

    name: str
    replicas: int
    available: int
    created: datetime
    desired: int | None = None
    before: int | None = None


def new_size(bounds: Bounds, new: ReplicaSetSize | None, old: Iterable[ReplicaSetSize]) -> int:
    """Return the next size of the new ReplicaSet, given the sizes of the old ones; if it does not exist (None), its initial size."""
    now = new.replicas if new else 0
    if now >= bounds.replicas:
        return bounds.replicas
    total = now + sum(one.replicas for one in old)
    if total >= bounds.most:
        return now
    return now + min(bounds.most - total, bounds.replicas - now)


def shrink_old(bounds: Bounds, new: ReplicaSetSize, old: Sequence[ReplicaSetSize]) -> dict[str, int]:
    """Return the changed sizes of old ReplicaSets by name: first unavailable pods are removed, then as many as new pods replace."""
    oldest_first = sorted(old, key=lambda replica_set: (replica_set.created, replica_set.name))
    sizes = {one.name: one.replicas for one in oldest_first}
    pods = new.replicas + sum(sizes.values())
    # Pods of the new ReplicaSet that are not available yet must not count as replacements of old pods.
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
    # A status may still count pods that a ReplicaSet is about to delete (upstream trusts it), so the sizes are a limit, too.
    spare = min(spare, cleanup)
    for one in oldest_first:
        step = min(sizes[one.name], max(spare, 0))
        sizes[one.name] -= step
        spare -= step
    return {one.name: sizes[one.name] for one in oldest_first if sizes[one.name] != one.replicas}


def rescale(
    bounds: Bounds, new: ReplicaSetSize | None, old: Sequence[ReplicaSetSize], *, rolling: bool, status_replicas: int
) -> dict[str, int]:
    """Return the sizes of ReplicaSets that change when the Deployment is scaled.

    Outside of a rollout one ReplicaSet gets all pods; during a rollout the ReplicaSets are scaled in proportion.

    Args:
        bounds: The limits of the rollout.
        new: The new ReplicaSet; None if it does not exist.
        old: The old ReplicaSets.
        rolling: Whether the strategy is RollingUpdate.
        status_replicas: The number of pods in the Deployment's status.

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
    # Larger ReplicaSets get the rounding error; among equal ones the newer grow first and the older shrink first.
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


def _proportion(replica_set: ReplicaSetSize, bounds: Bounds, left: int, status_replicas: int) -> int:
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
    """Return a copy of an object's pod template as a JSON tree, with every field that the server sent."""
    template: dict[str, Any] = copy.deepcopy(to_dict(obj)["spec"]["template"])
    return template


def split(deployment: Deployment, sets: Iterable[ReplicaSet]) -> tuple[ReplicaSet | None, list[ReplicaSet]]:
    """Return the ReplicaSet with the Deployment's template (the oldest of several; None without one), and the others, oldest first."""
    ordered = sorted(sets, key=lambda replica_set: (replica_set.metadata.creation_timestamp or _BEGINNING, replica_set.metadata.name))
    desired = template_of(deployment)
    new = next((one for one in ordered if same_template(template_of(one), desired)), None)
    return new, [one for one in ordered if one is not new]


def revision(obj: Deployment | ReplicaSet) -> int:
    """Return the revision in an object's annotations, or 0 if they have none."""
    text = obj.metadata.annotations.get(REVISION, "")
    return int(text) if text.isdigit() else 0


def next_revision(old: Iterable[ReplicaSet]) -> int:
    return max(map(revision, old), default=0) + 1


def new_name(deployment: Deployment) -> tuple[str, str]:
    """Return name and hash of the ReplicaSet for the present template of a Deployment."""
    value = template_hash(template_of(deployment), deployment.status.collision_count)
    return f"{deployment.metadata.name}-{value}", value


def new_replica_set(deployment: Deployment, number: int, replicas: int, bounds: Bounds) -> ReplicaSet:
    """Return the ReplicaSet to create for the present template of a Deployment.

    Args:
        deployment: The Deployment.
        number: The revision of the ReplicaSet.
        replicas: The size of the ReplicaSet.
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
            "annotations": copied_annotations(deployment) | {REVISION: str(number)} | size_annotations(bounds),
        },
        "spec": {"replicas": replicas, "minReadySeconds": spec.get("minReadySeconds") or 0, "selector": selector, "template": template},
    }
    made = decode(ReplicaSet, msgspec.json.encode(document))
    set_controller_reference(deployment, made)
    return made


def copied_annotations(deployment: Deployment) -> dict[str, str]:
    return {name: value for name, value in deployment.metadata.annotations.items() if name not in _NOT_COPIED}


def size_annotations(bounds: Bounds) -> dict[str, str]:
    """Return the annotations of a ReplicaSet by which it can be scaled in proportion later: the sizes of its Deployment."""
    return {DESIRED: str(bounds.replicas), MOST: str(bounds.most)}


def new_annotations(deployment: Deployment, new: ReplicaSet, number: int) -> dict[str, str]:
    """Return the annotations for the new ReplicaSet: those of the Deployment, and revision ``number`` if its present one is lower.

    After a rollback the ReplicaSet has an older revision, which is added to its revision history.
    """
    desired = {**new.metadata.annotations, **copied_annotations(deployment)}
    before = revision(new)
    if before < number:
        desired[REVISION] = str(number)
        if before:
            history = new.metadata.annotations.get(HISTORY, "")
            desired[HISTORY] = f"{history},{before}" if history else str(before)
    return desired


def as_set(replica_set: ReplicaSet) -> ReplicaSetSize:
    annotations = replica_set.metadata.annotations
    return ReplicaSetSize(
        replica_set.metadata.name,
        size(replica_set),
        replica_set.status.available_replicas or 0,
        replica_set.metadata.creation_timestamp or _BEGINNING,
        _number(annotations.get(DESIRED)),
        _number(annotations.get(MOST)),
    )


def size(replica_set: ReplicaSet) -> int:
    return 1 if replica_set.spec.replicas is None else replica_set.spec.replicas


def surplus_replica_sets(old: Sequence[ReplicaSet], limit: int) -> list[ReplicaSet]:
    """Return the old ReplicaSets beyond the history limit, lowest revision first; only ReplicaSets without pods and pending changes."""
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
