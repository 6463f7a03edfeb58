"""Durations on command lines: seconds, or in the form of Kubernetes' flags (``5m0s``)."""

from __future__ import annotations

import math
import re

import click

_PART = re.compile(r"(\d+(?:\.\d*)?|\.\d+)(h|ms|m|us|µs|ns|s)")
_SECONDS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


class DurationParameter(click.ParamType[float]):
    """Seconds, positive unless ``zero``: ``300``, ``0.5``, ``5m``, ``1h30m``.

    Source: Go's time.ParseDuration, and a number without a unit.
    """

    name = "duration"

    def __init__(self, *, zero: bool = False) -> None:
        self._zero = zero

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = value if isinstance(value, int | float) else seconds(str(value))
        if found is None or not (0 < found < math.inf or (found == 0 and self._zero)):
            self.fail(f"{value!r} is no duration; write seconds, or one like 5m or 1h30m", param, ctx)
        return float(found)


def seconds(text: str) -> float | None:
    """Return the seconds; None if the text is not a duration."""
    if re.fullmatch(r"\d+(\.\d*)?|\.\d+", text):
        return float(text)
    if not re.fullmatch(f"({_PART.pattern})+", text):
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in _PART.findall(text))
