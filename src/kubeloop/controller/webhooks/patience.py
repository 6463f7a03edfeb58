"""Waits for an API server that is not there yet, as a start beside it wants it; what will not pass is an error at once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from kubeloop.meta import ApiError, KubeloopError, TransportError, UntrustedCertificate
from kubeloop.timing import Backoff, Clock
from kubeloop.transport import logger_with_context

log = logger_with_context("kubeloop.controller.webhooks")

T = TypeVar("T")

#: Seconds between two tries, at first and at most.
_FIRST: Final = 1.0
_MOST: Final = 10.0


async def waited_for(what: str, attempt: Callable[[], Awaitable[T]], clock: Clock, seconds: float) -> T:
    """What ``attempt`` returns, tried again while the API server cannot be reached or is busy (429, 5xx); each time is logged.

    Raises:
        KubeloopError: what it raised last, after ``seconds``; at once what does not pass, such as a refusal.
    """
    end = clock.now() + seconds
    backoff = Backoff(_FIRST, cap=_MOST, clock=clock)
    while True:
        try:
            return await attempt()
        except (TransportError, ApiError) as error:
            pause = backoff.next()
            if not _passes(error) or clock.now() + pause > end:
                raise
            log.warning("%s: %s; tried again in %.1f s", what, error, pause)
        await clock.sleep(pause)


def _passes(error: KubeloopError) -> bool:
    if isinstance(error, ApiError):
        code = error.status.code or type(error).code or 0
        return code == 429 or code >= 500
    return not isinstance(error, UntrustedCertificate)
