"""Scalars with special decoders: times, base64, numbers; with the error messages of Go."""

from __future__ import annotations

import base64
import binascii
import datetime
import json
import re
from functools import lru_cache
from typing import Any, Self

from kubeloop.meta.errors import DecodeError
from kubeloop.meta.field_error import fits_int64, go_whole

_RFC3339 = "2006-01-02T15:04:05Z07:00"
_RFC3339_MICRO = "2006-01-02T15:04:05.000000Z07:00"
_INT_BITS = {"int32": 32, "int64": 64, "int": 64, "int16": 16, "int8": 8, "uint8": 8, "uint16": 16, "uint32": 32, "uint64": 64}
#: Length of the longest reasonable time; longer texts are not cached.
_SHORT_TIME = 40
_ALPHABET = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")


class JsonNumber(float):
    """A JSON number with a fraction or an exponent, which stores its spelling."""

    __slots__ = ("text",)

    text: str

    def __new__(cls, text: str) -> Self:
        made = super().__new__(cls, text)
        made.text = text
        return made


def number_text(value: float) -> str:
    """Return a number as it was written in the request."""
    return value.text if isinstance(value, JsonNumber) else json.dumps(value)


def plain(value: Any) -> Any:
    """Return JSON with its ``JsonNumber`` numbers replaced by floats, which encoders know; the same object if it has none."""
    if isinstance(value, JsonNumber):
        return float(value)
    if isinstance(value, dict):
        changed = {key: new for key, one in value.items() if (new := plain(one)) is not one}
        return {**value, **changed} if changed else value
    if isinstance(value, list):
        items = [plain(one) for one in value]
        return items if any(new is not one for new, one in zip(items, value, strict=True)) else value
    return value


def whole(value: Any) -> Any:
    """Return JSON as after a Go decode and encode: ``plain``, with floats that fit int64 as integers and sorted keys."""
    if isinstance(value, float):
        found = go_whole(float(value))
        return found if isinstance(found, int) and fits_int64(found) else float(value)
    if isinstance(value, dict):
        return {key: whole(value[key]) for key in sorted(value)}
    return [whole(one) for one in value] if isinstance(value, list) else value


def fits(value: Any, kind: str) -> bool:
    """Return whether ``value`` is a number that fits Go's ``kind`` without loss."""
    bits = _INT_BITS[kind]
    if type(value) is not int:
        return False
    return 0 <= value < 1 << bits if kind.startswith("u") else -(1 << bits - 1) <= value < 1 << bits - 1


def cut(value: int, kind: str) -> int:
    """Convert ``value`` to Go's ``kind`` as the language does: the low bits remain."""
    bits = _INT_BITS[kind]
    low = value & (1 << bits) - 1
    return low - (1 << bits) if not kind.startswith("u") and low >> bits - 1 else low


def is_integer(kind: str) -> bool:
    return kind in _INT_BITS


def decode_base64(text: str) -> str:
    """Return base64 text as Go writes it after decoding it: without line breaks.

    Raises:
        DecodeError: The text is not base64; gives the offset that Go reports.
    """
    try:
        return base64.b64encode(base64.b64decode(text, validate=True)).decode()
    except (binascii.Error, ValueError):
        plain = text.replace("\r", "").replace("\n", "")
        fault = _base64_fault(text)
        if fault is None:
            return base64.b64encode(base64.b64decode(plain)).decode()
        raise DecodeError(f"illegal base64 data at input byte {fault}") from None


def _base64_fault(text: str) -> int | None:
    """Return the offset of the first fault by the rules of Go's encoding/base64 (StdEncoding), None if there is none."""
    at, size = 0, len(text)
    while True:
        digits = 0
        while digits < 4:
            if at == size:
                return None if digits == 0 else at - digits
            char = text[at]
            at += 1
            if char in "\r\n":
                continue
            if char in _ALPHABET:
                digits += 1
                continue
            if char != "=" or digits < 2:
                return at - 1
            return _padding_fault(text, at, digits)


def _padding_fault(text: str, at: int, digits: int) -> int | None:
    size = len(text)
    if digits == 2:
        while at < size and text[at] in "\r\n":
            at += 1
        if at == size:
            return size
        if text[at] != "=":
            return at - 1
        at += 1
    while at < size and text[at] in "\r\n":
        at += 1
    return at if at < size else None


class _TimeFault(Exception):
    def __init__(self, rest: str, element: str, message: str = "") -> None:
        super().__init__(rest)
        self.rest, self.element, self.message = rest, element, message


def _quoted(text: str) -> str:
    """Quote as Go's time package does in its errors: byte by byte, ASCII only."""
    shown = [chr(byte) if 0x20 <= byte < 0x80 else f"\\x{byte:02x}" for byte in text.encode()]
    return '"' + "".join(f"\\{each}" if each in ('"', "\\") else each for each in shown) + '"'


def _take(rest: str, pattern: str, element: str) -> tuple[str, str]:
    match = re.match(pattern, rest, re.ASCII)
    if match is None:
        raise _TimeFault(rest, element)
    return match.group(), rest[match.end() :]


def _ranged(text: str, low: int, high: int, component: str) -> int:
    value = int(text)
    if not low <= value <= high:
        raise _TimeFault("", "", f": {component} out of range")
    return value


def _go_time(text: str, micro: bool) -> datetime.datetime:
    """Parse a time as Go's ``time.Parse`` does with the layout RFC 3339; ``micro`` requires a fraction of six digits.

    Raises:
        _TimeFault: The text does not have the layout.
    """
    year, rest = _take(text, r"\d{4}", "2006")
    _, rest = _take(rest, "-", "-")
    month_text, rest = _take(rest, r"\d{2}", "01")
    month = _ranged(month_text, 1, 12, "month")
    _, rest = _take(rest, "-", "-")
    day_text, rest = _take(rest, r"\d{2}", "02")
    _, rest = _take(rest, "T", "T")
    hour_text, rest = _take(rest, r"\d{2}", "15")
    hour = _ranged(hour_text, 0, 23, "hour")
    _, rest = _take(rest, ":", ":")
    minute_text, rest = _take(rest, r"\d{2}", "04")
    minute = _ranged(minute_text, 0, 59, "minute")
    _, rest = _take(rest, ":", ":")
    second_text, rest = _take(rest, r"\d{2}", "05")
    second = _ranged(second_text, 0, 59, "second")
    fraction = ""
    if micro:
        fraction, rest = _take(rest, r"[.,]\d{6}", ".000000")
    elif re.match(r"[.,]\d", rest):
        fraction, rest = _take(rest, r"[.,]\d+", "")
    zone, rest = _take(rest, r"Z|[+-]\d{2}:\d{2}", "Z07:00")
    if zone != "Z":
        # Some texts have offsets of 24 hours or 60 minutes, which Go accepts.
        _ranged(zone[1:3], 0, 24, "time zone offset hour")
        _ranged(zone[4:6], 0, 60, "time zone offset minute")
    if rest:
        raise _TimeFault("", "", f": extra text: {_quoted(rest)}")
    try:
        when = datetime.datetime(int(year), month, int(day_text), hour, minute, second, int(fraction[1:7].ljust(6, "0") or 0), datetime.UTC)
    except ValueError:
        raise _TimeFault("", "", ": day out of range") from None
    if zone != "Z":
        offset = datetime.timedelta(hours=int(zone[1:3]), minutes=int(zone[4:6]))
        when = when - offset if zone[0] == "+" else when + offset
    return when


def decode_time(text: str, micro: bool) -> str:
    """Return a Time (seconds) or MicroTime in UTC as Kubernetes writes it.

    Raises:
        DecodeError: The text is not RFC 3339; the message is Go's.
    """
    return _remembered_time(text, micro) if len(text) <= _SHORT_TIME else _decode_time(text, micro)


@lru_cache(maxsize=2048)
def _remembered_time(text: str, micro: bool) -> str:
    """Decode a time; cached, because an object contains the same few times repeatedly and is decoded again after each change."""
    return _decode_time(text, micro)


def _decode_time(text: str, micro: bool) -> str:
    try:
        when = _go_time(text, micro)
    except _TimeFault as fault:
        layout = _RFC3339_MICRO if micro else _RFC3339
        if fault.message:
            raise DecodeError(f"parsing time {_quoted(text)}{fault.message}") from None
        at, wanted = _quoted(fault.rest), _quoted(fault.element)
        raise DecodeError(f"parsing time {_quoted(text)} as {_quoted(layout)}: cannot parse {at} as {wanted}") from None
    except OverflowError:
        raise DecodeError(f"parsing time {_quoted(text)}: year out of range") from None
    base = f"{when.year:04d}-{when.month:02d}-{when.day:02d}T{when.hour:02d}:{when.minute:02d}:{when.second:02d}"
    return f"{base}.{when.microsecond:06d}Z" if micro else f"{base}Z"
