"""Decides after which outcomes of a request another try follows, and when. No I/O, no clock.

Source: client-go rest/with_retry.go and rest/request.go (request, Stream); behaviours K140 to K144.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeloop.meta.errors import TransportError
from kubeloop.transport.answer import retry_after

MAX_RETRIES = 10
#: Seconds before a read whose connection broke is repeated (client-go's retryAfterResponse).
AFTER_RESET = 1.0


class IncompleteAnswerError(TransportError):
    """The connection ended before the response was complete. It is unknown whether the server executed the request."""


class RetryDecision(msgspec.Struct, frozen=True):
    """Decision for another try, not before ``after`` seconds."""

    after: float
    why: str


def after_answer(status: int, headers: Mapping[str, str]) -> RetryDecision | None:
    """Decide for every method: the server states that it did nothing, and when to retry. Otherwise there is no retry."""
    if status != 429 and status < 500:
        return None
    seconds = retry_after(headers)
    return None if seconds is None else RetryDecision(seconds, f"HTTP status {status}")


def after_failure(error: TransportError, method: str, *, whole: bool, tries: int) -> RetryDecision | None:
    """Decide for reads only: a write may have been executed. A stream (``whole`` False) may have returned data to its caller already.

    The first retry is immediate: most likely the server just closed an idle connection, and then Go's HTTP library repeats by itself.

    Args:
        error: The failure.
        method: The HTTP method.
        whole: Whether the complete response was awaited.
        tries: The number of previous retries.

    Returns:
        The decision; None: do not retry.
    """
    if not whole or method != "GET" or not isinstance(error, IncompleteAnswerError):
        return None
    return RetryDecision(0.0 if tries == 1 else AFTER_RESET, "connection reset")
