"""Logs failures of users' code, with tracebacks that show only the frames of that code."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Hashable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Generic, TypeVar

from kubeloop.meta.errors import ApiError, Forbidden, KubeloopError, refused_access

_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
#: Folders within the standard library that contain installed packages.
_PACKAGES = tuple(f"{_STANDARD_LIBRARY}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_internal(trace: TracebackType) -> bool:
    """Return whether the frame belongs to kubeloop or to Python's standard library, such as asyncio."""
    if str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "kubeloop":
        return True
    file = trace.tb_frame.f_code.co_filename
    return file.startswith("<frozen") or (file.startswith(_STANDARD_LIBRARY) and not file.startswith(_PACKAGES))


def from_user_code(trace: TracebackType | None) -> TracebackType | None:
    """Return the traceback from the first frame of the user's code on, or the whole traceback if it has no such frame."""
    found = trace
    while found is not None and is_internal(found):
        found = found.tb_next
    return found or trace


def user_frame(error: BaseException) -> TracebackType | None:
    """Return the innermost frame of the user's own code that the error passed through."""
    found, trace = None, error.__traceback__
    while trace is not None:
        if not is_internal(trace):
            found = trace
        trace = trace.tb_next
    return found


def shortened(error: KubeloopError) -> KubeloopError:
    """Return the error with only user frames in its traceback, so that callers of a long-running method see their own line.

    If the error passed through no user frame, its traceback is removed; its message describes the failure.
    """
    frames = []
    trace = error.__traceback__
    while trace is not None:
        if not is_internal(trace):
            frames.append(trace)
        trace = trace.tb_next
    below: TracebackType | None = None
    for one in reversed(frames):
        below = TracebackType(below, one.tb_frame, one.tb_lasti, one.tb_lineno)
    return error.with_traceback(below)


def distinct(error: BaseException) -> list[BaseException]:
    """Return the errors of a group and of nested groups, each object once; for another error, the error itself."""
    return list({id(leaf): leaf for leaf in _leaves(error)}.values())


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


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
    """Return the ``exc_info`` to log for an error: its traceback starts at the first frame of the user's code.

    The whole traceback is returned if ``log`` has level DEBUG, or if the error passed through no code of the user.
    """
    trace = error.__traceback__
    return type(error), error, trace if log.isEnabledFor(logging.DEBUG) else from_user_code(trace)


def times(failures: int, *, in_a_row: bool = True) -> str:
    """Return a suffix for log messages, such as ``" (failed 3 times in a row)"``; empty for the first failure."""
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
