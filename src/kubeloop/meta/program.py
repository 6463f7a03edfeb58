"""``run``: runs an asyncio program and prints a short message, not a traceback, for errors of the cluster or its configuration."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TypeVar

from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.failure_log import distinct, user_frame

T = TypeVar("T")

#: Environment variable: if it is set, failures print their whole traceback.
TRACEBACK = "KUBELOOP_TRACEBACK"
#: M_ARENA_MAX of glibc's malloc.h.
_M_ARENA_MAX = -8
#: Python 3.12 starts with 375 frozen objects; a program that freezes its own has thousands.
_FROZEN_BY_PYTHON = 1000
_INTERRUPTED = 128 + signal.SIGINT
_TERMINATED = 128 + signal.SIGTERM


def run(main: Coroutine[Any, Any, T], *, debug: bool | None = None) -> T:
    """Run a program's coroutine as ``asyncio.run`` does, and end the process as command-line programs end.

    ::

        if __name__ == "__main__":
            kubeloop.run(main())

    A ``KubeloopError`` (no kubeconfig, connection refused, Forbidden ...) becomes a message on standard error and exit status 1. Ctrl-C and
    SIGTERM cancel ``main``, wait for its end and exit with 130 and 143; ``Manager.run`` handles both signals itself. Any other exception is
    a fault of the program and passes through with its traceback; nested groups with one error raise that error.

    On Linux all threads of the process then share one pool of memory (``M_ARENA_MAX``), which saves several MiB. The garbage collector
    does not scan the objects that exist before ``main``, which are mostly modules and classes (``gc.freeze``).

    Args:
        main: The coroutine to run, in a new event loop.
        debug: asyncio's debug mode; None: as ``PYTHONASYNCIODEBUG`` and ``-X dev`` set it. In debug mode, with ``KUBELOOP_TRACEBACK=1``,
            and with the logger ``kubeloop`` at DEBUG the whole traceback of a ``KubeloopError`` is printed too.

    Returns:
        The return value of ``main``.

    Raises:
        SystemExit: ``main`` raised a ``KubeloopError`` (status 1), or Ctrl-C (130) or SIGTERM (143) ended the program.
        RuntimeError: An event loop runs already, as in a notebook; there, await ``main()``.
    """
    if _has_loop():
        main.close()
        raise RuntimeError(
            "kubeloop.run starts an event loop, and one runs here already: write await main() instead of kubeloop.run(main())"
        )
    _share_memory_of_threads()
    terminated = False

    def note() -> None:
        nonlocal terminated
        terminated = True

    try:
        with _modules_frozen(), asyncio.Runner(debug=debug) as runner:
            return runner.run(_terminable(main, note))
    except KeyboardInterrupt:
        raise SystemExit(_INTERRUPTED) from None
    except asyncio.CancelledError:
        if not terminated:
            raise
        raise SystemExit(_TERMINATED) from None
    except TypeError as error:
        from kubeloop.meta.construction import explain_from_traceback

        explain_from_traceback(error)
        raise
    except (KubeloopError, BaseExceptionGroup) as error:
        failures = distinct(error)
        if len(failures) == 1 and not isinstance(failures[0], KubeloopError):
            raise failures[0] from failures[0].__cause__
        if _wants_traceback(debug) or not all(isinstance(one, KubeloopError) for one in failures):
            raise
        for text in dict.fromkeys(failure_text(one) for one in failures):
            print(text, file=sys.stderr)
        raise SystemExit(1) from None


def failure_text(error: BaseException) -> str:
    """Return the text for an error that ends a program: its message, and the line of the program where it happened."""
    trace = user_frame(error)
    text = str(error)
    if not text.startswith(type(error).__name__):
        text = f"{type(error).__name__}: {text}"
    text = "\n  ".join([text, *getattr(error, "__notes__", ())])
    if trace is None:
        return f"error: {text}"
    code = trace.tb_frame.f_code
    return f"error: {text}\n  at {_shown(Path(code.co_filename))}:{trace.tb_lineno}, in {code.co_name} ({TRACEBACK}=1 shows the traceback)"


def _shown(path: Path) -> Path:
    """Return the path relative to the current folder if the file is below it."""
    try:
        return path.relative_to(Path.cwd())
    except (ValueError, OSError):
        return path


def _wants_traceback(debug: bool | None) -> bool:
    asked = bool(debug) or bool(os.environ.get(TRACEBACK)) or bool(os.environ.get("PYTHONASYNCIODEBUG")) or sys.flags.dev_mode
    return asked or logging.getLogger("kubeloop").isEnabledFor(logging.DEBUG)


def _share_memory_of_threads() -> None:
    """Let all threads allocate from one pool (mallopt(3), M_ARENA_MAX): memory that one frees serves the others.

    glibc's default is a pool for each thread, up to eight for each processor. With Python's lock threads hardly ever allocate at once.
    """
    import ctypes

    with suppress(OSError, AttributeError):  # another C library
        ctypes.CDLL(None).mallopt(_M_ARENA_MAX, 1)


@contextmanager
def _modules_frozen() -> Iterator[None]:
    """Exempt the present objects from garbage collection within the block: there are 50,000, and few of them ever become garbage."""
    if gc.get_freeze_count() > _FROZEN_BY_PYTHON:  # the program has frozen its objects before, and does not want them back
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def _has_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


async def _terminable(main: Coroutine[Any, Any, T], note: Callable[[], None]) -> T:
    with _cancelled_by_sigterm(note):
        return await main


@contextmanager
def _cancelled_by_sigterm(note: Callable[[], None]) -> Iterator[None]:
    """Let SIGTERM cancel the current task within the block; ``note`` is called first. Only the main thread handles signals."""
    if threading.current_thread() is not threading.main_thread() or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def received(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - what signal handlers are called with
        note()
        loop.call_soon_threadsafe(task.cancel)

    # Not loop.add_signal_handler, which Windows lacks; a manager inside the block restores this handler by signal.signal.
    signal.signal(signal.SIGTERM, received)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
