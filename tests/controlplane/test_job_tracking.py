"""Accounting of a Job's finished pods: each is counted exactly once, whichever write is the last before a kill."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Pod
from kubeloop.codec import to_dict
from kubeloop.controlplane.workloads import job_tracking
from kubeloop.controlplane.workloads.job_backoff import BackoffRecord
from kubeloop.controlplane.workloads.job_snapshot import TRACKING, is_tracked, take_snapshot
from kubeloop.controlplane.workloads.job_tracking import count_released, finish, record_finished
from tests.controlplane.jobs import NOW, failed, indexed, job, pod, snapshot, succeeded
from tests.controlplane.workloads import read
from tests.effort import effort

IGNORE = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": [5]}}


class Killed(Exception):
    """The controller ends before a write."""


@dataclass
class World:
    """A server's state of one Job, and a controller that is killed after some writes."""

    job: Job
    pods: dict[str, Pod] = field(default_factory=dict)
    writes_left: int = 0

    def _write(self) -> None:
        if self.writes_left == 0:
            raise Killed
        self.writes_left -= 1

    def write_status(self, job: Job) -> None:
        self._write()
        self.job = copy.deepcopy(job)

    def release(self, name: str) -> None:
        self._write()
        self.pods[name].metadata.finalizers = []

    def reconcile(self, writes: int) -> None:
        """Make the three writes of each finished pod in their order; stop after ``writes`` of them."""
        self.writes_left = writes
        view = take_snapshot(copy.deepcopy(self.job), [copy.deepcopy(one) for one in self.pods.values()], BackoffRecord(), NOW)
        result = record_finished(view)
        if view.job.status != self.job.status:
            self.write_status(view.job)
        for one in result.to_release:
            self.release(one.metadata.name)
            one.metadata.finalizers = []
        changed = count_released(view.job.status, {one.metadata.uid for one in view.pods if is_tracked(one)})
        if changed:
            self.write_status(view.job)


@settings(max_examples=effort(60, 2000), deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["succeed", "fail", "ignored"]), st.integers(0, 9)), min_size=1, max_size=14),
    st.lists(st.booleans(), min_size=14, max_size=14),
)
def test_each_finished_pod_is_counted_once_however_often_the_controller_is_killed(
    history: list[tuple[str, int]], removed: list[bool]
) -> None:
    world = World(job(backoffLimit=99, completions=99, parallelism=99, podFailurePolicy={"rules": [IGNORE]}))
    for number, ((outcome, writes), gone) in enumerate(zip(history, removed, strict=False)):
        name = f"p{number}"
        world.pods[name] = succeeded(name) if outcome == "succeed" else failed(name, 5 if outcome == "ignored" else 1)
        try:
            world.reconcile(writes)
        except Killed:
            continue
        if gone:  # A pod without the finalizer may be deleted at any time.
            world.pods = {known: one for known, one in world.pods.items() if one.metadata.finalizers}
    world.reconcile(99)
    outcomes = [outcome for outcome, _ in history]
    status = world.job.status
    assert (status.succeeded or 0, status.failed or 0) == (outcomes.count("succeed"), outcomes.count("fail"))
    assert status.uncounted_terminated_pods is not None
    assert not status.uncounted_terminated_pods.succeeded
    assert not status.uncounted_terminated_pods.failed
    assert all(not one.metadata.finalizers for one in world.pods.values())


@settings(max_examples=effort(60, 2000), deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans(), st.integers(0, 7)), min_size=1, max_size=12))
def test_an_index_is_counted_once_although_several_of_its_pods_succeed(history: list[tuple[int, bool, int]]) -> None:
    world = World(indexed(5, 5, backoffLimit=99))
    for number, (index, success, writes) in enumerate(history):
        name = f"p{number}"
        world.pods[name] = succeeded(name, index=index) if success else failed(name, index=index)
        try:
            world.reconcile(writes)
        except Killed:
            continue
    world.reconcile(99)
    status = world.job.status
    done = {index for index, success, _ in history if success and index < 5}
    assert status.succeeded == (len(done) or None)
    assert (status.failed or 0) == sum(not success and index < 5 for index, success, _ in history)
    assert sorted(done) == [index for index in range(5) if f",{index}," in f",{_expanded(status.completed_indexes)},"]


def _expanded(text: str | None) -> str:
    numbers: list[str] = []
    for part in (text or "").split(","):
        first, _, last = part.partition("-")
        numbers += map(str, range(int(first), int(last or first) + 1)) if first else []
    return ",".join(numbers)


@pytest.mark.parametrize(
    ("job", "pods", "names"),
    [
        pytest.param(job(), [succeeded("s"), failed("f"), pod("r")], ["s", "f"], id="finished pods"),
        pytest.param(job(), [succeeded("s", tracked=False)], [], id="not pods that are counted already"),
        pytest.param(job(), [pod("r", deleted=0)], ["r"], id="a pod that is being deleted counts as failed"),
        pytest.param(job(podReplacementPolicy="Failed"), [pod("r", deleted=0)], [], id="unless only failed pods are replaced"),
        pytest.param(job(backoffLimit=0), [failed("f"), pod("r")], ["f", "r"], id="all pods of a Job that has failed"),
        pytest.param(
            indexed(3, backoffLimitPerIndex=2), [failed("f", index=0)], [], id="not the failed pod of an index before it is replaced"
        ),
        pytest.param(indexed(3, backoffLimitPerIndex=2), [failed("f", index=0), pod("r", index=0, failures=1)], ["f"], id="but after that"),
        pytest.param(indexed(3, backoffLimitPerIndex=0), [failed("f", index=0)], ["f"], id="and if the index has failed"),
    ],
)
def test_these_pods_lose_the_finalizer(job: Job, pods: list[Pod], names: list[str]) -> None:
    assert [released.metadata.name for released in record_finished(snapshot(job, *pods)).to_release] == names


def test_pods_of_a_job_that_is_being_deleted_lose_the_finalizer_and_do_not_count() -> None:
    document = to_dict(job())
    document["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    view = snapshot(read(Job, document), pod("r"))
    assert [one.metadata.name for one in record_finished(view).to_release] == ["r"]
    assert view.job.status.uncounted_terminated_pods is not None
    assert view.job.status.uncounted_terminated_pods.failed == []


def test_a_failure_is_announced_before_pods_lose_the_finalizer_and_the_job_ends_after_they_are_gone() -> None:
    view = snapshot(job(backoffLimit=0), failed("f"), pod("t", deleted=0))
    record_finished(view)
    status = view.job.status
    assert [one.type for one in status.conditions] == ["FailureTarget"]
    assert not finish(view, status), "pods are uncounted"
    count_released(status, set())
    assert not finish(view, status), "a pod terminates"
    view.terminating = 0
    assert finish(view, status)
    assert [(one.type, one.reason) for one in status.conditions] == [
        ("FailureTarget", "BackoffLimitExceeded"),
        ("Failed", "BackoffLimitExceeded"),
    ]
    assert (status.failed, status.completion_time) == (2, None)


def test_a_status_names_a_limited_number_of_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_tracking, "MAX_UNCOUNTED", 2)
    pods = [succeeded(f"p{number}") for number in range(5)]
    view = snapshot(job(completions=9), *pods)
    result = record_finished(view)
    assert (len(result.to_release), result.complete) == (2, False)


def test_scaling_an_elastic_job_down_forgets_the_indexes_beyond() -> None:
    view = snapshot(indexed(2, 2, status={"completedIndexes": "0-4", "succeeded": 5}))
    record_finished(view)
    assert (view.job.status.succeeded, view.job.status.completed_indexes) == (2, "0,1")


def test_the_finalizer_is_that_of_kubernetes() -> None:
    assert TRACKING == "batch.kubernetes.io/job-tracking"
