"""Cron schedules: the next times were recorded from github.com/robfig/cron/v3, and errors have its words."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from kubeloop.cron import ScheduleError, parse_schedule, schedule_error


@pytest.mark.parametrize(
    ("schedule", "after", "expected"),
    [
        pytest.param("*/15 * * * *", "2026-01-01T00:00:00", "2026-01-01T00:15:00", id="a time is never its own next time"),
        pytest.param("* * * * *", "2026-01-01T00:00:30", "2026-01-01T00:01:00", id="seconds are zero"),
        pytest.param("*/15 9-17 * * mon-fri", "2026-01-02T17:50:00", "2026-01-05T09:00:00", id="names, ranges and steps"),
        pytest.param("0 0 13 * fri", "2026-01-01T00:00:00", "2026-01-02T00:00:00", id="of two fields for days one is enough"),
        pytest.param("0 0 13 * */2", "2026-01-01T00:00:00", "2026-01-03T00:00:00", id="a step of two is no star"),
        pytest.param("0 0 13 * */1", "2026-01-01T00:00:00", "2026-01-13T00:00:00", id="a step of one is a star"),
        pytest.param("0 0 ? * SUN", "2026-01-01T00:00:00", "2026-01-04T00:00:00", id="a question mark is a star"),
        pytest.param("5/20 * * * *", "2026-01-01T00:50:00", "2026-01-01T01:05:00", id="a number with a step goes to the maximum"),
        pytest.param("0 0 29 2 *", "2026-01-01T00:00:00", "2028-02-29T00:00:00", id="29 February waits for a leap year"),
        pytest.param("59 23 31 2 *", "2026-01-01T00:00:00", None, id="31 February never comes"),
        pytest.param("@every 90m", "2026-01-01T00:00:30", "2026-01-01T01:30:30", id="@every counts from the time before"),
        pytest.param("@every 100ms", "2026-01-01T00:00:30", "2026-01-01T00:00:31", id="@every is at least a second"),
        pytest.param("@hourly", "2026-05-05T05:05:05", "2026-05-05T06:00:00", id="@hourly"),
        pytest.param("@weekly", "2026-05-05T05:05:05", "2026-05-10T00:00:00", id="@weekly begins on Sunday"),
        pytest.param("@monthly", "2026-05-05T05:05:05", "2026-06-01T00:00:00", id="@monthly"),
        pytest.param("@yearly", "2026-05-05T05:05:05", "2027-01-01T00:00:00", id="@yearly"),
        pytest.param("TZ=Asia/Kolkata @midnight", "2026-05-05T05:05:05", "2026-05-05T18:30:00", id="a zone in the schedule"),
        pytest.param("TZ=Europe/Berlin 30 2 * * *", "2026-03-28T23:00:00", "2026-03-30T00:30:00", id="a skipped hour skips the day"),
        pytest.param("TZ=Europe/Berlin 30 2 * * *", "2026-10-24T23:00:00", "2026-10-25T00:30:00", id="a repeated hour is due once"),
        pytest.param("TZ=Europe/Berlin 30 2 * * *", "2026-10-25T00:30:00", "2026-10-25T01:30:00", id="and a second time"),
        pytest.param("TZ=Europe/Berlin 0 * * * *", "2026-03-29T00:30:00", "2026-03-29T01:00:00", id="hours go on over a skipped one"),
        pytest.param("TZ=America/Sao_Paulo 0 0 * * *", "2018-11-03T12:00:00", "2018-11-05T02:00:00", id="a midnight that does not exist"),
        pytest.param("TZ=America/Sao_Paulo 30 0 4 11 *", "2018-11-03T12:00:00", "2019-11-04T03:30:00", id="nor half an hour later"),
        pytest.param(
            "TZ=America/Havana 31,1,? 21 *,16 8-10,4-12 3",
            "2012-01-04T18:13:21",
            "2012-05-10T01:00:00",
            id="a month without its first hour",
        ),
        pytest.param("TZ=Australia/Lord_Howe 0 2 * * *", "2026-04-04T12:00:00", "2026-04-05T15:30:00", id="a shift of half an hour"),
        pytest.param(", * * * *", "2026-01-01T00:00:00", None, id="an empty list never matches"),
    ],
)
def test_the_next_time_is_that_of_robfig_cron(schedule: str, after: str, expected: str | None) -> None:
    result = parse_schedule(schedule).next(datetime.fromisoformat(after).replace(tzinfo=UTC))
    assert result == (None if expected is None else datetime.fromisoformat(expected).replace(tzinfo=UTC))


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [("0 0 31 * *", "2011-12-30T10:00:00"), ("0 0 30 * *", "2012-01-29T10:00:00"), ("0 0 5 * *", "2012-01-04T10:00:00")],
)
def test_a_zone_that_skips_a_day_does_not_stop_the_search(schedule: str, expected: str) -> None:
    result = parse_schedule(f"TZ=Pacific/Apia {schedule}").next(datetime(2011, 12, 25, tzinfo=UTC))
    assert result == datetime.fromisoformat(expected).replace(tzinfo=UTC)


@pytest.mark.parametrize("schedule", ["* * * * *", "@every 1h", "TZ=Asia/Tokyo 0 0 1 1 *"])
def test_the_end_of_the_calendar_is_no_error(schedule: str) -> None:
    assert parse_schedule(schedule).next(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)) is None


def test_the_zone_is_an_argument_and_the_result_is_in_utc() -> None:
    east = timezone(timedelta(hours=3))
    assert parse_schedule("0 0 * * *", east).next(datetime(2026, 1, 1, tzinfo=east)) == datetime(2026, 1, 1, 21, tzinfo=UTC)


def test_fractions_of_a_second_are_cut() -> None:
    for schedule, expected in (("* * * * *", 60), ("@every 10s", 10)):
        result = parse_schedule(schedule).next(datetime(2026, 1, 1, 0, 0, 0, 999_999, tzinfo=UTC))
        assert result == datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=expected)


@pytest.mark.parametrize(
    "schedule", ["* * * * *", "*/5 0-6/2 1,15 jan-mar MON", "@hourly", "@every 1h30m", "@every 1.5h", "59 23 31 12 6", "? ? ? ? ?"]
)
def test_a_valid_schedule_has_no_error(schedule: str) -> None:
    assert schedule_error(schedule) == ""


@pytest.mark.parametrize(
    ("duration", "fault"),
    [
        ("", 'invalid duration ""'),
        ("5", 'missing unit in duration "5"'),
        ("1h2", 'missing unit in duration "1h2"'),
        ("1h5x", 'unknown unit "x" in duration "1h5x"'),
        (".h", 'invalid duration ".h"'),
        ("999999999999h", 'invalid duration "999999999999h"'),
    ],
)
def test_the_error_of_a_duration_is_that_of_go(duration: str, fault: str) -> None:
    assert schedule_error(f"@every {duration}") == f"failed to parse duration @every {duration}: time: {fault}"


@pytest.mark.parametrize(
    ("schedule", "fault"),
    [
        ("* * * *", "expected exactly 5 fields, found 4: [* * * *]"),
        ("60 * * * *", "end of range (60) above maximum (59): 60"),
        ("* * 0 * *", "beginning of range (0) below minimum (1): 0"),
        ("5-2 * * * *", "beginning of range (5) beyond end of range (2): 5-2"),
        ("*/0 * * * *", "step of range should be a positive number: */0"),
        ("1-2-3 * * * *", "too many hyphens: 1-2-3"),
        ("1/2/3 * * * *", "too many slashes: 1/2/3"),
        ("* * * * funday", 'failed to parse int from funday: strconv.Atoi: parsing "funday": invalid syntax'),
        (
            "99999999999999999999 * * * *",
            'failed to parse int from 99999999999999999999: strconv.Atoi: parsing "99999999999999999999": value out of range',
        ),
        ("+-1 * * * *", 'failed to parse int from +: strconv.Atoi: parsing "+": invalid syntax'),
        ("@fortnightly", "unrecognized descriptor: @fortnightly"),
    ],
)
def test_the_error_of_a_schedule_is_that_of_robfig_cron(schedule: str, fault: str) -> None:
    assert schedule_error(schedule) == fault


def test_an_unknown_zone_in_a_schedule_is_an_error_of_the_schedule_only_for_its_times() -> None:
    assert schedule_error("TZ=Nowhere/City * * * * *") == ""
    with pytest.raises(ScheduleError, match="provided bad location Nowhere/City: unknown time zone Nowhere/City"):
        parse_schedule("TZ=Nowhere/City * * * * *")
