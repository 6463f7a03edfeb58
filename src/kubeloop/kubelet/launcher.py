"""A separate program that starts one container's process and supervises it. It imports the standard library only.

The kubelet runs this file with ``python -I -S``. Standard input carries one line of JSON, the specification, and then commands, one
JSON object in a line; its end kills the container. Standard output carries reports, one JSON object in a line: ``{"init": PID}`` when the
first process of the container exists, ``{"started": true}`` when the program runs, ``{"error": TEXT, "missing": BOOL}`` if it cannot be
started, and ``{"exited": CODE, "signal": NUMBER}`` when it has ended and all processes that it left are killed.

In a PID namespace the kernel kills what the program leaves behind; elsewhere this process adopts and kills it.
"""

from __future__ import annotations

import ctypes
import errno
import json
import os
import select
import signal
import stat
import sys
import warnings  # noqa: F401 - os.execvpe imports it, after the root has changed: an image does not have the modules
from typing import Any

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWIPC, CLONE_NEWUSER, CLONE_NEWPID = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000
MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE, MNT_DETACH = 1, 2, 4, 8, 32, 4096, 16384, 1 << 18, 2
PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
PIVOT_ROOT = {"x86_64": 155, "aarch64": 41, "riscv64": 41, "s390x": 217, "ppc64le": 203}
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "ptmx")

libc = ctypes.CDLL(None, use_errno=True)


class LaunchError(Exception):
    """The container cannot be started. ``missing`` says that its program or working directory does not exist."""

    def __init__(self, message: str, missing: bool = False) -> None:
        super().__init__(message)
        self.missing = missing


def check(result: int, action: str) -> None:
    """Raise a LaunchError with the system's error text if a system call failed."""
    if result < 0:
        raise LaunchError(f"{action}: {os.strerror(ctypes.get_errno()).lower()}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """Mount a file system, or bind a file or folder.

    Args:
        source: The device, or the file or folder to bind.
        target: The mount point.
        kind: The type of the file system; empty for a bind mount.
        flags: Flags of mount(2).
        data: Options of the file system.
    """
    result = libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data.encode() or None)
    check(result, f"mount {source} at {target}")


def die_with_parent() -> None:
    """Let the kernel kill this process when its parent ends."""
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def report(**values: object) -> None:
    """Send one report to the kubelet; do nothing if the kubelet has ended."""
    try:
        os.write(1, json.dumps(values).encode() + b"\n")
    except OSError:
        pass


# ------------------------------------------------------------------------------------------------------------- namespaces and mounts


def enter_user_namespace() -> None:
    """Become the same user in a new user namespace, where mounts are allowed."""
    uid, gid = os.getuid(), os.getgid()
    check(libc.unshare(CLONE_NEWUSER), "create namespaces")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{uid} {uid} 1"), ("gid_map", f"{gid} {gid} 1")):
        with open(f"/proc/self/{name}", "w") as file:
            file.write(text)


def build_root(spec: dict[str, Any]) -> None:
    """Build and enter the container's root: files of this machine or an image, changes in memory, and the container's mounts."""
    base = spec["scratch"]
    mount("none", "/", flags=MS_REC | MS_PRIVATE)
    mount("tmpfs", base, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    upper, work, root = (os.path.join(base, name) for name in ("upper", "work", "root"))
    for path in (upper, work, root):
        os.mkdir(path, 0o755)
    if spec.get("root"):
        overlay(spec["root"], root, upper, work, ",userxattr" if spec.get("user_namespace") else "")
        prepare_image(root, spec.get("cwd") or "/")
    elif not spec.get("user_namespace"):
        overlay("/", root, upper, work)
        show_submounts(base, root)
    else:
        show_folders(root, upper, work)
    mount("proc", root + "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC)
    try:
        mount("/sys", root + "/sys", flags=MS_BIND | MS_REC)
    except LaunchError:
        pass
    make_devices(root)
    for one in spec.get("mounts", ()):
        bind(root, one["source"], one["target"], one.get("readonly", False))
    if spec.get("readonly_root"):
        mount("none", root, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
    os.chdir(root)
    check(libc.syscall(PIVOT_ROOT.get(os.uname().machine, 155), b".", b"."), "pivot_root")
    check(libc.umount2(b".", MNT_DETACH), "detach the old root")
    os.chdir("/")


def overlay(lower: str, target: str, upper: str, work: str, options: str = "") -> None:
    """Mount an overlay file system, which shows a folder at another path and stores changes in a third folder.

    Args:
        lower: The folder to show, which does not change.
        target: The mount point.
        upper: The folder that stores changes.
        work: An empty folder beside ``upper``.
        options: Further options, each behind a comma.
    """
    mount("overlay", target, "overlay", 0, f"lowerdir={lower},upperdir={upper},workdir={work}{options}")


def prepare_image(root: str, cwd: str) -> None:
    """Create the folders proc, sys, dev and etc and the working directory in the root of an image."""
    for name in ("proc", "sys", "dev", "etc"):
        path = os.path.join(root, name)
        # A link would lead to this machine's files until the root is entered.
        if os.path.islink(path) or (os.path.exists(path) and not os.path.isdir(path)):
            raise LaunchError(f"/{name} of the image is not a folder")
        os.makedirs(path, exist_ok=True)
    os.makedirs(inside(root, os.path.normpath(cwd)), exist_ok=True)


def show_submounts(base: str, root: str) -> None:
    """Bind this machine's other file systems read-only below the root, and mount empty ones for temporary files."""
    for point in submounts(base):
        target = root + point
        if point in ("/tmp", "/var/tmp", "/run"):  # noqa: S108 - the container gets its own
            mount("tmpfs", target, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777" if point != "/run" else "mode=0755")
            continue
        try:
            mount(point, target, flags=MS_BIND)
            mount(point, target, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)
        except LaunchError:
            continue  # a mount that may not be shown stays hidden


def show_folders(root: str, upper: str, work: str) -> None:
    """Show each top-level folder of this machine by a separate overlay.

    In a user namespace the kernel refuses an overlay of a folder that contains mounts: such a folder is bound without an overlay.
    """
    mount("tmpfs", root, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755")
    for name in os.listdir("/"):
        source, target = "/" + name, os.path.join(root, name)
        if os.path.islink(source):
            os.symlink(os.readlink(source), target)
            continue
        if not os.path.isdir(source):
            continue
        os.mkdir(target)
        if name in ("proc", "sys", "dev"):
            continue
        parts = [os.path.join(one, name) for one in (upper, work)]
        for path in parts:
            os.mkdir(path)
        try:
            overlay(source, target, parts[0], parts[1], ",userxattr")
        except LaunchError:
            try:
                mount(source, target, flags=MS_BIND | MS_REC)
            except LaunchError:
                continue  # a folder that may not be shown stays empty


def submounts(base: str) -> list[Any]:
    """Return the mounted folders that containers may see: not the root, ``base``, /proc, /sys, /dev, and volumes (memory_volumes.py)."""
    with open("/proc/self/mountinfo") as file:
        points = {line.split()[4].encode().decode("unicode_escape") for line in file if " kubeloop-volume " not in line}
    hidden = ("/proc", "/sys", "/dev")
    return sorted(
        one
        for one in points
        if one != "/"
        and not one.startswith(base)
        and not any(one == top or one.startswith(top + "/") for top in hidden)
        and os.path.isdir(one)
    )


def make_devices(root: str) -> None:
    """Create a small /dev with the devices that every container gets."""
    folder = root + "/dev"
    mount("tmpfs", folder, "tmpfs", MS_NOSUID, "mode=0755")
    for name in DEVICES:
        if os.path.exists("/dev/" + name):
            open(os.path.join(folder, name), "w").close()
            mount("/dev/" + name, os.path.join(folder, name), flags=MS_BIND)
    for name in ("pts", "shm"):
        os.mkdir(os.path.join(folder, name))
    # This machine's terminals, because the kubelet opens the terminals of containers.
    mount("/dev/pts", folder + "/pts", flags=MS_BIND)
    mount("tmpfs", folder + "/shm", "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777")
    for name, end in (("fd", ""), ("stdin", "/0"), ("stdout", "/1"), ("stderr", "/2")):
        os.symlink("/proc/self/fd" + end, os.path.join(folder, name))


def bind(root: str, source: str, target: str, readonly: bool) -> None:
    """Bind-mount a file or folder of this machine at a path of the container.

    Args:
        root: The root of the container.
        source: The file or folder.
        target: The path in the container.
        readonly: The container cannot write to it.
    """
    place = inside(root, target)
    folder = stat.S_ISDIR(os.stat(source).st_mode)
    os.makedirs(place if folder else os.path.dirname(place), exist_ok=True)
    if not folder and not os.path.exists(place):
        open(place, "w").close()
    mount(source, place, flags=MS_BIND | MS_REC)
    if readonly:
        mount(source, place, flags=MS_BIND | MS_REMOUNT | MS_RDONLY)


def inside(root: str, path: str) -> str:
    """Return the path on this machine of a path in the container, resolving symbolic links within the container's root."""
    result = root
    for _ in range(40):
        parts = [one for one in path.split("/") if one not in ("", ".")]
        result = root
        for number, part in enumerate(parts):
            if part == "..":
                raise LaunchError(f"mount path {path} contains ..")
            step = os.path.join(result, part)
            if os.path.islink(step):
                link = os.readlink(step)
                start = link if link.startswith("/") else os.path.normpath(os.path.join(result[len(root) :] or "/", link))
                path = "/".join([start, *parts[number + 1 :]])
                break
            result = step
        else:
            return result
    raise LaunchError(f"mount path {path} has too many symbolic links")


def join(pid: int) -> None:
    """Enter the namespaces and the root of a container whose first process is ``pid``."""
    root = os.open(f"/proc/{pid}/root", os.O_RDONLY | os.O_DIRECTORY)
    handles = []
    for name, flag in (("user", CLONE_NEWUSER), ("ipc", CLONE_NEWIPC), ("uts", CLONE_NEWUTS), ("pid", CLONE_NEWPID), ("mnt", CLONE_NEWNS)):
        path = f"/proc/{pid}/ns/{name}"
        if os.stat(path).st_ino != os.stat(f"/proc/self/ns/{name}").st_ino:
            handles.append((os.open(path, os.O_RDONLY), flag))
    for handle, flag in handles:
        check(libc.setns(handle, flag), "enter the container")
    os.fchdir(root)
    os.chroot(".")
    os.chdir("/")


# -------------------------------------------------------------------------------------------------------------------- the program


def run_program(spec: dict[str, Any]) -> int:
    """Start the program in a child process and return its process id. Raise a LaunchError if the program cannot be executed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        with os.fdopen(reader, "rb") as file:
            text = file.read()
        if text:
            os.waitpid(pid, 0)
            error = json.loads(text)
            raise LaunchError(error["error"], error["missing"])
        return pid
    try:
        os.close(reader)
        os.set_inheritable(writer, False)
        become_program(spec, writer)
    except (LaunchError, OSError) as error:
        os.write(writer, json.dumps({"error": str(error), "missing": isinstance(error, LaunchError) and error.missing}).encode())
    finally:
        os._exit(127)


def become_program(spec: dict[str, Any], writer: int) -> None:
    """Replace this process by the program; ``writer`` is a descriptor that is closed when the program is executed."""
    die_with_parent()
    for file in spec["cgroup_files"]:
        os.write(file, b"0")  # moves this process
    os.setsid()
    # Copies first: a stream may have the number that another one gets.
    for number, copy in enumerate([os.dup(stream) for stream in spec["streams"]]):
        os.dup2(copy, number, inheritable=True)
    if spec.get("tty"):
        import fcntl
        import termios

        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.umask(0o022)
    if spec.get("groups") is not None and os.getuid() == 0:
        os.setgroups(spec["groups"])
    if spec.get("gid") is not None:
        os.setresgid(spec["gid"], spec["gid"], spec["gid"])
    if spec.get("uid") is not None:
        os.setresuid(spec["uid"], spec["uid"], spec["uid"])
    try:
        os.chdir(spec.get("cwd") or "/")
    except OSError as error:
        text = f'OCI runtime create failed: chdir to cwd ("{spec["cwd"]}") set in config.json failed: {str(error.strerror).lower()}'
        raise LaunchError(text, missing=True) from None
    for number in range(1, signal.NSIG):
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            try:
                signal.signal(number, signal.SIG_DFL)
            except (OSError, ValueError):
                pass
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    limit = os.sysconf("SC_OPEN_MAX")
    for name in os.listdir("/proc/self/fd"):
        if int(name) > 2 and int(name) != writer and int(name) < limit:
            try:
                os.set_inheritable(int(name), False)
            except OSError:
                pass
    command, environment = spec["command"], spec["environment"]
    try:
        os.execvpe(command[0], command, environment)  # noqa: S606 - the image map names it
    except FileNotFoundError:
        missing = "executable file not found in $PATH" if "/" not in command[0] else f"stat {command[0]}: no such file or directory"
        raise LaunchError(f'exec: "{command[0]}": {missing}', missing=True) from None
    except OSError as error:
        raise LaunchError(f'exec: "{command[0]}": {(error.strerror or str(error)).lower()}', missing=True) from None


def supervise(spec: dict[str, Any], *, adopts: bool) -> int:
    """Run the program and carry out the kubelet's commands.

    Return 0 when the program has ended and its end was reported; 1 when the kubelet closed standard input and the program was killed.
    """
    signal.signal(signal.SIGCHLD, lambda *_: None)
    wake, alarm = os.pipe()
    os.set_blocking(alarm, False)
    signal.set_wakeup_fd(alarm)
    pid = run_program(spec)
    for stream in set(spec["streams"]):
        os.close(stream)
    report(started=True)
    pending = b""
    while True:
        ready, _, _ = select.select([0, wake], [], [])
        if wake in ready:
            os.read(wake, 1024)
            if (status := reap(pid)) is not None:
                if adopts:
                    kill_adopted()
                number = os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
                report(exited=128 + number if number else os.WEXITSTATUS(status), signal=number)
                return 0
        if 0 in ready:
            data = os.read(0, 65536)
            if not data:
                os.kill(pid, signal.SIGKILL)
                if adopts:
                    kill_adopted()
                return 1
            pending += data
            while b"\n" in pending:
                line, _, pending = pending.partition(b"\n")
                obey(json.loads(line), pid)


def reap(pid: int) -> int | None:
    """Wait for ended child processes without blocking; return the wait status of the program ``pid`` if it ended, else None."""
    result = None
    while True:
        try:
            ended, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return result
        if ended == 0:
            return result
        if ended == pid:
            result = status


def obey(command: dict[str, Any], pid: int) -> None:
    """Carry out a command of the kubelet: send a signal to the program."""
    try:
        os.kill(pid, command["signal"])
    except OSError as error:
        if error.errno != errno.ESRCH:
            report(warning=str(error))


def kill_adopted() -> None:
    """Kill every descendant of this process, which adopts orphans, until none is left."""
    while True:
        children = descendants(os.getpid())
        for pid in children:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def descendants(top: int) -> list[Any]:
    """Return the process ids of all descendants of a process."""
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat") as file:
                    parents[int(name)] = int(file.read().rpartition(")")[2].split()[1])
            except OSError:
                continue
    result: list[int] = []
    front = {top}
    while front:
        front = {pid for pid, parent in parents.items() if parent in front}
        result += front
    return result


def main() -> int:
    """Read the specification, isolate the container accordingly, supervise its program, and return the launcher's exit status."""
    line = b""
    while not line.endswith(b"\n"):
        part = os.read(0, 1)
        if not part:
            return 1
        line += part
    spec = json.loads(line)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if spec.get("tty"):  # before the root changes
        import fcntl  # noqa: F401
        import termios  # noqa: F401
    try:
        spec["cgroup_files"] = [os.open(path, os.O_WRONLY) for path in spec.get("cgroups", ())]  # before the root changes
        if spec.get("join"):
            join(spec["join"])
        else:
            if spec.get("user_namespace"):
                enter_user_namespace()
            if spec.get("namespaces"):
                check(libc.unshare(CLONE_NEWNS | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWPID), "create namespaces")
        if not spec.get("namespaces"):
            libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
            report(init=os.getpid())
            return supervise(spec, adopts=True)
        pid = os.fork()
    except (LaunchError, OSError) as error:
        report(error=str(error), missing=isinstance(error, LaunchError) and error.missing)
        return 1
    if pid == 0:
        os._exit(run_first_process(spec))
    report(init=pid)
    for stream in set(spec["streams"]):
        os.close(stream)
    die_with_parent()
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        report(exited=128 + os.WTERMSIG(status), signal=os.WTERMSIG(status))
    return 0


def run_first_process(spec: dict[str, Any]) -> int:
    """Run as the first process of the PID namespace; when it ends, the kernel kills all other processes of the namespace."""
    try:
        die_with_parent()
        if not spec.get("join"):
            build_root(spec)
            name = spec.get("hostname", "").encode()
            libc.sethostname(name, len(name))
        return supervise(spec, adopts=False)
    except (LaunchError, OSError) as error:
        report(error=str(error), missing=isinstance(error, LaunchError) and error.missing)
    return 0


if __name__ == "__main__":
    sys.exit(main())
