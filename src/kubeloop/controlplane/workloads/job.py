"""Job controller: runs pods until enough have succeeded or too many have failed, and counts each finished pod once.

It executes the decisions of ``job_snapshot``, ``job_pods`` and ``job_tracking``. Source: Kubernetes pkg/controller/job.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass, field

from kubeloop.api.batch.v1 import Job, JobStatus
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import ByLabel, Head
from kubeloop.codec import to_dict
from kubeloop.controller import KeyController, Predicate, Result, WatchedKind, set_controller_reference
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents, claim, is_ready
from kubeloop.controlplane.pod_control import Expectations, in_growing_batches
from kubeloop.controlplane.workloads.job_backoff import BackoffRecord
from kubeloop.controlplane.workloads.job_cleanup import FIRST_RETRY, LONGEST_RETRY, remove_finalizer
from kubeloop.controlplane.workloads.job_pods import new_pod, plan_pods, tracked_template
from kubeloop.controlplane.workloads.job_snapshot import (
    COMPLETE,
    JOB_CONTROLLER,
    SUCCESS_CRITERIA_MET,
    SUSPENDED,
    TRACKING,
    JobSnapshot,
    finished_condition,
    is_suspended,
    is_tracked,
    make_condition,
    put_condition,
    seconds_to_deadline,
    take_snapshot,
)
from kubeloop.controlplane.workloads.job_tracking import count_released, finish, record_finished
from kubeloop.meta import ApiError, Conflict, KubeloopError, LabelSelector, NotFound, ObjectKey, selector_from
from kubeloop.timing import Clock
from kubeloop.workqueue import ExponentialLimiter, Limiter

#: The label by which default selectors of Jobs select pods, and the name of its index.
_UID_LABEL, _BY_UID_LABEL = "batch.kubernetes.io/controller-uid", "job-controller-uid"
_PHASE, _FINALIZERS, _SELECTOR = "status.phase", "metadata.finalizers", "spec.selector"
_ENDED = frozenset({"Succeeded", "Failed"})
#: Minimum seconds between two reconciles of a Job whose spec has not changed.
_BATCH = 1.0

_any_job = Predicate(lambda event: True, (_SELECTOR,))  # noqa: ARG005  # it only adds a path to heads


@dataclass(slots=True)
class _JobMemory:
    """State of a Job between reconciles: the generation and the time of the last reconcile, and the failures in a row."""

    uid: str
    generation: int = 0
    reconciled: float = float("-inf")
    backoff: BackoffRecord = field(default_factory=BackoffRecord)


def is_foreign(job: Job) -> bool:
    """Return whether another controller manages a Job (``spec.managedBy``)."""
    return job.spec.managed_by not in (None, JOB_CONTROLLER)


class JobController(
    KeyController[Job],
    watches=[WatchedKind(Pod, to="_jobs_of", paths=(_PHASE, _FINALIZERS))],
    writes=[Pod],
    predicates=[_any_job],
    indexes={Pod: {OWNER_INDEX: "metadata.ownerReferences[*].uid", _BY_UID_LABEL: ByLabel(_UID_LABEL)}},
    workers=5,
    name="job-controller",
):
    """The controller of Jobs: creates, deletes and adopts their pods, counts finished ones, and writes the status.

    Guarantees:
        A finished pod is counted once, however often the controller is stopped or a write conflicts (see ``job_tracking``).
        Changes of a Job's pods are handled in batches, at most once per second, instead of in one reconcile per pod.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents()]

    def __init__(self) -> None:
        self._memory: dict[ObjectKey, _JobMemory] = {}

    async def start(self) -> None:
        self._memory.clear()
        self._expectations = Expectations(self.informer(Pod), self.clock)

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:  # noqa: ARG002  # it has no clock
        return ExponentialLimiter(FIRST_RETRY, LONGEST_RETRY)

    def _jobs_of(self, pod: Head) -> list[ObjectKey]:
        """Return the key of a pod's Job, or of the Jobs that may adopt it. A recently reconciled Job is enqueued with a delay instead."""
        owner = pod.controller
        if owner is not None:
            names = [owner.name] if owner.kind == "Job" else []
        elif pod.labels:
            names = [job.name for job in self.lister(Job).heads(pod.namespace) if _selects(job, pod)]
        else:
            names = []
        keys = []
        for name in names:
            key = ObjectKey(self.cluster, pod.namespace, name)
            memory = self._memory.get(key)
            delay = memory.reconciled + _BATCH - self.clock.now() if memory is not None else 0.0
            if delay > 0:
                self.enqueue(key, delay)
            else:
                keys.append(key)
        return keys

    async def reconcile(self, key: ObjectKey) -> Result | None:
        job = self.lister(Job).by_key(key)
        if job is None or is_foreign(job) or finished_condition(job.status) is not None:
            self._memory.pop(key, None)
            return None
        if job.spec.completion_mode not in (None, "NonIndexed", "Indexed"):
            self.events.warning(job, "UnknownCompletionMode", "Skipped Job sync because completion mode is unknown")
            return None
        memory = self._memory.get(key)
        if memory is None or memory.uid != job.metadata.uid:
            memory = self._memory[key] = _JobMemory(job.metadata.uid)
        delay = memory.reconciled + _BATCH - self.clock.now()
        if delay > 0 and memory.generation == job.metadata.generation:
            return Result(requeue_after=delay)
        delays = await self._sync(key, job, memory)
        memory.generation, memory.reconciled = job.metadata.generation, self.clock.now()
        return Result(requeue_after=max(min(delays), 0.001)) if delays else None

    async def _sync(self, key: ObjectKey, job: Job, memory: _JobMemory) -> list[float]:
        """Create or delete pods of a Job, count finished ones, and write its status; return the delays in seconds until the next steps."""
        stored = copy.deepcopy(job.status)
        current = self._expectations.met(key)
        pods = await self._claimed(job)
        view = take_snapshot(job, pods, memory.backoff, self.clock.wall().replace(microsecond=0))
        delays = [] if current else [_BATCH]
        failure: KubeloopError | None = None
        resumption = ""
        if view.end_condition is not None:
            failure = await self._delete(key, view, view.active, release=False)
            if view.active_count or not current:
                view.end_condition = None  # Pods may remain whose finalizer was not removed.
        else:
            managed = current and job.metadata.deletion_timestamp is None
            if managed:
                wait, failure = await self._manage(key, view)
                delays += [max(wait, _BATCH)] if wait > 0 else []
            if self._is_complete(view):
                view.end_condition = make_condition(
                    SUCCESS_CRITERIA_MET, "CompletionsReached", "Reached expected number of succeeded pods", view.now
                )
            elif managed:
                resumption = _suspend_or_resume(view)
        status = job.status
        status.active, status.ready, status.terminating = view.active_count or None, view.ready, view.terminating
        left = seconds_to_deadline(job, view.now)
        if view.end_condition is None and left is not None:
            delays.append(left)
        with contextlib.suppress(NotFound):  # The Job was deleted; its pods will be, too.
            if not await self._track(view, stored, memory, resumption):
                delays.append(_BATCH)
        if failure is not None:
            raise failure
        return delays

    @staticmethod
    def _is_complete(view: JobSnapshot) -> bool:
        if view.active_count:
            return False
        completions = view.job.spec.completions
        return view.succeeded > 0 if completions is None else view.succeeded >= completions

    # --------------------------------------------------------------------------------------------------------------------- pods

    async def _claimed(self, job: Job) -> list[Pod]:
        """Return the pods of a Job that are not counted yet. Counted pods, of which there may be many, are not decoded."""
        lister, metadata = self.lister(Pod), job.metadata
        selector = selector_from(job.spec.selector)
        heads = {
            head.uid: head
            for head in lister.heads_by_index(OWNER_INDEX, metadata.uid)
            if head.value(_PHASE) not in _ENDED or TRACKING in (head.value(_FINALIZERS) or ())
        }
        if (job.spec.selector or LabelSelector()).match_labels.get(_UID_LABEL) == metadata.uid:
            selected = lister.heads_by_index(_BY_UID_LABEL, metadata.uid)
        else:
            selected = lister.heads(metadata.namespace, selector)
        heads |= {head.uid: head for head in selected if head.controller is None and head.namespace == metadata.namespace}
        candidates = [lister.decoded(head) for head in heads.values()]
        return await claim(self.client, job, candidates, selector, finalizer=TRACKING)

    async def _manage(self, key: ObjectKey, view: JobSnapshot) -> tuple[float, KubeloopError | None]:
        """Create or delete pods of a Job; return the seconds until pods may be created, and the first error."""
        plan = plan_pods(view)
        if plan.delete:
            return 0.0, await self._delete(key, view, plan.delete, release=True)
        if not plan.create:
            return plan.wait, None
        job = view.job
        template = tracked_template(to_dict(job)["spec"]["template"], indexed=bool(plan.indexes))
        indexes = iter(plan.indexes)

        async def create() -> None:
            index = next(indexes, None)
            pod = new_pod(job, template, index, view.awaiting_replacement.get(index) if index is not None else None)
            set_controller_reference(job, pod)
            try:
                created = await self.client.create(pod)
            except ApiError as error:
                if not error.has_cause("NamespaceTerminating"):
                    self.events.warning(job, "FailedCreate", f"Error creating: {error.status.message}")
                raise
            self._expectations.created(key, created)
            view.active_count += 1
            self.events.normal(job, "SuccessfulCreate", f"Created pod: {created.metadata.name}")

        try:
            await in_growing_batches(create, plan.create)
        except KubeloopError as error:
            # Nothing can be created in a namespace that is being deleted; retries would only fill logs.
            return 0.0, None if isinstance(error, ApiError) and error.has_cause("NamespaceTerminating") else error
        return 0.0, None

    async def _delete(self, key: ObjectKey, view: JobSnapshot, pods: Sequence[Pod], *, release: bool) -> KubeloopError | None:
        """Delete active pods, update the counters of the snapshot, and return the first error.

        Args:
            key: The key of the Job.
            view: The snapshot of the Job.
            pods: The pods to delete.
            release: Whether to remove the finalizer first, so that the pods are not counted.
        """
        job = view.job

        async def delete(pod: Pod) -> None:
            try:
                if release and is_tracked(pod):
                    await remove_finalizer(self.client, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
                await self.client.delete(pod)
            except (NotFound, Conflict):
                pass  # The pod was deleted, or replaced by another pod of the same name.
            except ApiError as error:
                self.events.warning(job, "FailedDelete", f"Error deleting: {error.status.message}")
                raise
            else:
                self.events.normal(job, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
            self._expectations.deleted(key, pod)

        failure: KubeloopError | None = None
        results = await asyncio.gather(*map(delete, pods), return_exceptions=True)
        for pod, result in zip(pods, results, strict=True):
            if isinstance(result, KubeloopError):
                failure = failure or result
                continue
            if isinstance(result, BaseException):
                raise result
            view.active_count -= 1
            view.terminating += 1
            view.ready -= is_ready(pod)
        return failure

    # ------------------------------------------------------------------------------------------------------------------- status

    async def _track(self, view: JobSnapshot, stored: JobStatus, memory: _JobMemory, resumption: str) -> bool:
        """Count finished pods in three writes, and end the Job if it has finished; return whether all finished pods were counted."""
        finished = record_finished(view)
        job = view.job
        if job.status != stored:
            job = await self.client.update_status(job)
            memory.backoff = view.backoff
            if resumption:
                self.events.normal(job, resumption, "Job suspended" if resumption == "Suspended" else "Job resumed")
        failure = await self._release_all(finished.to_release)
        changed = count_released(job.status, {pod.metadata.uid for pod in view.pods if is_tracked(pod)})
        ended = failure is None and finished.complete and finish(view, job.status)
        if changed or ended:
            job = await self.client.update_status(job)
            if ended:
                self._report_end(view, job)
        if failure is not None:
            raise failure
        return finished.complete

    async def _release_all(self, pods: Sequence[Pod]) -> KubeloopError | None:
        """Remove the finalizer of pods, on the server and in ``pods``; return the first error."""

        async def release(pod: Pod) -> None:
            await remove_finalizer(self.client, pod.metadata.namespace, pod.metadata.name, pod.metadata.uid)
            pod.metadata.finalizers = [name for name in pod.metadata.finalizers if name != TRACKING]

        failure: KubeloopError | None = None
        for result in await asyncio.gather(*map(release, pods), return_exceptions=True):
            if isinstance(result, KubeloopError):
                failure = failure or result
            elif isinstance(result, BaseException):
                raise result
        return failure

    def _report_end(self, view: JobSnapshot, job: Job) -> None:
        end_condition = view.end_condition
        assert end_condition is not None
        if end_condition.type != COMPLETE:
            self.events.warning(job, end_condition.reason or "", end_condition.message or "")
            return
        if job.spec.completions is not None and (job.status.succeeded or 0) > job.spec.completions:
            self.events.warning(job, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
        self.events.normal(job, "Completed", "Job completed")


def _selects(job: Head, pod: Head) -> bool:
    selector = job.value(_SELECTOR) or {}
    labels = selector.get("matchLabels") or {}
    if labels and not labels.items() <= pod.labels.items():
        return False
    return selector_from(selector).matches(pod.labels)


def _suspend_or_resume(view: JobSnapshot) -> str:
    """Set the condition Suspended and the start time of a Job according to its spec; return the reason for an Event, or an empty text."""
    status, now = view.job.status, view.now
    if is_suspended(view.job):
        if put_condition(status, make_condition(SUSPENDED, "JobSuspended", "Job suspended", now)):
            status.start_time = None
            return "Suspended"
    elif put_condition(status, make_condition(SUSPENDED, "JobResumed", "Job resumed", now, "False")):
        status.start_time = now
        return "Resumed"
    return ""
