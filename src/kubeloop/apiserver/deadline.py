"""How long a request may take: --request-timeout, or less where it says so itself (``?timeout=5s``).

Source: k8s.io/apiserver pkg/endpoints/filters/request_deadline.go, pkg/server/filters/timeout.go; Go's time.ParseDuration.
"""

from __future__ import annotations

import re

import msgspec

from kubeloop.apiserver import refusals
from kubeloop.apiserver.answers import Answer
from kubeloop.meta.go_quote import go_quoted
from kubeloop.serving.request import Request

_AMOUNT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([^\d.]*)")
_SECONDS = {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}

# Written before anything is negotiated, and without kind and version, as upstream does.
_TIMED_OUT = msgspec.json.encode(
    {
        "metadata": {},
        "status": "Failure",
        "message": "Timeout: request did not complete within the allotted timeout",
        "reason": "Timeout",
        "details": {},
        "code": 504,
    }
)


def allotted(request: Request, most: float) -> float:
    """Seconds. What is longer than ``most``, or nothing, or less, is ``most``.

    Raises:
        BadRequest: the parameter is no duration.
    """
    asked = request.parameter("timeout")
    if not asked:
        return most
    try:
        seconds = parse_duration(asked)
    except ValueError as fault:
        raise refusals.bad_request(f"invalid timeout specified in the request URL - {fault}") from None
    return seconds if 0 < seconds < most else most


def timed_out() -> Answer:
    """504."""
    return Answer(504, body=_TIMED_OUT + b"\n", content_type="text/plain; charset=utf-8", verbatim=True)


def parse_duration(text: str) -> float:
    """Seconds of a duration in Go's words (``1h2m3.5s``).

    Raises:
        ValueError: in the words of Go.
    """
    rest = text[1:] if text[:1] in ("+", "-") else text
    if rest == "0":
        return 0.0
    total, at = 0.0, 0
    while at < len(rest) or not at:
        found = _AMOUNT.match(rest, at)
        if not found:
            raise ValueError(f"time: invalid duration {go_quoted(text)}")
        amount, unit = found.groups()
        if not unit:
            raise ValueError(f"time: missing unit in duration {go_quoted(text)}")
        if unit not in _SECONDS:
            raise ValueError(f"time: unknown unit {go_quoted(unit)} in duration {go_quoted(text)}")
        total, at = total + float(amount) * _SECONDS[unit], found.end()
    return -total if text.startswith("-") else total
