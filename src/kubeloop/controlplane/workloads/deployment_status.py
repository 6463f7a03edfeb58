"""Computes the status of a Deployment: counts, and the conditions Available and Progressing. No I/O.

Source: Kubernetes pkg/controller/deployment (sync.go calculateStatus, progress.go) and util/deployment_util.go.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import datetime, timedelta

from kubeloop.api.apps.v1 import Deployment, DeploymentCondition, DeploymentStatus, ReplicaSet
from kubeloop.controlplane.workloads.rollout import Bounds, size

AVAILABLE, PROGRESSING, FAILURE = "Available", "Progressing", "ReplicaFailure"
COMPLETE, TIMED_OUT = "NewReplicaSetAvailable", "ProgressDeadlineExceeded"
PAUSED, RESUMED = "DeploymentPaused", "DeploymentResumed"
#: Reasons of the condition Progressing for which no deadline runs.
AT_REST = (COMPLETE, TIMED_OUT, PAUSED)
#: Upstream's value for "no deadline".
_NO_DEADLINE = 2**31 - 1


def find(conditions: Sequence[DeploymentCondition], kind: str) -> DeploymentCondition | None:
    """Return a condition by its type, or None."""
    return next((one for one in conditions if one.type == kind), None)


def put(status: DeploymentStatus, kind: str, state: str, reason: str, message: str, now: datetime) -> None:
    """Set a condition. Equal state and reason change nothing; equal state with another reason keeps the transition time.

    Args:
        status: The status to change.
        kind: Type of the condition.
        state: ``True``, ``False`` or ``Unknown``.
        reason: The machine-readable reason.
        message: The human-readable message.
        now: The present time.
    """
    before = find(status.conditions, kind)
    if before is not None and before.status == state and before.reason == reason:
        return
    since = before.last_transition_time if before is not None and before.status == state else now
    fresh = DeploymentCondition(type=kind, status=state, reason=reason, message=message, last_update_time=now, last_transition_time=since)
    status.conditions = [*(one for one in status.conditions if one.type != kind), fresh]


def drop(status: DeploymentStatus, kind: str) -> None:
    """Remove a condition."""
    status.conditions = [one for one in status.conditions if one.type != kind]


def counted(deployment: Deployment, new: ReplicaSet | None, sets: Sequence[ReplicaSet], bounds: Bounds, now: datetime) -> DeploymentStatus:
    """Return a status with counts and the condition Available; other conditions stay.

    Args:
        deployment: The Deployment.
        new: The new ReplicaSet; None if it does not exist yet.
        sets: All ReplicaSets of the Deployment.
        bounds: The limits of the rollout.
        now: The present time.

    Returns:
        The new status.
    """
    available = sum(one.status.available_replicas or 0 for one in sets)
    status = DeploymentStatus(
        observed_generation=deployment.metadata.generation,
        replicas=sum(one.status.replicas for one in sets) or None,
        updated_replicas=(new.status.replicas if new is not None else 0) or None,
        ready_replicas=sum(one.status.ready_replicas or 0 for one in sets) or None,
        available_replicas=available or None,
        unavailable_replicas=max(sum(map(size, sets)) - available, 0) or None,
        terminating_replicas=sum(one.status.terminating_replicas or 0 for one in sets),
        collision_count=deployment.status.collision_count,
        conditions=copy.deepcopy(deployment.status.conditions),
    )
    if available >= bounds.least_available:
        put(status, AVAILABLE, "True", "MinimumReplicasAvailable", "Deployment has minimum availability.", now)
    else:
        put(status, AVAILABLE, "False", "MinimumReplicasUnavailable", "Deployment does not have minimum availability.", now)
    return status


def has_deadline(deployment: Deployment) -> bool:
    """Return whether a Deployment has a progress deadline."""
    seconds = deployment.spec.progress_deadline_seconds
    return seconds is not None and seconds != _NO_DEADLINE


def judge_progress(
    deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, sets: Sequence[ReplicaSet], now: datetime
) -> None:
    """Set the conditions Progressing and ReplicaFailure of ``status``, based on the previous conditions.

    Args:
        deployment: The Deployment with its previous status.
        status: The status to change.
        new: The new ReplicaSet; None if it does not exist yet.
        sets: All ReplicaSets of the Deployment.
        now: The present time.
    """
    before = find(deployment.status.conditions, PROGRESSING)
    if not has_deadline(deployment):
        drop(status, PROGRESSING)
    elif deployment.spec.paused:
        if before is None or before.reason != TIMED_OUT:
            put(status, PROGRESSING, "Unknown", PAUSED, "Deployment is paused", now)
    elif before is not None and before.reason == PAUSED:
        put(status, PROGRESSING, "Unknown", RESUMED, "Deployment is resumed", now)
    else:
        done_before = (status.replicas or 0) == (status.updated_replicas or 0) and before is not None and before.reason == COMPLETE
        if not done_before:
            _judge(deployment, status, new, before, now)
    failures = [one for each in sets for one in each.status.conditions if one.type == FAILURE]
    if failures:
        failed = failures[0]
        put(status, FAILURE, failed.status, failed.reason or "", failed.message or "", now)
    else:
        drop(status, FAILURE)


def _judge(
    deployment: Deployment, status: DeploymentStatus, new: ReplicaSet | None, before: DeploymentCondition | None, now: datetime
) -> None:
    name = f'ReplicaSet "{new.metadata.name}"' if new is not None else f'Deployment "{deployment.metadata.name}"'
    if is_complete(deployment, status):
        put(status, PROGRESSING, "True", COMPLETE, f"{name} has successfully progressed.", now)
    elif made_progress(deployment.status, status):
        # The deadline starts at the update time, which each step of progress changes, unlike the transition time.
        drop(status, PROGRESSING)
        put(status, PROGRESSING, "True", "ReplicaSetUpdated", f"{name} is progressing.", now)
        fresh = find(status.conditions, PROGRESSING)
        if fresh is not None and before is not None and before.status == "True":
            fresh.last_transition_time = before.last_transition_time
    elif is_late(deployment, before, now):
        put(status, PROGRESSING, "False", TIMED_OUT, f"{name} has timed out progressing.", now)


def is_complete(deployment: Deployment, status: DeploymentStatus) -> bool:
    """Return whether a rollout is complete: all pods are updated and available, and no old pod exists."""
    desired = 1 if deployment.spec.replicas is None else deployment.spec.replicas
    counts = ((status.updated_replicas or 0), (status.replicas or 0), (status.available_replicas or 0))
    return counts == (desired, desired, desired) and (status.observed_generation or 0) >= deployment.metadata.generation


def made_progress(old: DeploymentStatus, new: DeploymentStatus) -> bool:
    """Return whether a rollout has made progress between two statuses of a Deployment."""
    return (
        (new.updated_replicas or 0) > (old.updated_replicas or 0)
        or (new.replicas or 0) - (new.updated_replicas or 0) < (old.replicas or 0) - (old.updated_replicas or 0)
        or (new.ready_replicas or 0) > (old.ready_replicas or 0)
        or (new.available_replicas or 0) > (old.available_replicas or 0)
    )


def is_late(deployment: Deployment, progressing: DeploymentCondition | None, now: datetime) -> bool:
    """Return whether the last progress of the rollout is older than the deadline allows."""
    if progressing is None or progressing.reason == COMPLETE:
        return False
    return progressing.reason == TIMED_OUT or seconds_left(deployment, progressing, now) < 0


def seconds_left(deployment: Deployment, progressing: DeploymentCondition, now: datetime) -> float:
    """Return the seconds until the progress deadline."""
    since = progressing.last_update_time or now
    return (since + timedelta(seconds=deployment.spec.progress_deadline_seconds or 0) - now).total_seconds()
