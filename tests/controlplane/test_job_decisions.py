"""Decisions about Jobs: indexes, policies, back-off, verdicts, and the pods to create and to delete. Cases are upstream's."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeloop.api.batch.v1 import Job, PodFailurePolicy, SuccessPolicy
from kubeloop.api.core.v1 import Pod
from kubeloop.codec import to_dict
from kubeloop.controlplane.workloads.job_backoff import BackoffRecord, finished_at, remaining_for_index
from kubeloop.controlplane.workloads.job_indexes import FAILURES, IGNORED_FAILURES, INDEX, IndexRanges, completion_index, pending_indexes
from kubeloop.controlplane.workloads.job_pods import new_pod, plan_pods, removal_order, tracked_template
from kubeloop.controlplane.workloads.job_policies import match_failure_policy, match_success_policy
from kubeloop.controlplane.workloads.job_snapshot import TRACKING, seconds_to_deadline
from tests.controlplane.jobs import NOW, at, failed, indexed, job, pod, snapshot, succeeded
from tests.controlplane.workloads import read

INDEXES = st.sets(st.integers(0, 40))


@pytest.mark.parametrize(
    ("text", "completions", "expected"),
    [
        ("", 5, ""),
        ("0", 5, "0"),
        ("0,1", 5, "0,1"),
        ("0-2", 5, "0-2"),
        ("1,3-5,7", 10, "1,3-5,7"),
        ("1,2,3", 10, "1-3"),
        ("0-9", 3, "0-2"),
        ("3,5", 3, ""),
        ("x,2,4-y,6", 10, "2,6"),
    ],
)
def test_ranges_are_read_below_the_number_of_completions_without_invalid_ranges(text: str, completions: int, expected: str) -> None:
    assert str(IndexRanges.parse(text, completions)) == expected


@given(INDEXES, INDEXES)
def test_ranges_are_sets_whose_text_has_them_in_order(first: set[int], second: set[int]) -> None:
    ranges, other = IndexRanges().add(first), IndexRanges().add(second)
    assert list(ranges.merge(other)) == sorted(first | second)
    assert ranges.overlap(other) == len(first & second)
    assert len(ranges) == len(first)
    assert {index for index in range(42) if index in ranges} == first
    assert IndexRanges.parse(str(ranges), 41) == ranges


@given(st.integers(0, 12), st.integers(0, 40), INDEXES)
def test_pending_indexes_are_the_first_that_are_not_taken(count: int, completions: int, taken: set[int]) -> None:
    expected = [index for index in range(completions) if index not in taken][:count]
    assert pending_indexes(count, completions, IndexRanges().add(taken)) == expected


@pytest.mark.parametrize(("value", "expected"), [("3", 3), ("0", 0), ("-1", None), ("x", None), (None, None)])
def test_the_index_of_a_pod_is_its_annotation(value: str | None, expected: int | None) -> None:
    assert completion_index({} if value is None else {INDEX: value}) == expected


# ------------------------------------------------------------------------------------------------------------------------ policies


def exit_codes(action: str, operator: str, *values: int, container: str | None = None) -> dict[str, Any]:
    rule: dict[str, Any] = {"operator": operator, "values": list(values)}
    return {"action": action, "onExitCodes": rule | ({"containerName": container} if container else {})}


def on_condition(action: str, kind: str = "DisruptionTarget") -> dict[str, Any]:
    return {"action": action, "onPodConditions": [{"type": kind, "status": "True"}]}


def failure_policy(*rules: dict[str, Any]) -> PodFailurePolicy:
    policy = read(Job, {"spec": {"podFailurePolicy": {"rules": list(rules)}}}).spec.pod_failure_policy
    assert policy is not None
    return policy


@pytest.mark.parametrize(
    ("rules", "victim", "action", "message"),
    [
        pytest.param([exit_codes("Ignore", "In", 1, 2)], failed("p", 2), "Ignore", "", id="an exit code that is listed"),
        pytest.param([exit_codes("Ignore", "In", 1, 2)], failed("p", 3), "", "", id="an exit code that is not listed"),
        pytest.param([exit_codes("Count", "NotIn", 1)], failed("p", 3), "Count", "", id="NotIn matches other exit codes"),
        pytest.param([exit_codes("FailJob", "NotIn", 1)], pod("p", "Failed", exit_code=0), "", "", id="NotIn does not match success"),
        pytest.param([exit_codes("Ignore", "In", 1)], pod("p", "Failed"), "", "", id="a container that has not ended has no exit code"),
        pytest.param([exit_codes("Ignore", "In", 1, container="other")], failed("p"), "", "", id="another container"),
        pytest.param([exit_codes("FailIndex", "In", 1, container="c")], failed("p"), "FailIndex", "", id="the named container"),
        pytest.param(
            [on_condition("Ignore"), exit_codes("FailJob", "In", 5)],
            failed("p", 5),
            "FailJob",
            "Container c for pod n/p failed with exit code 5 matching FailJob rule at index 1",
            id="the message about an exit code",
        ),
        pytest.param(
            [on_condition("FailJob")],
            failed("p", conditions=("DisruptionTarget",)),
            "FailJob",
            "Pod n/p has condition DisruptionTarget matching FailJob rule at index 0",
            id="the message about a condition",
        ),
        pytest.param(
            [on_condition("Ignore"), on_condition("FailJob")],
            failed("p", conditions=("DisruptionTarget",)),
            "Ignore",
            "",
            id="the first rule that matches decides",
        ),
        pytest.param([], failed("p"), "", "", id="no rule"),
    ],
)
def test_a_pod_failure_policy_decides_by_exit_code_or_condition(
    rules: list[dict[str, Any]], victim: Pod, action: str, message: str
) -> None:
    match = match_failure_policy(failure_policy(*rules), victim)
    assert (match.action, match.message, match.counts) == (action, message, action != "Ignore")


@pytest.mark.parametrize(
    ("rules", "done", "expected"),
    [
        pytest.param([{"succeededIndexes": "0-2"}], "0-3", "Matched rules at index 0", id="all indexes of a rule"),
        pytest.param([{"succeededIndexes": "0-2"}], "0,1", "", id="not all indexes"),
        pytest.param([{"succeededCount": 2}], "5,7", "Matched rules at index 0", id="enough indexes"),
        pytest.param([{"succeededCount": 3}], "5,7", "", id="too few indexes"),
        pytest.param(
            [{"succeededIndexes": "0-4", "succeededCount": 2}], "1,3,9", "Matched rules at index 0", id="enough indexes of a list"
        ),
        pytest.param([{"succeededIndexes": "0-4", "succeededCount": 2}], "1,9", "", id="too few indexes of a list"),
        pytest.param([{"succeededCount": 9}, {"succeededIndexes": "7"}], "7", "Matched rules at index 1", id="the second rule"),
        pytest.param([{"succeededIndexes": "x"}], "7", "", id="a rule without a valid index never matches"),
        pytest.param([{"succeededCount": 0}], "", "", id="nothing has succeeded"),
    ],
)
def test_a_success_policy_is_met_by_indexes_or_their_number(rules: list[dict[str, Any]], done: str, expected: str) -> None:
    policy = read(Job, {"spec": {"successPolicy": {"rules": rules}}}).spec.success_policy or SuccessPolicy()
    assert match_success_policy(policy, 10, IndexRanges.parse(done, 10)) == expected


# ------------------------------------------------------------------------------------------------------------------------- back-off


@pytest.mark.parametrize(
    ("known", "successes", "failures", "expected"),
    [
        pytest.param((0, None), [], [], (0, None), id="nothing finished"),
        pytest.param((0, None), [], [-5, -9], (2, -5), id="failures add up, and the last one counts"),
        pytest.param((3, -60), [], [-5], (4, -5), id="earlier failures stay"),
        pytest.param((3, -60), [-5], [], (0, None), id="a success resets"),
        pytest.param((3, -60), [-7], [-9, -5, -3], (2, -3), id="only failures after the last success count"),
        pytest.param((3, -60), [-2], [-9], (0, None), id="a failure before the success does not count"),
    ],
)
def test_failures_in_a_row_are_those_since_the_last_success(
    known: tuple[int, float | None], successes: list[float], failures: list[float], expected: tuple[int, float | None]
) -> None:
    def record(count: int, last: float | None) -> BackoffRecord:
        return BackoffRecord(count, None if last is None else NOW + timedelta(seconds=last))

    result = record(*known).with_finished(
        [succeeded(f"s{time}", finished=time) for time in successes], [failed(f"f{time}", finished=time) for time in failures]
    )
    assert result == record(*expected)


@pytest.mark.parametrize(
    ("failures", "since", "expected"), [(0, 0, 0), (1, 0, 10), (1, 4, 6), (1, 11, 0), (2, 0, 20), (4, 0, 80), (7, 0, 600), (5000, 0, 600)]
)
def test_the_delay_doubles_from_ten_seconds_to_ten_minutes_and_counts_from_the_last_failure(
    failures: int, since: float, expected: float
) -> None:
    assert BackoffRecord(failures, NOW - timedelta(seconds=since)).remaining(NOW) == expected


def test_an_index_has_its_own_delay() -> None:
    assert remaining_for_index(None, NOW) == 0
    assert remaining_for_index(failed("p", index=1, failures=2, finished=-10), NOW) == 30


def _with_sidecar(state: dict[str, Any]) -> Pod:
    document = to_dict(succeeded("p", finished=-9))
    document["spec"]["initContainers"] = [{"name": "s", "restartPolicy": "Always"}]
    document["status"]["initContainerStatuses"] = [{"name": "s", "state": state}]
    return read(Pod, document)


def _not_ready(since: float) -> Pod:
    document = to_dict(pod("p", deleted=-3))
    document["status"]["conditions"] = [{"type": "Ready", "status": "False", "lastTransitionTime": at(since)}]
    return read(Pod, document)


@pytest.mark.parametrize(
    ("pod", "expected"),
    [
        pytest.param(succeeded("p", finished=-9), -9, id="when its container ended"),
        pytest.param(_with_sidecar({"terminated": {"exitCode": 0, "finishedAt": at(-2)}}), -2, id="when its sidecar ended"),
        pytest.param(_with_sidecar({"running": {}}), -100, id="a sidecar that still runs: when it was created"),
        pytest.param(_not_ready(-7), -7, id="when it was no longer ready"),
        pytest.param(pod("p", deleted=-3), -3, id="when its deletion began"),
        pytest.param(pod("p"), -100, id="when it was created"),
    ],
)
def test_a_pod_finished_when_its_last_container_ended_or_the_next_best_time(pod: Pod, expected: float) -> None:
    assert finished_at(pod) == NOW + timedelta(seconds=expected)


# ------------------------------------------------------------------------------------------------------------------------- verdicts

_FAILED_ONE = {"conditions": [{"type": "FailureTarget", "status": "True", "reason": "R", "message": "m"}]}
_MET = {"conditions": [{"type": "SuccessCriteriaMet", "status": "True", "reason": "R", "message": "m"}]}
_LIMIT, _DEADLINE = "Job has reached the specified backoff limit", "Job was active longer than specified deadline"


@pytest.mark.parametrize(
    ("job", "pods", "expected"),
    [
        pytest.param(job(), [pod("p")], None, id="a Job that goes on"),
        pytest.param(job(backoffLimit=0), [failed("p")], ("FailureTarget", "BackoffLimitExceeded", _LIMIT), id="too many failures"),
        pytest.param(job(backoffLimit=1), [failed("p")], None, id="as many failures as allowed"),
        pytest.param(
            job(), [failed(f"p{i}") for i in range(7)], ("FailureTarget", "BackoffLimitExceeded", _LIMIT), id="six is the default"
        ),
        pytest.param(job(backoffLimit=0), [failed("p", tracked=False)], None, id="a failure that was counted is not counted again"),
        pytest.param(
            job(backoffLimit=0, status={"uncountedTerminatedPods": {"failed": ["p"]}}),
            [failed("p")],
            ("FailureTarget", "BackoffLimitExceeded", _LIMIT),
            id="an uncounted failure counts once",
        ),
        pytest.param(
            job(backoffLimit=0), [pod("p", deleted=0)], ("FailureTarget", "BackoffLimitExceeded", _LIMIT), id="deletion is failure"
        ),
        pytest.param(job(backoffLimit=0, podReplacementPolicy="Failed"), [pod("p", deleted=0)], None, id="unless only failed are replaced"),
        pytest.param(
            job(backoffLimit=2, restartPolicy="OnFailure"),
            [pod("p", restarts=1), pod("q", restarts=1)],
            ("FailureTarget", "BackoffLimitExceeded", _LIMIT),
            id="restarts count with restartPolicy OnFailure",
        ),
        pytest.param(job(backoffLimit=2), [pod("p", restarts=5)], None, id="restarts do not count with restartPolicy Never"),
        pytest.param(
            job(activeDeadlineSeconds=10, status={"startTime": at(-10)}),
            [pod("p")],
            ("FailureTarget", "DeadlineExceeded", _DEADLINE),
            id="the deadline has come",
        ),
        pytest.param(job(activeDeadlineSeconds=10, suspend=True, status={"startTime": at(-10)}), [], None, id="a suspended Job has none"),
        pytest.param(job(status=_FAILED_ONE), [], ("Failed", "R", "m"), id="an earlier failure stands"),
        pytest.param(job(status=_MET, backoffLimit=0), [failed("p")], ("SuccessCriteriaMet", "R", "m"), id="an earlier success stands"),
        pytest.param(
            indexed(3, backoffLimitPerIndex=0),
            [failed("p", index=0), succeeded("q", index=1), succeeded("r", index=2)],
            ("FailureTarget", "FailedIndexes", "Job has failed indexes"),
            id="every index has ended and one failed",
        ),
        pytest.param(indexed(3, backoffLimitPerIndex=0), [failed("p", index=0)], None, id="other indexes go on"),
        pytest.param(
            indexed(3, backoffLimitPerIndex=2), [failed("p", index=0, failures=1)], None, id="an index may fail as often as allowed"
        ),
        pytest.param(
            indexed(9, backoffLimitPerIndex=0, maxFailedIndexes=1),
            [failed("p", index=0), failed("q", index=1)],
            ("FailureTarget", "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"),
            id="too many failed indexes",
        ),
        pytest.param(
            indexed(3, successPolicy={"rules": [{"succeededIndexes": "1"}]}),
            [succeeded("p", index=1)],
            ("SuccessCriteriaMet", "SuccessPolicy", "Matched rules at index 0"),
            id="the success policy is met",
        ),
        pytest.param(
            indexed(3, backoffLimit=0, successPolicy={"rules": [{"succeededIndexes": "1"}]}),
            [succeeded("p", index=1), failed("q", index=0)],
            ("FailureTarget", "BackoffLimitExceeded", _LIMIT),
            id="failure comes before success",
        ),
        pytest.param(
            job(podFailurePolicy={"rules": [exit_codes("FailJob", "In", 5)]}),
            [failed("p", 5)],
            ("FailureTarget", "PodFailurePolicy", "Container c for pod n/p failed with exit code 5 matching FailJob rule at index 0"),
            id="the pod failure policy fails the Job",
        ),
        pytest.param(
            job(backoffLimit=0, podFailurePolicy={"rules": [exit_codes("Ignore", "In", 5)]}),
            [failed("p", 5)],
            None,
            id="or ignores a failure",
        ),
    ],
)
def test_a_job_ends_for_the_reasons_that_users_know(job: Job, pods: list[Pod], expected: tuple[str, str, str] | None) -> None:
    end_condition = snapshot(job, *pods).end_condition
    assert (None if end_condition is None else (end_condition.type, end_condition.reason, end_condition.message)) == expected


def test_the_deadline_counts_from_the_start() -> None:
    assert seconds_to_deadline(job(activeDeadlineSeconds=60, status={"startTime": at(-10)}), NOW) == 50
    assert seconds_to_deadline(job(status={"startTime": at(-10)}), NOW) is None


# ----------------------------------------------------------------------------------------------------------------------------- pods


@pytest.mark.parametrize(
    ("job", "pods", "created", "deleted"),
    [
        pytest.param(job(completions=5, parallelism=2), [], 2, [], id="as many as may run at once"),
        pytest.param(job(completions=5, parallelism=2), [pod("a")], 1, [], id="the missing one"),
        pytest.param(job(completions=5, parallelism=9, status={"succeeded": 3}), [], 2, [], id="no more than completions are left"),
        pytest.param(job(parallelism=2), [], 2, [], id="a work queue starts all"),
        pytest.param(job(parallelism=3), [pod("a"), succeeded("b")], 0, [], id="a work queue starts none after a success"),
        pytest.param(job(completions=5, parallelism=0), [pod("a")], 0, ["a"], id="a parallelism of zero deletes all"),
        pytest.param(job(completions=5, parallelism=1), [pod("a", ready=True), pod("b")], 0, ["b"], id="an unready pod goes first"),
        pytest.param(job(completions=5, parallelism=2, suspend=True), [pod("a"), pod("b")], 0, ["a", "b"], id="a suspended Job has none"),
        pytest.param(job(completions=5, parallelism=2), [pod("a", deleted=0)], 0, [], id="a deleted pod counts as a failure and delays"),
        pytest.param(job(completions=5, parallelism=2, podReplacementPolicy="Failed"), [pod("a", deleted=0)], 1, [], id="or is waited for"),
        pytest.param(job(completions=2000, parallelism=2000), [], 500, [], id="no more than 500 at once"),
    ],
)
def test_pods_are_created_and_deleted_until_parallelism_is_met(job: Job, pods: list[Pod], created: int, deleted: list[str]) -> None:
    plan = plan_pods(snapshot(job, *pods))
    assert (plan.create, [victim.metadata.name for victim in plan.delete]) == (created, deleted)


@pytest.mark.parametrize(
    ("job", "pods", "indexes", "deleted"),
    [
        pytest.param(indexed(5), [], [0, 1], [], id="the first indexes"),
        pytest.param(
            indexed(5, status={"completedIndexes": "0,2"}), [pod("a", index=1)], [3], [], id="the first that are neither done nor run"
        ),
        pytest.param(indexed(5, 3), [pod("a", index=0), pod("b", index=0)], [], ["a"], id="a doubled index loses a pod"),
        pytest.param(indexed(5), [pod("a", index=7)], [], ["a"], id="an index out of range loses its pod"),
        pytest.param(indexed(5), [pod("a")], [], ["a"], id="a pod without an index goes"),
        pytest.param(
            indexed(5, podReplacementPolicy="Failed"), [pod("a", index=0, deleted=0)], [1], [], id="the index of a terminating pod waits"
        ),
        pytest.param(
            indexed(5, 3, backoffLimitPerIndex=1), [failed("a", index=0, finished=-5)], [1, 2], [], id="a failed index waits, others do not"
        ),
        pytest.param(
            indexed(5, backoffLimitPerIndex=1), [failed("a", index=0, finished=-11)], [0, 1], [], id="and starts again after its delay"
        ),
        pytest.param(
            indexed(5, backoffLimitPerIndex=0),
            [failed("a", index=0, finished=-99)],
            [1, 2],
            [],
            id="an index that failed permanently does not",
        ),
    ],
)
def test_indexes_get_one_pod_each(job: Job, pods: list[Pod], indexes: list[int], deleted: list[str]) -> None:
    plan = plan_pods(snapshot(job, *pods))
    assert (plan.indexes, [victim.metadata.name for victim in plan.delete]) == (indexes, deleted)


def test_a_failed_pod_is_replaced_after_the_back_off() -> None:
    plan = plan_pods(snapshot(job(completions=1, parallelism=1), failed("a", finished=-4)))
    assert (plan.create, plan.wait) == (0, 6)
    plan = plan_pods(snapshot(indexed(1, 1, backoffLimitPerIndex=3), failed("a", index=0, failures=1, finished=-4)))
    assert (plan.create, plan.wait) == (0, 16)


def test_pods_that_came_less_far_are_deleted_first() -> None:
    pods = {
        "running and ready": pod("a", ready=True),
        "running": pod("b"),
        "running and restarted": pod("c", restarts=3),
        "pending": pod("d", "Pending"),
    }
    ordered = sorted(pods, key=lambda name: removal_order(pods[name]))
    assert ordered == ["pending", "running and restarted", "running", "running and ready"]


def test_the_pod_of_an_index_states_it_in_name_host_name_annotation_label_and_variable() -> None:
    one = indexed(3, backoffLimitPerIndex=2)
    template = tracked_template(to_dict(one)["spec"]["template"], indexed=True)
    made = new_pod(one, template, 2, None)
    assert (made.metadata.generate_name, made.spec.hostname) == ("j-2-", "j-2")
    assert (made.metadata.labels, made.metadata.annotations) == ({INDEX: "2"}, {INDEX: "2", FAILURES: "0"})
    assert made.metadata.finalizers == [TRACKING]
    (variable,) = made.spec.containers[0].env
    source = variable.value_from.field_ref if variable.value_from is not None else None
    assert source is not None
    assert (variable.name, source.field_path) == ("JOB_COMPLETION_INDEX", f"metadata.labels['{INDEX}']")
    assert tracked_template(template, indexed=True) == template


def test_a_replacement_takes_over_the_failures_of_its_index() -> None:
    one = indexed(3, backoffLimitPerIndex=2, podFailurePolicy={"rules": [exit_codes("Ignore", "In", 5)]})
    template = tracked_template(to_dict(one)["spec"]["template"], indexed=True)
    counted = new_pod(one, template, 2, failed("a", index=2, failures=1))
    ignored = new_pod(one, template, 2, failed("a", 5, index=2, failures=1))
    assert counted.metadata.annotations == {INDEX: "2", FAILURES: "2"}
    assert ignored.metadata.annotations == {INDEX: "2", FAILURES: "1", IGNORED_FAILURES: "1"}


def test_a_long_name_leaves_room_for_the_index() -> None:
    one = job("a" * 63, completionMode="Indexed", completions=3)
    template = tracked_template(to_dict(one)["spec"]["template"], indexed=True)
    assert new_pod(one, template, 12, None).metadata.generate_name == "a" * 54 + "-12-"
