"""The ReplicaSets of a Deployment: finds and creates the new one, and the annotations with revision and size.

Source: Kubernetes pkg/controller/deployment/util/deployment_util.go and sync.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from kubeloop.api.apps.v1 import Deployment, ReplicaSet
from kubeloop.codec import decode, to_dict
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.rollout import Bounds, Set
from kubeloop.controlplane.template import HASH_LABEL, same_template, template_hash, with_hash

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
    ordered = sorted(sets, key=lambda one: (one.metadata.creation_timestamp or _BEGINNING, one.metadata.name))
    wanted = template_of(deployment)
    new = next((one for one in ordered if same_template(template_of(one), wanted)), None)
    return new, [one for one in ordered if one is not new]


def revision(obj: Deployment | ReplicaSet) -> int:
    """Return the revision number; 0 if there is none."""
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
    wanted = {**new.metadata.annotations, **copied_annotations(deployment)}
    before = revision(new)
    if before < number:
        wanted[REVISION] = str(number)
        if before:
            history = new.metadata.annotations.get(HISTORY, "")
            wanted[HISTORY] = f"{history},{before}" if history else str(before)
    return wanted


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
