"""Rollouts in kubectl's words."""

from __future__ import annotations

from typing import Any

import pytest

from kubeloop.client.waits.readiness import rollout_of

Tree = dict[str, Any]
WAITING = 'Waiting for deployment "web" rollout to finish: '
DAEMONS = 'Waiting for daemon set "web" rollout to finish: '


def tree(kind: str, spec: Tree, status: Tree, generation: int = 1) -> Tree:
    return {
        "kind": kind,
        "metadata": {"name": "web", "generation": generation},
        "spec": spec,
        "status": {"observedGeneration": 1, **status},
    }


def deployment(**status: int) -> Tree:
    return tree("Deployment", {"replicas": 3}, dict(status))


def daemon_set(**status: int) -> Tree:
    return tree("DaemonSet", {"updateStrategy": {"type": "RollingUpdate"}}, dict(status))


def stateful_set(partition: int | None = None, **status: Any) -> Tree:
    rolling: Tree = {} if partition is None else {"rollingUpdate": {"partition": partition}}
    return tree("StatefulSet", {"replicas": 3, "updateStrategy": {"type": "RollingUpdate", **rolling}}, dict(status))


@pytest.mark.parametrize(
    ("object_", "text", "done"),
    [
        pytest.param(
            tree("Deployment", {}, {}, 2),
            "Waiting for deployment spec update to be observed...",
            False,
            id="an unseen Deployment",
        ),
        pytest.param(deployment(updatedReplicas=1), f"{WAITING}1 out of 3 new replicas have been updated...", False, id="new replicas"),
        pytest.param(
            deployment(updatedReplicas=3, replicas=4), f"{WAITING}1 old replicas are pending termination...", False, id="old replicas"
        ),
        pytest.param(
            deployment(updatedReplicas=3, replicas=3, availableReplicas=2),
            f"{WAITING}2 of 3 updated replicas are available...",
            False,
            id="replicas that are not available",
        ),
        pytest.param(
            deployment(updatedReplicas=3, replicas=3, availableReplicas=3), 'deployment "web" successfully rolled out', True, id="all there"
        ),
        pytest.param(tree("DaemonSet", {}, {}, 2), "Waiting for daemon set spec update to be observed...", False, id="an unseen DaemonSet"),
        pytest.param(daemon_set(desiredNumberScheduled=2), f"{DAEMONS}0 out of 2 new pods have been updated...", False, id="new daemons"),
        pytest.param(
            daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=1),
            f"{DAEMONS}1 of 2 updated pods are available...",
            False,
            id="daemons that are not available",
        ),
        pytest.param(
            daemon_set(desiredNumberScheduled=2, updatedNumberScheduled=2, numberAvailable=2),
            'daemon set "web" successfully rolled out',
            True,
            id="all daemons",
        ),
        pytest.param(
            tree("StatefulSet", {"replicas": 1}, {"observedGeneration": 0}, 0),
            "Waiting for statefulset spec update to be observed...",
            False,
            id="a StatefulSet that its controller has not seen",
        ),
        pytest.param(stateful_set(readyReplicas=1), "Waiting for 2 pods to be ready...", False, id="pods that are not ready"),
        pytest.param(
            stateful_set(partition=1, readyReplicas=3, updatedReplicas=1),
            "Waiting for partitioned roll out to finish: 1 out of 2 new pods have been updated...",
            False,
            id="a part that is rolled out",
        ),
        pytest.param(
            stateful_set(partition=1, readyReplicas=3, updatedReplicas=2),
            "partitioned roll out complete: 2 new pods have been updated...",
            True,
            id="a part that is complete",
        ),
        pytest.param(
            stateful_set(readyReplicas=3, updatedReplicas=1, updateRevision="b", currentRevision="a"),
            "waiting for statefulset rolling update to complete 1 pods at revision b...",
            False,
            id="two revisions",
        ),
        pytest.param(
            stateful_set(readyReplicas=3, currentReplicas=3, updateRevision="b", currentRevision="b"),
            "statefulset rolling update complete 3 pods at revision b...",
            True,
            id="one revision",
        ),
    ],
)
def test_of(object_: Tree, text: str, done: bool) -> None:
    assert rollout_of(object_) == (text, done)


@pytest.mark.parametrize(
    ("object_", "fault"),
    [
        pytest.param(tree("Pod", {}, {}), "a Pod has no rollout to wait for; Deployment, DaemonSet, StatefulSet have", id="a pod"),
        pytest.param(
            tree("DaemonSet", {"updateStrategy": {"type": "OnDelete"}}, {}),
            "rollout status is only available for RollingUpdate strategy type",
            id="pods that a user has to delete",
        ),
    ],
)
def test_none_to_wait_for(object_: Tree, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        rollout_of(object_)
