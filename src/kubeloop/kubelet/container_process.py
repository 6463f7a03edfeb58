"""The process of a container, which the launcher started: its streams, signals and exit."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import select
import signal
import struct
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks, result_of

# Linux only; the module can be imported everywhere, because test tools share parts of this package.
with contextlib.suppress(ImportError):
    import fcntl
    import termios

_LOG = logging.getLogger("kubeloop.kubelet")
#: Seconds for the pipes of an ended container to close. Processes that a program leaves behind may hold them open.
_DRAIN = 2.0
_ENDS = (OSError, KubeloopError)


class StartError(Exception):
    """A container's process was not started. ``missing`` says that its program or working directory does not exist."""

    def __init__(self, message: str, *, missing: bool) -> None:
        super().__init__(message)
        self.missing = missing


@dataclass(frozen=True)
class ProcessExit:
    """How a process ended: ``code`` is its exit code, or 128 plus the number of the ``signal`` that killed it."""

    code: int
    signal: int = 0


@dataclass
class ProgramStreams:
    """File descriptors of a program's streams: the kubelet's ends by stream, and in ``program`` the ends of the program itself.

    The kubelet closes its copies of the program's ends when the program has started.
    """

    program: list[int] = field(default_factory=list)
    stdin: int | None = None
    outputs: dict[str, int] = field(default_factory=dict)


class _FlowControl(asyncio.BaseProtocol):
    """Sets ``writable`` while a program's standard input accepts more data."""

    def __init__(self) -> None:
        self.writable = asyncio.Event()
        self.writable.set()

    def pause_writing(self) -> None:
        self.writable.clear()

    def resume_writing(self) -> None:
        self.writable.set()

    def connection_lost(self, _: Exception | None) -> None:
        self.writable.set()


class _Output(asyncio.StreamReader):
    """The output of a program. It treats the EIO of a closing terminal as end of file, so that buffered output can still be read."""

    def set_exception(self, exc: Exception) -> None:
        if isinstance(exc, OSError):
            self.feed_eof()
        else:
            super().set_exception(exc)


#: Receives the name of an output ("stdout" or "stderr") and its next bytes.
OutputWriter = Callable[[str, bytes], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Launcher:
    """The launcher's process, which starts and supervises a program, and its transport, which asyncio's ``Process`` does not expose."""

    process: asyncio.subprocess.Process
    transport: asyncio.SubprocessTransport

    @classmethod
    async def start(cls, command: Sequence[str], pass_fds: Sequence[int]) -> Launcher:
        """Start the launcher's process with pipes as its standard streams and an empty environment."""
        loop = asyncio.get_running_loop()
        transport, protocol = await loop.subprocess_exec(
            lambda: asyncio.subprocess.SubprocessStreamProtocol(limit=1 << 20, loop=loop),
            *command,
            pass_fds=pass_fds,
            cwd="/",
            env={},
            start_new_session=True,
        )
        return cls(asyncio.subprocess.Process(transport, protocol, loop), transport)

    async def close(self) -> None:
        """Wait for the end of the process, kill it after two seconds, and close its pipes, of which leftover processes may hold an end."""
        # Before Python 3.13.1 wait() returns when the pipes are closed, since then when the process has ended (CPython issue 119710).
        ended = asyncio.ensure_future(self.process.wait())
        await asyncio.wait((ended,), timeout=_DRAIN)
        self.transport.close()
        await ended
        await asyncio.sleep(0)  # The transports of the pipes close in the next turn of the loop.


class ContainerProcess:
    """A program that the launcher started: its streams, signals and exit.

    ``pid`` is the process id of the first process of the container in this machine's PID namespace; 0 until the launcher reports it.
    """

    def __init__(self, launcher: Launcher) -> None:
        self._launcher = launcher
        self._process = launcher.process
        self._ended: asyncio.Future[ProcessExit] = asyncio.get_running_loop().create_future()
        self._started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reports: asyncio.Task[None] | None = None
        self.pid = 0
        self._readers: dict[str, asyncio.StreamReader] = {}
        self._transports: list[asyncio.BaseTransport] = []
        self._stdin: asyncio.WriteTransport | None = None
        self._input = _FlowControl()
        self._terminal: int | None = None

    @property
    def launcher_pid(self) -> int:
        return self._process.pid

    async def wait(self) -> ProcessExit:
        """Wait until the program ends, and return how it ended."""
        return await result_of(self._ended)

    @property
    def ended(self) -> bool:
        return self._ended.done()

    def signal(self, number: int) -> None:
        """Send a signal to the program, unless it has ended."""
        if not self._ended.done() and self._process.stdin is not None:
            with contextlib.suppress(OSError, RuntimeError):
                self._process.stdin.write(json.dumps({"signal": number}).encode() + b"\n")

    def kill(self) -> None:
        """Kill the program and all processes that it started, by closing the launcher's standard input."""
        if self._process.stdin is not None:
            self._process.stdin.close()

    async def write(self, data: bytes) -> None:
        """Write to the program's standard input, and wait until it accepts more data. A closed input drops the data."""
        if self._stdin is not None and not self._stdin.is_closing():
            self._stdin.write(data)
            await self._input.writable.wait()

    def close_stdin(self) -> None:
        """Close the program's standard input; a terminal stays open and gets the end-of-file character (Ctrl-D)."""
        if self._stdin is None:
            return
        if self._terminal is not None:
            self._stdin.write(b"\x04")
        else:
            self._stdin.close()

    def resize(self, width: int, height: int) -> None:
        """Set the size of the program's terminal."""
        if self._terminal is not None:
            with contextlib.suppress(OSError):
                fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def copy_output(self, write: OutputWriter) -> ProcessExit:
        """Copy all output of the program to ``write`` until the program and its output end; return how the program ended.

        Processes that the program leaves behind may hold its output open: copying ends when they write nothing for two seconds.
        """
        passed, writing = 0, 0

        async def copy(name: str, reader: asyncio.StreamReader) -> None:
            nonlocal passed, writing
            while data := await read_output(reader):
                passed, writing = passed + 1, writing + 1
                try:
                    await write(name, data)
                finally:
                    writing -= 1

        copying = [asyncio.ensure_future(copy(name, reader)) for name, reader in self._readers.items()]
        try:
            status = await self.wait()
            open_outputs: set[asyncio.Future[None]] = set(copying)
            while open_outputs:
                before = passed
                _, open_outputs = await asyncio.wait(open_outputs, timeout=_DRAIN)
                # A busy event loop or a slow client may not have read what the program wrote.
                if passed == before and not writing and not self._has_unread_output():
                    break
            return status
        finally:
            await end_tasks(*copying, expected=_ENDS, logger=_LOG)

    def _has_unread_output(self) -> bool:
        poll = select.poll()
        for transport in self._transports:
            pipe = transport.get_extra_info("pipe")
            if isinstance(transport, asyncio.ReadTransport) and not transport.is_closing() and pipe is not None:
                poll.register(pipe, select.POLLIN)
        return any(event & select.POLLIN for _, event in poll.poll(0))

    async def started(self) -> None:
        """Wait until the program runs.

        Raises:
            StartError: The program cannot be started.
        """
        await result_of(self._started)

    async def open(self, streams: ProgramStreams) -> None:
        """Connect the kubelet's ends of the streams to the event loop."""
        loop = asyncio.get_running_loop()
        for name, number in streams.outputs.items():
            reader = _Output()
            protocol = asyncio.StreamReaderProtocol(reader)
            transport, _ = await loop.connect_read_pipe(partial(_same, protocol), os.fdopen(number, "rb", buffering=0))
            self._readers[name] = reader
            self._transports.append(transport)
            if os.isatty(number):
                self._terminal = number
        if streams.stdin is not None:
            self._stdin, _ = await loop.connect_write_pipe(lambda: self._input, os.fdopen(streams.stdin, "wb", buffering=0))
            self._transports.append(self._stdin)
        self._reports = asyncio.create_task(self._read_reports(), name="container-reports")

    async def _read_reports(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        try:
            while line := await self._process.stdout.readline():
                report = json.loads(line)
                if "init" in report:
                    self.pid = report["init"]
                elif report.get("started") and not self._started.done():
                    self._started.set_result(None)
                elif "error" in report and not self._started.done():
                    self._fail(report["error"], missing=report["missing"])
                elif "exited" in report and not self._ended.done():
                    self._finish(ProcessExit(report["exited"], report["signal"]))
            text = (await self._process.stderr.read()).decode("utf-8", "replace")
            if text:
                _LOG.warning("the launcher of a container failed: %s", text.strip().splitlines()[-1])
            self._fail(f"the launcher ended: {text.strip()[-500:]}", missing=False)
            await self._process.wait()
        finally:
            # Without a report the launcher was killed, and the kernel killed the program with it.
            self._fail("the launcher was killed", missing=False)
            self._finish(ProcessExit(137, signal.SIGKILL))

    def _fail(self, message: str, *, missing: bool) -> None:
        if not self._started.done():
            self._started.set_exception(StartError(message, missing=missing))
            self._started.exception()  # read, so that a start that the caller abandons is not reported by asyncio

    def _finish(self, status: ProcessExit) -> None:
        if not self._ended.done():
            self._ended.set_result(status)

    async def close(self) -> None:
        """Kill the program if it still runs, close its streams, and wait for the end of the launcher."""
        self.kill()
        if self._reports is not None:
            _, late = await asyncio.wait((self._reports,), timeout=_DRAIN)
            if late:
                with contextlib.suppress(ProcessLookupError):
                    self._process.kill()
        await end_tasks(self._reports, expected=_ENDS, logger=_LOG)
        for transport in self._transports:
            transport.close()
        self._transports.clear()
        await self._launcher.close()


async def read_output(reader: asyncio.StreamReader) -> bytes:
    """Return the next bytes of a program's output; empty at the end of the output, or when its terminal has closed."""
    try:
        return await reader.read(1 << 16)
    except OSError:
        return b""


def _same(protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    return protocol
