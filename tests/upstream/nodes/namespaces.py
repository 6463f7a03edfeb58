"""Private network, mount and PID namespaces for a node: what runs in them, is mounted there or listens there ends with them."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.realserver.building import CannotBuild

_SETUP = Path(__file__).with_name("setup.sh")
_CGROUPS = Path("/sys/fs/cgroup")
#: Of the names of cgroups; the numbers of the program and of the node follow.
_PREFIX = "kubeloop-node-"


@dataclass(frozen=True)
class Namespaces:
    """Namespaces that exist. ``holder`` is their first process, ``home`` the working directory of programs inside."""

    holder: int
    home: Path

    def command(self, *words: str) -> list[str]:
        """Return the command that runs ``words`` inside."""
        return ["nsenter", f"--target={self.holder}", "--net", "--mount", "--pid", f"--wdns={self.home}", *words]


@contextlib.contextmanager
def namespaces(debian: Path, home: Path, address: str, network: Namespaces | None = None) -> Iterator[Namespaces]:
    """Make namespaces, and end everything in them at the exit, also when this program is killed.

    Args:
        debian: Files of Debian packages, which lie over /usr there.
        home: A folder for what they hold in /etc and /var.
        address: IPv4 address of the interface eth0.
        network: Namespaces whose network is shared; eth0 gets the address too.

    Raises:
        CannotBuild: The user is not root, or the kernel refuses.
    """
    if os.geteuid() != 0:
        raise CannotBuild("a real node needs root: it makes namespaces, mounts and cgroups")
    for program in ("unshare", "nsenter", "setpriv", "ip", "gcc", "ldd"):
        if shutil.which(program) is None:
            raise CannotBuild(f"a real node needs {program}; Debian has it in util-linux, iproute2, gcc or libc-bin")
    shared = [] if network is None else ["nsenter", f"--target={network.holder}", "--net"]
    made = [] if shared else ["--net"]
    command = [
        "setpriv", "--pdeathsig=KILL", *shared, "unshare", "--kill-child=KILL", *made, "--mount", "--pid", "--fork", "--mount-proc",
        "--propagation=private", "sh", str(_SETUP), str(debian), str(home), address, "shared" if shared else "own",
    ]  # fmt: skip
    with (home / "setup.log").open("w") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, stdin=subprocess.DEVNULL, text=True, start_new_session=True)
    try:
        assert process.stdout is not None
        if process.stdout.readline() != "ready\n":
            raise CannotBuild(f"the namespaces were not made; see {home / 'setup.log'}")
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text()
        yield Namespaces(int(children.split()[0]), home)
    finally:
        process.send_signal(signal.SIGKILL)  # the kernel ends its child by --kill-child, and with the first process all others
        process.wait()


@contextlib.contextmanager
def cgroup(number: int) -> Iterator[str]:
    """Make a cgroup below which a kubelet makes those of its pods, and remove all of it at the exit. Yields its path.

    The processes in it must have ended by the exit. Cgroups of programs that were killed are removed first.

    Args:
        number: The number of the node.
    """
    name = f"{_PREFIX}{os.getpid()}-{number}"
    folders = [root / name for root in _hierarchies()]
    for root in _hierarchies():
        for folder in root.glob(f"{_PREFIX}*"):
            if not Path("/proc", folder.name.removeprefix(_PREFIX).partition("-")[0]).exists() or folder.name == name:
                _remove(folder)
    for folder in folders:
        folder.mkdir()
        for setting in ("cpuset.cpus", "cpuset.mems"):  # of version 1: empty at first, and then no process may enter
            if folder.parent.name == "cpuset" and (folder.parent / setting).exists():
                (folder / setting).write_text((folder.parent / setting).read_text())
    try:
        yield f"/{name}"
    finally:
        for folder in folders:
            _remove(folder)


def _hierarchies() -> list[Path]:
    """Return the roots of the cgroup hierarchies: one of version 2, or one for each controller of version 1."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return [Path(words[1]) for words in mounts if words[2] in ("cgroup", "cgroup2") and Path(words[1]).is_relative_to(_CGROUPS)]


def _remove(folder: Path) -> None:
    """Remove a cgroup with those below it. Processes that end are in it for a moment; after 10 s the rest is left to the next run."""
    deadline = time.monotonic() + 10
    while folder.is_dir() and time.monotonic() < deadline:
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(OSError):
                Path(path).rmdir()
        time.sleep(0.05)
