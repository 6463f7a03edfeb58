"""Snapshots of a Job and its pods: the counts, and whether the Job has succeeded or failed. No requests, no clock.

Source: Kubernetes pkg/controller/job/job_controller.go (syncJob up to manageJob).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import datetime

from kubeloop.api.batch.v1 import Job, JobCondition, JobStatus, UncountedTerminatedPods
from kubeloop.api.core.v1 import Pod
from kubeloop.controlplane.controller_utils import is_active, is_ready
from kubeloop.controlplane.workloads.job_backoff import BackoffRecord, absolute_failure_count, finished_at
from kubeloop.controlplane.workloads.job_indexes import IndexRanges, completion_index, failure_count, indexes_of
from kubeloop.controlplane.workloads.job_policies import match_failure_policy, match_success_policy

#: The finalizer of pods that their Job's status does not count yet.
TRACKING = "batch.kubernetes.io/job-tracking"
#: The value of ``spec.managedBy`` that means the built-in controller.
JOB_CONTROLLER = "kubernetes.io/job-controller"
COMPLETE, FAILED, SUSPENDED = "Complete", "Failed", "Suspended"
#: Conditions that announce the end of a Job while pods are still terminating.
SUCCESS_CRITERIA_MET, FAILURE_TARGET = "SuccessCriteriaMet", "FailureTarget"


def make_condition(kind: str, reason: str, message: str, now: datetime, status: str = "True") -> JobCondition:
    """Return a condition of a Job whose times are ``now``.

    Args:
        kind: Type of the condition.
        reason: The machine-readable reason in CamelCase.
        message: The human-readable message.
        now: The present time in whole seconds.
        status: ``True`` or ``False``.

    Returns:
        The condition.
    """
    return JobCondition(type=kind, status=status, reason=reason, message=message, last_probe_time=now, last_transition_time=now)


def find_condition(status: JobStatus, kind: str) -> JobCondition | None:
    """Return the condition of a type if its status is True, else None."""
    return next((one for one in status.conditions if one.type == kind and one.status == "True"), None)


def put_condition(status: JobStatus, condition: JobCondition) -> bool:
    """Add or replace a condition; return whether the status changed. A condition with the status False only replaces an existing one."""
    for number, known in enumerate(status.conditions):
        if known.type == condition.type:
            if (known.status, known.reason, known.message) == (condition.status, condition.reason, condition.message):
                return False
            status.conditions = [*status.conditions[:number], condition, *status.conditions[number + 1 :]]
            return True
    if condition.status == "False":
        return False
    status.conditions = [*status.conditions, condition]
    return True


def finished_condition(status: JobStatus) -> JobCondition | None:
    """Return the condition Complete or Failed of a finished Job, or None if the Job has not finished."""
    return next((one for one in status.conditions if one.type in (COMPLETE, FAILED) and one.status == "True"), None)


def is_indexed(job: Job) -> bool:
    """Return whether a Job has completion indexes (completion mode Indexed)."""
    return job.spec.completion_mode == "Indexed"


def is_suspended(job: Job) -> bool:
    """Return whether a Job is suspended, so that it must have no pods."""
    return bool(job.spec.suspend)


def replaces_only_failed(job: Job) -> bool:
    """Return whether a Job replaces a pod only after it has failed, and not as soon as it is terminating."""
    return job.spec.pod_replacement_policy == "Failed" or job.spec.pod_failure_policy is not None


def is_tracked(pod: Pod) -> bool:
    """Return whether a pod has the finalizer ``TRACKING`` of pods that are not counted yet."""
    return TRACKING in pod.metadata.finalizers


def is_terminating(pod: Pod) -> bool:
    """Return whether a pod is being deleted and has not finished."""
    return pod.metadata.deletion_timestamp is not None and pod.status.phase not in ("Succeeded", "Failed")


def is_failed(pod: Pod, job: Job) -> bool:
    """Return whether a pod counts as failed. A terminating pod also does, unless the Job replaces only failed pods."""
    return pod.status.phase == "Failed" or (not replaces_only_failed(job) and is_terminating(pod))


@dataclass(slots=True)
class JobSnapshot:
    """A snapshot of a Job and its pods. The controller updates its counters when it creates and deletes pods.

    Args:
        job: The Job; its status is a working copy.
        pods: The pods of the Job. Finished pods that are counted may be missing.
        now: The present time in whole seconds.
        backoff: The failures in a row, including those of ``pods``.
        uncounted: The uids of succeeded and of failed pods in ``status.uncountedTerminatedPods``.
    """

    job: Job
    pods: list[Pod]
    now: datetime
    backoff: BackoffRecord = field(default_factory=BackoffRecord)
    uncounted: tuple[frozenset[str], frozenset[str]] = (frozenset(), frozenset())
    active: list[Pod] = field(default_factory=list)
    active_count: int = 0
    ready: int = 0
    terminating: int = 0
    succeeded: int = 0
    failed: int = 0
    counted_indexes: IndexRanges = field(default_factory=IndexRanges)
    succeeded_indexes: IndexRanges = field(default_factory=IndexRanges)
    failed_indexes: IndexRanges | None = None
    #: The failed pods by index whose finalizer stays until their replacement, which continues their count of failures, exists.
    awaiting_replacement: dict[int, Pod] = field(default_factory=dict)
    #: The condition by which the Job ends; None while it has not ended.
    end_condition: JobCondition | None = None

    @property
    def completions(self) -> int:
        return self.job.spec.completions or 0

    def index_in_range(self, pod: Pod) -> int | None:
        """Return the completion index of a pod, or None if the pod has no index below the number of completions."""
        index = completion_index(pod.metadata.annotations)
        return index if index is not None and index < self.completions else None


def take_snapshot(job: Job, pods: Iterable[Pod], backoff: BackoffRecord, now: datetime) -> JobSnapshot:
    """Count the pods of a Job and decide whether the Job has ended.

    Args:
        job: The Job. The call sets a missing start time in its status, which users of the snapshot change further.
        pods: The pods of the Job.
        backoff: The failures in a row so far.
        now: The present time in whole seconds.

    Returns:
        The snapshot.
    """
    status = job.status
    if status.uncounted_terminated_pods is None:
        status.uncounted_terminated_pods = UncountedTerminatedPods()
    uncounted = status.uncounted_terminated_pods
    view = JobSnapshot(job, list(pods), now, uncounted=(frozenset(uncounted.succeeded), frozenset(uncounted.failed)))
    view.active = [pod for pod in view.pods if is_active(pod)]
    view.active_count = len(view.active)
    view.ready = sum(map(is_ready, view.active))
    view.terminating = sum(map(is_terminating, view.pods))
    succeeded = _uncounted(view, view.uncounted[0], lambda pod: pod.status.phase == "Succeeded")
    failed = _uncounted(view, view.uncounted[1], lambda pod: is_failed(pod, job))
    counting = [pod for pod in failed if match_failure_policy(job.spec.pod_failure_policy, pod).counts]
    view.succeeded = (status.succeeded or 0) + len(succeeded) + len(uncounted.succeeded)
    view.failed = (status.failed or 0) + len(counting) + len(uncounted.failed)
    view.backoff = backoff.with_finished(succeeded, failed)
    if status.start_time is None and not is_suspended(job):
        status.start_time = now
    if is_indexed(job):
        _count_indexes(view)
    view.end_condition = _verdict(view)
    return view


def _uncounted(view: JobSnapshot, uncounted: frozenset[str], test: Callable[[Pod], bool]) -> list[Pod]:
    """Return the pods that pass a test and are not counted, neither in the status nor as uncounted pods, with an index in range."""
    indexed = is_indexed(view.job)
    return [
        pod
        for pod in view.pods
        if is_tracked(pod) and pod.metadata.uid not in uncounted and (not indexed or view.index_in_range(pod) is not None) and test(pod)
    ]


def _count_indexes(view: JobSnapshot) -> None:
    job, status = view.job, view.job.status
    view.counted_indexes = IndexRanges.parse(status.completed_indexes or "", view.completions)
    tracked = [(index, pod) for pod in view.pods if is_tracked(pod) and (index := view.index_in_range(pod)) is not None]
    view.succeeded_indexes = view.counted_indexes.add({index for index, pod in tracked if pod.status.phase == "Succeeded"})
    view.succeeded = len(view.succeeded_indexes)
    if job.spec.backoff_limit_per_index is None:
        return
    before = IndexRanges.parse(status.failed_indexes or "", view.completions)
    view.failed_indexes = before.add({index for index, pod in tracked if _fails_index(job, pod)})
    replaced = indexes_of(view.active)
    for index, pod in tracked:
        if not is_failed(pod, job) or index in view.succeeded_indexes or index in view.failed_indexes or index in replaced:
            continue
        known = view.awaiting_replacement.get(index)
        if known is None or (absolute_failure_count(known) <= absolute_failure_count(pod) and finished_at(pod) >= finished_at(known)):
            view.awaiting_replacement[index] = pod


def _fails_index(job: Job, pod: Pod) -> bool:
    if not is_failed(pod, job):
        return False
    match = match_failure_policy(job.spec.pod_failure_policy, pod)
    return match.action == "FailIndex" or (match.counts and failure_count(pod) >= (job.spec.backoff_limit_per_index or 0))


def _verdict(view: JobSnapshot) -> JobCondition | None:
    """Return the condition by which a Job ends, other than by reaching its completions; None while it has not ended.

    A condition in the status from an earlier snapshot stays in force. Failures take precedence over successes.
    """
    job, now = view.job, view.now
    if (earlier := find_condition(job.status, SUCCESS_CRITERIA_MET)) is not None:
        return earlier
    if (earlier := find_condition(job.status, FAILURE_TARGET)) is not None:
        return make_condition(FAILED, earlier.reason or "", earlier.message or "", now)
    reason, message = _failure(view)
    if reason:
        return make_condition(FAILURE_TARGET, reason, message, now)
    if is_indexed(job):
        message = match_success_policy(job.spec.success_policy, view.completions, view.succeeded_indexes)
        if message:
            return make_condition(SUCCESS_CRITERIA_MET, "SuccessPolicy", message, now)
    return None


def _failure(view: JobSnapshot) -> tuple[str, str]:
    """Return reason and message of a Job's failure, or empty texts if the Job has not failed."""
    spec = view.job.spec
    for pod in view.pods if spec.pod_failure_policy is not None else ():
        if is_failed(pod, view.job) and (message := match_failure_policy(spec.pod_failure_policy, pod).message):
            return "PodFailurePolicy", message
    limit = 6 if spec.backoff_limit is None else spec.backoff_limit
    if view.failed > limit or _restarts_too_often(view, limit):
        return "BackoffLimitExceeded", "Job has reached the specified backoff limit"
    left = seconds_to_deadline(view.job, view.now)
    if left is not None and left <= 0:
        return "DeadlineExceeded", "Job was active longer than specified deadline"
    if view.failed_indexes is not None:
        failed = len(view.failed_indexes)
        if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
            return "MaxFailedIndexesExceeded", "Job has exceeded the specified maximal number of failed indexes"
        if failed and failed + len(view.succeeded_indexes) >= view.completions:
            return "FailedIndexes", "Job has failed indexes"
    return "", ""


def _restarts_too_often(view: JobSnapshot, limit: int) -> bool:
    """Return whether containers of pods with the restart policy OnFailure were restarted as often as the back-off limit allows."""
    if view.job.spec.template.spec.restart_policy != "OnFailure":
        return False
    restarts = sum(
        status.restart_count
        for pod in view.pods
        if pod.status.phase in ("Running", "Pending")
        for status in (*pod.status.init_container_statuses, *pod.status.container_statuses)
    )
    return restarts >= limit if limit else restarts > 0


def seconds_to_deadline(job: Job, now: datetime) -> float | None:
    """Return the seconds until ``activeDeadlineSeconds`` have passed; None if there is no deadline, or the Job is suspended."""
    if job.spec.active_deadline_seconds is None or job.status.start_time is None or is_suspended(job):
        return None
    return job.spec.active_deadline_seconds - (now - job.status.start_time).total_seconds()
