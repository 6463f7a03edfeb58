"""Cgroups of containers: CPU and memory limits that the kernel enforces, its reports of killed processes, and the usage of containers.

Each kubelet has a folder ``kubeloop-pods-PREFIX-PID`` with a cgroup for each container: in one hierarchy of cgroups (version 2), or in
several (version 1).

Source: Linux Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst; Kubernetes pkg/kubelet/cm, kuberuntime_container_linux.go.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import subprocess
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kubeloop.kubelet.usage import ProcessUsage
from kubeloop.meta import Quantity
from kubeloop.types import JSONObject

_LOG = logging.getLogger("kubeloop.kubelet")
_FOLDER = "kubeloop-pods-"
#: Microseconds of a period of the CPU quota, and the smallest quota, as upstream.
_PERIOD, _MINIMUM_QUOTA = 100_000, 1000
#: The controllers that a container needs.
_CONTROLLERS = {1: ("memory", "cpu", "cpuacct"), 2: ("memory", "cpu")}
#: Attempts to remove a cgroup whose processes are being killed, 10 ms apart.
_ATTEMPTS = 100


class CgroupsUnavailable(Exception):
    """This process may not create cgroups with limits; the text is the reason."""


@dataclass(frozen=True)
class CgroupLimits:
    """The limits of a container: ``cpus`` as a number of CPUs, ``memory`` in bytes; None is no limit.

    Example:
        >>> CgroupLimits.from_container({"resources": {"limits": {"cpu": "500m", "memory": "1Ki"}}})
        CgroupLimits(cpus=0.5, memory=1024)
    """

    cpus: float | None = None
    memory: int | None = None

    @classmethod
    def from_container(cls, container: JSONObject) -> CgroupLimits:
        """Return the limits in a container's specification. A limit of zero is no limit, as upstream."""
        limits = (container.get("resources") or {}).get("limits") or {}
        cpus, memory = (Quantity(limits[name]) if limits.get(name) else None for name in ("cpu", "memory"))
        return cls(float(cpus) or None if cpus is not None else None, memory.value() or None if memory is not None else None)

    def settings(self, version: int) -> list[tuple[str, str, str]]:
        """Return the files to write for the limits, as controller, name and text. Files of swap do not exist everywhere.

        Args:
            version: The version of the cgroups, 1 or 2.
        """
        result = []
        if self.cpus is not None:
            quota = max(round(self.cpus * _PERIOD), _MINIMUM_QUOTA)
            if version == 1:
                result += [("cpu", "cpu.cfs_period_us", str(_PERIOD)), ("cpu", "cpu.cfs_quota_us", str(quota))]
            else:
                result.append(("cpu", "cpu.max", f"{quota} {_PERIOD}"))
        if self.memory is not None:
            size = str(self.memory)
            if version == 1:
                result += [("memory", "memory.limit_in_bytes", size), ("memory", "memory.memsw.limit_in_bytes", size)]
            else:
                # The whole container ends, as with kubelet's singleProcessOOMKill: false, its default for version 2.
                result += [("memory", "memory.max", size), ("memory", "memory.swap.max", "0"), ("memory", "memory.oom.group", "1")]
        return result


_OPTIONAL = frozenset({"memory.memsw.limit_in_bytes", "memory.swap.max", "memory.oom.group"})


@dataclass(frozen=True)
class Hierarchy:
    """A mounted hierarchy of cgroups: its version, its controllers (version 1), its mount point, and the cgroup of this process."""

    version: int
    controllers: tuple[str, ...]
    mount: Path
    own: Path


def read_hierarchies(mounts: str, cgroups: str) -> list[Hierarchy]:
    """Return the mounted hierarchies of cgroups.

    Args:
        mounts: The text of /proc/self/mountinfo.
        cgroups: The text of /proc/self/cgroup.
    """
    own: dict[tuple[str, ...], str] = {}
    for line in cgroups.splitlines():
        _, listed, path = line.split(":", 2)
        own[tuple(filter(None, listed.split(",")))] = path
    result = []
    for line in mounts.splitlines():
        fields, _, rest = line.partition(" - ")
        kind, _, options = rest.split(" ", 2)
        root, point = fields.split()[3:5]
        for names, path in own.items():
            version = 1 if names else 2
            if kind != ("cgroup" if names else "cgroup2") or not set(names) <= set(options.split(",")):
                continue
            # The mount may show a part of the hierarchy, as in a container.
            inside = PurePosixPath(path).relative_to(root) if PurePosixPath(path).is_relative_to(root) else PurePosixPath()
            result.append(Hierarchy(version, names, Path(point), Path(point) / inside))
    return result


class ContainerCgroup:
    """The cgroup of one container.

    Args:
        version: The version of the cgroups, 1 or 2.
        folders: The folder of the cgroup for each controller.
    """

    def __init__(self, version: int, folders: Mapping[str, Path]) -> None:
        self._version = version
        self._folders = folders

    @property
    def process_files(self) -> list[Path]:
        """The files to which a process writes to join the cgroup."""
        return [folder / "cgroup.procs" for folder in _unique(self._folders.values())]

    def oom_kills(self) -> int:
        """Return how many processes the kernel killed because the container reached its memory limit."""
        name = "memory.oom_control" if self._version == 1 else "memory.events"
        return _fields(_read(self._folders["memory"] / name)).get("oom_kill", 0)

    def usage(self) -> ProcessUsage:
        """Return the CPU time and the working set: memory in use without file pages that the kernel may drop at once."""
        memory = self._folders["memory"]
        stat = _fields(_read(memory / "memory.stat"))
        if self._version == 1:
            seconds = int(_read(self._folders["cpuacct"] / "cpuacct.usage") or 0) / 1e9
            used, inactive = int(_read(memory / "memory.usage_in_bytes") or 0), stat.get("total_inactive_file", 0)
        else:
            seconds = _fields(_read(self._folders["cpu"] / "cpu.stat")).get("usage_usec", 0) / 1e6
            used, inactive = int(_read(memory / "memory.current") or 0), stat.get("inactive_file", 0)
        return ProcessUsage(seconds, max(0, used - inactive))

    def remove(self) -> None:
        """Kill the processes that are left and remove the cgroup. The call blocks for up to a second."""
        for folder in _unique(self._folders.values()):
            remove_tree(folder, kill=True)


class Cgroups:
    """The cgroups of one kubelet. ``open`` finds out where this process may create them.

    Args:
        version: The version of the cgroups, 1 or 2.
        folders: The kubelet's folder for each controller.
    """

    def __init__(self, version: int, folders: Mapping[str, Path]) -> None:
        self.version = version
        self.folders = folders

    @classmethod
    def open(cls, prefix: str, hierarchies: Sequence[Hierarchy] | None = None) -> Cgroups:
        """Create the folders of a kubelet, try them with a process, and remove folders of dead kubelets.

        Args:
            prefix: The prefix of the kubelet's containers.
            hierarchies: The hierarchies of cgroups. None: those of this machine.

        Raises:
            CgroupsUnavailable: This process may not create cgroups with limits.
        """
        if hierarchies is None:
            try:
                hierarchies = read_hierarchies(Path("/proc/self/mountinfo").read_text(), Path("/proc/self/cgroup").read_text())
            except OSError as error:
                raise CgroupsUnavailable(str(error)) from None
        reason = "no hierarchy of cgroups has the controllers cpu and memory"
        for version, parents in _candidates(hierarchies):
            for parent in _unique(parents.values()):
                _remove_stale(parent, prefix)
            found = cls(version, {name: parent / f"{_FOLDER}{prefix}-{os.getpid()}" for name, parent in parents.items()})
            try:
                found._try()
            except OSError as error:
                found.close()
                reason = f"{error.filename or next(iter(parents.values()))}: {(error.strerror or str(error)).lower()}"
                continue
            return found
        raise CgroupsUnavailable(reason)

    def _try(self) -> None:
        trial = self.create("trial", CgroupLimits(1.0, 64 << 20))
        try:
            with subprocess.Popen(["/bin/sh", "-c", "read line"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL) as process:
                for file in trial.process_files:
                    file.write_text(str(process.pid))
        finally:
            trial.remove()

    def create(self, name: str, limits: CgroupLimits) -> ContainerCgroup:
        """Create the cgroup of a container and write its limits.

        Args:
            name: The id of the container's run.
            limits: The limits.

        Raises:
            OSError: The cgroup cannot be created, or the kernel refuses a limit.
        """
        for folder in _unique(self.folders.values()):
            folder.mkdir(exist_ok=True)
            if self.version == 2:
                for place in (folder.parent, folder):
                    (place / "cgroup.subtree_control").write_text("+cpu +memory")
            (folder / name).mkdir()
        result = ContainerCgroup(self.version, {controller: folder / name for controller, folder in self.folders.items()})
        try:
            for controller, file, text in limits.settings(self.version):
                path = self.folders[controller] / name / file
                if file not in _OPTIONAL or path.exists():
                    path.write_text(text)
        except OSError:
            result.remove()
            raise
        return result

    def close(self) -> None:
        """Remove the kubelet's folders, and kill what runs in them."""
        for folder in _unique(self.folders.values()):
            remove_tree(folder, kill=True)


def _candidates(hierarchies: Sequence[Hierarchy]) -> Iterable[tuple[int, Mapping[str, Path]]]:
    """Yield where the kubelet's folders could be: the version, and a parent folder for each controller."""
    first = {name: one for one in reversed(hierarchies) for name in one.controllers}
    if all(name in first for name in _CONTROLLERS[1]):
        yield 1, {name: first[name].own for name in _CONTROLLERS[1]}
    for one in hierarchies:
        if one.version == 2 and set(_CONTROLLERS[2]) <= set(_read(one.mount / "cgroup.controllers").split()):
            # Controllers are refused to the children of a cgroup with processes, as that of this process usually is: then to its siblings.
            places = [one.own, one.own.parent, one.mount] if one.own != one.mount else [one.mount]
            for parent in _unique(places):
                yield 2, dict.fromkeys(_CONTROLLERS[2], parent)


def _remove_stale(parent: Path, prefix: str) -> None:
    """Remove the folders of earlier kubelets with this prefix, and the empty folders of other kubelets that have ended."""
    for folder in parent.glob(f"{_FOLDER}*-*"):
        owner, _, pid = folder.name.removeprefix(_FOLDER).rpartition("-")
        if owner == prefix and pid != str(os.getpid()):
            remove_tree(folder, kill=True)
        elif owner != prefix and not Path("/proc", pid).exists():
            # Without a kill: the kubelet may run in another PID namespace.
            remove_tree(folder, kill=False)


def remove_tree(folder: Path, *, kill: bool) -> None:
    """Remove a cgroup and the cgroups in it.

    Args:
        folder: The folder of the cgroup.
        kill: Kill the processes in it. False: cgroups with processes stay.
    """
    with contextlib.suppress(OSError):
        for entry in list(folder.iterdir()):
            if entry.is_dir():
                remove_tree(entry, kill=kill)
    for _ in range(_ATTEMPTS):
        try:
            folder.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            if not kill:
                return
            for pid in _read(folder / "cgroup.procs").split():
                with contextlib.suppress(OSError):
                    if int(pid) > 0:
                        os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.01)
        else:
            return
    _LOG.warning("the cgroup %s cannot be removed", folder)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _fields(text: str) -> dict[str, int]:
    pairs = (line.split() for line in text.splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) == 2 and pair[1].isdigit()}


def _unique(paths: Iterable[Path]) -> list[Path]:
    return list(dict.fromkeys(paths))
