"""Splits a log into lines and finds the lines that were already returned: the part of following a log that needs no connection.

Kubernetes accepts whole seconds for "since" (``sinceTime`` is a metav1.Time), so a resumed log always overlaps with the earlier part.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from kubeloop.client.streams.errors import StreamError

#: Maximum bytes of one line.
MAX_LINE = 16 << 20
# The time of a line as kubelets write it: RFC 3339 with nine digits, in the node's time zone, and one blank before the text.
_STAMP = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2}) ")
# Runtimes write stdout and stderr from two threads: a line may come after a slightly newer line.
_DISORDER = 1

LogTimestamp = tuple[int, bytes]
"""Seconds since 1970, and the nine digits of the fraction. These tuples sort by time."""


class LineSplitter:
    """Splits a stream of bytes into lines."""

    def __init__(self, description: str) -> None:
        self._where = description
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """Return the lines that are complete now, without their ends.

        Raises:
            StreamError: A line is longer than ``MAX_LINE``.
        """
        *lines, rest = data.split(b"\n")
        if lines and self._parts:
            lines[0] = b"".join([*self._parts, lines[0]])
            self._parts, self._size = [], 0
        if rest:
            self._parts.append(rest)
            self._size += len(rest)
            if self._size > MAX_LINE:
                raise StreamError(f"log of {self._where}: a line is longer than {MAX_LINE} bytes; read it with resume=False and chunks()")
        return lines

    def rest(self) -> bytes:
        """Return the incomplete last line."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest


class ReturnedLines:
    """Remembers the lines of the last seconds, so that a resumed log does not return them again.

    ``from_start`` says that the log was requested from its beginning; if not, lines that are older than the first line are dropped.

    Cost
        About 100 bytes for each line of the last two seconds.
    """

    def __init__(self, *, from_start: bool) -> None:
        self._whole = from_start
        self._first: LogTimestamp | None = None
        self._seconds: dict[int, Counter[int]] = {}
        self._newest = 0
        self._again: Counter[int] | None = None

    def is_new(self, line: bytes) -> bool:
        """Return whether a line (with its time) should be returned; if so, remember it. Lines without a time are always new."""
        moment = line_time(line)
        if moment is None:
            return True
        if self._first is None:
            self._first = moment
        second, mark = moment[0], hash(line)
        if self._again is not None:
            if second > self._newest + _DISORDER:
                self._again = None  # later than any line that may have arrived before the connection was lost
            else:
                # A runtime may write several equal lines with the same time, so their number is compared.
                self._again[mark] += 1
                if (moment < self._first and not self._whole) or self._again[mark] <= self._seconds.get(second, _NONE)[mark]:
                    return False
        if second >= self._newest - _DISORDER:
            if second > self._newest:
                self._newest = second
                for old in [one for one in self._seconds if one < second - _DISORDER]:
                    del self._seconds[old]
            self._seconds.setdefault(second, Counter())[mark] += 1
        return True

    def begin_resume(self) -> datetime | None:
        """Return the time from which to request the log again, or None if no line with a time has arrived."""
        if self._first is None:
            return None
        self._again = Counter()
        since = self._newest - _DISORDER
        return datetime.fromtimestamp(since if self._whole else max(since, self._first[0]), UTC)


_NONE: Counter[int] = Counter()


def line_time(line: bytes) -> LogTimestamp | None:
    """Return a line's time, which is its first word, or None if that is not a time."""
    match = _STAMP.match(line)
    if match is None:
        return None
    second = _second(match[1], match[3])
    return None if second is None else (second, (match[2] or b"").ljust(9, b"0"))


def without_time(line: bytes) -> bytes:
    """Return the line as the container wrote it."""
    match = _STAMP.match(line)
    return line if match is None else line[match.end() :]


@lru_cache(maxsize=64)
def _second(moment: bytes, offset: bytes) -> int | None:
    try:
        return int((datetime.fromisoformat((moment + offset).decode()) - _EPOCH) / timedelta(seconds=1))
    except (ValueError, OverflowError):
        return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
