"""What a Deployment's conditions say, step by step of a rollout."""

from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.api.apps.v1 import Deployment, DeploymentCondition, DeploymentSpec, DeploymentStatus
from kubeloop.controlplane.workloads.deployment_status import find, judge_progress, put
from kubeloop.meta import ObjectMeta

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
BEFORE = NOW - timedelta(minutes=5)


def deployment(*, reason: str | None = None, deadline: int | None = 600, paused: bool = False, updated: int = 0) -> Deployment:
    conditions = []
    if reason is not None:
        status = "False" if reason == "ProgressDeadlineExceeded" else "True"
        conditions = [
            DeploymentCondition(type="Progressing", status=status, reason=reason, last_update_time=BEFORE, last_transition_time=BEFORE)
        ]
    return Deployment(
        metadata=ObjectMeta(name="d", generation=1),
        spec=DeploymentSpec(replicas=2, progress_deadline_seconds=deadline, paused=paused),
        status=DeploymentStatus(conditions=conditions, updated_replicas=updated, replicas=2),
    )


def after(deployment: Deployment, *, updated: int, available: int = 0) -> DeploymentCondition | None:
    status = DeploymentStatus(
        replicas=2,
        updated_replicas=updated,
        available_replicas=available,
        observed_generation=1,
        conditions=list(deployment.status.conditions),
    )
    judge_progress(deployment, status, None, [], NOW)
    return find(status.conditions, "Progressing")


@pytest.mark.parametrize(
    ("deployment", "updated", "available", "expected"),
    [
        pytest.param(deployment(), 1, 0, ("True", "ReplicaSetUpdated"), id="a first step is progress"),
        pytest.param(
            deployment(reason="ReplicaSetUpdated"), 2, 2, ("True", "NewReplicaSetAvailable"), id="all updated and available is complete"
        ),
        pytest.param(
            deployment(reason="ReplicaSetUpdated", updated=1), 1, 0, ("True", "ReplicaSetUpdated"), id="no step within the deadline waits"
        ),
        pytest.param(
            deployment(reason="ReplicaSetUpdated", updated=1, deadline=60),
            1,
            0,
            ("False", "ProgressDeadlineExceeded"),
            id="no step for longer than the deadline is a failure",
        ),
        pytest.param(
            deployment(reason="ProgressDeadlineExceeded", updated=1, deadline=60),
            2,
            0,
            ("True", "ReplicaSetUpdated"),
            id="a late step is progress",
        ),
        pytest.param(
            deployment(reason="NewReplicaSetAvailable", updated=2, deadline=60),
            2,
            1,
            ("True", "NewReplicaSetAvailable"),
            id="a pod lost after completion is no failure of the rollout",
        ),
        pytest.param(deployment(reason="ReplicaSetUpdated", paused=True), 1, 0, ("Unknown", "DeploymentPaused"), id="paused"),
        pytest.param(deployment(reason="DeploymentPaused"), 1, 0, ("Unknown", "DeploymentResumed"), id="resumed"),
        pytest.param(deployment(reason="ReplicaSetUpdated", deadline=None), 1, 0, None, id="without a deadline nothing is said"),
    ],
)
def test_progressing(deployment: Deployment, updated: int, available: int, expected: tuple[str, str] | None) -> None:
    found = after(deployment, updated=updated, available=available)
    assert (found and (found.status, found.reason)) == expected


def test_each_step_moves_the_update_time_and_keeps_the_transition_time() -> None:
    found = after(deployment(reason="ReplicaSetUpdated"), updated=1)
    assert found is not None
    assert (found.last_update_time, found.last_transition_time) == (NOW, BEFORE)


def test_the_same_state_and_reason_again_changes_nothing() -> None:
    status = DeploymentStatus()
    put(status, "Available", "True", "R", "m", BEFORE)
    put(status, "Available", "True", "R", "another message", NOW)
    (only,) = status.conditions
    assert (only.message, only.last_update_time) == ("m", BEFORE)
