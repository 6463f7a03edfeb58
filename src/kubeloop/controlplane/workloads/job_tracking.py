"""Accounting of a Job's finished pods: each is counted exactly once, even if the controller is interrupted.

A pod is counted in three writes: the status lists the pod as uncounted; then the pod's finalizer is removed; then the status counts the
pod and no longer lists it. Before the first write the finalizer shows that the pod is not counted. Between the first and the third write
the status lists the pod, and the finalizer shows whether the second write was done. Successes of indexed Jobs need not be listed, because
an index counts once.

Source: Kubernetes pkg/controller/job/job_controller.go (trackJobStatusAndRemoveFinalizers); KEP-2307.
"""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass

from kubeloop.api.batch.v1 import JobStatus
from kubeloop.api.core.v1 import Pod
from kubeloop.controlplane.workloads.job_indexes import completion_index
from kubeloop.controlplane.workloads.job_policies import match_failure_policy
from kubeloop.controlplane.workloads.job_snapshot import (
    COMPLETE,
    FAILED,
    FAILURE_TARGET,
    SUCCESS_CRITERIA_MET,
    JobSnapshot,
    find_condition,
    is_failed,
    is_indexed,
    is_tracked,
    make_condition,
    put_condition,
)

#: Maximum number of pods that a status lists, so that the lists stay below some 20 KB.
MAX_UNCOUNTED = 500


@dataclass(frozen=True, slots=True)
class FinishedPods:
    """The result of ``record_finished``.

    Args:
        to_release: The pods whose finalizer must be removed after the status was written.
        complete: Whether all finished pods are included; False: another round must follow.
    """

    to_release: list[Pod]
    complete: bool


def record_finished(view: JobSnapshot) -> FinishedPods:
    """Prepare the first write: count pods without the finalizer, and list the finished pods that have it, in the status of a snapshot.

    The call also adds the condition that announces the end of the Job, and replaces ``view.end_condition`` by the condition of the end.
    """
    job, status = view.job, view.job.status
    uncounted = status.uncounted_terminated_pods
    assert uncounted is not None
    indexed = is_indexed(job)
    count_released(status, {pod.metadata.uid for pod in view.pods if is_tracked(pod)})
    pods = sorted(view.pods, key=_index_order) if indexed else view.pods
    to_release: list[Pod] = []
    new_indexes: set[int] = set()
    complete = True
    for pod in pods:
        if not is_tracked(pod) or not _may_be_released(view, pod):
            continue
        to_release.append(pod)
        uid = pod.metadata.uid
        if pod.status.phase == "Succeeded" and uid not in view.uncounted[1]:
            index = view.index_in_range(pod) if indexed else None
            if not indexed:
                if uid not in view.uncounted[0]:
                    uncounted.succeeded = [*uncounted.succeeded, uid]
            elif index is not None and index not in view.counted_indexes:
                new_indexes.add(index)
        elif _counts_as_failed(view, pod) and uid not in view.uncounted[1]:
            uncounted.failed = [*uncounted.failed, uid]
        if len(new_indexes) + len(uncounted.succeeded) + len(uncounted.failed) >= MAX_UNCOUNTED:
            complete = False
            break
    if indexed:
        succeeded = view.succeeded_indexes.add(new_indexes)
        status.succeeded, status.completed_indexes = len(succeeded) or None, str(succeeded) or None
        status.failed_indexes = None if view.failed_indexes is None else str(view.failed_indexes)
    _announce_end(view)
    return FinishedPods(to_release, complete)


def _index_order(pod: Pod) -> int:
    index = completion_index(pod.metadata.annotations)
    return -1 if index is None else index


def _may_be_released(view: JobSnapshot, pod: Pod) -> bool:
    if view.job.metadata.deletion_timestamp is not None or view.end_condition is not None or pod.status.phase == "Succeeded":
        return True
    if not is_failed(pod, view.job):
        return False
    index = completion_index(pod.metadata.annotations)
    awaiting = view.awaiting_replacement.get(index) if index is not None else None
    return awaiting is None or awaiting.metadata.uid != pod.metadata.uid


def _counts_as_failed(view: JobSnapshot, pod: Pod) -> bool:
    """Return whether a pod whose finalizer is removed counts as failed. At the end of a failed Job all running pods do."""
    ends_failed = view.end_condition is not None and view.end_condition.type != SUCCESS_CRITERIA_MET
    if not is_failed(pod, view.job) and not ends_failed:
        return False
    if is_indexed(view.job) and view.index_in_range(pod) is None:
        return False
    return match_failure_policy(view.job.spec.pod_failure_policy, pod).counts


def _announce_end(view: JobSnapshot) -> None:
    end_condition, status = view.end_condition, view.job.status
    if end_condition is None:
        return
    if end_condition.type == FAILURE_TARGET:
        status.conditions = [*status.conditions, end_condition]
        view.end_condition = make_condition(FAILED, end_condition.reason or "", end_condition.message or "", view.now)
    elif end_condition.type == SUCCESS_CRITERIA_MET:
        if find_condition(status, SUCCESS_CRITERIA_MET) is None:
            status.conditions = [*status.conditions, end_condition]
        view.end_condition = make_condition(COMPLETE, end_condition.reason or "", end_condition.message or "", view.now)


def count_released(status: JobStatus, tracked: Container[str]) -> bool:
    """Prepare the third write: count the listed pods that are no longer in ``tracked``, the uids of pods with the finalizer.

    Returns:
        Whether the status changed.
    """
    uncounted = status.uncounted_terminated_pods
    assert uncounted is not None
    succeeded = [uid for uid in uncounted.succeeded if uid in tracked]
    failed = [uid for uid in uncounted.failed if uid in tracked]
    more_succeeded, more_failed = len(uncounted.succeeded) - len(succeeded), len(uncounted.failed) - len(failed)
    if more_succeeded:
        status.succeeded = (status.succeeded or 0) + more_succeeded
        uncounted.succeeded = succeeded
    if more_failed:
        status.failed = (status.failed or 0) + more_failed
        uncounted.failed = failed
    return bool(more_succeeded or more_failed)


def finish(view: JobSnapshot, status: JobStatus) -> bool:
    """Add the condition of a Job's end to a status if all pods are counted and none is terminating; return whether it was added."""
    uncounted = status.uncounted_terminated_pods
    if view.end_condition is None or view.terminating or (uncounted is not None and (uncounted.succeeded or uncounted.failed)):
        return False
    put_condition(status, view.end_condition)
    if view.end_condition.type == COMPLETE:
        status.completion_time = view.end_condition.last_transition_time
    return True
