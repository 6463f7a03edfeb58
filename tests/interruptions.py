"""Cancels or fails a coroutine at its n-th suspension, and checks that nothing is left behind.

A suspension is a moment at which the coroutine gives up the event loop: an await that does not wait is none.
"""

from __future__ import annotations

import asyncio
import enum
import gc
import os
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

#: A bound on the suspensions of one coroutine, so that an endless one fails its test.
_LIMIT = 2000
#: Turns of the loop in which transports close their sockets and cancelled tasks end.
_TURNS = 100
#: Waits of asyncio itself, which can be cancelled and cannot fail.
_CANNOT_FAIL = ("asyncio/tasks.py", "asyncio/locks.py", "asyncio/queues.py", "asyncio/timeouts.py", "kubeloop/timing/")


class Interruption(enum.Enum):
    """How a coroutine is interrupted."""

    CANCEL = "cancelled while it waits"
    CANCEL_LATE = "cancelled when what it waited for has just come"
    FAIL = "what it waits for fails"


class Injected(OSError):
    """The failure that ``Interruption.FAIL`` raises."""


class _Stepper:
    """Awaits a coroutine, and interrupts it at one suspension."""

    def __init__(self, work: Coroutine[Any, Any, Any], at: int, interruption: Interruption) -> None:
        self._work = work
        #: The task that is cancelled; None: the task that awaits the coroutine.
        self.target: asyncio.Task[Any] | None = None
        self._at = at
        self._how = interruption
        self._seen = 0
        #: Where the interruption hit: ``file:line`` of the frames of the coroutine. Empty: the coroutine ended before.
        self.where = ""

    def __await__(self) -> Generator[Any, None, Any]:
        own = asyncio.current_task()
        assert own is not None
        task = self.target or own
        send: Callable[[], Any] = lambda: self._work.send(None)  # noqa: E731 - replaced for each step
        while True:
            try:
                future = send()
            except StopIteration as stop:
                return stop.value
            injected = False
            if not self.where and (self._how is not Interruption.FAIL or _can_fail(self._work)):
                self._seen += 1
                if self._seen == self._at:
                    self.where = " < ".join(reversed(_frames(self._work)))
                    injected = self._interrupt(task, future)
            try:
                yield future
            except BaseException as error:  # noqa: BLE001 - thrown into the coroutine
                thrown = Injected("injected") if injected and not own.cancelling() else error
                send = lambda thrown=thrown: self._work.throw(thrown)  # type: ignore[misc]  # noqa: E731
            else:
                send = lambda: self._work.send(None)  # noqa: E731

    def _interrupt(self, task: asyncio.Task[Any], future: asyncio.Future[Any] | None) -> bool:
        if self._how is Interruption.CANCEL or future is None:
            task.cancel()
            return False
        if self._how is Interruption.CANCEL_LATE:
            # Called before the task's own callback, so that the future has its result and the task gets the cancellation.
            future.add_done_callback(lambda _: task.cancel())
            return False
        future.cancel()
        return True


async def interrupt(work: Coroutine[Any, Any, Any], at: int, interruption: Interruption, inside: tuple[object, str] | None = None) -> str:
    """Run a coroutine in a task, interrupted at its ``at``-th suspension.

    Args:
        work: The coroutine.
        at: 1 is the first suspension.
        how: What happens there.
        inside: An object and the name of an async method of it, whose suspensions count instead of those of ``work``: for work that
            runs it in another task. A cancellation is that of ``work``.

    Returns:
        Where it was interrupted; empty: the coroutine ended before that suspension.

    Raises:
        AssertionError: The coroutine swallowed its cancellation.
        Exception: The coroutine failed although it was not interrupted.
    """
    stepper = _Stepper(work, at, interruption)

    async def run() -> None:
        await stepper

    if inside is None:
        task = asyncio.create_task(run(), name="interrupted")
    else:
        task = asyncio.create_task(work, name="interrupted")
        stepper.target = task
        method = getattr(*inside)

        def stepped(*arguments: Any, **options: Any) -> Coroutine[Any, Any, None]:
            stepper._work = method(*arguments, **options)
            return run()

        setattr(*inside, stepped)
    await asyncio.wait((task,))
    if not stepper.where:
        task.result()
        return ""
    if interruption is not Interruption.FAIL:
        assert task.cancelled(), f"the cancellation at {stepper.where} was swallowed: {task}"
    elif not task.cancelled():
        task.exception()
    return stepper.where


async def each_interruption(interruption: Interruption, attempt: Callable[[int], Awaitable[str]]) -> int:
    """Call ``attempt`` with 1, 2, ... until it returns an empty text, and return how often it was interrupted.

    ``attempt`` makes the object, calls ``interrupt`` and checks that nothing is left.
    """
    # The collections after each attempt need not look at the objects of all modules and tests: in a long run those are millions.
    gc.collect()
    gc.freeze()
    for at in range(1, _LIMIT):
        if not await attempt(at):
            return at - 1
    raise AssertionError(f"more than {_LIMIT} suspensions")


@asynccontextmanager
async def nothing_left() -> AsyncIterator[None]:
    """Check that the block leaves no task, no open file or socket, no thread, and no error that only the loop logs.

    Raises:
        AssertionError: Something is left; the text says what.
    """
    loop = asyncio.get_running_loop()
    reports: list[str] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: reports.append(f"{context.get('message')}: {context.get('exception')!r}"))
    gc.collect()
    tasks, files, threads = asyncio.all_tasks(), _open_files(), set(threading.enumerate())
    try:
        yield
        left: list[str] = []
        for turn in range(_TURNS):
            left = _left(tasks, files, threads)
            if not left:
                break
            await asyncio.sleep(0 if turn < _TURNS // 2 else 0.01)  # the other end of a connection closes its socket later
        gc.collect()
        left += reports
        assert not left, left
    finally:
        loop.set_exception_handler(before)


def _left(tasks: set[asyncio.Task[Any]], files: dict[int, str], threads: set[threading.Thread]) -> list[str]:
    left = [f"task {task.get_name()}: {task.get_coro()}" for task in asyncio.all_tasks() - tasks]
    left += [f"thread {one.name}" for one in set(threading.enumerate()) - threads if not one.name.startswith("asyncio_")]
    return left + [f"file {number}: {name}" for number, name in _open_files().items() if files.get(number) != name]


def _open_files() -> dict[int, str]:
    """Open files and sockets by number; of what cannot be named, the kind."""
    found: dict[int, str] = {}
    for number in (int(path.name) for path in Path("/dev/fd").iterdir()):
        try:
            state = os.fstat(number)
        except OSError:  # the folder's own, which is closed again
            continue
        found[number] = f"{state.st_mode:o} {state.st_dev}:{state.st_ino}"
    return found


def _frames(work: Any) -> list[str]:
    """The suspended frames of a coroutine, the outermost first."""
    found = []
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None) or getattr(work, "ag_frame", None)
        if frame is not None:
            found.append(f"{'/'.join(frame.f_code.co_filename.split('/')[-2:])}:{frame.f_lineno}")
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None) or getattr(work, "ag_await", None)
    return found


def _can_fail(work: Any) -> bool:
    innermost = ""
    while work is not None:
        frame = getattr(work, "cr_frame", None) or getattr(work, "gi_frame", None) or getattr(work, "ag_frame", None)
        innermost = frame.f_code.co_filename if frame is not None else innermost
        work = getattr(work, "cr_await", None) or getattr(work, "gi_yieldfrom", None) or getattr(work, "ag_await", None)
    return not any(name in innermost for name in _CANNOT_FAIL)
