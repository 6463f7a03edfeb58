"""The status that the kubelet writes: phase, conditions and container states for what containers did."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kubeloop.kubelet.containers import ContainerRecord, ContainerRun
from kubeloop.kubelet.pod_status import StatusFacts, differs, pod_status, status_patch
from tests.kubelet.test_containers import INIT, NOW, SIDECAR, ended, pod, running

FACTS = StatusFacts("127.0.0.1", "127.64.0.1", NOW, sandbox=True)


def status(tree: dict[str, Any], runs: dict[str, ContainerRun], facts: StatusFacts = FACTS, **waiting: str) -> dict[str, Any]:
    names = [one["name"] for one in [*tree["spec"]["initContainers"], *tree["spec"]["containers"]]]
    records = {name: ContainerRecord(name, runs.get(name), waiting_reason=waiting.get(name, "")) for name in names}
    return pod_status(tree, records, facts, NOW)


TERMINAL = StatusFacts("127.0.0.1", "127.64.0.1", NOW, terminal=True)


@pytest.mark.parametrize(
    ("tree", "runs", "facts", "expected"),
    [
        pytest.param(pod(), {}, FACTS, "Pending", id="a pod without a started container is pending"),
        pytest.param(pod(), {"main": running()}, FACTS, "Running", id="a pod that runs is running"),
        pytest.param(pod(names=("a", "b")), {"a": running()}, FACTS, "Pending", id="it is pending until all have started"),
        pytest.param(pod(), {"main": ended(1)}, FACTS, "Running", id="a container that restarts keeps the pod running"),
        pytest.param(pod("Never"), {"main": ended(0)}, FACTS, "Succeeded", id="success"),
        pytest.param(pod("Never"), {"main": ended(3)}, FACTS, "Failed", id="failure"),
        pytest.param(pod("OnFailure"), {"main": ended(3)}, FACTS, "Running", id="OnFailure retries"),
        pytest.param(pod("Never", names=("a", "b")), {"a": ended(0), "b": ended(1)}, FACTS, "Failed", id="one failure fails the pod"),
        pytest.param(pod(), {"main": ended(0)}, TERMINAL, "Succeeded", id="a deleted pod whose containers ended well"),
        pytest.param(pod(), {"main": ended(143)}, TERMINAL, "Failed", id="a deleted pod whose containers were killed"),
        pytest.param(pod(init=(INIT,)), {"init": running()}, FACTS, "Pending", id="initialization"),
        pytest.param(pod("Never", init=(INIT,)), {"init": ended(1)}, FACTS, "Failed", id="failed initialization"),
        pytest.param(pod(init=(SIDECAR,)), {"side": running(), "main": running()}, FACTS, "Running", id="a sidecar beside it"),
    ],
)
def test_phase(tree: dict[str, Any], runs: dict[str, ContainerRun], facts: StatusFacts, expected: str) -> None:
    assert status(tree, runs, facts)["phase"] == expected


def conditions(status: dict[str, Any]) -> dict[str, str]:
    return {one["type"]: one["status"] + (f" {one['reason']}" if one["reason"] else "") for one in status["conditions"]}


def test_a_pod_that_is_ready() -> None:
    run = running()
    run.ready = True
    found = status(pod(), {"main": run})
    assert set(conditions(found).values()) == {"True"}
    assert found["containerStatuses"][0]["state"] == {"running": {"startedAt": "2026-01-01T12:00:00Z"}}
    assert (found["podIP"], found["hostIPs"], found["startTime"]) == ("127.64.0.1", [{"ip": "127.0.0.1"}], "2026-01-01T12:00:00Z")


def test_a_container_that_is_not_ready_is_named() -> None:
    found = status(pod(names=("a", "b")), {"a": running(), "b": running()})
    ready = next(one for one in found["conditions"] if one["type"] == "Ready")
    assert (ready["status"], ready["reason"], ready["message"]) == ("False", "ContainersNotReady", "containers with unready status: [a b]")


@pytest.mark.parametrize(("ready"), [pytest.param(False, id="before its start is noted"), pytest.param(True, id="while it runs")])
def test_an_init_container_that_is_not_complete_is_named(ready: bool) -> None:
    run = running()
    run.ready = run.started = ready
    found = status(pod(init=(INIT,)), {"init": run})
    assert not found["initContainerStatuses"][0]["ready"]
    initialized = next(one for one in found["conditions"] if one["type"] == "Initialized")
    assert initialized["message"] == "containers with incomplete status: [init]"
    assert found["containerStatuses"][0]["state"] == {"waiting": {"reason": "PodInitializing"}}


@pytest.mark.parametrize(("code", "reason"), [(0, "PodCompleted"), (1, "PodFailed")])
def test_a_pod_that_has_ended_says_so_in_its_conditions(code: int, reason: str) -> None:
    assert conditions(status(pod("Never"), {"main": ended(code)}))["Ready"] == f"False {reason}"


def test_a_container_in_back_off_waits_and_shows_its_last_end() -> None:
    found = status(pod(), {"main": ended(2)}, main="CrashLoopBackOff")["containerStatuses"][0]
    assert found["state"] == {"waiting": {"reason": "CrashLoopBackOff"}}
    assert found["lastState"]["terminated"]["exitCode"] == 2


def test_a_decision_of_the_kubelet_fails_the_pod_with_its_reason() -> None:
    facts = StatusFacts("127.0.0.1", "", NOW, reason="DeadlineExceeded", message="late")
    found = status(pod(), {"main": ended(137)}, facts)
    assert (found["phase"], found["reason"], found["message"]) == ("Failed", "DeadlineExceeded", "late")


def test_a_final_phase_never_changes() -> None:
    tree = pod()
    tree["status"] = {"phase": "Failed"}
    assert status(tree, {"main": running()})["phase"] == "Failed"


def test_a_readiness_gate_without_its_condition_keeps_the_pod_from_being_ready() -> None:
    tree, run = pod(), running()
    run.ready = True
    tree["spec"]["readinessGates"] = [{"conditionType": "shop/ok"}]
    ready = next(one for one in status(tree, {"main": run})["conditions"] if one["type"] == "Ready")
    assert ready["message"] == 'corresponding condition of pod readiness gate "shop/ok" does not exist.'


def test_a_stored_status_does_not_differ_and_its_transition_times_stay() -> None:
    tree = pod()
    tree["status"] = status(tree, {"main": running()})
    later = pod_status(tree, {"main": ContainerRecord("main", running())}, FACTS, NOW + timedelta(hours=1))
    assert not differs(tree, later)
    assert differs(tree, status(tree, {"main": ended(1)}))


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        pytest.param({}, [{"ip": "127.64.0.1"}], id="the first address"),
        pytest.param({"podIPs": [{"ip": "127.64.0.1"}]}, [{"ip": "127.64.0.1"}], id="the same address"),
        pytest.param(
            {"podIPs": [{"ip": "127.65.0.9"}]}, [{"$patch": "delete", "ip": "127.65.0.9"}, {"ip": "127.64.0.1"}], id="another address"
        ),
    ],
)
def test_a_patch_of_the_status_deletes_the_addresses_that_the_pod_no_longer_has(
    stored: dict[str, Any], expected: list[dict[str, str]]
) -> None:
    tree = pod()
    tree["metadata"]["uid"], tree["status"] = "uid-1", stored
    change = status_patch(tree, status(tree, {"main": running()}))
    assert (change["metadata"], change["status"]["podIPs"]) == ({"uid": "uid-1"}, expected)
    assert change["status"]["hostIPs"] == [{"ip": "127.0.0.1"}]
