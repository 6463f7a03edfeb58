"""Runs one process of the program, and restarts it when its sources change, until a signal ends it."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import msgspec

import kubeloop
from kubeloop.cli.run.options import FAILED, MISUSED, RunOptions
from kubeloop.cli.run.sources import SourceFiles, shown

#: Seconds between two checks of files and process.
_PERIOD = 0.2
#: Seconds beyond the grace period for closing connections and leaving Python.
_EXTRA = 5.0
#: Maximum number of changed files in a message.
_NAMED = 3


class ProcessSupervisor:
    """Runs the program and restarts it when its sources change. With ``sources`` None, it runs the program once.

    After a failure, also for a fault in the sources, the next process starts when they change. Only a command line that is
    wrong from the beginning ends everything.
    """

    def __init__(self, options: RunOptions, sources: SourceFiles | None, say: Callable[[str], None]) -> None:
        self._options = options
        self._sources = sources
        self._say = say
        self._signals: list[int] = []

    def run(self) -> int:
        """Run the program, with restarts, until a signal or its end. Return the exit status: 0 unless the program failed."""
        with self._listening():
            process: _Process | None = _Process(self._options)
            status, first = 0, True
            try:
                while not self._signals:
                    if process is not None and self._sources is not None:
                        self._sources.narrow(process.imports())
                    if process is not None and (ended := process.poll()) is not None:
                        status, process = ended, None
                        if ended == 0 or self._sources is None or (ended == MISUSED and first):
                            return FAILED if ended else 0
                        # The file with the fix may not be imported, or not yet written.
                        self._sources.widen()
                        self._say(f"waiting for a change in {self._sources} (Ctrl-C ends)")
                    if self._sources is not None and (changed := self._sources.changed()):
                        first = False
                        if process is not None:
                            self._end(process)
                            process = None
                        if not self._signals:
                            self._say(f"{_names(changed)} changed, restarting")
                            process = _Process(self._options)
                    time.sleep(_PERIOD)
                if process is not None:
                    if not self._options.live:  # The table shows it.
                        self._say("stopping; once more to end at once")
                    status = self._end(process)
                    process = None
            finally:
                if process is not None:
                    process.kill()
        return 128 + self._signals[0] if len(self._signals) > 1 else FAILED if status else 0

    def _end(self, process: _Process) -> int:
        """End the process gracefully; kill it after a timeout, or at a second signal. Return its exit status."""
        process.terminate()
        until = time.monotonic() + self._options.grace + _EXTRA
        while (status := process.poll()) is None:
            hasty = len(self._signals) > 1  # Also if it arrived before this call.
            if hasty or time.monotonic() > until:
                process.kill()
                self._say("killed" if hasty else f"not ended within {self._options.grace + _EXTRA:g} s, killed; does something block it?")
                return FAILED
            time.sleep(_PERIOD / 4)
        # Until the process handles signals, that is during its imports, the signal itself ends the process.
        return 0 if status == -signal.SIGTERM else status

    @contextlib.contextmanager
    def _listening(self) -> Iterator[None]:
        def received(number: int, _: FrameType | None) -> None:
            self._signals.append(number)

        before = {number: signal.signal(number, received) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


class _Process:
    """One process of the program. It ends by itself if this process dies, because its lifeline, a pipe, is closed then."""

    def __init__(self, options: RunOptions) -> None:
        theirs, self._lifeline = os.pipe()
        self._imports = tempfile.TemporaryFile()  # noqa: SIM115 - open as long as the process
        self._read = 0
        told = msgspec.json.encode(msgspec.structs.replace(options, lifeline=theirs, imports=self._imports.fileno())).decode()
        # The kubeloop of this process, wherever it was imported from.
        package = str(Path(kubeloop.__file__).parent.parent)
        path = os.pathsep.join(filter(None, (os.environ.get("PYTHONPATH", ""), package)))
        # Ctrl-C reaches both; this process handles it. A new process begins with the same signals blocked, until it ignores this one.
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - this very Python, and options made above
                [sys.executable, "-m", "kubeloop.cli.run.program", told],
                pass_fds=(theirs, self._imports.fileno()),
                # Unbuffered output, through a pipe too.
                env={"PYTHONUNBUFFERED": "1", **os.environ, "PYTHONPATH": path},
            )
        except BaseException:
            os.close(self._lifeline)
            self._imports.close()
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
            os.close(theirs)

    def imports(self) -> list[Path]:
        """Return the files of the modules that the program imported since the last call."""
        found = os.pread(self._imports.fileno(), 1 << 24, self._read)
        found = found[: found.rfind(b"\n") + 1]
        self._read += len(found)
        return [Path(os.fsdecode(line)) for line in found.splitlines()]

    def poll(self) -> int | None:
        """Return the exit status of the process, or None while it runs."""
        status = self._process.poll()
        if status is not None:
            self._close()
        return status

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._close()

    def _close(self) -> None:
        if self._lifeline >= 0:
            os.close(self._lifeline)
            self._lifeline = -1
            self._imports.close()


def _names(paths: list[Path]) -> str:
    more = len(paths) - _NAMED
    return ", ".join(shown(path) for path in paths[:_NAMED]) + (f" and {more} more" if more > 0 else "")
