"""What a replica notes while it lives, in a file that outlives a ``kill -9``: one write for each line, nothing is held back.

Times are of CLOCK_MONOTONIC, which all processes of a machine share.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self


class Notes:
    """Appends. ``begin KEY``, ``end KEY`` or ``cancelled KEY`` of each reconcile; ``memory MIB``."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._file)

    @contextmanager
    def reconcile(self, key: str) -> Iterator[None]:
        how = "cancelled"
        self._write("begin", key)
        try:
            yield
            how = "end"
        except Exception:
            how = "end"
            raise
        finally:
            self._write(how, key)

    def memory(self, mebibytes: float) -> None:
        self._write("memory", f"{mebibytes:.1f}")

    def _write(self, action: str, of: str) -> None:
        os.write(self._file, f"{time.monotonic():.6f} {action} {of}\n".encode())


@dataclass(frozen=True, slots=True)
class Interval:
    """One reconcile. ``cancelled``: it was, so that its end was not its own."""

    key: str
    replica: str
    start: float
    end: float
    cancelled: bool


@dataclass(slots=True)
class Account:
    """What the notes of one replica say."""

    intervals: list[Interval] = field(default_factory=list)
    memory: list[tuple[float, float]] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)


def read(path: Path, replica: str, died: float) -> Account:
    """``died``: when the process was gone; what had begun and not ended, ended then. A line that the death cut off does not count."""
    account = Account()
    begun: dict[str, list[float]] = defaultdict(list)
    text = path.read_text() if path.exists() else ""
    for line in text[: text.rfind("\n") + 1].splitlines():
        at, what, of = line.split(" ")
        when = float(at)
        if what == "memory":
            account.memory.append((when, float(of)))
        elif what == "begin":
            if begun[of]:
                account.twice.append(f"{of} is reconciled twice at a time in {replica}")
            begun[of].append(when)
        else:
            account.intervals.append(Interval(of, replica, begun[of].pop(0), when, what == "cancelled"))
    for key, starts in begun.items():
        account.intervals += [Interval(key, replica, start, died, cancelled=False) for start in starts]
    return account


def overlaps(accounts: list[Account]) -> tuple[list[str], int]:
    """Keys that two replicas had at a time; and how often one was still being cancelled when the next began, which could write no more."""
    of: dict[str, list[Interval]] = defaultdict(list)
    found: list[str] = []
    for account in accounts:
        found += account.twice
        for interval in account.intervals:
            of[interval.key].append(interval)
    late = 0
    for key, intervals in of.items():
        last: Interval | None = None
        for one in sorted(intervals, key=lambda interval: interval.start):
            if last is not None and one.start < last.end and one.replica != last.replica:
                if last.cancelled:
                    late += 1
                else:
                    overlap = last.end - one.start
                    found.append(f"{key} was reconciled by {last.replica} and {one.replica} at a time, for {overlap * 1000:.1f} ms")
            if last is None or one.end > last.end:
                last = one
    return found, late
