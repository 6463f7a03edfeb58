"""Files that may be replaced while they are in use: change detection."""

from __future__ import annotations

import os
from pathlib import Path

from kubeloop.meta.errors import ConfigError


class WatchedFile:
    """A file by path; ``flag`` names it in errors. Detecting a change costs one ``stat``, not a read.

    Both a replacement (rename) and an in-place write are detected, unless length, inode and modification time all stay.
    """

    def __init__(self, path: Path, flag: str) -> None:
        self.path = path
        self._text = str(path)
        self.flag = flag

    def mark(self) -> tuple[int, int, int] | None:
        """Return a value that changes when the file is written or replaced, or None if the file does not exist."""
        try:
            found = os.stat(self._text)  # noqa: PTH116 - half the price, with every request
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> bytes:
        """Return the content. Raises ConfigError if the file cannot be read."""
        try:
            return self.path.read_bytes()
        except OSError as fault:
            raise ConfigError(f"{self.flag} {self.path}: {fault.strerror}") from None
