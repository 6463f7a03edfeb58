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
    """A class's own limiter; where that raises, or answers what is no time, the default's pauses hold.

    Each of its methods is named in the log when it fails, with its traceback the first time.
    """

    def __init__(self, limiter: Limiter[ObjectKey], owner: str) -> None:
        self._limiter = limiter
        self._owner = owner
        self._default: ExponentialLimiter[ObjectKey] = ExponentialLimiter()
        self._told: set[str] = set()

    def delay(self, item: ObjectKey) -> float:
        pause = self._default.delay(item)
        try:
            found: object = self._limiter.delay(item)
            if not isinstance(found, int | float) or isinstance(found, bool) or math.isnan(found):
                raise TypeError(f"it gave {described_word(found)}, which is no number of seconds")
        except Exception as error:  # noqa: BLE001  # whatever it is, the key must be tried again
            self._tell("delay", item, error, f"it is tried again in {pause:g} s, as without a limiter of its own")
            return pause
        return found

    def forget(self, item: ObjectKey) -> None:
        self._default.forget(item)
        try:
            self._limiter.forget(item)
        except Exception as error:  # noqa: BLE001  # as above
            self._tell("forget", item, error, "its next failure may wait too long")

    def retries(self, item: ObjectKey) -> int:
        try:
            return int(self._limiter.retries(item))
        except Exception as error:  # noqa: BLE001  # as above
            self._tell("retries", item, error, "the default's count is taken")
            return self._default.retries(item)

    def _tell(self, method: str, key: ObjectKey, error: Exception, what: str) -> None:
        shown = None if method in self._told else error
        self._told.add(method)
        log.error(
            "%s: %s of what retry_limiter gave failed for %s: %s: %s; %s",
            self._owner,
            method,
            key,
            type(error).__name__,
            error,
            what,
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
    told = False

    def whose(key: ObjectKey) -> Hashable:
        nonlocal told
        try:
            found = tenant(key)
            hash(found)
        except Exception as error:  # whatever it is, the key must not be lost
            shown = None if told else error
            log.log(
                logging.ERROR,
                "%s: what tenants() gave failed for %s: %s: %s; such keys take turns as one tenant",
                owner,
                key,
                type(error).__name__,
                error,
                exc_info=shown,
            )
            told = True
            return None
        return found

    return whose
