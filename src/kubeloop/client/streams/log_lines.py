"""Lines of a log, and which of them were handed out already: the part of following a log that needs no connection.

Kubernetes takes whole seconds for "since" (``sinceTime`` is a metav1.Time), so that what is asked for again after a cut always overlaps.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from kubeloop.client.streams.errors import StreamError

#: Bytes of one line that are kept together.
MAX_LINE = 16 << 20
# As kubelets write them: RFC 3339 with nine digits, in the node's own zone; one blank; the line.
_STAMP = re.compile(rb"([0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2})(?:\.([0-9]{1,9}))?(Z|[+-][0-9]{2}:[0-9]{2}) ")
# Runtimes write stdout and stderr from two threads: a line may come after one that is a little younger.
_DISORDER = 1

Moment = tuple[int, bytes]
"""Seconds since 1970, and the digits of its fraction, filled up to nine: in order as tuples."""


class LineCutter:
    """Bytes to lines, wherever they were cut."""

    def __init__(self, where: str) -> None:
        self._where = where
        self._parts: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends.

        Raises:
            StreamError: a line is longer than ``MAX_LINE``.
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
        """The beginning of a line whose end has not come."""
        rest = b"".join(self._parts)
        self._parts, self._size = [], 0
        return rest


class HandedOut:
    """Remembers the lines of the last seconds, so that none of them is handed out again when they come again after a cut.

    ``whole``: the log was asked for from its beginning; else lines older than the first that came are not wanted.

    Cost
        About 100 bytes for each line of the last two seconds.
    """

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._first: Moment | None = None
        self._seconds: dict[int, Counter[int]] = {}
        self._newest = 0
        self._again: Counter[int] | None = None

    def is_new(self, line: bytes) -> bool:
        """Whether this line (with its time) is to be handed out now; remembers it if so. Lines without a time always are."""
        moment = moment_of(line)
        if moment is None:
            return True
        if self._first is None:
            self._first = moment
        second, mark = moment[0], hash(line)
        if self._again is not None:
            if second > self._newest + _DISORDER:
                self._again = None  # past all that can have come before the cut
            else:
                # A runtime may give many equal lines one time: it is their number that counts.
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

    def resume(self) -> datetime | None:
        """From when on to ask for the log again; None: nothing with a time has come, so ask as at first."""
        if self._first is None:
            return None
        self._again = Counter()
        since = self._newest - _DISORDER
        return datetime.fromtimestamp(since if self._whole else max(since, self._first[0]), UTC)


_NONE: Counter[int] = Counter()


def moment_of(line: bytes) -> Moment | None:
    """When a line was written, as its first word says; None if that is no time."""
    found = _STAMP.match(line)
    if found is None:
        return None
    second = _second(found[1], found[3])
    return None if second is None else (second, (found[2] or b"").ljust(9, b"0"))


def without_moment(line: bytes) -> bytes:
    """The line as the container wrote it."""
    found = _STAMP.match(line)
    return line if found is None else line[found.end() :]


@lru_cache(maxsize=64)
def _second(moment: bytes, offset: bytes) -> int | None:
    try:
        return int((datetime.fromisoformat((moment + offset).decode()) - _EPOCH) / timedelta(seconds=1))
    except (ValueError, OverflowError):
        return None


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
