"""The programs that the demo runs beside kubectl: the server, the operator and a port-forward; and the daemons' processes."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import shutil
import signal
import sys
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path

PROJECT = Path(__file__).parents[2]
#: Lines of output that the report of a failure shows.
_SHOWN = 15
_STOP_SECONDS = 30.0
#: Loaded before programs are started: the function that calls it runs between fork and exec.
_LIBC = ctypes.CDLL(None) if sys.platform == "linux" else None
_PR_SET_PDEATHSIG = 1


class ProgramFailed(Exception):
    """A program did not start, or did not end as it should. The text has its last lines."""


class Program:
    """A program in a separate process, from ``start`` to ``stop``. Its standard output and error are one stream of lines.

    Args:
        title: Its name in messages.
        command: Path of the program, and its arguments.
        ready: Text in the line that it prints when it is ready.
        show: Called with each line that has one of ``shown``.
        shown: Texts of lines to show.
        environment: Variables besides those of this process.
        statuses: Exit statuses of a program that SIGTERM ends. -15: it has no handler, such as kubectl port-forward.

    Example:
        >>> server = Program("server", python("kubeloop", "server"), ready="ready ", show=print)
        >>> await server.start()
    """

    def __init__(
        self,
        title: str,
        command: Sequence[str],
        *,
        ready: str,
        show: Callable[[str], None],
        shown: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        statuses: Collection[int] = (0, -15),
    ) -> None:
        self.title = title
        self._statuses = statuses
        self.lines: deque[str] = deque(maxlen=10_000)
        self._command = command
        self._ready = ready
        self._show = show
        self._shown = shown
        self._environment = environment or {}
        self._process: asyncio.subprocess.Process | None = None
        self._reading: asyncio.Task[None] | None = None
        self._first_line: asyncio.Future[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    async def start(self, timeout: float = 60.0) -> str:
        """Start it, wait until it is ready, and return the line that says so.

        Raises:
            ProgramFailed: It ended, or was not ready in ``timeout`` seconds.
        """
        self._first_line = asyncio.get_running_loop().create_future()
        self._process = await asyncio.create_subprocess_exec(
            *self._command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=PROJECT,
            env={**os.environ, **self._environment},
            # Ctrl-C in a terminal goes to all processes of its group: the demo itself ends its programs, in order.
            start_new_session=True,
            preexec_fn=_end_with_parent if _LIBC is not None else None,
        )
        self._reading = asyncio.create_task(self._read(), name=f"output of {self.title}")
        await asyncio.wait((self._reading, self._first_line), timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        if self._first_line.done():
            return self._first_line.result()
        raise ProgramFailed(f"the {self.title} did not become ready; its last lines are:\n{self.last_lines()}")

    def last_lines(self) -> str:
        return "\n".join(list(self.lines)[-_SHOWN:])

    async def stop(self) -> None:
        """End it with SIGTERM, and with SIGKILL if it does not end. It does nothing if the program was not started, or has ended.

        Raises:
            ProgramFailed: It was killed, or its exit status is not that of a program that was asked to end.
        """
        process, self._process = self._process, None
        if process is None:
            return
        try:
            with contextlib.suppress(ProcessLookupError):
                process.terminate()
            async with asyncio.timeout(_STOP_SECONDS):
                status = await process.wait()
        except TimeoutError:
            raise ProgramFailed(f"the {self.title} did not end within {_STOP_SECONDS:g} s of SIGTERM") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            if self._reading is not None:
                self._reading.cancel()
        if status not in self._statuses:
            raise ProgramFailed(f"the {self.title} ended with status {status}; its last lines are:\n{self.last_lines()}")

    async def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        assert self._first_line is not None
        async for raw in self._process.stdout:
            line = raw.decode(errors="replace").rstrip()
            self.lines.append(line)
            if self._ready in line and not self._first_line.done():
                self._first_line.set_result(line)
            if any(text in line for text in self._shown):
                self._show(f"  {self.title}: {line}")


def _end_with_parent() -> None:
    """Let the kernel send SIGTERM to this process when its parent ends, also by SIGKILL (prctl(2))."""
    assert _LIBC is not None
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


def python(*words: str) -> list[str]:
    """Return the command that runs a module of this project: its name, and its arguments."""
    return [sys.executable, "-m", *words]


def kubectl_path() -> str:
    """Return the path of kubectl: the one beside this Python, else that of ``PATH``."""
    places = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    return shutil.which("kubectl", path=places) or "kubectl"


def daemons_of(server: int) -> set[int]:
    """Return the process ids of the bitcoin daemons that run below the process ``server``."""
    processes = dict(_processes())
    return {pid for pid, (_, program) in processes.items() if program == "bitcoind" and server in _ancestors(pid, processes)}


def _ancestors(pid: int, processes: Mapping[int, tuple[int, str]]) -> Iterator[int]:
    while pid in processes:
        pid, _ = processes[pid]
        yield pid


def _processes() -> Iterator[tuple[int, tuple[int, str]]]:
    """Yield the id of each process with its parent and the name of its program. A process that has ended has no name."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                stat, words = (folder / "stat").read_text(), (folder / "cmdline").read_bytes()
            except OSError:
                continue  # the process has ended
            # The name in stat is that of a thread, which bitcoind changes; it may contain parentheses (proc_pid_stat(5)).
            parent = int(stat.rpartition(")")[2].split()[1])
            yield int(folder.name), (parent, os.fsdecode(words.partition(b"\0")[0]).rpartition("/")[2])
