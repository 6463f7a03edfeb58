"""Cleanup of Jobs: finalizers of pods that no Job will count, and finished Jobs whose time to live has passed.

Source: Kubernetes pkg/controller/job/job_controller.go (syncOrphanPod), pkg/controller/ttlafterfinished; KEP-592, KEP-2307.
"""

from __future__ import annotations

import contextlib
from datetime import datetime

from kubeloop.api.batch.v1 import Job
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Head, Owner
from kubeloop.client import Client
from kubeloop.controller import Controller, KeyController, Predicate, Result, WatchedKind
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controlplane.workloads.job_snapshot import JOB_CONTROLLER, TRACKING, finished_condition
from kubeloop.meta import Conflict, Invalid, KubeloopError, NotFound, ObjectKey
from kubeloop.timing import Clock
from kubeloop.workqueue import ExponentialLimiter, Limiter

#: Seconds before the first retry of a failed reconcile, and the maximum.
FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0
#: Maximum number of deleted Jobs that are remembered.
_REMEMBERED = 10_000
_FINALIZERS, _MANAGED_BY, _CONDITIONS = "metadata.finalizers", "spec.managedBy", "status.conditions"


async def remove_finalizer(client: Client, namespace: str, name: str, uid: str) -> None:
    """Remove the finalizer of Jobs from a pod, if it still exists.

    Args:
        client: Writes the pod.
        namespace: The pod's namespace.
        name: The pod's name.
        uid: The pod's uid; another pod of the same name is not changed.

    Raises:
        Invalid: The server refuses the change for another reason than the uid.
        KubeloopError: Another error of the server.
    """
    change = {"metadata": {"uid": uid, "$deleteFromPrimitiveList/finalizers": [TRACKING]}}
    try:
        await client.patch(Pod, name, change, type="strategic", namespace=namespace)
    except (NotFound, Conflict):
        return
    except Invalid as error:
        # A uid cannot be changed: another pod has the name. Any other error leaves the finalizer in place.
        causes = error.status.details.causes if error.status.details is not None else []
        if all(cause.field != "metadata.uid" for cause in causes):
            raise


class JobFinalizerController(
    KeyController[Pod],
    predicates=[Predicate(lambda event: TRACKING in (event.head.value(_FINALIZERS) or ()), (_FINALIZERS,))],
    watches=[WatchedKind(Job, to="_pods_of", paths=(_CONDITIONS, _MANAGED_BY))],
    indexes={Pod: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}},
    workers=5,
    name="job-controller-orphans",
):
    """Removes the finalizer of Jobs from pods that no Job will count: their Job was deleted or has finished, or they have no controller.

    Without this controller such pods would be terminating forever.

    Guarantees:
        A Job counts as deleted only after an event or a read from the server has shown that: the cache of Jobs may lag behind that of pods.
    """

    def __init__(self) -> None:
        #: The uids of Jobs that are known to be deleted.
        self._gone: set[str] = set()

    def retry_limiter(self, clock: Clock) -> Limiter[ObjectKey]:  # noqa: ARG002  # it has no clock
        return ExponentialLimiter(FIRST_RETRY, LONGEST_RETRY)

    def _pods_of(self, job: Head) -> list[ObjectKey]:
        """Return the keys of a Job's pods with the finalizer, if the Job was deleted or has finished."""
        known = self.lister(Job).head(job.name, job.namespace)
        if known is None or known.uid != job.uid:
            self._record_gone(job.uid)
        elif not _has_finished(known):
            return []
        pods = self.lister(Pod).heads_by_index(OWNER_INDEX, job.uid)
        return [ObjectKey(self.cluster, pod.namespace, pod.name) for pod in pods if TRACKING in (pod.value(_FINALIZERS) or ())]

    async def reconcile(self, key: ObjectKey) -> None:
        pod = self.lister(Pod).head(key.name, key.namespace)
        if pod is not None and TRACKING in (pod.value(_FINALIZERS) or ()) and await self._is_orphan(pod):
            await remove_finalizer(self.client, pod.namespace, pod.name, pod.uid)

    async def _is_orphan(self, pod: Head) -> bool:
        owner = pod.controller
        if owner is None:
            return True
        if owner.kind != "Job" or owner.api_version != Job.api_version:
            return False
        job = self.lister(Job).head(owner.name, pod.namespace)
        if job is None or job.uid != owner.uid:
            return await self._is_gone(pod.namespace, owner)
        return job.value(_MANAGED_BY) in (None, JOB_CONTROLLER) and _has_finished(job)

    async def _is_gone(self, namespace: str, owner: Owner) -> bool:
        if owner.uid not in self._gone:
            try:
                job = await self.client.get_metadata(Job, owner.name, namespace=namespace)
            except NotFound:
                pass
            else:
                if job.metadata.uid == owner.uid:
                    return False  # The event of the Job will bring its pods here again.
            self._record_gone(owner.uid)
        return True

    def _record_gone(self, uid: str) -> None:
        if len(self._gone) >= _REMEMBERED:
            self._gone.clear()
        self._gone.add(uid)


def _has_finished(job: Head) -> bool:
    conditions = job.value(_CONDITIONS) or ()
    return any(one.get("type") in ("Complete", "Failed") and one.get("status") == "True" for one in conditions)


def seconds_to_expiry(job: Job, now: datetime) -> float | None:
    """Return the seconds until a finished Job must be deleted; None if it has not finished, has no TTL, or is being deleted.

    Raises:
        KubeloopError: The time at which the Job finished is unknown.
    """
    end, ttl = finished_condition(job.status), job.spec.ttl_seconds_after_finished
    if end is None or ttl is None or job.metadata.deletion_timestamp is not None:
        return None
    if end.last_transition_time is None:
        name = f"{job.metadata.namespace}/{job.metadata.name}"
        raise KubeloopError(f"unable to find the time when the Job {name} finished")
    return ttl - (now - end.last_transition_time).total_seconds()


class FinishedJobCleaner(Controller[Job], workers=5, name="ttl-after-finished-controller"):
    """Deletes finished Jobs, and their pods before them, when ``ttlSecondsAfterFinished`` has passed.

    Guarantees:
        A Job is read from the server before it is deleted, because the cache may not show an increase of its time to live yet.
    """

    async def reconcile(self, job: Job) -> Result | None:
        left = seconds_to_expiry(job, self.clock.wall())
        if left is not None and left <= 0:
            try:
                job = await self.client.get(Job, job.metadata.name, namespace=job.metadata.namespace)
            except NotFound:
                return None
            left = seconds_to_expiry(job, self.clock.wall())
        if left is None:
            return None
        if left > 0:
            return Result(requeue_after=left)
        with contextlib.suppress(NotFound, Conflict):
            await self.client.delete(job, propagation_policy="Foreground")
        return None
