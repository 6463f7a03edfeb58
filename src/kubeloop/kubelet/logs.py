"""Log files of containers in the format of the CRI: written line by line, rotated, and read with the options of kubectl logs.

A line is ``TIME STREAM TAG TEXT``; the tag is F for a whole line and P for a part of one.

Source: Kubernetes pkg/kubelet/kuberuntime/logs, pkg/kubelet/logs (rotation); CRI documentation, "Log format".
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO

_LOG = logging.getLogger("kubeloop.kubelet")
#: Maximum bytes of a line; a longer line is written in parts.
_PART = 16 * 1024
#: Maximum bytes of a file and number of files of a container: the defaults of kubelet's containerLogMaxSize and containerLogMaxFiles.
MAX_SIZE, MAX_FILES = 10 * 1024 * 1024, 5


@dataclass(frozen=True, slots=True)
class PodLogs:
    """The log files of one pod, in ``folder``.

    Example:
        >>> PodLogs(Path("logs/shop_web_uid")).path("main", 0)
        PosixPath('logs/shop_web_uid/main/0.log')
    """

    folder: Path

    def path(self, container: str, attempt: int) -> Path:
        """Return the log file of a run of a container."""
        return self.folder / container / f"{attempt}.log"

    def delete_before(self, container: str, attempt: int) -> None:
        """Delete the log of the run before the previous run ``attempt - 1``."""
        for path in (self.folder / container).glob(f"{attempt - 2}.log*"):
            path.unlink(missing_ok=True)

    def delete(self) -> None:
        """Delete all logs of the pod."""
        shutil.rmtree(self.folder, ignore_errors=True)


class LogWriter:
    """Writes the output of one container to a log file, and wakes readers that follow the log.

    Args:
        path: The file.
        now: Returns the present time.
        max_size: Maximum bytes of a file; then a new file begins.
        max_files: Maximum number of files, including the present one.

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
        """Append output of ``stdout`` or ``stderr``; a line is written when it is complete or longer than 16 KiB."""
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
        """Write the incomplete lines, close the file, and end readers that follow the log."""
        if self.ended:
            return
        for stream, rest in self._rest.items():
            self._write_line(stream, rest, "P")
        self._rest.clear()
        self.ended = True
        self._file.close()
        self._wake()

    async def wait(self) -> None:
        """Wait until more is written or the log ends."""
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
            # Output that cannot be stored is dropped, so that the program does not block (containerd internal/cri/io/logger.go).
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
    """The part of a log to read, as in PodLogOptions.

    ``since`` is the earliest time, ``tail`` the number of lines from the end, and ``limit`` the maximum number of bytes.
    """

    follow: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: datetime | None = None
    limit: int | None = None

    @classmethod
    def of_query(cls, query: dict[str, list[str]], now: datetime) -> LogSelection:
        """Return the selection in the query parameters of a log request to the kubelet's endpoint.

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
    """Yield the lines of a log for the response to a request.

    Args:
        path: The present log file. Older, rotated files are not read.
        options: The part of the log to read.
        writer: The writer of a log to which a container still writes; None if the container has ended: following ends with the file.
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
    """Yield the remaining complete lines of a file, and leave the position at the start of an incomplete one."""
    while True:
        position = file.tell()
        line = file.readline()
        if not line.endswith(b"\n"):
            file.seek(position)
            return
        yield line


def _shown(line: bytes, options: LogSelection) -> bytes | None:
    """Return the text of a log line for the client, with its time if requested, or None if the line is older than requested."""
    moment, _, rest = line.partition(b" ")
    _, _, rest = rest.partition(b" ")
    tag, _, text = rest.partition(b" ")
    if options.since is not None and parse_moment(moment.decode()) < options.since:
        return None
    if tag == b"P":
        text = text[:-1]
    return moment + b" " + text if options.timestamps else text


def _skipped(path: Path, tail: int | None) -> int:
    """Return the number of lines of a file before its last ``tail`` lines, counting the parts of a split line as one; 0 for None."""
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
    """Format a time for log files: RFC 3339 in UTC with nine fractional digits."""
    return f"{moment.astimezone(UTC):%Y-%m-%dT%H:%M:%S}.{moment.microsecond:06}000Z"


def parse_moment(text: str) -> datetime:
    """Parse a time of a log file."""
    return datetime.fromisoformat(text[:26] + "+00:00")
