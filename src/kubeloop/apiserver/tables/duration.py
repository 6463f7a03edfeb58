"""Durations as people read them: two or three figures, as kubectl shows ages. Source: apimachinery util/duration HumanDuration."""

from __future__ import annotations

from kubeloop.meta.time import parse_time


def human_duration(seconds: float) -> str:
    """``85s``, ``3m10s``, ``5h2m``, ``4d3h``, ``2y100d``; a clock up to two seconds ahead is let pass, more is ``<invalid>``."""
    whole = int(seconds)
    if whole < -1:
        return "<invalid>"
    if whole < 120:
        return f"{max(whole, 0)}s"
    minutes, hours = whole // 60, whole // 3600
    days = hours // 24
    if minutes < 10:
        return _two(minutes, "m", whole % 60, "s")
    if minutes < 180:
        return f"{minutes}m"
    if hours < 8:
        return _two(hours, "h", minutes % 60, "m")
    if hours < 48:
        return f"{hours}h"
    if days < 8:
        return _two(days, "d", hours % 24, "h")
    if days < 365 * 2:
        return f"{days}d"
    if days < 365 * 8:
        return _two(days // 365, "y", days % 365, "d")
    return f"{days // 365}y"


def _two(large: int, large_unit: str, small: int, small_unit: str) -> str:
    return f"{large}{large_unit}" + (f"{small}{small_unit}" if small else "")


def age(timestamp: str | None, now: float, *, invalid: str = "<unknown>") -> str:
    """Time since ``timestamp`` (RFC 3339) at ``now`` (seconds since the epoch); ``<unknown>`` without one, ``invalid`` for another text."""
    if not timestamp:
        return "<unknown>"
    try:
        return human_duration(now - parse_time(timestamp).timestamp())
    except ValueError:
        return invalid


def between(start: str, end: str) -> str:
    """Time from one timestamp to another."""
    return human_duration(parse_time(end).timestamp() - parse_time(start).timestamp())
