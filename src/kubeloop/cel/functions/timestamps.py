"""Timestamps and durations: parsing, printing and accessing parts. They are written as in RFC 3339 and as in Go ("1h30m", "0.5s")."""

from __future__ import annotations

import datetime as dt
import re
import zoneinfo
from collections.abc import Callable
from fractions import Fraction

from kubeloop.cel.faults import EvalError
from kubeloop.cel.functions.operators import duration, timestamp
from kubeloop.cel.functions.standard import same
from kubeloop.cel.overloads import function, member
from kubeloop.cel.values import INT_MAX, INT_MIN, DurationValue, Timestamp

_SECOND = 10**9
_UNITS = {"ns": 1, "us": 10**3, "µs": 10**3, "μs": 10**3, "ms": 10**6, "s": _SECOND, "m": 60 * _SECOND, "h": 3600 * _SECOND}
_PART = re.compile(r"([0-9]*)(?:\.([0-9]*))?([a-zµμ]+)")
_RFC3339 = re.compile(r"(\d{4}-\d{2}-\d{2})[Tt](\d{2}:\d{2}:\d{2})(?:\.(\d+))?(Z|z|[+-]\d{2}:\d{2})", re.ASCII)
_OFFSET = re.compile(r"([+-]?)(\d{1,2}):(\d{2})", re.ASCII)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)


@function("duration", "string -> duration", "string_to_duration")
def parse_duration(text: str) -> DurationValue:
    """Parse a duration as Go's time.ParseDuration does.

    Raises:
        EvalError: The text is not a duration.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return DurationValue(0)
    failure = EvalError("type conversion error from 'string' to 'google.protobuf.Duration'")
    total = Fraction(0)
    if not rest:
        raise failure
    while rest:
        part = _PART.match(rest)
        if part is None or not (part[1] or part[2]) or part[3] not in _UNITS:
            raise failure
        total += Fraction(int((part[1] or "0") + (part[2] or "")), 10 ** len(part[2] or "")) * _UNITS[part[3]]
        rest = rest[part.end() :]
    nanos = -int(total) if text[0] == "-" else int(total)
    if not INT_MIN <= nanos <= INT_MAX:
        raise failure
    return DurationValue(nanos)


@function("timestamp", "string -> timestamp", "string_to_timestamp")
def parse_timestamp(text: str) -> Timestamp:
    """Parse a timestamp of RFC 3339, up to nanoseconds.

    Raises:
        EvalError: The text is not a timestamp.
    """
    match = _RFC3339.fullmatch(text)
    failure = EvalError("type conversion error from 'string' to 'google.protobuf.Timestamp'")
    if match is None:
        raise failure
    try:
        moment = dt.datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4].upper()}")
    except ValueError:
        raise failure from None
    whole = (moment - _EPOCH) // dt.timedelta(seconds=1)
    offset = moment.utcoffset() or dt.timedelta()
    return timestamp(whole * _SECOND + int((match[3] or "0")[:9].ljust(9, "0")), offset // dt.timedelta(seconds=1))


def parse_date(text: str) -> Timestamp:
    """Parse a date such as ``2006-01-02`` and return the beginning of that day in UTC.

    Raises:
        ValueError: The text is not a date.
    """
    moment = dt.datetime.combine(dt.date.fromisoformat(text), dt.time(), dt.UTC)
    return Timestamp((moment - _EPOCH) // dt.timedelta(seconds=1) * _SECOND)


@function("string", "timestamp -> string", "timestamp_to_string")
def format_timestamp(moment: Timestamp) -> str:
    seconds, nanos = divmod(moment.nanos, _SECOND)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    shown = _EPOCH + dt.timedelta(seconds=seconds + moment.offset)
    sign, minutes = "+-"[moment.offset < 0], abs(moment.offset) // 60
    zone = f"{sign}{minutes // 60:02d}:{minutes % 60:02d}" if moment.offset else "Z"
    return f"{shown.year:04d}-{shown:%m-%dT%H:%M:%S}{fraction}{zone}"


@function("string", "duration -> string", "duration_to_string")
def format_duration(length: DurationValue) -> str:
    seconds, nanos = divmod(abs(length.nanos), _SECOND)
    fraction = f".{nanos:09d}".rstrip("0") if nanos else ""
    return f"{'-' if length.nanos < 0 else ''}{seconds}{fraction}s"


function("timestamp", "timestamp -> timestamp", "timestamp_to_timestamp")(same)
function("timestamp", "int -> timestamp", "int64_to_timestamp")(lambda seconds: timestamp(seconds * _SECOND))
function("duration", "duration -> duration", "duration_to_duration")(same)
function("duration", "int -> duration", "int64_to_duration")(duration)
function("int", "timestamp -> int", "timestamp_to_int64")(lambda moment: moment.nanos // _SECOND)
function("int", "duration -> int", "duration_to_int64")(lambda length: length.nanos)


def _zone(name: str) -> dt.tzinfo:
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        minutes = int(offset[2]) * 60 + int(offset[3])
        return dt.timezone(dt.timedelta(minutes=-minutes if offset[1] == "-" else minutes))
    if name in ("", "UTC"):
        return dt.UTC
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        raise EvalError(f"unknown time zone {name}") from None


def _local(moment: Timestamp, zone: str) -> dt.datetime:
    try:
        return (_EPOCH + dt.timedelta(seconds=moment.nanos // _SECOND)).astimezone(_zone(zone))
    except OverflowError:
        raise EvalError("timestamp overflow") from None


_PARTS: dict[str, Callable[[dt.datetime], int]] = {
    "getFullYear": lambda local: local.year,
    "getMonth": lambda local: local.month - 1,
    "getDayOfYear": lambda local: local.timetuple().tm_yday - 1,
    "getDayOfMonth": lambda local: local.day - 1,
    "getDate": lambda local: local.day,
    "getDayOfWeek": lambda local: local.isoweekday() % 7,
    "getHours": lambda local: local.hour,
    "getMinutes": lambda local: local.minute,
    "getSeconds": lambda local: local.second,
}


def _whole(nanos: int, unit: int) -> int:
    """Divide and round towards zero."""
    return nanos // unit if nanos >= 0 else -(-nanos // unit)


def _register() -> None:
    for name, part in _PARTS.items():
        member(name, "timestamp -> int", f"timestamp_to_{name}")(lambda moment, part=part: part(_local(moment, "UTC")))
        with_zone = f"timestamp_to_{name}_with_tz"
        member(name, "timestamp, string -> int", with_zone)(lambda moment, zone, part=part: part(_local(moment, zone)))
    member("getMilliseconds", "timestamp -> int", "timestamp_to_milliseconds")(lambda moment: moment.nanos % _SECOND // 10**6)
    member("getMilliseconds", "timestamp, string -> int", "timestamp_to_milliseconds_with_tz")(
        lambda moment, _: moment.nanos % _SECOND // 10**6
    )
    for name, unit in (("getHours", 3600), ("getMinutes", 60), ("getSeconds", 1)):
        member(name, "duration -> int", f"duration_to_{name}")(lambda length, unit=unit: _whole(length.nanos, unit * _SECOND))
    member("getMilliseconds", "duration -> int", "duration_to_milliseconds")(lambda length: _whole(length.nanos, 10**6))


_register()
