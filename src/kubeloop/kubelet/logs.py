"""Log files of containers in the format of the CRI: written line by line, rotated, and read as kubectl logs asks.

A line is ``TIME STREAM TAG TEXT``; the tag is F for a whole line and P for a part of one.

Source: Kubernetes pkg/kubelet/kuberuntime/logs, pkg/kubelet/logs (rotation); CRI documentation, "Log format".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

_LOG = logging.getLogger("kubeloop.kubelet")
#: Bytes of a line; a longer one is written in parts.
_PART = 16 * 1024
#: Bytes of a file and number of files of a container, as kubelet's containerLogMaxSize and containerLogMaxFiles.
MAX_SIZE, MAX_FILES = 10 * 1024 * 1024, 5


class LogWriter:
    """Writes the output of one container. ``wait`` returns when more was written or the container has ended.

    Args:
        path: The file.
        now: Returns the present time.
        max_size: Bytes after which a new file is begun.
        max_files: Number of files, the present one included.

    Raises:
        OSError: The file cannot be written.

    Example:
        >>> log = LogWriter(Path("0.log"), lambda: datetime(2026, 1, 1, tzinfo=UTC))
        >>> log.write("stdout", b"ready\\n")
        >>> log.close()
        >>> Path("0.log").read_text()
        '2026-01-01T00:00:00.000000000Z stdout F ready\\n'
    """

    def __init__(self, path: Path, now: Callable[[], datetime], *, max_size: int = MAX_SIZE, max_files: int = MAX_FILES) -> None:
        self.path = path
        self.ended = False
        self._now = now
        self._max_size = max_size
        self._max_files = max_files
        self._failing = False
        self._rest: dict[str, bytes] = {}
        self._waiters: set[asyncio.Future[None]] = set()
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)

    def write(self, stream: str, data: bytes) -> None:
        """Append output; a line is written when it is complete."""
        data = self._rest.pop(stream, b"") + data
        lines = data.split(b"\n")
        rest = lines.pop()
        for line in lines:
            self._write_line(stream, line, "F")
        while len(rest) > _PART:
            self._write_line(stream, rest[:_PART], "P")
            rest = rest[_PART:]
        if rest:
            self._rest[stream] = rest
        self._wake()

    def close(self) -> None:
        """Write the incomplete lines, and end the readers that follow."""
        if self.ended:
            return
        for stream, rest in self._rest.items():
            self._write_line(stream, rest, "P")
        self._rest.clear()
        self.ended = True
        self._file.close()
        self._wake()

    async def wait(self) -> None:
        """Return when more was written, or the log has ended."""
        if self.ended:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await waiter
        finally:
            self._waiters.discard(waiter)

    def _write_line(self, stream: str, line: bytes, tag: str) -> None:
        while len(line) > _PART:
            self._append(f"{format_moment(self._now())} {stream} P ".encode() + line[:_PART] + b"\n")
            line = line[_PART:]
        self._append(f"{format_moment(self._now())} {stream} {tag} ".encode() + line + b"\n")

    def _append(self, line: bytes) -> None:
        try:
            if self._file.tell() + len(line) > self._max_size and self._file.tell():
                self._rotate()
            self._file.write(line)
        except OSError as error:
            # What cannot be stored is dropped, so that the program does not block (containerd internal/cri/io/logger.go).
            if not self._failing:
                _LOG.warning("cannot write the log %s: %s; output of the container is lost", self.path, error.strerror or error)
            self._failing = True
        else:
            self._failing = False

    def _rotate(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.path.rename(self.path.with_name(f"{self.path.name}.{self._now():%Y%m%d-%H%M%S-%f}"))
        present = self.path.open("ab", buffering=0)
        self._file.close()
        self._file = present
        for old in sorted(self.path.parent.glob(f"{self.path.name}.*"))[: -(self._max_files - 1) or None]:
            old.unlink(missing_ok=True)

    def _wake(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


@dataclass(frozen=True)
class LogSelection:
    """Part of a log, as PodLogOptions. ``since`` is the earliest time, ``tail`` the number of last lines, ``limit`` of bytes."""

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None

    @classmethod
    def of_query(cls, query: dict[str, list[str]], now: datetime) -> LogSelection:
        """Return the options of a request to the kubelet's endpoint.

        Raises:
            ValueError: A number or time is malformed.
        """

        def truth(name: str) -> bool:
            return query.get(name, ["false"])[0].lower() not in ("false", "0")

        since = datetime.fromisoformat(query["sinceTime"][0]) if "sinceTime" in query else None
        if "sinceSeconds" in query:
            since = now - timedelta(seconds=int(query["sinceSeconds"][0]))
        tail = int(query["tailLines"][0]) if "tailLines" in query else None
        limit = int(query["limitBytes"][0]) if "limitBytes" in query else None
        return cls(truth("follow"), truth("timestamps"), tail, since, limit)


async def read_log(path: Path, options: LogSelection, writer: LogWriter | None = None) -> AsyncIterator[bytes]:
    """Yield a log as the response to a request.

    Args:
        path: The file; it is read from its beginning, without the files that were rotated away.
        options: What to read.
        writer: The log that is still written; None: it has ended, and following ends with the file.
    """
    left = options.limit
    file = path.open("rb")
    try:
        for _ in range(_skipped(path, options.tail)):
            file.readline()
        while True:
            ended = writer is None or writer.ended
            for line in _lines(file):
                shown = _shown(line, options)
                if shown is None:
                    continue
                if left is not None:
                    shown, left = shown[:left], left - len(shown[:left])
                yield shown
                if left == 0:
                    return
            if _is_rotated(file, path):
                file.close()
                file = path.open("rb")
            elif not options.follow or ended:
                return
            elif writer is not None:
                await writer.wait()
    finally:
        file.close()


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the complete lines that are left."""
    while True:
        position = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            file.seek(position)
            return
        yield line


def _shown(line: bytes, options: LogSelection) -> bytes | None:
    """Return a line as the client gets it, or None if it is older than requested."""
    moment, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, _, text = rest.partition(b" ")
    if options.since is not None and parse_moment(moment.decode()) < options.since:
        return None
    if tag == b"P":
        text = text[:-1]
    return moment + b" " + text if options.timestamps else text


def _skipped(path: Path, tail: int | None) -> int:
    """Return the number of lines before the last ``tail`` ones."""
    if tail is None:
        return 0
    with path.open("rb") as file:
        tags = [line.split(b" ", 3)[2:3] for line in file]
    if tail == 0:
        return len(tags)
    whole = 0
    for number in range(len(tags) - 1, -1, -1):
        if tags[number] == [b"F"] or number == len(tags) - 1:
            whole += 1
            if whole > tail:
                return number + 1
    return 0


def _is_rotated(file: IO[bytes], path: Path) -> bool:
    try:
        return os.fstat(file.fileno()).st_ino != path.stat().st_ino
    except OSError:
        return False


def last_output(path: Path, lines: int, size: int) -> str:
    """Return the end of a log, for the termination message of a failed container.

    Args:
        path: The file.
        lines: Number of lines at most.
        size: Number of bytes at most.
    """
    try:
        with path.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - size - 64 * lines))
            found = [_shown(line, LogSelection()) or b"" for line in file.readlines() if line.count(b" ") >= 3]
    except OSError:
        return ""
    return b"".join(found[-lines:])[-size:].decode("utf-8", "replace")


def format_moment(moment: datetime) -> str:
    """Format a time as log files have it: RFC 3339 with nine fractional digits."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z"


def parse_moment(text: str) -> datetime:
    """Parse a time of a log file."""
    return datetime.fromisoformat(text[:26] + "+00:00")
