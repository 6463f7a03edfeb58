"""Retrying: what a controller class says of its keys' pauses and tenants, contained: a mistake there ends no worker and loses no key."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Hashable

from kubeloop.meta import ObjectKey
from kubeloop.meta.type_checks import described_word
from kubeloop.transport import logger_with_context
from kubeloop.workqueue import ExponentialLimiter, Limiter

log = logger_with_context("kubeloop.controller.runner")


class ContainedLimiter:
    """Wraps a class's own limiter: where it raises, or returns no time, the default's pauses apply.

    Each of its methods is named in the log when it fails, with its traceback the first time.
    """

    def __init__(self, limiter: Limiter[ObjectKey], owner: str) -> None:
        self._limiter = limiter
        self._owner = owner
        self._default: ExponentialLimiter[ObjectKey] = ExponentialLimiter()
        self._reported: set[str] = set()

    def delay(self, item: ObjectKey) -> float:
        pause = self._default.delay(item)
        try:
            answer: object = self._limiter.delay(item)
            if not isinstance(answer, int | float) or isinstance(answer, bool) or math.isnan(answer):
                raise TypeError(f"it gave {described_word(answer)}, which is no number of seconds")
        except Exception as error:  # noqa: BLE001  # whatever it is, the key must be tried again
            self._report("delay", item, error, f"it is tried again in {pause:g} s, as with the default limiter")
            return pause
        return answer

    def forget(self, item: ObjectKey) -> None:
        self._default.forget(item)
        try:
            self._limiter.forget(item)
        except Exception as error:  # noqa: BLE001  # as above
            self._report("forget", item, error, "its next failure may wait too long")

    def retries(self, item: ObjectKey) -> int:
        try:
            return int(self._limiter.retries(item))
        except Exception as error:  # noqa: BLE001  # as above
            self._report("retries", item, error, "the default's count is taken")
            return self._default.retries(item)

    def _report(self, method: str, key: ObjectKey, error: Exception, consequence: str) -> None:
        shown = None if method in self._reported else error
        self._reported.add(method)
        log.error(
            "%s: %s of what retry_limiter gave failed for %s: %s: %s; %s",
            self._owner,
            method,
            key,
            type(error).__name__,
            error,
            consequence,
            exc_info=shown,
        )


def contained_limiter(limiter: Limiter[ObjectKey], owner: str) -> Limiter[ObjectKey]:
    """``owner``: the controller's class, for messages. The default's own needs nothing around it."""
    kind: type[object] = type(limiter)
    return limiter if kind is ExponentialLimiter else ContainedLimiter(limiter, owner)


def contained_tenants(tenant: Callable[[ObjectKey], Hashable] | None, owner: str) -> Callable[[ObjectKey], Hashable] | None:
    """Keys of which the function cannot say whose they are take turns as one tenant, None."""
    if tenant is None:
        return None
    reported = False

    def whose(key: ObjectKey) -> Hashable:
        nonlocal reported
        try:
            answer = tenant(key)
            hash(answer)
        except Exception as error:  # whatever it is, the key must not be lost
            shown = None if reported else error
            log.log(
                logging.ERROR,
                "%s: what tenants() gave failed for %s: %s: %s; such keys take turns as one tenant",
                owner,
                key,
                type(error).__name__,
                error,
                exc_info=shown,
            )
            reported = True
            return None
        return answer

    return whose
