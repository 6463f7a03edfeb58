"""The folder of a kubelet: its lock, the prefix of its containers' ids, and the removal of temporary folders of killed kubelets."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import os
import shutil
import stat
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, Self

from kubeloop.kubelet.memory_volumes import unmount_memory
from kubeloop.meta.errors import ConfigError

# Linux only; the module can be imported everywhere, because test tools share parts of this package.
with contextlib.suppress(ImportError):
    import fcntl

_LOG = logging.getLogger("kubeloop.kubelet")
#: The lock file, which holds the prefix of the kubelet's containers.
_LOCK = "kubelet.lock"
#: The beginning of the names of temporary folders.
_TEMPORARY = "kubeloop-kubelet-"


def container_prefix(folder: Path, name: str) -> str:
    """Return the prefix of a node's container ids, by which a later kubelet finds the processes of containers.

    Args:
        folder: The folder of the kubelet.
        name: The name of the node.
    """
    return hashlib.sha256(f"{folder.resolve()}/{name}".encode()).hexdigest()[:16]


class FolderLock:
    """The lock of a kubelet's folder, which one kubelet uses at a time. The kernel releases it when the process ends.

    Args:
        folder: The folder.
        file: The open lock file, locked.
    """

    def __init__(self, folder: Path, file: IO[str]) -> None:
        self.folder = folder
        self._file = file

    @classmethod
    def acquire(cls, folder: Path) -> Self:
        """Create a folder if it does not exist, and lock it.

        Raises:
            ConfigError: Another kubelet uses the folder, or it cannot be written.
        """
        try:
            folder.mkdir(mode=0o711, parents=True, exist_ok=True)
            file = (folder / _LOCK).open("a")
        except OSError as error:
            raise ConfigError(f"--root-dir {folder}: {error.strerror or error}; name a folder that you may write") from None
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            file.close()
            if isinstance(error, BlockingIOError):
                raise ConfigError(f"--root-dir {folder}: another kubelet uses it; end that one, or name another folder") from None
            raise ConfigError(f"--root-dir {folder}: {error.strerror or error}; name a folder on a local disk") from None
        return cls(folder, file)

    @classmethod
    def create_temporary(cls) -> Self:
        """Create a temporary folder and lock it.

        Raises:
            OSError: The folder cannot be created.
        """
        folder = Path(tempfile.mkdtemp(prefix=_TEMPORARY))
        fresh = folder / f"{_LOCK}.new"
        file = fresh.open("a")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The lock file appears when it is locked, so that remove_stale_folders of another kubelet leaves the folder alone.
        fresh.rename(folder / _LOCK)
        return cls(folder, file)

    def write_prefix(self, prefix: str) -> None:
        """Write the prefix of the kubelet's containers into the lock file, for ``remove_stale_folders``."""
        self._file.truncate(0)
        self._file.write(prefix)
        self._file.flush()

    def release(self) -> None:
        """Release the lock."""
        self._file.close()

    def remove(self) -> None:
        """Delete the folder, with its volumes in memory, and release the lock."""
        _delete(self.folder)
        self.release()


def remove_stale_folders(end_containers: Callable[[str], object]) -> None:
    """Remove the temporary folders of this user whose kubelets were killed, because these folders contain credentials of nodes.

    Args:
        end_containers: Called with the prefix of each such kubelet's container ids, to kill remaining processes of its containers.
    """
    for folder in Path(tempfile.gettempdir()).glob(f"{_TEMPORARY}*"):
        with contextlib.suppress(OSError):
            status = folder.lstat()
            if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.geteuid():
                continue
            with os.fdopen(os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW), "r+") as file:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if prefix := file.read(64):
                    end_containers(prefix)
                _delete(folder)
                _LOG.warning("removed %s, which a killed kubelet left", folder)


def _delete(folder: Path) -> None:
    unmount_memory(folder)
    shutil.rmtree(folder, ignore_errors=True)
