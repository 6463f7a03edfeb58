"""Histories of simulated containers: starts, probes, ends, restarts with back-off, pulls of images. Pure functions of time."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kubeloop.controlplane.simulation.annotations import PREFIX, Simulation
from kubeloop.controlplane.simulation.containers import PodMemory, restart_action, should_restart
from kubeloop.controlplane.simulation.pod_status import NOTHING_MISSING, PodAddresses, running, stop_seconds
from kubeloop.controlplane.simulation.probes import (
    ALWAYS,
    NEVER,
    RetryDelay,
    Timeline,
    go_duration,
    next_delay,
    probe_results,
    remaining_delay,
)
from kubeloop.controlplane.simulation.usage import UsageFunction
from kubeloop.types import JSONObject

NOW = datetime(2026, 1, 1, tzinfo=UTC)
ADDRESSES = PodAddresses("10.0.0.10", "10.244.0.1")


@dataclass
class History:
    """A pod whose status is written at each change, as a kubelet would."""

    pod: JSONObject
    now: datetime = NOW
    memory: PodMemory = field(default_factory=PodMemory)
    states: list[tuple[float, str]] = field(default_factory=list)
    events: list[tuple[str, str]] = field(default_factory=list)

    def run(self, seconds: float) -> History:
        """Let time pass, and record each state of the containers with the second of its beginning."""
        end = self.now + timedelta(seconds=seconds)
        while True:
            observed = running(self.pod, Simulation.from_pod(self.pod), ADDRESSES, self.now, NOTHING_MISSING, self.memory)
            self.pod["status"] = observed.status
            self.events += [(one.reason, one.message) for one in observed.events]
            state = self.describe()
            if not self.states or self.states[-1][1] != state:
                self.states.append(((self.now - NOW).total_seconds(), state))
            if observed.seconds is None or self.now + timedelta(seconds=observed.seconds) > end:
                self.now = end
                return self
            self.now += timedelta(seconds=observed.seconds)

    def describe(self) -> str:
        status = self.pod["status"]
        kinds = ("initContainerStatuses", "containerStatuses", "ephemeralContainerStatuses")
        parts = [_describe(one) for kind in kinds for one in status.get(kind) or ()]
        return f"{status['phase']}: {', '.join(parts)}"

    def condition(self, kind: str) -> tuple[str, str]:
        (condition,) = [one for one in self.pod["status"]["conditions"] if one["type"] == kind]
        return condition["status"], condition["reason"] or ""


def _describe(status: JSONObject) -> str:
    ((kind, state),) = status["state"].items()
    text = state.get("reason") or ("ready" if status["ready"] else "running")
    if kind == "terminated":
        text += f" {state['exitCode']}"
    return f"{status['name']} {text}" + (f" #{status['restartCount']}" if status["restartCount"] else "")


def pod(container: dict[str, Any] | None = None, *, init: list[dict[str, Any]] | None = None, **fields: Any) -> History:
    """Return a pod with one container ``c``. Fields with underscores are annotations: ``exit_code="1"``."""
    known = {"restartPolicy", "activeDeadlineSeconds", "terminationGracePeriodSeconds", "readinessGates", "ephemeralContainers", "more"}
    annotations = {PREFIX + name.replace("_", "-"): value for name, value in fields.items() if name not in known}
    spec: dict[str, Any] = {name: value for name, value in fields.items() if name in known - {"more"}}
    spec["containers"] = [{"name": "c", "image": "x:1"} | (container or {}), *(fields.get("more") or ())]
    if init:
        spec["initContainers"] = [{"image": "x:1"} | one for one in init]
    metadata = {"name": "p", "namespace": "default", "uid": "u", "generation": 1, "annotations": annotations}
    return History({"metadata": metadata, "spec": spec})


PROBE = {"httpGet": {"port": 80}, "periodSeconds": 5, "failureThreshold": 3, "successThreshold": 1}
ALWAYS_RESTARTED = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("history", "seconds", "states"),
    [
        pytest.param(pod(), 900, [(0, "Running: c ready")], id="a container without annotations never ends"),
        pytest.param(
            pod(restartPolicy="Never", run_seconds="5"),
            60,
            [(0, "Running: c ready"), (5, "Succeeded: c Completed 0")],
            id="a container ends after its time",
        ),
        pytest.param(
            pod(restartPolicy="OnFailure", run_seconds="2", exit_code="1/0"),
            60,
            [(0, "Running: c ready"), (2, "Running: c Error 1"), (3, "Running: c ready #1"), (5, "Succeeded: c Completed 0 #1")],
            id="the first restart is at once, and each run has its exit code",
        ),
        pytest.param(
            pod(run_seconds="1", exit_code="1"),
            120,
            [
                (0, "Running: c ready"),
                (1, "Running: c Error 1"),
                (2, "Running: c ready #1"),
                (3, "Running: c Error 1 #1"),
                (4, "Running: c CrashLoopBackOff #1"),
                (13, "Running: c ready #2"),
                (14, "Running: c Error 1 #2"),
                (15, "Running: c CrashLoopBackOff #2"),
                (34, "Running: c ready #3"),
                (35, "Running: c Error 1 #3"),
                (36, "Running: c CrashLoopBackOff #3"),
                (75, "Running: c ready #4"),
                (76, "Running: c Error 1 #4"),
                (77, "Running: c CrashLoopBackOff #4"),
            ],
            id="a crash loop waits for 10, 20, 40, 80 seconds",
        ),
        pytest.param(
            pod({"readinessProbe": PROBE}, readiness_probe="failure 12 success"),
            60,
            [(0, "Running: c running"), (15, "Running: c ready")],
            id="readiness follows the first probe that succeeds",
        ),
        pytest.param(
            pod({"readinessProbe": PROBE | {"initialDelaySeconds": 7}}, readiness_probe="success 20 failure"),
            60,
            [(0, "Running: c running"), (7, "Running: c ready"), (32, "Running: c running")],
            id="readiness begins after its delay, and is lost after three failures",
        ),
        pytest.param(
            pod({"livenessProbe": PROBE}, liveness_probe="success 20 failure 30 success", run_seconds="forever"),
            60,
            [(0, "Running: c ready"), (30, "Running: c Error 137"), (31, "Running: c ready #1")],
            id="a container whose liveness fails three times is restarted",
        ),
        pytest.param(
            pod({"startupProbe": PROBE, "livenessProbe": PROBE}, startup_probe="failure 8 success", liveness_probe="failure 14 success"),
            60,
            [(0, "Running: c running"), (10, "Running: c ready")],
            id="liveness waits for the startup probe",
        ),
        pytest.param(
            pod({"startupProbe": PROBE}, startup_probe="failure", stop_seconds="4"),
            16,
            [(0, "Running: c running"), (14, "Running: c Error 137"), (15, "Running: c running #1")],
            id="a container that does not start up is killed after its threshold and the time that it takes to stop",
        ),
        pytest.param(
            pod({"resources": {"limits": {"memory": "100Mi"}}}, memory_usage="40Mi+2Mi/s"),
            31,
            [(0, "Running: c ready"), (30, "Running: c OOMKilled 137"), (31, "Running: c ready #1")],
            id="memory that grows beyond the limit ends the container",
        ),
        pytest.param(
            pod(init=[{"name": "a"}, {"name": "b"}], run_seconds="a=3,b=4"),
            60,
            [
                (0, "Pending: a running, b PodInitializing, c PodInitializing"),
                (3, "Pending: a Completed 0, b running, c PodInitializing"),
                (7, "Running: a Completed 0, b Completed 0, c ready"),
            ],
            id="init containers run one after the other",
        ),
        pytest.param(
            pod(init=[{"name": "a"}], exit_code="a=1/0"),
            60,
            [(0, "Pending: a Error 1, c PodInitializing"), (1, "Running: a Completed 0 #1, c ready")],
            id="a failed init container is restarted",
        ),
        pytest.param(
            pod(
                init=[{"name": "s", "startupProbe": PROBE} | ALWAYS_RESTARTED],
                startup_probe="failure 8 success",
                restartPolicy="Never",
                run_seconds="c=5",
            ),
            60,
            [
                (0, "Pending: s running, c PodInitializing"),
                (10, "Running: s ready, c ready"),
                (15, "Succeeded: s Completed 0, c Completed 0"),
            ],
            id="a sidecar starts before the others, and ends after them",
        ),
        pytest.param(
            pod(init=[{"name": "s"} | ALWAYS_RESTARTED], run_seconds="s=10", exit_code="s=2"),
            14,
            [
                (0, "Running: s ready, c ready"),
                (10, "Running: s Error 2, c ready"),
                (11, "Running: s ready #1, c ready"),
            ],
            id="a sidecar that crashes is restarted beside the running container",
        ),
        pytest.param(
            pod({"image": "nope:1"}, image_pull="failure 25 success"),
            60,
            [
                (0, "Pending: c ErrImagePull"),
                (1, "Pending: c ImagePullBackOff"),
                (10, "Pending: c ErrImagePull"),
                (11, "Pending: c ImagePullBackOff"),
                (30, "Running: c ready"),
            ],
            id="a pull that fails is tried again with back-off",
        ),
        pytest.param(pod({"image": "Nope"}), 60, [(0, "Pending: c InvalidImageName")], id="the name of an image that is no reference"),
        pytest.param(
            pod({"imagePullPolicy": "Never"}, image_pull="failure"),
            60,
            [(0, "Pending: c ErrImageNeverPull")],
            id="no image and no pull",
        ),
        pytest.param(
            pod(activeDeadlineSeconds=20), 60, [(0, "Running: c ready"), (20, "Failed: c Error 137")], id="a pod beyond its deadline"
        ),
        pytest.param(
            pod(more=[{"name": "d", "image": "x:1"}], restartPolicy="Never", run_seconds="c=3,d=6", exit_code="c=1"),
            60,
            [(0, "Running: c ready, d ready"), (3, "Running: c Error 1, d ready"), (6, "Failed: c Error 1, d Completed 0")],
            id="a pod fails when the last container has ended",
        ),
        pytest.param(
            pod(
                {"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]},
                restartPolicy="Never",
                exit_code="42/3",
                run_seconds="2",
            ),
            60,
            [(0, "Running: c ready"), (2, "Running: c Error 42"), (3, "Running: c ready #1"), (5, "Failed: c Error 3 #1")],
            id="a restart rule restarts a container of a pod that is never restarted",
        ),
        pytest.param(
            pod(ephemeralContainers=[{"name": "debug", "image": "x:1"}], run_seconds="debug=4", exit_code="debug=3"),
            60,
            [(0, "Running: c ready, debug ready"), (4, "Running: c ready, debug Error 3")],
            id="an ephemeral container ends once",
        ),
    ],
)
def test_histories(history: History, seconds: float, states: list[tuple[float, str]]) -> None:
    assert History(history.pod).run(seconds).states == states


def test_all_containers_restart_by_a_rule() -> None:
    rule = {"action": "RestartAllContainers", "exitCodes": {"operator": "In", "values": [42]}}
    worker = {"restartPolicy": "Never", "restartPolicyRules": [rule]}
    history = pod(worker, init=[{"name": "a"}], more=[{"name": "d", "image": "x:1"}], exit_code="c=42/0", run_seconds="c=5/forever")
    states = [state for _, state in history.run(30).states]
    assert states[1] == "Running: a RestartingAllContainers #1, c RestartingAllContainers #1, d RestartingAllContainers #1"
    assert states[-1] == "Running: a Completed 0 #1, c ready #1, d ready #1"
    assert history.pod["status"]["containerStatuses"][1]["lastState"]["terminated"]["exitCode"] == 137


def test_what_a_crash_loop_says() -> None:
    history = pod(run_seconds="1", exit_code="1").run(5)
    (status,) = history.pod["status"]["containerStatuses"]
    assert status["state"]["waiting"]["message"] == "back-off 10s restarting failed container=c pod=p_default(u)"
    assert status["lastState"]["terminated"]["exitCode"] == 1
    assert ("BackOff", "Back-off restarting failed container c in pod p_default(u)") in history.events
    assert history.condition("Ready") == ("False", "ContainersNotReady")


def test_what_a_failed_pull_says() -> None:
    history = pod({"image": "nope:1"}, image_pull="failure").run(5)
    (status,) = history.pod["status"]["containerStatuses"]
    error = (
        'rpc error: code = NotFound desc = failed to pull and unpack image "docker.io/library/nope:1": failed to resolve reference '
        '"docker.io/library/nope:1": docker.io/library/nope:1: not found'
    )
    assert status["state"]["waiting"]["message"] == f'Back-off pulling image "nope:1": ErrImagePull: {error}'
    assert [reason for reason, _ in history.events] == ["Failed", "Failed", "BackOff", "Failed"]


def test_what_a_failed_liveness_probe_says() -> None:
    history = pod({"livenessProbe": PROBE}, liveness_probe="failure").run(11)
    assert history.events[1:3] == [
        ("Unhealthy", "Liveness probe failed: simulated failure"),
        ("Killing", "Container c failed liveness probe, will be restarted"),
    ]


def test_the_conditions_of_a_pod_come_in_the_order_of_a_kubelet_with_the_observed_generation() -> None:
    status = pod().run(1).pod["status"]
    assert [(one["type"], one["observedGeneration"]) for one in status["conditions"]] == [
        (kind, 1) for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
    ]


def test_a_pod_waits_for_its_readiness_gates() -> None:
    history = pod(readinessGates=[{"conditionType": "example.com/lb"}]).run(1)
    assert history.condition("Ready") == ("False", "ReadinessGatesNotReady")
    assert history.condition("ContainersReady") == ("True", "")
    history.pod["status"]["conditions"].append({"type": "example.com/lb", "status": "True"})
    assert history.run(1).condition("Ready") == ("True", "")


def test_a_changed_annotation_counts_from_the_change_on() -> None:
    history = pod({"readinessProbe": PROBE}).run(12)
    history.pod["metadata"]["annotations"][f"{PREFIX}readiness-probe"] = "failure"
    assert [since for since, state in history.run(30).states if "running" in state] == [25]


def test_jitter_prolongs_delays_and_draws_the_same_numbers_again() -> None:
    first, second = (Simulation.from_pod(pod(run_seconds="10", jitter="0.5").pod, seed=seed).run_seconds("c") for seed in (1, 2))
    assert 10 <= first <= 15
    assert first != second
    assert first == Simulation.from_pod(pod(run_seconds="10", jitter="0.5").pod, seed=1).run_seconds("c")


@pytest.mark.parametrize(
    ("timeline", "initial", "begin", "expected"),
    [
        pytest.param(ALWAYS, False, 0.0, [(0.0, True)], id="success at the first probe"),
        pytest.param(NEVER, False, 0.0, [], id="no change if it fails as before"),
        pytest.param(NEVER, None, 0.0, [(10.0, False)], id="failure after three probes"),
        pytest.param(NEVER, True, 20.0, [(30.0, False)], id="probes begin when the container has started up"),
        pytest.param(Timeline(((0.0, False), (6.0, True))), True, 0.0, [], id="two failures"),
        pytest.param(
            Timeline(((0.0, True), (6.0, False), (40.0, True))),
            False,
            0.0,
            [(0.0, True), (20.0, False), (40.0, True)],
            id="both ways",
        ),
    ],
)
def test_probe_results(timeline: Timeline, initial: bool | None, begin: float, expected: list[tuple[float, bool]]) -> None:
    assert probe_results(PROBE, timeline, initial, begin) == expected


def test_delays_double_up_to_five_minutes_and_are_forgotten_after_ten() -> None:
    delay, now, seconds = None, 0.0, []
    for _ in range(8):
        delay = next_delay(delay, now, now)
        seconds.append(delay.seconds)
        now += delay.seconds
    assert seconds == [10, 20, 40, 80, 160, 300, 300, 300]
    assert remaining_delay(delay, now, now + 100) == 200
    assert remaining_delay(RetryDelay(300, 0), 601, 602) == 0
    assert next_delay(RetryDelay(300, 0), 601, 602) == RetryDelay(10, 602)


@pytest.mark.parametrize(("seconds", "text"), [(10, "10s"), (80, "1m20s"), (300, "5m0s"), (3600, "1h0m0s")])
def test_durations_are_printed_as_go_does(seconds: float, text: str) -> None:
    assert go_duration(seconds) == text


@pytest.mark.parametrize(
    ("text", "values", "reaches"),
    [
        pytest.param("64Mi", {0: 64, 100: 64}, math.inf, id="constant"),
        pytest.param("64Mi+2Mi/s", {0: 64, 10: 84}, 18.0, id="growing"),
        pytest.param("0..200Mi/40", {0: 0, 10: 100, 20: 200, 40: 0}, 10.0, id="a wave"),
        pytest.param("200Mi", {0: 200}, 0.0, id="above the limit from the start"),
    ],
)
def test_usage_functions(text: str, values: dict[float, float], reaches: float) -> None:
    usage = UsageFunction.parse(text)
    assert {second: round(usage.at(second) / 2**20) for second in values} == values
    assert usage.reaches(100 * 2**20) == pytest.approx(reaches)


@pytest.mark.parametrize("text", ["", "much", "-1", "1..2", "1..2/0", "1+x/s"])
def test_a_usage_that_makes_no_sense_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        UsageFunction.parse(text)


@pytest.mark.parametrize(
    ("policy", "container", "code", "expected"),
    [
        pytest.param("Never", {}, 0, False, id="never"),
        pytest.param("Always", {}, 0, True, id="always"),
        pytest.param("OnFailure", {}, 0, False, id="on failure, but it has succeeded"),
        pytest.param("Always", {"restartPolicy": "Never"}, 1, False, id="the container's own policy comes first"),
        pytest.param("Never", {"restartPolicy": "OnFailure"}, 1, True, id="a container that is restarted on failure"),
    ],
)
def test_should_restart(policy: str, container: dict[str, Any], code: int, expected: bool) -> None:
    assert should_restart({"restartPolicy": policy}, container, code) is expected


def test_the_first_matching_rule_counts() -> None:
    codes = [("NotIn", [1, 2], "Restart"), ("In", [2], "RestartAllContainers")]
    rules = [{"action": action, "exitCodes": {"operator": operator, "values": values}} for operator, values, action in codes]
    container = {"restartPolicyRules": rules}
    assert [restart_action(container, code) for code in (1, 2, 3)] == ["", "RestartAllContainers", "Restart"]


def test_sidecars_stop_after_the_containers_and_hooks_take_their_time() -> None:
    hook = {"lifecycle": {"preStop": {"sleep": {"seconds": 5}}}}
    stopped = pod(hook, init=[{"name": "s"} | ALWAYS_RESTARTED], stop_seconds="c=2,s=3").pod
    assert stop_seconds(stopped, Simulation.from_pod(stopped)) == 10
