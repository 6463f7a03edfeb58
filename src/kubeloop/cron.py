"""Cron schedules as Kubernetes reads them: five fields, ``@hourly`` and the like, ``@every``; and the times at which they are due.

Source: github.com/robfig/cron/v3 (the standard parser and SpecSchedule.Next), which kube-apiserver and kube-controller-manager use; Go's
time.ParseDuration and time.Date. Python's cron libraries differ from it in days of the week, steps and changes of daylight saving time.
"""

from __future__ import annotations

import re
import zoneinfo
from abc import ABC, abstractmethod
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

from kubeloop.meta.strconv import decimal

_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
#: Minimum and maximum of minute, hour, day of the month, month, day of the week, and the names of values.
_FIELDS: tuple[tuple[int, int, dict[str, int]], ...] = (
    (0, 59, {}),
    (0, 23, {}),
    (1, 31, {}),
    (1, 12, {name: at + 1 for at, name in enumerate(_MONTHS)}),
    (0, 6, {name: at for at, name in enumerate(_DAYS)}),
)
_DESCRIPTORS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_AMOUNT = re.compile(r"(\d+\.?\d*|\.\d+)([^.\d]*)", re.ASCII)
_NANOSECONDS = {"ns": 1, "us": 1e3, "µs": 1e3, "μs": 1e3, "ms": 1e6, "s": 1e9, "m": 60e9, "h": 3600e9}
_LONGEST = 2**63 - 1
#: Years after which a schedule without a match has no further time.
_HORIZON = 5
_HOUR, _MINUTE, _SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)


class ScheduleError(ValueError):
    """A schedule is invalid. The message is that of the API server and of the CronJob controller."""


class Schedule(ABC):
    """A cron schedule: the times at which something is due.

    Example:
        >>> from datetime import UTC, datetime
        >>> from kubeloop.cron import parse_schedule
        >>> parse_schedule("*/15 9-17 * * mon-fri").next(datetime(2026, 1, 2, 17, 50, tzinfo=UTC))
        datetime.datetime(2026, 1, 5, 9, 0, tzinfo=datetime.timezone.utc)
    """

    def next(self, after: datetime) -> datetime | None:
        """Return the first time after an aware time, in UTC; None if there is none within five years or before the year 10000."""
        try:
            return self._search(after)
        except OverflowError:
            return None

    @abstractmethod
    def _search(self, after: datetime) -> datetime | None:
        """Return the first time after an aware time."""


@dataclass(frozen=True, slots=True)
class EverySchedule(Schedule):
    """A schedule of ``@every DURATION``: each time is due a fixed number of whole seconds after the previous one."""

    delay: timedelta

    def _search(self, after: datetime) -> datetime | None:
        return (after + self.delay).astimezone(UTC).replace(microsecond=0)


@dataclass(frozen=True, slots=True)
class FieldSchedule(Schedule):
    """A schedule of five fields.

    Args:
        fields: The values of minute, hour, day of the month, month and day of the week.
        any_day: A field for days has ``*`` or ``?``: a day must match both fields for days. Otherwise one match is enough.
        zone: The time zone of the fields.
    """

    fields: tuple[frozenset[int], ...]
    any_day: bool
    zone: tzinfo = UTC

    def _search(self, after: datetime) -> datetime | None:
        minutes, hours, days, months, weekdays = self.fields
        if not (minutes and hours and months and (days and weekdays if self.any_day else days or weekdays)):
            return None
        zone = self.zone
        moment = after.astimezone(UTC).replace(microsecond=0) + _SECOND
        limit = moment.astimezone(zone).year + _HORIZON
        # The search goes from month to second. A later field that wraps around starts it over, because a date may have changed.
        # Once a field was advanced, all smaller ones begin at their minimum.
        advanced = False
        while (local := moment.astimezone(zone)).year <= limit:
            if local.month not in months:
                start = moment if advanced else _absolute(zone, local.replace(day=1, hour=0, minute=0, second=0))
                advanced, month = True, local.month
                while month not in months:
                    start = _plus_months(zone, start)
                    month = start.astimezone(zone).month
                    if month == 1:
                        break
                moment = start
                if month not in months or month == 1:
                    continue
            wrapped, moment, advanced = self._to_day(moment, advanced)
            if wrapped:
                continue
            wrapped, moment, advanced = _to_value(moment, advanced, zone, hours, _HOUR)
            if wrapped:
                continue
            wrapped, moment, advanced = _to_value(moment, advanced, zone, minutes, _MINUTE)
            if wrapped:
                continue
            if (seconds := moment.second) == 0:
                return moment
            moment += timedelta(seconds=60 - seconds)
            advanced = True
        return None

    def _to_day(self, moment: datetime, advanced: bool) -> tuple[bool, datetime, bool]:
        """Return whether the month has changed, the beginning of the first matching day, and whether any field was advanced."""
        zone = self.zone
        while not self._matches_day(local := moment.astimezone(zone)):
            if not advanced:
                advanced, local = True, _absolute(zone, local.replace(hour=0, minute=0, second=0)).astimezone(zone)
            following = _absolute(zone, local.replace(tzinfo=UTC) + timedelta(days=1))
            # A zone may skip a whole day (Pacific/Apia, 30 December 2011). The Go library searches for ever there.
            moment = following if following > local else local.astimezone(UTC) + timedelta(days=1)
            # Where midnight does not exist, the day begins an hour before or after it.
            hour = moment.astimezone(zone).hour
            if hour > 12:
                moment += (24 - hour) * _HOUR
            elif hour:
                moment -= hour * _HOUR
            if moment.astimezone(zone).day == 1:
                return True, moment, advanced
        return False, moment, advanced

    def _matches_day(self, local: datetime) -> bool:
        _, _, days, _, weekdays = self.fields
        by_date, by_weekday = local.day in days, local.isoweekday() % 7 in weekdays
        return by_date and by_weekday if self.any_day else by_date or by_weekday


def _to_value(moment: datetime, advanced: bool, zone: tzinfo, values: frozenset[int], unit: timedelta) -> tuple[bool, datetime, bool]:
    """Return whether the field wrapped around, the first moment whose hour or minute matches, and whether any field was advanced."""
    by_hour = unit is _HOUR
    while True:
        local = moment.astimezone(zone)
        value = local.hour if by_hour else local.minute
        if value in values:
            return False, moment, advanced
        if not advanced:
            advanced = True
            moment = _absolute(zone, local.replace(minute=0, second=0)) if by_hour else moment.replace(second=0)
        moment += unit
        local = moment.astimezone(zone)
        if (local.hour if by_hour else local.minute) == 0:
            return True, moment, advanced


def _plus_months(zone: tzinfo, moment: datetime) -> datetime:
    local = moment.astimezone(zone)
    year, month = (local.year + 1, 1) if local.month == 12 else (local.year, local.month + 1)
    # A month may begin on the last day of the one before, if its first midnight does not exist. Days beyond the end of a month run over.
    return _absolute(zone, local.replace(year=year, month=month, day=1, tzinfo=UTC) + timedelta(days=local.day - 1))


def _absolute(zone: tzinfo, local: datetime) -> datetime:
    """Return the UTC time of a local time, whatever zone ``local`` names.

    A local time that does not exist, or exists twice, is resolved as Go's time.Date does.
    """
    wall = local.replace(tzinfo=UTC, fold=0)
    offset = wall.astimezone(zone).utcoffset() or timedelta()
    if offset:
        offset = (wall - offset).astimezone(zone).utcoffset() or timedelta()
    return wall - offset


def parse_schedule(text: str, zone: tzinfo = UTC) -> Schedule:
    """Return the schedule that a text describes.

    Args:
        text: Five fields, a descriptor such as ``@daily``, or ``@every 90m``. ``TZ=Europe/Paris `` in front overrides the zone.
        zone: The time zone of the fields.

    Returns:
        The schedule.

    Raises:
        ScheduleError: The text is invalid.
    """
    if text.startswith(("TZ=", "CRON_TZ=")):
        name, _, text = text.partition(" ")
        zone, text = _zone(name.partition("=")[2]), text.strip()
    if text.startswith("@every "):
        return _every(text)
    if text.startswith("@"):
        if text not in _DESCRIPTORS:
            raise ScheduleError(f"unrecognized descriptor: {text}")
        text = _DESCRIPTORS[text]
    fields = text.split()
    if len(fields) != 5:
        raise ScheduleError(f"expected exactly 5 fields, found {len(fields)}: [{' '.join(fields)}]")
    values, stars = [], []
    for field, (low, high, names) in zip(fields, _FIELDS, strict=True):
        parts = [_part(part, low, high, names) for part in field.split(",") if part]
        values.append(frozenset[int]().union(*(numbers for numbers, _ in parts)))
        stars.append(any(star for _, star in parts))
    return FieldSchedule(tuple(values), stars[2] or stars[4], zone)


def schedule_error(text: str) -> str:
    """Return the reason why a schedule is invalid; empty if it is valid. The zone of a leading ``TZ=`` or ``CRON_TZ=`` is not checked."""
    if text.startswith(("TZ=", "CRON_TZ=")):
        text = text.partition(" ")[2].strip()
    try:
        parse_schedule(text)
    except ScheduleError as error:
        return str(error)
    return ""


def _zone(name: str) -> tzinfo:
    try:
        return zoneinfo.ZoneInfo(name) if name else UTC
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise ScheduleError(f"provided bad location {name}: unknown time zone {name}") from None


def _every(text: str) -> EverySchedule:
    try:
        nanoseconds = _duration(text.removeprefix("@every "))
    except ScheduleError as error:
        raise ScheduleError(f"failed to parse duration {text}: time: {error}") from None
    return EverySchedule(timedelta(seconds=max(1, int(nanoseconds // 10**9))))


def _duration(text: str) -> float:
    """Return the nanoseconds of a duration such as ``1h30m``. Source: Go's time.ParseDuration."""
    invalid = f'invalid duration "{text}"'
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total, index = 0.0, 0
    while index < len(rest) or not index:
        match = _AMOUNT.match(rest, index)
        if not match:
            raise ScheduleError(invalid)
        amount, unit = match.groups()
        if not unit:
            raise ScheduleError(f'missing unit in duration "{text}"')
        if unit not in _NANOSECONDS:
            raise ScheduleError(f'unknown unit "{unit}" in duration "{text}"')
        total, index = total + float(amount) * _NANOSECONDS[unit], match.end()
    if total > _LONGEST:
        raise ScheduleError(invalid)
    return -total if text[:1] == "-" else total


def _part(part: str, low: int, high: int, names: dict[str, int]) -> tuple[range, bool]:
    """Return the values of one part of a list, and whether it counts as ``*``."""
    spread, *steps = part.split("/")
    bounds = spread.split("-")
    star = bounds[0] in ("*", "?")
    if star:
        start, end = low, high
    else:
        numbers = [names[bound.lower()] if bound.lower() in names else _number(bound) for bound in bounds[:2]]
        if len(bounds) > 2:
            raise ScheduleError(f"too many hyphens: {part}")
        start, end = numbers[0], numbers[-1]
    if len(steps) > 1:
        raise ScheduleError(f"too many slashes: {part}")
    step = _number(steps[0]) if steps else 1
    if steps and len(bounds) == 1:
        end = high
    if start < low:
        raise ScheduleError(f"beginning of range ({start}) below minimum ({low}): {part}")
    if end > high:
        raise ScheduleError(f"end of range ({end}) above maximum ({high}): {part}")
    if start > end:
        raise ScheduleError(f"beginning of range ({start}) beyond end of range ({end}): {part}")
    if not step:
        raise ScheduleError(f"step of range should be a positive number: {part}")
    return range(start, end + 1, step), star and step == 1


def _number(text: str) -> int:
    number = decimal(text)
    if number is None:
        reason = "value out of range" if re.fullmatch(r"[+-]?\d+", text, re.ASCII) else "invalid syntax"
        raise ScheduleError(f'failed to parse int from {text}: strconv.Atoi: parsing "{text}": {reason}')
    if number < 0:
        raise ScheduleError(f"negative number ({number}) not allowed: {text}")
    return number
