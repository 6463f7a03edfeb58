"""emptyDir volumes with the medium Memory: file systems in memory (tmpfs) on this machine, which all containers of a pod share.

Only root may mount them; for other users such a volume is a folder on the disk.

Source: Kubernetes pkg/volume/emptydir (setupTmpfs); proc(5), /proc/PID/mountinfo.
"""

from __future__ import annotations

import ctypes
import logging
import os
from pathlib import Path

_LOG = logging.getLogger("kubeloop.kubelet")
#: The source of the file systems in the table of mounts. The launcher knows it too, and does not show them to other containers.
_SOURCE = "kubeloop-volume"
_NOSUID, _NODEV, _DETACH = 2, 4, 2


def mount_memory(folder: Path, size: int = 0) -> bool:
    """Mount a file system in memory at an empty folder, with the folder's mode and group, unless one is mounted there.

    Args:
        folder: The folder.
        size: The maximum size in bytes; 0: half of the machine's memory.

    Returns:
        Whether a file system is mounted at the folder: the kubelet's user may be unable to mount.
    """
    if os.path.ismount(folder):
        return True
    status = folder.stat()
    options = f"mode={status.st_mode & 0o7777:o},gid={status.st_gid}" + (f",size={size}" if size else "")
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(_SOURCE.encode(), os.fsencode(folder), b"tmpfs", _NOSUID | _NODEV, options.encode()) < 0:
        _LOG.info("the volume %s is on the disk, not in memory: %s", folder, os.strerror(ctypes.get_errno()).lower())
        return False
    return True


def unmount_memory(folder: Path) -> None:
    """Unmount the volumes in memory below a folder; their files are lost."""
    top = folder.resolve()
    for point in _mount_points():
        if point.is_relative_to(top):
            ctypes.CDLL(None, use_errno=True).umount2(os.fsencode(point), _DETACH)


def _mount_points() -> list[Path]:
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return []
    # Octal escapes replace spaces of a path.
    return [Path(line.split()[4].encode().decode("unicode_escape")) for line in lines if f" {_SOURCE} " in line]
