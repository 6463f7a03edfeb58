"""Which containers start next, back-off, and the state that a kubelet restores from a pod's status."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.kubelet.containers import ContainerRecord, ContainerRun, backoff_message, deadline_left, decide, restored_records, termination

NOW = datetime(2026, 1, 1, 12, 0, tzinfo=UTC)


def pod(policy: str = "Always", init: tuple[dict[str, Any], ...] = (), names: tuple[str, ...] = ("main",), **more: Any) -> dict[str, Any]:
    spec = {"restartPolicy": policy, "initContainers": list(init), "containers": [{"name": name, **more} for name in names]}
    return {"metadata": {"name": "p", "namespace": "n", "uid": "u"}, "spec": spec}


def running(*, started: bool = True) -> ContainerRun:
    return ContainerRun("id", 0, NOW, started=started)


def ended(code: int, *, ago: float = 0.0) -> ContainerRun:
    return ContainerRun("id", 0, NOW - timedelta(seconds=ago + 1), NOW - timedelta(seconds=ago), code)


INIT, SIDECAR = {"name": "init"}, {"name": "side", "restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("tree", "runs", "start", "finished"),
    [
        pytest.param(pod(), {}, ["main"], False, id="a new container starts"),
        pytest.param(pod(), {"main": running()}, [], False, id="a running container needs nothing"),
        pytest.param(pod(names=("a", "b")), {"a": running()}, ["b"], False, id="containers start independently of each other"),
        pytest.param(pod(), {"main": ended(0)}, ["main"], False, id="Always restarts after success"),
        pytest.param(pod("OnFailure"), {"main": ended(0)}, [], True, id="OnFailure ends after success"),
        pytest.param(pod("OnFailure"), {"main": ended(1)}, ["main"], False, id="OnFailure restarts after failure"),
        pytest.param(pod("Never"), {"main": ended(1)}, [], True, id="Never ends after failure"),
        pytest.param(pod("Never", names=("a", "b")), {"a": ended(0), "b": running()}, [], False, id="the pod ends with its last container"),
        pytest.param(pod(init=(INIT,)), {}, ["init"], False, id="an init container starts first"),
        pytest.param(pod(init=(INIT,)), {"init": running()}, [], False, id="containers wait for an init container"),
        pytest.param(pod(init=(INIT,)), {"init": ended(0)}, ["main"], False, id="containers follow its success"),
        pytest.param(pod(init=(INIT,)), {"init": ended(1)}, ["init"], False, id="a failed init container restarts"),
        pytest.param(pod("Never", init=(INIT,)), {"init": ended(1)}, [], True, id="with Never its failure ends the pod"),
        pytest.param(pod(init=(SIDECAR, INIT)), {"side": running(started=False)}, [], False, id="a sidecar that starts up blocks the next"),
        pytest.param(pod(init=(SIDECAR, INIT)), {"side": running()}, ["init"], False, id="a started sidecar lets the next start"),
        pytest.param(pod(init=(SIDECAR,)), {"side": ended(0), "main": running()}, ["side"], False, id="an ended sidecar restarts"),
        pytest.param(pod("Never", init=(SIDECAR,)), {"side": running(), "main": ended(0)}, [], True, id="sidecars do not hold a pod"),
        pytest.param(pod(init=(INIT,)), {"main": running()}, [], False, id="an initialized pod does not run init containers again"),
        pytest.param(pod("Always", restartPolicy="Never"), {"main": ended(1)}, [], True, id="a container's own policy takes precedence"),
        pytest.param(
            pod("Never", restartPolicyRules=[{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]),
            {"main": ended(42)},
            ["main"],
            False,
            id="a rule restarts on its exit code",
        ),
    ],
)
def test_decide(tree: dict[str, Any], runs: dict[str, ContainerRun], start: list[str], finished: bool) -> None:
    names = [one["name"] for one in [*tree["spec"]["initContainers"], *tree["spec"]["containers"]]]
    records = {name: ContainerRecord(name, runs.get(name)) for name in names}
    actions = decide(tree, records, NOW)
    assert ([one["name"] for one in actions.start], actions.finished) == (start, finished)


def test_back_off_doubles_from_ten_seconds_to_five_minutes_and_ends_after_a_long_run() -> None:
    record, waits, now = ContainerRecord("main"), [], NOW
    for _ in range(9):
        record.begin(ContainerRun("id", 0, now, now + timedelta(seconds=1), 1))
        now += timedelta(seconds=1)
        waits.append(record.left(now))
        now += timedelta(seconds=waits[-1])
    assert waits == [0, 10, 20, 40, 80, 160, 300, 300, 300]
    record.begin(ContainerRun("id", 0, now, now + timedelta(seconds=601), 1))
    assert record.left(now + timedelta(seconds=601)) == 0


def test_a_container_in_back_off_waits_with_the_remaining_seconds() -> None:
    record = ContainerRecord("main", ended(1, ago=4), backoff=10, backoff_since=NOW - timedelta(seconds=30))
    actions = decide(pod(), {"main": record}, NOW)
    assert (actions.start, actions.back_off) == ([], {"main": 6.0})
    assert backoff_message(pod(), record) == "back-off 10s restarting failed container=main pod=p_n(u)"


def test_a_kubelet_that_starts_again_counts_what_ran_as_ended() -> None:
    tree = pod(names=("run", "ended", "waits", "new"))
    started = {"running": {"startedAt": "2026-01-01T11:00:00Z"}}
    failed = {"terminated": {"exitCode": 3, "reason": "Error", "startedAt": "2026-01-01T11:00:00Z", "finishedAt": "2026-01-01T11:00:01Z"}}
    tree["status"] = {
        "containerStatuses": [
            {"name": "run", "restartCount": 2, "containerID": "process://abc", "state": started, "lastState": failed},
            {"name": "ended", "restartCount": 0, "state": failed, "lastState": {}},
            {"name": "waits", "restartCount": 1, "state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": failed},
        ]
    }
    records = restored_records(tree, NOW)
    run = records["run"].current
    assert run is not None
    assert (run.id, run.exit_code, run.reason, records["run"].restarts) == ("abc", 137, "ContainerStatusUnknown", 2)
    assert termination(run)["message"] == "The container could not be located when the pod was terminated"
    assert [records[name].current.exit_code for name in ("ended", "waits") if records[name].current is not None] == [3, 3]  # type: ignore[union-attr]
    assert records["new"].current is None


def test_the_deadline_counts_from_the_start_of_the_pod() -> None:
    tree = pod()
    assert deadline_left(tree, NOW, NOW) is None
    tree["spec"]["activeDeadlineSeconds"] = 5
    assert deadline_left(tree, NOW - timedelta(seconds=7), NOW) == -2
