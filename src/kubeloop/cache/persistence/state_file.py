"""State files: a folder that one process owns, and the checksummed records of a file."""

from __future__ import annotations

import contextlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from pathlib import Path
from typing import BinaryIO

from kubeloop.meta.errors import ConfigError, KubeloopError

try:
    import fcntl
except ImportError:  # pragma: no cover - where there is none, no cache is persisted
    fcntl = None  # type: ignore[assignment]  # checked before use

_LOCK = "lock"
_HALF = ".half"


class FolderInUse(ConfigError):
    """Another process, or another ``InformerFactory`` of this process, uses the folder for its state files."""


class Folder:
    """A folder (0700) of files (0600), locked from ``open`` to ``close``. The lock ends with the process in any case, even after a crash.

    Guarantees
        Readers see the last completely written file, even after a crash during a write.

    Raises
        FolderInUse, from ``open``: the folder is locked.
        ConfigError, from ``open``: the folder cannot be created, or another user owns it or may access it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock: int | None = None

    def open(self) -> None:
        if fcntl is None:  # pragma: no cover
            raise ConfigError("persist=: this system has no file locks; informers cannot be persisted here")
        try:
            self.path.mkdir(mode=0o700, parents=True, exist_ok=True)
            status = self.path.stat()
            if status.st_uid != os.getuid() or status.st_mode & 0o077:
                raise ConfigError(
                    f"persist={str(self.path)!r} is open to other users: name a folder that does not exist yet, or chmod it to 0700"
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
        """Yield a new file, which replaces the old one when the block ends. If the block raises, the old file stays."""
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
    def end_list(file: BinaryIO) -> None:
        """Flush the written file to the disk, so that it survives a power failure. This may take long."""
        file.flush()
        os.fsync(file.fileno())

    def reading(self, name: str) -> BinaryIO | None:
        """Open a file for reading and return it; None if it does not exist."""
        try:
            return (self.path / name).open("rb")
        except FileNotFoundError:
            return None

    def remove(self, name: str) -> None:
        (self.path / name).unlink(missing_ok=True)


# Records: the parts of a state file. Each has its length and a checksum over itself and all preceding records.
#
# So a truncated, changed or mixed file is detected. It is never repaired.


MAGIC = b"kubeloop cache 1"
#: Maximum length of a record: a greater length means a damaged file, and must not allocate memory.
MAX_RECORD = 1 << 30
_PREFIX = 9


class CorruptStateFile(KubeloopError):
    """The file differs from what was written."""


class RecordType(IntEnum):
    HEADER = 1
    DICTIONARY = 2
    OBJECTS = 3
    END = 4


class RecordWriter:
    """Makes the bytes of one record after the other. The first record follows ``MAGIC``."""

    __slots__ = ("_sum",)

    def __init__(self) -> None:
        self._sum = zlib.crc32(MAGIC)

    def record(self, kind: RecordType, payload: bytes) -> bytes:
        head = len(payload).to_bytes(4, "little") + bytes([kind])
        self._sum = zlib.crc32(payload, zlib.crc32(head, self._sum))
        return b"".join((head, self._sum.to_bytes(4, "little"), payload))


class RecordReader:
    """Reads records back.

    Raises
        CorruptStateFile: from the constructor or ``next``, for any damage; no part of the damaged record is returned.
    """

    __slots__ = ("_file", "_sum")

    def __init__(self, file: BinaryIO) -> None:
        if file.read(len(MAGIC)) != MAGIC:
            raise CorruptStateFile("it does not begin as a state file of this version does")
        self._file = file
        self._sum = zlib.crc32(MAGIC)

    def next(self) -> tuple[RecordType, bytes]:
        prefix = self._file.read(_PREFIX)
        if len(prefix) < _PREFIX:
            raise CorruptStateFile("it ends too early")
        length = int.from_bytes(prefix[:4], "little")
        payload = self._file.read(length) if length <= MAX_RECORD else b""
        if len(payload) < length:
            raise CorruptStateFile("it ends too early")
        self._sum = zlib.crc32(payload, zlib.crc32(prefix[:5], self._sum))
        if self._sum != int.from_bytes(prefix[5:], "little"):
            raise CorruptStateFile("a checksum does not match")
        try:
            return RecordType(prefix[4]), payload
        except ValueError:
            raise CorruptStateFile(f"a record of unknown kind {prefix[4]}") from None

    def at_end(self) -> None:
        if self._file.read(1):
            raise CorruptStateFile("something follows its end")
