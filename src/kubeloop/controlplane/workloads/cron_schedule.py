"""Times of CronJobs: the newest due time, the time of the next reconcile, and the Job for a scheduled time.

Source: Kubernetes pkg/controller/cronjob/utils.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

from kubeloop.api.batch.v1 import CronJob, Job
from kubeloop.codec import decode, to_dict
from kubeloop.cron import Schedule, ScheduleError
from kubeloop.meta import format_time
from kubeloop.types import JSONObject

SCHEDULED_AT = "batch.kubernetes.io/cronjob-scheduled-timestamp"
#: Number of missed times above which an Event warns.
TOO_MANY = 100
#: Padding of the time of the next reconcile, for clocks that differ slightly.
_PADDING = timedelta(milliseconds=100)


class UnknownTimeZone(ValueError):
    """``spec.timeZone`` is no known time zone. The message is that of an Event."""


@dataclass(frozen=True, slots=True)
class DueTime:
    """The newest time at which a Job should have been created.

    Args:
        earliest: The time after which scheduled times count: the last scheduled time, the creation of the CronJob, or its deadline.
        time: The newest due time; None if there is none.
        missed: An estimate of the number of missed times including ``time``; 0 if at most one time was due.
    """

    earliest: datetime
    time: datetime | None = None
    missed: int = 0


def find_due_time(cron_job: CronJob, schedule: Schedule, now: datetime, *, respect_deadline: bool) -> DueTime:
    """Return the newest due time of a CronJob.

    Args:
        cron_job: The CronJob.
        schedule: The schedule of the CronJob.
        now: The present time.
        respect_deadline: Whether to ignore times that are older than ``startingDeadlineSeconds``.

    Returns:
        The due time.

    Raises:
        ScheduleError: The schedule has no further times, so that missed times cannot be estimated.
    """
    earliest = cron_job.status.last_schedule_time or cron_job.metadata.creation_timestamp or now
    deadline = cron_job.spec.starting_deadline_seconds
    if respect_deadline and deadline is not None:
        earliest = max(earliest, now - timedelta(seconds=deadline))
    first = schedule.next(earliest)
    second = schedule.next(first) if first is not None else None
    if first is not None and now < first:
        return DueTime(earliest)
    if first is not None and second is not None and now < second:
        return DueTime(earliest, first)
    if first is None or second is None or second <= first:
        raise ScheduleError("time difference between two schedules is less than 1 second")
    # The times between are estimated from the first two, because there may be millions of them. The search then begins one interval
    # earlier, because intervals differ ("30 6-16/4 * * 1-5").
    interval = int((second - first).total_seconds())
    missed = int((now - first).total_seconds()) // interval + 1
    newest: datetime | None = None
    candidate = schedule.next(first + timedelta(seconds=(missed - 2) * interval))
    while candidate is not None and candidate <= now:
        newest, candidate = candidate, schedule.next(candidate)
    return DueTime(earliest, newest, missed)


def seconds_to_next(cron_job: CronJob, schedule: Schedule, now: datetime) -> float | None:
    """Return the seconds until the next reconcile of a CronJob; None if its schedule has no further time."""
    try:
        due = find_due_time(cron_job, schedule, now, respect_deadline=False)
    except ScheduleError:
        start = now
    else:
        start = due.time or (now if due.missed else due.earliest)
    following = schedule.next(start)
    return (following + _PADDING - now).total_seconds() if following is not None else None


def zone_of(cron_job: CronJob) -> tzinfo:
    """Return the time zone of a CronJob; UTC without ``spec.timeZone``.

    Raises:
        UnknownTimeZone: ``spec.timeZone`` is unknown.
    """
    name = cron_job.spec.time_zone
    if not name:
        return UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise UnknownTimeZone(f'invalid timeZone: "{name}": unknown time zone {name}') from None


def job_name(cron_job: CronJob, time: datetime) -> str:
    """Return the name of the Job for a scheduled time. The name is derived from the time, so that no time gets two Jobs."""
    return f"{cron_job.metadata.name}-{int(time.timestamp()) // 60}"


def new_job(cron_job: CronJob, time: datetime) -> Job:
    """Return the Job to create for a scheduled time, with every field of the template, and without an owner.

    Raises:
        UnknownTimeZone: ``spec.timeZone`` is unknown.
    """
    template = to_dict(cron_job)["spec"].get("jobTemplate") or {}
    metadata = template.get("metadata") or {}
    local = time.astimezone(zone_of(cron_job))
    text = format_time(time) if not local.utcoffset() else local.isoformat(timespec="seconds")
    document: JSONObject = {
        "apiVersion": Job.api_version,
        "kind": Job.kind,
        "metadata": {
            "name": job_name(cron_job, time),
            "namespace": cron_job.metadata.namespace,
            "labels": metadata.get("labels") or {},
            "annotations": {**(metadata.get("annotations") or {}), SCHEDULED_AT: text},
        },
        "spec": template.get("spec") or {},
    }
    return decode(Job, msgspec.json.encode(document))
