"""Runs the tapped command: with this terminal, with its signals, until it ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from kubeloop.meta.errors import ConfigError, KubeloopError
from kubeloop.meta.signals import on_signal
from kubeloop.tasks import finish

#: Signals that a program gets from other programs.
_FORWARDED = ("SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2")
#: Signals that the terminal sends to each process of its foreground group.
_OF_TERMINAL = ("SIGINT", "SIGQUIT")

NOT_EXECUTABLE = 126
NOT_FOUND = 127


class CommandNotRunnable(ConfigError):
    """The command does not exist or is not executable. ``status`` is the exit status that shells use."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


def check_command(command: Sequence[str], path: str | None = None) -> None:
    """Check that a command exists. ``path`` is its PATH; None: that of this process.

    Raises:
        CommandNotRunnable: It does not exist, or is not executable.
    """
    name = command[0]
    if shutil.which(name, path=path) is not None:
        return
    if "/" in name and os.path.exists(name):  # noqa: PTH110 - the text of a command
        raise CommandNotRunnable(f"{name}: not an executable file", NOT_EXECUTABLE)
    raise CommandNotRunnable(f"{name}: command not found", NOT_FOUND)


class Interrupted(KubeloopError):
    """A signal ended the tap before its command started. ``status`` is the exit status."""

    def __init__(self, number: int) -> None:
        super().__init__(f"ended by signal {number}")
        self.status = 128 + number


class CommandSignals:
    """Forwards this process's signals to the command. Before the command runs, they end the block with ``Interrupted``.

    >>> with CommandSignals() as signals:
    ...     status = await run_command(["true"], os.environ, signals)
    """

    def __init__(self) -> None:
        self.process: asyncio.subprocess.Process | None = None
        self._task = asyncio.current_task()
        self._received = 0
        self._undo: list[Callable[[], None]] = []

    def __enter__(self) -> Self:
        for name in (*_FORWARDED, *_OF_TERMINAL):
            number = getattr(signal, name, None)
            if number is not None:
                with contextlib.suppress(ValueError, RuntimeError):  # not in the main thread
                    self._undo.append(on_signal(number, partial(self._receive, number, from_terminal=name in _OF_TERMINAL)))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for undo in self._undo:
            undo()
        if self._received and kind is not None and issubclass(kind, asyncio.CancelledError):
            if self._task is not None:
                self._task.uncancel()
            raise Interrupted(self._received) from None

    def _receive(self, number: int, *, from_terminal: bool) -> None:
        if self.process is None:
            if self._task is not None and not self._received:
                self._received = number
                self._task.cancel()
        elif self.process.returncode is None and not (from_terminal and _is_in_foreground()):
            # In a terminal's foreground group the command has got the signal already; a second one ends many programs at once.
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)


async def run_command(command: Sequence[str], environment: Mapping[str, str], signals: CommandSignals) -> int:
    """Run a command with this process's standard input, output and error.

    If the caller is cancelled, the command is terminated first.

    Args:
        command: The program and its arguments.
        environment: Its environment.
        signals: Forwards signals to it from now on.

    Returns:
        Its exit status; 128 and the number of the signal if a signal ended it.

    Raises:
        CommandNotRunnable: It cannot be started.
    """
    try:
        process = await asyncio.create_subprocess_exec(*command, env=dict(environment))
    except OSError as error:
        raise CommandNotRunnable(f"{command[0]}: {error.strerror}", NOT_EXECUTABLE) from None
    signals.process = process
    try:
        status = await process.wait()
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await finish(process.wait())
        raise
    return status if status >= 0 else 128 - status


def _is_in_foreground() -> bool:
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)
