"""Logs failures of users' code (reconciles, handlers, sources): new ones in full, repeated ones in one line with their count."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Hashable
from types import TracebackType
from typing import Generic, TypeVar

from kubeloop.meta.error_hints import refused_access
from kubeloop.meta.errors import ApiError, Forbidden
from kubeloop.meta.tracebacks import from_user_code, user_frame

K = TypeVar("K", bound=Hashable)

#: The type of an error, and the code positions that it came from.
_Origin = tuple[object, ...]
#: The values that ``logging`` accepts as ``exc_info``.
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


class FailureLog(Generic[K]):
    """Decides how much of each failure is logged.

    Guarantees:
        The traceback of an error is logged once for all keys that fail at the same code position, and again if it returns after
        all of them succeeded, or if a key's error changes. At level DEBUG it is logged every time.
        The hint for a missing permission is logged once for each verb and resource.

    Args:
        log: The logger, whose level decides about tracebacks.
        advised: (verb, resource) of the permissions whose hint was logged; shared by the controllers of a manager.
    """

    def __init__(self, log: logging.Logger, advised: set[tuple[str, str]] | None = None) -> None:
        self._log = log
        self._advised = advised if advised is not None else set()
        self._last: dict[K, _Origin] = {}
        self._failing: Counter[_Origin] = Counter()

    def failed(self, key: K, error: BaseException) -> ExcInfo | None:
        """Record a failure of ``key``; return the ``exc_info`` to log."""
        _explain(error)
        origin = _origin(error)
        known = self._failing[origin] > 0
        if self._last.get(key) != origin:
            self.succeeded(key)
            self._last[key] = origin
            self._failing[origin] += 1
        if known and not self._log.isEnabledFor(logging.DEBUG):
            return None
        return user_traceback(self._log, error)

    def succeeded(self, key: K) -> None:
        """Forget the failure of ``key``."""
        if self._last and (origin := self._last.pop(key, None)) is not None:
            self._failing[origin] -= 1
            if not self._failing[origin]:
                del self._failing[origin]

    def text(self, error: BaseException) -> str:
        """Return the error in one line, without a hint that was logged before."""
        _explain(error)
        if isinstance(error, Forbidden) and (access := refused_access(error)) is not None:
            if access in self._advised:
                return error.brief
            self._advised.add(access)
        return str(error)


def user_traceback(log: logging.Logger, error: BaseException) -> ExcInfo:
    """Return the ``exc_info`` to log: the traceback from the first frame of the user's code on; the whole one at level DEBUG, and for an
    error that passed through no code of the user."""
    trace = error.__traceback__
    return type(error), error, trace if log.isEnabledFor(logging.DEBUG) else from_user_code(trace)


def times(failures: int, *, in_a_row: bool = True) -> str:
    """Return ``" (failed 3 times in a row)"``; empty for the first failure."""
    return f" (failed {failures} times{' in a row' if in_a_row else ''})" if failures > 1 else ""


def _explain(error: BaseException) -> None:
    if type(error) is TypeError:
        from kubeloop.meta.construction import explain_from_traceback

        explain_from_traceback(error)


def _origin(error: BaseException) -> _Origin:
    """Return where the error was raised, and the line of the user's code; not all frames, because raising it again adds frames."""
    innermost = error.__traceback__
    while innermost is not None and innermost.tb_next is not None:
        innermost = innermost.tb_next
    reason = error.status.reason if isinstance(error, ApiError) else ""
    return type(error), reason, _place(innermost), _place(user_frame(error))


def _place(trace: TracebackType | None) -> object:
    return (trace.tb_frame.f_code, trace.tb_lineno) if trace is not None else None
