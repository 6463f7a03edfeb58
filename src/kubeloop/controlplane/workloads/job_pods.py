"""Pods of Jobs: which pods to create and to delete, and how they differ from the template.

Source: Kubernetes pkg/controller/job/job_controller.go (manageJob), indexed_job_utils.go; pkg/controller/controller_utils.go (ActivePods).
"""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Pod
from kubeloop.controlplane.controller_utils import is_ready, ready_since
from kubeloop.controlplane.pod_control import pod_from
from kubeloop.controlplane.workloads.job_backoff import remaining_for_index
from kubeloop.controlplane.workloads.job_indexes import (
    FAILURES,
    IGNORED_FAILURES,
    INDEX,
    IndexRanges,
    failure_count,
    ignored_failure_count,
    indexes_of,
    pending_indexes,
)
from kubeloop.controlplane.workloads.job_policies import match_failure_policy
from kubeloop.controlplane.workloads.job_snapshot import (
    TRACKING,
    JobSnapshot,
    is_indexed,
    is_suspended,
    is_terminating,
    replaces_only_failed,
)
from kubeloop.types import JSONObject

#: Maximum number of pods created or deleted in one reconcile.
MAX_CHANGES = 500
#: Maximum length of a generated name without its random suffix.
_LONGEST_PREFIX = 58
_PHASES = {"Pending": 0, "Unknown": 1, "Running": 2}
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PodPlan:
    """The next change of a Job's pods: either deletions, or creations, or a delay.

    Args:
        delete: The active pods to delete.
        create: The number of pods to create.
        indexes: The completion indexes of the new pods; empty for Jobs without indexes.
        wait: Seconds until failed pods may be replaced.
    """

    delete: list[Pod] = field(default_factory=list)
    create: int = 0
    indexes: list[int] = field(default_factory=list)
    wait: float = 0.0


def plan_pods(view: JobSnapshot) -> PodPlan:
    """Return the pods to create or delete for a Job that has not ended, according to its spec."""
    job, active = view.job, len(view.active)
    if is_suspended(job):
        return PodPlan(delete=_surplus(view, active))
    parallelism = 1 if job.spec.parallelism is None else job.spec.parallelism
    if job.spec.completions is None:
        # Work queue: after the first success no pod is created, and running pods may finish.
        desired = active if view.succeeded else parallelism
    else:
        desired = max(0, min(job.spec.completions - view.succeeded, parallelism))
    surplus = _surplus(view, max(0, active - desired))[:MAX_CHANGES]
    if surplus:
        return PodPlan(delete=surplus)
    missing = desired - active - (view.terminating if replaces_only_failed(job) else 0)
    if missing <= 0:
        return PodPlan()
    per_index = job.spec.backoff_limit_per_index is not None
    wait = 0.0 if per_index else view.backoff.remaining(view.now)
    if wait > 0:
        return PodPlan(wait=wait)
    missing = min(missing, MAX_CHANGES)
    if not is_indexed(job):
        return PodPlan(create=missing)
    indexes = pending_indexes(missing, view.completions, _taken_indexes(view))
    delays = {index: remaining_for_index(view.awaiting_replacement.get(index), view.now) for index in indexes} if per_index else {}
    due = [index for index in indexes if not delays.get(index)]
    if indexes and not due:
        return PodPlan(wait=min(delays.values()))
    return PodPlan(create=len(due), indexes=due)


def _taken_indexes(view: JobSnapshot) -> IndexRanges:
    taken = view.succeeded_indexes.add(indexes_of(view.active))
    if replaces_only_failed(view.job):
        taken = taken.add(indexes_of(filter(is_terminating, view.pods)))
    return taken if view.failed_indexes is None else taken.merge(view.failed_indexes)


def _surplus(view: JobSnapshot, count: int) -> list[Pod]:
    """Return at least ``count`` active pods to delete; more if indexes are duplicate, missing or out of range."""
    removed, left = _surplus_indexed(view) if is_indexed(view.job) else ([], list(view.active))
    if len(removed) < count:
        removed = [*removed, *sorted(left, key=removal_order)[: count - len(removed)]]
    return removed


def _surplus_indexed(view: JobSnapshot) -> tuple[list[Pod], list[Pod]]:
    """Divide the active pods into surplus pods, which have no valid index or share it with another pod, and remaining pods."""
    surplus: list[Pod] = []
    by_index: dict[int, list[Pod]] = {}
    for pod in view.active:
        index = view.index_in_range(pod)
        if index is None:
            surplus.append(pod)
        else:
            by_index.setdefault(index, []).append(pod)
    left = []
    for index in sorted(by_index):
        *others, last = sorted(by_index[index], key=removal_order)
        surplus += others
        left.append(last)
    return surplus, left


def removal_order(pod: Pod) -> tuple[object, ...]:
    """Return a sort key for deletion: pods with the least progress come first, and of equal pods the youngest."""
    since = ready_since(pod) or _BEGINNING
    restarts = max((container.restart_count for container in pod.status.container_statuses), default=0)
    return (
        bool(pod.spec.node_name),
        _PHASES.get(pod.status.phase or "", 0),
        is_ready(pod),
        -since.timestamp() if is_ready(pod) else 0.0,
        -restarts,
        -(pod.metadata.creation_timestamp or _BEGINNING).timestamp(),
    )


def tracked_template(template: JSONObject, *, indexed: bool) -> JSONObject:
    """Return a copy of a pod template with the finalizer of Jobs and, if ``indexed``, the variable ``JOB_COMPLETION_INDEX``."""
    result = copy.deepcopy(template)
    metadata = result.setdefault("metadata", {})
    finalizers = metadata.get("finalizers") or []
    metadata["finalizers"] = finalizers if TRACKING in finalizers else [*finalizers, TRACKING]
    if indexed:
        spec = result.get("spec") or {}
        for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ())):
            variables = container.get("env") or []
            if not any(variable.get("name") == "JOB_COMPLETION_INDEX" for variable in variables):
                source = {"fieldRef": {"fieldPath": f"metadata.labels['{INDEX}']"}}
                container["env"] = [*variables, {"name": "JOB_COMPLETION_INDEX", "valueFrom": source}]
    return result


def new_pod(job: Job, template: JSONObject, index: int | None, replaced: Pod | None) -> Pod:
    """Return a pod to create for a Job.

    Args:
        job: The Job.
        template: The result of ``tracked_template``.
        index: The completion index; None for Jobs without indexes.
        replaced: The failed pod of the same index, from which the count of failures continues; None if there is none.

    Returns:
        The pod, without an owner.
    """
    name = job.metadata.name
    pod = pod_from(template, name, job.metadata.namespace)
    if index is None:
        return pod
    suffix = f"-{index}-"
    pod.metadata.generate_name = name[: _LONGEST_PREFIX - len(suffix)] + suffix
    pod.metadata.annotations = {**pod.metadata.annotations, INDEX: str(index)}
    pod.metadata.labels = {**pod.metadata.labels, INDEX: str(index)}
    pod.spec.hostname = f"{name}-{index}"
    if job.spec.backoff_limit_per_index is not None:
        counted, ignored = _failures_after(job, replaced)
        pod.metadata.annotations[FAILURES] = str(counted)
        if ignored:
            pod.metadata.annotations[IGNORED_FAILURES] = str(ignored)
    return pod


def _failures_after(job: Job, replaced: Pod | None) -> tuple[int, int]:
    if replaced is None:
        return 0, 0
    counts = match_failure_policy(job.spec.pod_failure_policy, replaced).counts
    return failure_count(replaced) + counts, ignored_failure_count(replaced) + (not counts)
