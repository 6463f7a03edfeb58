"""Files that may be replaced while they are in use."""

from __future__ import annotations

import os
from pathlib import Path

from kubeloop.meta.errors import ConfigError


class WatchedFile:
    """A file by path; ``flag`` names it in errors. Whether it changed costs one look at its inode, not its content.

    Replacing it (rename) and writing into it are both seen, unless length, inode and time of change all stay.
    """

    def __init__(self, path: Path, flag: str) -> None:
        self.path = path
        self._text = str(path)
        self.flag = flag

    def mark(self) -> tuple[int, int, int] | None:
        """Another one for another content; None: there is no such file now."""
        try:
            found = os.stat(self._text)  # noqa: PTH116 - half the price, with every request
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def read(self) -> bytes:
        """Raises ConfigError."""
        try:
            return self.path.read_bytes()
        except OSError as fault:
            raise ConfigError(f"{self.flag} {self.path}: {fault.strerror}") from None
