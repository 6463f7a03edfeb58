"""Times of CronJobs: which time is due, when to reconcile again, and the Job of a time. Cases are upstream's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from kubeloop.api.batch.v1 import CronJob
from kubeloop.codec import to_dict
from kubeloop.controlplane.workloads.cron_schedule import (
    SCHEDULED_AT,
    UnknownTimeZone,
    find_due_time,
    job_name,
    new_job,
    seconds_to_next,
    zone_of,
)
from kubeloop.cron import ScheduleError, parse_schedule
from tests.controlplane.cron_jobs import cron_job


def time(text: str) -> datetime:
    """Return a time of 2 January 2026, or of the day that the text names."""
    return datetime.fromisoformat(text if "T" in text else f"2026-01-02T{text}").replace(tzinfo=UTC)


def known(created: str, last: str | None, schedule: str, deadline: int | None = None) -> CronJob:
    """Return a CronJob.

    Args:
        created: When it was created.
        last: The last scheduled time; None: there was none.
        schedule: Its schedule.
        deadline: Its ``startingDeadlineSeconds``.
    """
    result = cron_job(schedule=schedule)
    result.metadata.creation_timestamp = time(created)
    result.status.last_schedule_time = None if last is None else time(last)
    result.spec.starting_deadline_seconds = deadline
    return result


@pytest.mark.parametrize(
    ("cron_job", "now", "due", "missed"),
    [
        pytest.param(known("10:00:10", None, "0 * * * *"), "10:59:59", None, 0, id="no time since the creation"),
        pytest.param(known("09:59:10", None, "0 * * * *"), "10:00:00", "10:00", 0, id="the first time, to the second"),
        pytest.param(known("05:00:10", "10:00", "0 * * * *"), "10:59:59", None, 0, id="no time since the last one"),
        pytest.param(known("05:00:10", "10:00", "0 * * * *"), "11:05", "11:00", 0, id="one time"),
        pytest.param(known("05:00:10", "08:00", "0 * * * *"), "10:30", "10:00", 2, id="the newest of several times"),
        pytest.param(known("05:00:10", "08:00", "0 * * * *", 600), "10:30", None, 0, id="a deadline leaves old times out"),
        pytest.param(known("05:00:10", "08:00", "0 * * * *", 3600), "10:30", "10:00", 0, id="but not those within it"),
        pytest.param(known("2025-12-02T00:00", None, "* * * * *"), "10:30:30", "10:30", 45270, id="very many times"),
        pytest.param(known("2025-12-30T00:00", None, "30 6-16/4 * * 1-5"), "12:00", "10:30", 20, id="a schedule with gaps"),
        pytest.param(known("09:00:00", None, "@every 7m"), "10:00", "09:56", 8, id="@every counts from the creation"),
    ],
)
def test_the_due_time_is_the_newest_between_the_last_one_and_now(cron_job: CronJob, now: str, due: str | None, missed: int) -> None:
    result = find_due_time(cron_job, parse_schedule(cron_job.spec.schedule), time(now), respect_deadline=True)
    assert (result.time, result.missed) == (None if due is None else time(due), missed)


def test_a_schedule_without_times_is_an_error() -> None:
    one = known("09:00:00", None, "59 23 31 2 *")
    with pytest.raises(ScheduleError, match="time difference between two schedules is less than 1 second"):
        find_due_time(one, parse_schedule(one.spec.schedule), time("10:00"), respect_deadline=True)
    assert seconds_to_next(one, parse_schedule(one.spec.schedule), time("10:00")) is None


@pytest.mark.parametrize(
    ("cron_job", "now", "seconds"),
    [
        pytest.param(known("09:59:10", None, "0 * * * *"), "09:59:20", 40.1, id="the first time"),
        pytest.param(known("05:00:10", "10:00", "0 * * * *"), "10:15", 2700.1, id="the time after the last one"),
        pytest.param(known("05:00:10", "08:00", "0 * * * *"), "10:30", 1800.1, id="the time after the missed ones"),
        pytest.param(known("05:00:10", "08:00", "0 * * * *", 60), "10:30", 1800.1, id="whatever the deadline"),
        pytest.param(known("09:00:00", None, "@every 7m"), "10:00", 180.1, id="@every keeps its pace"),
    ],
)
def test_the_next_reconcile_is_a_tenth_of_a_second_after_the_next_time(cron_job: CronJob, now: str, seconds: float) -> None:
    assert seconds_to_next(cron_job, parse_schedule(cron_job.spec.schedule), time(now)) == pytest.approx(seconds)


def test_a_job_is_named_after_the_minutes_since_1970() -> None:
    assert job_name(cron_job("c"), datetime(1970, 1, 2, 0, 3, 59, tzinfo=UTC)) == "c-1443"


@pytest.mark.parametrize(
    ("zone", "expected"),
    [(None, "2026-07-01T10:00:00Z"), ("Europe/Berlin", "2026-07-01T12:00:00+02:00"), ("Africa/Abidjan", "2026-07-01T10:00:00Z")],
)
def test_the_job_of_a_time_has_the_template_and_states_the_time_in_its_zone(zone: str | None, expected: str) -> None:
    one = cron_job("c", timeZone=zone)
    one.spec.job_template.metadata.labels = {"a": "b"}
    one.spec.job_template.metadata.annotations = {"x": "y"}
    made = new_job(one, datetime(2026, 7, 1, 10, tzinfo=UTC))
    assert (made.metadata.name, made.metadata.labels) == ("c-29715000", {"a": "b"})
    assert made.metadata.annotations == {"x": "y", SCHEDULED_AT: expected}
    assert to_dict(made)["spec"] == to_dict(one)["spec"]["jobTemplate"]["spec"]


def test_an_unknown_zone_is_an_error_in_upstreams_words() -> None:
    assert zone_of(cron_job()).utcoffset(None) == timedelta(0)
    with pytest.raises(UnknownTimeZone, match=r"^invalid timeZone: \"Mars/Base\": unknown time zone Mars/Base$"):
        zone_of(cron_job(timeZone="Mars/Base"))


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        pytest.param("2026-03-28T12:00", "2026-03-30T00:30", id="a skipped hour has no Job on that day"),
        pytest.param("2026-10-24T12:00", "2026-10-25T01:30", id="a repeated hour has two, of which the last is due"),
    ],
)
def test_changes_of_daylight_saving_time(created: str, expected: str) -> None:
    one = known(created, None, "30 2 * * *")
    one.spec.time_zone = "Europe/Berlin"
    now = time(expected) + timedelta(minutes=5)
    assert find_due_time(one, parse_schedule(one.spec.schedule, zone_of(one)), now, respect_deadline=True).time == time(expected)
