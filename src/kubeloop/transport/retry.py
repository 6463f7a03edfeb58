"""Which outcomes of a request are followed by another try, and when. Decides only: no I/O, no clock.

Source: client-go rest/with_retry.go and rest/request.go (request, Stream); behaviours K140 to K144.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kubeloop.meta.errors import TransportError
from kubeloop.transport.answer import retry_after

MAX_RETRIES = 10
#: Seconds before a read whose connection broke is tried again (client-go's retryAfterResponse).
AFTER_RESET = 1.0


class IncompleteAnswerError(TransportError):
    """The connection ended before the answer was complete. Whether the server acted on the request is not known."""


class RetryDecision(msgspec.Struct, frozen=True):
    """Next: another try, not before ``after`` seconds."""

    after: float
    why: str


def after_answer(status: int, headers: Mapping[str, str]) -> RetryDecision | None:
    """For every method alike: the server says that it did nothing, and when to come back. Without that it is not asked again."""
    if status != 429 and status < 500:
        return None
    seconds = retry_after(headers)
    return None if seconds is None else RetryDecision(seconds, f"HTTP status {status}")


def after_failure(error: TransportError, method: str, *, whole: bool, tries: int) -> RetryDecision | None:
    """Reads only: a write may have been carried out. A stream (``whole`` False) may have given its caller something already.

    The first time at once: most likely the server closed an idle connection just then, which Go's HTTP library repeats by itself.
    """
    if not whole or method != "GET" or not isinstance(error, IncompleteAnswerError):
        return None
    return RetryDecision(0.0 if tries == 1 else AFTER_RESET, "connection reset")
