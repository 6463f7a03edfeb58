"""Folder: where state files live. One process at a time, nobody else's eyes, and a file is always a whole one, old or new."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from kubeloop.meta.errors import ConfigError

try:
    import fcntl
except ImportError:  # pragma: no cover - where there is none, no cache is persisted
    fcntl = None  # type: ignore[assignment]  # checked before use

_LOCK = "lock"
_HALF = ".half"


class FolderInUse(ConfigError):
    """Another process, or another ``Informers`` of this one, persists its cache there."""


class Folder:
    """A folder (0700) of files (0600), held by a lock from ``open`` to ``close``. The lock ends with the process, however that ends.

    Guarantees
        Readers see the file that was last written completely, also after a crash or a kill in the middle of a write.

    Raises
        FolderInUse: see there. ConfigError: it cannot be made, or belongs to somebody else (both from ``open``).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self) -> None:
        if fcntl is None:  # pragma: no cover
            raise ConfigError("persist=: this system has no file locks; informers cannot be persisted here")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            found = self.path.stat()
            if found.st_uid != os.getuid() or found.st_mode & 0o077:
                raise ConfigError(
                    f"persist={str(self.path)!r} is open to other users: name one that does not exist yet, or chmod it to 0700"
                )
            lock = os.open(self.path / _LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            raise ConfigError(f"persist={str(self.path)!r}: {error.strerror}; name a folder that this user can write to") from None
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            raise FolderInUse(f"persist={str(self.path)!r} is in use by another process: give each its own folder") from None
        self._lock = lock
        for half in self.path.glob(f"*{_HALF}"):
            half.unlink(missing_ok=True)

    def close(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    @contextmanager
    def writing(self, name: str) -> Iterator[BinaryIO]:
        """The new file, which takes the old one's place when the block ends well; if it raises nothing changes."""
        half = self.path / f"{name}{_HALF}"
        try:
            with os.fdopen(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                yield file
            half.replace(self.path / name)
        except BaseException:
            with contextlib.suppress(OSError):
                half.unlink(missing_ok=True)
            raise

    @staticmethod
    def settle(file: BinaryIO) -> None:
        """Return when what was written is on the disk: the end of a block that is to outlive a power failure. May take long."""
        file.flush()
        os.fsync(file.fileno())

    def reading(self, name: str) -> BinaryIO | None:
        """The file; None if there is none."""
        try:
            return (self.path / name).open("rb")
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)
