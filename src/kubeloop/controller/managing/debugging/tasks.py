"""All tasks of the event loop with their stacks: what waits for what."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Iterator
from types import FrameType
from typing import Any


def tasks_text() -> str:
    """Each task of this loop: name, state, and from outermost to innermost every coroutine that it awaits."""
    found = sorted(asyncio.all_tasks(), key=lambda task: task.get_name())
    parts = [f"{len(found)} tasks\n"]
    for task in found:
        state = "cancelling" if task.cancelling() else "waiting" if task is not asyncio.current_task() else "running"
        parts.append(f'\ntask "{task.get_name()}" ({state})\n' + "".join(f"  {line}\n" for line in _stack(task.get_coro())))
    return "".join(parts)


def threads_text() -> str:
    """Each thread of the process and its stack."""
    names = {one.ident: one.name for one in threading.enumerate()}
    parts = [f"{len(names)} threads\n"]
    for ident, frame in sys._current_frames().items():
        parts.append(f'\nthread "{names.get(ident, ident)}"\n' + "".join(traceback.format_stack(frame)))
    return "".join(parts)


def _stack(awaited: Any) -> Iterator[str]:
    """asyncio shows of a suspended task its outermost frame only; what it awaits in turn is followed here."""
    while awaited is not None:
        frame: FrameType | None = _first(awaited, "cr_frame", "gi_frame", "ag_frame")
        if frame is not None:
            code = frame.f_code
            yield f"{code.co_filename}:{frame.f_lineno} in {getattr(code, 'co_qualname', code.co_name)}"
            awaited = _first(awaited, "cr_await", "gi_yieldfrom", "ag_await")
        else:
            yield f"waits for {_short(awaited)}"
            return


def _first(awaited: Any, *names: str) -> Any:
    """A coroutine, a generator and an asynchronous generator call the same thing differently."""
    return next((found for name in names if (found := getattr(awaited, name, None)) is not None), None)


def _short(awaited: object) -> str:
    """Its kind, and a task's name; no ``repr``, which may hold what an object holds."""
    if isinstance(awaited, asyncio.Task):
        return f'task "{awaited.get_name()}"'
    return type(awaited).__name__
