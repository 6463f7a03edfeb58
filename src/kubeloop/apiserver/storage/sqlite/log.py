"""Looks at a write-ahead log before SQLite does: that takes a broken frame for the end, and drops every transaction after it in silence.

Source: sqlite.org "WAL-mode File Format".
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

#: magic, format, page size, number of checkpoints, two salts, two checksums; of a frame: page, pages after a commit, two salts.
_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">4I")
_FRAME_HEAD = 24
_MAGIC = (0x377F0682, 0x377F0683)  # checksums over little and over big endian words


@dataclass(frozen=True, slots=True)
class Log:
    """``commits``: the numbers of the frames, from 1, that end a transaction and belong to this log rather than to one before it."""

    headless: bool
    commits: tuple[int, ...]

    @classmethod
    def of(cls, path: Path) -> Log:
        """The log in ``path``; a file that is missing, or holds nothing yet, is an empty log."""
        try:
            file = path.open("rb")
        except FileNotFoundError:
            return cls(False, ())
        with file:
            head = file.read(_HEAD.size)
            size = path.stat().st_size
            if len(head) < _HEAD.size:
                return cls(False, ())
            magic, _, page, _, salt, pepper, *sums = _HEAD.unpack(head)
            if magic not in _MAGIC or list(_checksum(head[:24], magic)) != sums:
                return cls(True, ())
            commits = []
            for number in range((size - _HEAD.size) // (_FRAME_HEAD + page)):
                file.seek(_HEAD.size + number * (_FRAME_HEAD + page))
                _, pages, *salts = _FRAME.unpack(file.read(_FRAME.size))
                if pages and salts == [salt, pepper]:
                    commits.append(number + 1)
            return cls(False, tuple(commits))

    def fault(self, valid: int) -> str:
        """What is wrong with it, if SQLite found the first ``valid`` frames to be good; empty if nothing is.

        The last transaction may be torn: a loss of power does that to one that was never acknowledged.
        """
        if self.headless:
            return "the head of its write-ahead log is wrong"
        lost = sum(number > valid for number in self.commits)
        return f"its write-ahead log is broken after frame {valid}, and {lost} transactions come after that" if lost > 1 else ""


@contextmanager
def examined(path: Path) -> Iterator[Log]:
    """The log in ``path``. If the context fails, the file is as it was: SQLite deletes it when it closes a database, and what it held."""
    log = Log.of(path)
    kept = path.with_name(f"{path.name}.kept")
    if path.exists() and (log.headless or log.commits):
        kept.unlink(missing_ok=True)
        os.link(path, kept)
    try:
        yield log
    except BaseException:
        if kept.exists():
            kept.replace(path)
        raise
    kept.unlink(missing_ok=True)


def _checksum(data: bytes, magic: int) -> tuple[int, int]:
    words = struct.unpack(f"{'>' if magic == _MAGIC[1] else '<'}{len(data) // 4}I", data)
    one = two = 0
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two
