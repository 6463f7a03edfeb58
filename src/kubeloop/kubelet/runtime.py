"""Runs containers as processes of this machine, through the launcher.

Where the kernel allows it, a container has mount, PID, UTS and IPC namespaces: it sees this machine's files with its volumes at their
mount paths, stores changes of files in memory, and its processes end together. Otherwise it shares this machine's files and processes.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from kubeloop.kubelet.container_process import ContainerProcess, Launcher, ProgramStreams, StartError
from kubeloop.kubelet.streaming import Terminal
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import end_tasks, finish, result_of, wait_all

# Linux only; the module can be imported everywhere, because test tools share parts of this package.
with contextlib.suppress(ImportError):
    import pty

_LOG = logging.getLogger("kubeloop.kubelet")
_LAUNCHER = Path(__file__).with_name("launcher.py")
#: Environment variable that each process of a container inherits, by which a later kubelet finds it.
MARK = "KUBELOOP_CONTAINER"
_ENDS = (OSError, KubeloopError)


class Isolation(Enum):
    """The isolation of containers from each other and from this machine."""

    #: Mount, PID, UTS and IPC namespaces, which only root can create.
    NAMESPACES = "namespaces"
    #: Mount, PID, UTS and IPC namespaces inside a user namespace of the kubelet's user.
    USER_NAMESPACES = "user-namespaces"
    #: No namespaces: containers see the files and processes of the kubelet's user.
    NONE = "none"


@dataclass(frozen=True)
class BindMount:
    """A file or folder of this machine that is mounted at a path of the container."""

    source: Path
    target: str
    readonly: bool = False


@dataclass(frozen=True)
class ProcessSpec:
    """The specification of a program to run.

    ``id`` is the id of the container's run. ``scratch`` is a folder for the mounts of this run. ``tty`` gives the program a terminal.
    ``user``, ``group`` and ``groups`` None are those of the kubelet. ``root`` is the folder of an unpacked image, which stays unchanged;
    None: the container sees this machine's files. ``cgroups`` are files to which the program writes to join its cgroup.
    """

    id: str
    command: Sequence[str]
    environment: Mapping[str, str]
    scratch: Path
    working_directory: str = "/"
    hostname: str = ""
    mounts: Sequence[BindMount] = ()
    readonly_root: bool = False
    user: int | None = None
    group: int | None = None
    groups: Sequence[int] | None = None
    tty: bool = False
    stdin: bool = False
    root: Path | None = None
    cgroups: Sequence[Path] = ()


class ProcessRuntime:
    """Starts programs with one kind of isolation."""

    def __init__(self, isolation: Isolation) -> None:
        self.isolation = isolation

    async def start(self, spec: ProcessSpec, *, join: ContainerProcess | None = None) -> ContainerProcess:
        """Start a program.

        Args:
            spec: The specification of the program.
            join: A running container whose namespaces and files the program shares; None: the program gets its own.

        Returns:
            The running program.

        Raises:
            StartError: The program or the launcher cannot be started.
        """
        streams = _open_streams(spec)
        namespaces = self.isolation is not Isolation.NONE
        tree: dict[str, Any] = {
            "command": list(spec.command),
            "environment": {**spec.environment, MARK: spec.id},
            "cwd": spec.working_directory,
            "streams": streams.program,
            "tty": spec.tty,
            "namespaces": namespaces,
            "user_namespace": self.isolation is Isolation.USER_NAMESPACES and join is None,
            "hostname": spec.hostname,
            "readonly_root": spec.readonly_root,
            "uid": spec.user,
            "gid": spec.group,
            "groups": list(spec.groups) if spec.groups is not None else None,
            "scratch": str(spec.scratch),
            "root": str(spec.root) if spec.root is not None else "",
            "cgroups": [str(path) for path in spec.cgroups],
            "mounts": [{"source": str(one.source), "target": one.target, "readonly": one.readonly} for one in spec.mounts],
        }
        if join is not None and namespaces:
            tree["join"] = join.pid
        if namespaces and join is None:
            spec.scratch.mkdir(parents=True, exist_ok=True)
        starting = asyncio.ensure_future(Launcher.start([sys.executable, "-I", "-S", "-B", str(_LAUNCHER)], sorted(set(streams.program))))
        result: ContainerProcess | None = None
        try:
            try:
                launcher = await result_of(starting)
            finally:
                for number in set(streams.program):
                    os.close(number)
            assert launcher.process.stdin is not None
            result = ContainerProcess(launcher)
            await result.open(streams)
            launcher.process.stdin.write(json.dumps(tree).encode() + b"\n")
            await result.started()
        except BaseException as error:
            await finish(_abandon(starting, result))
            if isinstance(error, OSError):
                raise StartError(f"cannot start the launcher: {error.strerror or error}", missing=False) from None
            raise
        return result

    async def run(self, spec: ProcessSpec, join: ContainerProcess, terminal: Terminal) -> int:
        """Run a command in a container with a client's streams; return its exit code.

        Raises:
            StartError: The command cannot be started.
        """
        process = await self.start(spec, join=join)
        # The size first: the program may ask for it as soon as it has input.
        tasks = [asyncio.ensure_future(follow_sizes(process, terminal)), asyncio.ensure_future(feed(process, terminal))]
        try:
            return (await process.copy_output(terminal.write)).code
        finally:
            await finish(_close(process, tasks))


async def _abandon(starting: asyncio.Future[Launcher], process: ContainerProcess | None) -> None:
    await wait_all(starting)
    if starting.exception() is not None:
        return
    if process is None:
        with contextlib.suppress(ProcessLookupError):
            starting.result().process.kill()
        await starting.result().close()
    else:
        await process.close()


async def _close(process: ContainerProcess, tasks: Sequence[asyncio.Future[Any]]) -> None:
    await end_tasks(*tasks, expected=_ENDS, logger=_LOG)
    await process.close()


def _open_streams(spec: ProcessSpec) -> ProgramStreams:
    result = ProgramStreams()
    if spec.tty:
        leader, follower = pty.openpty()
        result.program = [follower] * 3
        result.outputs = {"stdout": leader}
        result.stdin = os.dup(leader)
        return result
    if spec.stdin:
        source, result.stdin = os.pipe()
    else:
        source = os.open(os.devnull, os.O_RDONLY)
    result.program.append(source)
    for name in ("stdout", "stderr"):
        reader, writer = os.pipe()
        result.outputs[name] = reader
        result.program.append(writer)
    return result


async def feed(process: ContainerProcess, terminal: Terminal) -> None:
    """Copy a client's standard input to a program until it ends, and then close the program's standard input."""
    while data := await terminal.input():
        await process.write(data)
    process.close_stdin()


async def follow_sizes(process: ContainerProcess, terminal: Terminal) -> None:
    """Resize a program's terminal whenever a client sends a new size, until the client sends no more; malformed sizes are ignored."""
    while True:
        message = await terminal.sizes.get()
        if not message:
            return
        with contextlib.suppress(ValueError, TypeError, KeyError):
            size = json.loads(message)
            process.resize(int(size["Width"]), int(size["Height"]))


def detect_isolation(folder: Path) -> Isolation:
    """Return the strongest isolation that the kernel grants to this process.

    The function tries each kind by running the program ``true``, with a subfolder of ``folder`` for mounts.
    """
    for isolation in (Isolation.NAMESPACES, Isolation.USER_NAMESPACES):
        if isolation is Isolation.NAMESPACES and os.geteuid() != 0:
            continue
        scratch = folder / "isolation-check"
        scratch.mkdir(parents=True, exist_ok=True)
        tree = {
            "command": ["true"],
            "environment": {"PATH": os.environ.get("PATH", "/usr/bin:/bin")},
            "streams": [0, 2, 2],
            "namespaces": True,
            "user_namespace": isolation is Isolation.USER_NAMESPACES,
            "scratch": str(scratch),
        }
        command = [sys.executable, "-I", "-S", "-B", str(_LAUNCHER)]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            result = subprocess.run(  # noqa: S603 - this package's own program
                command, input=json.dumps(tree).encode() + b"\n", capture_output=True, timeout=10, check=False
            )
            if b'"started"' in result.stdout:
                return isolation
    return Isolation.NONE


def end_leftovers(prefix: str) -> int:
    """Kill the processes that containers of an earlier kubelet left behind, and return their number.

    Args:
        prefix: The prefix of the containers' ids, which is unique to one node name and kubelet folder.
    """
    mark = f"{MARK}={prefix}".encode()
    killed: set[int] = set()
    for _ in range(10):
        found = 0
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                environment = (entry / "environ").read_bytes()
            except OSError:
                continue
            if any(one.startswith(mark) for one in environment.split(b"\0")):
                with contextlib.suppress(OSError):
                    os.kill(int(entry.name), signal.SIGKILL)
                    found += 1
                    killed.add(int(entry.name))
        if not found:
            break
    return len(killed)
