"""CronJob controller: creates Jobs on a schedule, and deletes old Jobs.

It executes the decisions of ``cron_schedule``. Source: Kubernetes pkg/controller/cronjob/cronjob_controllerv2.go.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.api.core.v1 import ObjectReference
from kubeloop.controller import KeyController, Result, is_controlled_by, set_controller_reference
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.workloads.cron_schedule import (
    TOO_MANY,
    UnknownTimeZone,
    find_due_time,
    job_name,
    new_job,
    seconds_to_next,
    zone_of,
)
from kubeloop.controlplane.workloads.job_snapshot import COMPLETE, FAILED, finished_condition
from kubeloop.cron import Schedule, ScheduleError, parse_schedule
from kubeloop.meta import AlreadyExists, ApiError, KubeloopError, NotFound, ObjectKey
from kubeloop.meta.strconv import go_quoted

_CRON_PAGE = "https://kubernetes.io/docs/concepts/workloads/controllers/cron-jobs/"


@dataclass(frozen=True, slots=True)
class _SeenSchedule:
    uid: str
    schedule: str
    time_zone: str | None


class CronJobController(KeyController[CronJob], owns=[Job], workers=5, name="cronjob-controller"):
    """The controller of CronJobs.

    Guarantees:
        At most one Job is created for a scheduled time, because the name of the Job is derived from the time.
        For a time that was missed while the controller did not run, a Job is created late if ``startingDeadlineSeconds`` permits it; of
        several missed times, only for the last one.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents()]

    def __init__(self) -> None:
        self._seen: dict[ObjectKey, _SeenSchedule] = {}

    async def start(self) -> None:
        self._seen.clear()

    async def reconcile(self, key: ObjectKey) -> Result | None:
        cron_job = self.lister(CronJob).by_key(key)
        if cron_job is None:
            self._seen.pop(key, None)
            return None
        spec = cron_job.spec
        seen, before = _SeenSchedule(cron_job.metadata.uid, spec.schedule, spec.time_zone), self._seen.get(key)
        self._seen[key] = seen
        if before is not None and before != seen and before.uid == seen.uid:
            # The new schedule begins at its next time; times before the change are not made up for.
            return self._until_next(cron_job)
        stored = copy.deepcopy(cron_job.status)
        jobs = self.owned(Job, cron_job)
        await self._delete_old(cron_job, jobs)
        failure: KubeloopError | None = None
        result: Result | None = None
        try:
            await self._update_active(cron_job, jobs)
            if cron_job.metadata.deletion_timestamp is None:
                result = await self._create_due(cron_job)
        except KubeloopError as error:
            failure = error
        if cron_job.status != stored:
            await self.client.update_status(cron_job)
        if failure is not None:
            raise failure
        return result

    def _until_next(self, cron_job: CronJob) -> Result | None:
        try:
            schedule = parse_schedule(cron_job.spec.schedule, zone_of(cron_job))
        except (ScheduleError, UnknownTimeZone):
            text = f"unparseable schedule for cronjob: {cron_job.spec.schedule}"
            self.events.warning(cron_job, "UnParseableCronJobSchedule", text)
            return None
        return self._wait(cron_job, schedule, self.clock.wall())

    def _wait(self, cron_job: CronJob, schedule: Schedule, now: datetime) -> Result | None:
        seconds = seconds_to_next(cron_job, schedule, now)
        return None if seconds is None else Result(requeue_after=max(seconds, 0.001))

    # --------------------------------------------------------------------------------------------------------------- known Jobs

    async def _delete_old(self, cron_job: CronJob, jobs: Iterable[Job]) -> None:
        """Delete the oldest finished Jobs beyond the history limits of a CronJob."""
        spec = cron_job.spec
        for kind, limit in ((COMPLETE, spec.successful_jobs_history_limit), (FAILED, spec.failed_jobs_history_limit)):
            if limit is None:
                continue
            finished = sorted((job for job in jobs if _ended_as(job, kind)), key=_start_order)
            for job in finished[: max(0, len(finished) - limit)]:
                await self._delete(cron_job, job)

    async def _delete(self, cron_job: CronJob, job: Job) -> bool:
        """Delete a Job with its pods, and remove it from the active Jobs in the status; return whether the deletion succeeded."""
        try:
            await self.client.delete(job, propagation_policy="Background")
        except KubeloopError as error:
            message = error.status.message if isinstance(error, ApiError) else str(error)
            self.events.warning(cron_job, "FailedDelete", f"Deleted job: {message}")
            return False
        _remove_active(cron_job, job.metadata.uid)
        self.events.normal(cron_job, "SuccessfulDelete", f"Deleted job {job.metadata.name}")
        return True

    async def _update_active(self, cron_job: CronJob, jobs: Iterable[Job]) -> None:
        """Update the active Jobs and the last successful time of the status."""
        status, known = cron_job.status, set()
        for job in jobs:
            known.add(job.metadata.uid)
            active = any(one.uid == job.metadata.uid for one in status.active)
            end = finished_condition(job.status)
            if end is None:
                if not active:
                    text = f"Saw a job that the controller did not create or forgot: {job.metadata.name}"
                    self.events.warning(cron_job, "UnexpectedJob", text)
                continue
            if active:
                _remove_active(cron_job, job.metadata.uid)
                text = f"Saw completed job: {job.metadata.name}, condition: {end.type}"
                self.events.normal(cron_job, "SawCompletedJob", text)
            time, last = job.status.completion_time, status.last_successful_time
            if end.type == COMPLETE and time is not None and (last is None or time > last):
                status.last_successful_time = time
        for reference in list(status.active):
            if reference.uid not in known and await self._is_missing(cron_job, reference):
                self.events.normal(cron_job, "MissingJob", f"Active job went missing: {reference.name}")
                _remove_active(cron_job, reference.uid or "")

    async def _is_missing(self, cron_job: CronJob, reference: ObjectReference) -> bool:
        """Return whether an active Job does not exist on the server; the cache may lag."""
        try:
            await self.client.get_metadata(Job, reference.name or "", namespace=cron_job.metadata.namespace)
        except NotFound:
            return True
        return False

    # ------------------------------------------------------------------------------------------------------------------ new Job

    async def _create_due(self, cron_job: CronJob) -> Result | None:
        """Create the Job for the newest due time, if there is one; return when to reconcile again."""
        now, spec = self.clock.wall(), cron_job.spec
        try:
            zone = zone_of(cron_job)
        except UnknownTimeZone as error:
            self.events.warning(cron_job, "UnknownTimeZone", str(error))
            return None
        if spec.suspend:
            return None
        if "TZ" in spec.schedule:
            text = (
                f"CRON_TZ or TZ used in schedule {go_quoted(spec.schedule)} is not officially supported, see {_CRON_PAGE} for more details"
            )
            self.events.warning(cron_job, "UnsupportedSchedule", text)
        try:
            schedule = parse_schedule(spec.schedule, zone)
        except ScheduleError as error:
            self.events.warning(cron_job, "UnparseableSchedule", f"unparseable schedule: {go_quoted(spec.schedule)} : {error}")
            return None
        try:
            due = find_due_time(cron_job, schedule, now, respect_deadline=True)
        except ScheduleError as error:
            self.events.warning(cron_job, "InvalidSchedule", f"invalid schedule: {spec.schedule} : {error}")
            return None
        if due.time is not None:
            if due.missed > TOO_MANY:
                text = "too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew"
                self.events.warning(cron_job, "TooManyMissedTimes", text)
            if self._is_due(cron_job, due.time, now):
                await self._replace_active(cron_job)
                if not await self._create(cron_job, due.time):
                    return None
        return self._wait(cron_job, schedule, now)

    def _is_due(self, cron_job: CronJob, time: datetime, now: datetime) -> bool:
        """Return whether to create a Job for a scheduled time, given the deadline, the status and the concurrency policy."""
        spec, status = cron_job.spec, cron_job.status
        deadline = spec.starting_deadline_seconds
        if deadline is not None and (now - time).total_seconds() > deadline:
            text = f"Missed scheduled time to start a job: {time:%a, %d %b %Y %H:%M:%S +0000}"
            self.events.warning(cron_job, "MissSchedule", text)
            return False
        if status.last_schedule_time == time or any(one.name == job_name(cron_job, time) for one in status.active):
            return False
        if spec.concurrency_policy == "Forbid" and status.active:
            text = "Not starting job because prior execution is running and concurrency policy is Forbid"
            self.events.normal(cron_job, "JobAlreadyActive", text)
            return False
        return True

    async def _replace_active(self, cron_job: CronJob) -> None:
        """Delete the active Jobs if the concurrency policy is Replace.

        Raises:
            KubeloopError: A Job cannot be read or deleted.
        """
        if cron_job.spec.concurrency_policy != "Replace":
            return
        for reference in list(cron_job.status.active):
            try:
                job = await self.client.get(Job, reference.name or "", namespace=cron_job.metadata.namespace)
            except KubeloopError as error:
                message = error.status.message if isinstance(error, ApiError) else str(error)
                self.events.warning(cron_job, "FailedGet", f"Get job: {message}")
                raise
            if not await self._delete(cron_job, job):
                raise KubeloopError(f"could not replace job {job.metadata.namespace}/{job.metadata.name}")

    async def _create(self, cron_job: CronJob, time: datetime) -> bool:
        """Create the Job for a scheduled time and add it to the active Jobs in the status; return whether it was added.

        Raises:
            KubeloopError: The server refuses the Job.
        """
        job = new_job(cron_job, time)
        set_controller_reference(cron_job, job)
        try:
            created = await self.client.create(job)
        except AlreadyExists:
            # The Job was created before the last status was written, or by another client.
            created = await self.client.get(Job, job.metadata.name, namespace=job.metadata.namespace)
            if not is_controlled_by(created, cron_job) or any(one.uid == created.metadata.uid for one in cron_job.status.active):
                return False
        except ApiError as error:
            if not error.has_cause("NamespaceTerminating"):
                self.events.warning(cron_job, "FailedCreate", f"Error creating job: {error.status.message}")
            raise
        else:
            self.events.normal(cron_job, "SuccessfulCreate", f"Created job {created.metadata.name}")
        metadata = created.metadata
        reference = ObjectReference(api_version=Job.api_version, kind=Job.kind, namespace=metadata.namespace, name=metadata.name)
        reference.uid, reference.resource_version = metadata.uid, metadata.resource_version
        cron_job.status.active = [*cron_job.status.active, reference]
        cron_job.status.last_schedule_time = time
        return True


def _remove_active(cron_job: CronJob, uid: str) -> None:
    cron_job.status.active = [one for one in cron_job.status.active if one.uid != uid]


def _ended_as(job: Job, kind: str) -> bool:
    end = finished_condition(job.status)
    return end is not None and end.type == kind


def _start_order(job: Job) -> tuple[bool, float, str]:
    start = job.status.start_time
    return start is None, start.timestamp() if start is not None else 0.0, job.metadata.name
