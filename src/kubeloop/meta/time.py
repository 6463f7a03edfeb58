"""Times on the wire: Time (whole seconds) and MicroTime (exactly six digits), both aware datetimes in Python.

Source: k8s.io/apimachinery pkg/apis/meta/v1/time.go and micro_time.go (RFC 3339; the server refuses a MicroTime with fewer digits).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, TypeAlias

import msgspec

Time: TypeAlias = datetime
"""An aware datetime; the server stores whole seconds of it."""

MicroTime: TypeAlias = Annotated[datetime, msgspec.Meta(extra={"kubernetes": "MicroTime"})]
"""An aware datetime with six digits of a second on the wire, as in leases and events."""


def parse_time(text: str) -> datetime:
    """Parse an RFC 3339 time of any precision (digits beyond a microsecond are rounded).

    Raises:
        ValueError: The text is not RFC 3339, or has no offset.
    """
    try:
        moment = msgspec.convert(text, datetime)
    except msgspec.ValidationError:
        given: object = text
        shown = f'"{given}"' if isinstance(given, str) else f"a {type(given).__name__}"
        raise ValueError(f"{shown} is not an RFC 3339 time such as 2006-01-02T15:04:05Z") from None
    if moment.tzinfo is None:
        raise ValueError(f'"{text}" has no offset; write it as UTC with a "Z" at the end')
    return moment


def format_time(moment: datetime) -> str:
    """Format as a Time: UTC, whole seconds (the rest is truncated, as upstream does).

    Raises:
        ValueError: The datetime is naive; its offset is unknown.
    """
    return _utc(moment).strftime("%Y-%m-%dT%H:%M:%SZ") if moment.year >= 1000 else _utc(moment).isoformat(timespec="seconds")[:19] + "Z"


def format_micro_time(moment: datetime) -> str:
    """Format as a MicroTime: UTC, exactly six digits.

    Raises:
        ValueError: The datetime is naive; its offset is unknown.
    """
    return _utc(moment).isoformat(timespec="microseconds")[:26] + "Z"


def _utc(moment: datetime) -> datetime:
    if moment.tzinfo is None:
        raise ValueError(f"{moment!r} is naive; pass an aware datetime such as datetime.now(UTC)")
    return moment.astimezone(UTC)
