"""Shortens tracebacks to the frames of users' code, without kubeloop and asyncio; extracts the errors of exception groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from kubeloop.meta.errors import KubeloopError

_STANDARD_LIBRARY = f"{Path(os.__file__).parent}{os.sep}"
#: Folders within the standard library that contain installed packages.
_PACKAGES = tuple(f"{_STANDARD_LIBRARY}{name}{os.sep}" for name in ("site-packages", "dist-packages"))


def is_internal(trace: TracebackType) -> bool:
    """Whether the frame belongs to kubeloop or to Python's standard library, such as asyncio."""
    if str(trace.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "kubeloop":
        return True
    file = trace.tb_frame.f_code.co_filename
    return file.startswith("<frozen") or (file.startswith(_STANDARD_LIBRARY) and not file.startswith(_PACKAGES))


def from_user_code(trace: TracebackType | None) -> TracebackType | None:
    """Remove the internal frames above the first frame of the user's code; unchanged without such frames."""
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

    An error that passed through no user frame below has no traceback then; its text says what happened.
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
    """Return the errors of a group and of groups within it, each object once; an error that is not a group gives itself."""
    return list({id(leaf): leaf for leaf in _leaves(error)}.values())


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error
