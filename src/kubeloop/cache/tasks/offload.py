"""Aside: work that would keep the event loop waiting, done in a thread of its own or in slices between other tasks.

Without a running event loop nobody waits, and all of it is done at once.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def in_thread(work: Callable[[], T], done: Callable[[T], None]) -> None:
    """``done`` is called on the event loop with what ``work`` answered in a thread. For work that gives up the interpreter's lock.

    Not guaranteed
        That ``done`` is called: the loop may end first. ``work`` must not raise.
    """
    loop = _loop()
    if loop is None:
        done(work())
        return

    def run() -> None:
        answer = work()
        with suppress(RuntimeError):  # the loop was closed meanwhile: nobody wants the answer any more
            loop.call_soon_threadsafe(done, answer)

    threading.Thread(target=run, name="kubeloop aside").start()


def in_slices(some: Callable[[], bool]) -> None:
    """Call ``some`` until it answers False, other tasks in between. The first call is now."""
    loop = _loop()
    while some():
        if loop is not None:
            loop.call_soon(in_slices, some)
            return


def give_back_memory() -> None:
    """Return what is free of this process's memory to the system, where the C library can (malloc_trim(3)). Takes some milliseconds."""
    import ctypes

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)


def _loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
