"""The output of audit events: a file of mode 0600, or standard output, with one JSON object per line.

A thread writes events shortly after they occur, so that no request waits for the disk; ``close`` writes the rest.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kubeloop.meta.errors import ConfigError
from kubeloop.tasks import finish
from kubeloop.timing import Clock, Timer

_LOG = logging.getLogger("kubeloop.apiserver.audit")

#: Seconds between an event and the write of all collected events.
_DELAY = 0.05
#: Maximum bytes that wait for a slow disk. Beyond, the event loop waits for the disk, because no event may be lost.
_WAITING = 8 << 20
_MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Rotation:
    """Rotation of the audit log. 0 means no limit.

    Attributes:
        size: Size of a file in MiB at which it is renamed.
        backups: Number of renamed files that stay.
        days: Days for which renamed files stay.
    """

    size: int = 0
    backups: int = 0
    days: int = 0


class AuditLog:
    """Writes audit events, which it receives in the event loop.

    Guarantees
        Events are written in their order; after ``close`` all of them are written.

    Not guaranteed
        The events of the last moments (50 ms, and the delay of the disk) may be lost when the process crashes.

    Raises
        ConfigError: From ``open``: the file cannot be written.
    """

    def __init__(self, path: Path | None, clock: Clock, rotation: Rotation | None = None) -> None:
        """Create the log. If ``path`` is None, events are written to standard output."""
        self._path = path
        self._clock = clock
        self._rotation = rotation or Rotation()
        self._handle = -1
        self._size = 0
        self._lines: list[bytes] = []
        self._waiting = 0
        self._timer: Timer | None = None
        self._writing: asyncio.Future[None] | None = None
        self._executor: ThreadPoolExecutor | None = None
        #: Number of events that could not be written.
        self.failed = 0

    def open(self) -> None:
        """Open the file and start the thread."""
        if self._path is None:
            return
        try:
            self._open(self._path)
        except OSError as error:
            raise ConfigError(
                f"cannot write the audit log {self._path}: {error.strerror or error}; name a file in a folder that you may write"
            ) from None

    def add(self, event: bytes) -> None:
        """Add one event, without a line break."""
        self._lines.append(event)
        self._waiting += len(event)
        if self._waiting > _WAITING and self._writing is None:
            self._write(self._taken())
        elif self._timer is None and self._writing is None:
            self._timer = self._clock.call_later(_DELAY, self._begin)

    async def close(self) -> None:
        """Write the waiting events and close the file."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            if self._writing is not None:
                await finish(self._writing)
        except Exception as error:  # noqa: BLE001 - the rest is still written, and the file closed
            _LOG.error("events could not be written to the audit log (%s)", type(error).__name__, exc_info=error)
        finally:  # also when the caller is cancelled
            if self._lines:
                self._write(self._taken())
            if self._executor is not None:
                self._executor.shutdown()
                self._executor = None
            if self._handle >= 0:
                os.close(self._handle)
                self._handle = -1

    def _begin(self) -> None:
        self._timer = None
        if not self._lines or self._writing is not None:
            return
        if self._executor is None:
            self._executor = ThreadPoolExecutor(1, "audit")
        self._writing = asyncio.get_running_loop().run_in_executor(self._executor, self._write, self._taken())
        self._writing.add_done_callback(self._written)

    def _written(self, _: object) -> None:
        self._writing = None
        if self._lines and self._timer is None and self._executor is not None:
            self._timer = self._clock.call_later(_DELAY, self._begin)

    def _taken(self) -> list[bytes]:
        lines, self._lines, self._waiting = self._lines, [], 0
        return lines

    def _write(self, lines: list[bytes]) -> None:
        """Write lines. Any thread may call this, but only one at a time."""
        data = b"\n".join(lines) + b"\n"
        try:
            if self._path is None:
                sys.stdout.write(data.decode())
                sys.stdout.flush()
                return
            if self._rotation.size and self._size and self._size + len(data) > self._rotation.size * _MEBIBYTE:
                self._rotate(self._path)
            view = memoryview(data)
            while view:
                written = os.write(self._handle, view)
                self._size += written
                view = view[written:]
        except (OSError, ValueError) as error:
            self.failed += len(lines)
            _LOG.error("%d events could not be written to the audit log: %s", len(lines), error)

    def _open(self, path: Path) -> None:
        self._handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        self._size = os.fstat(self._handle).st_size

    def _rotate(self, path: Path) -> None:
        """Rename the file to ``NAME-TIME.SUFFIX``, and remove renamed files beyond the limits of number and age."""
        now = datetime.now(UTC)
        aside = path.with_name(f"{path.stem}-{now:%Y-%m-%dT%H-%M-%S.%f}{path.suffix}")
        path.rename(aside)
        os.close(self._handle)
        self._open(path)
        stored = sorted(path.parent.glob(f"{_escaped(path.stem)}-????-??-??T??-??-??.*{_escaped(path.suffix)}"), reverse=True)
        oldest = f"{path.stem}-{now - timedelta(days=self._rotation.days):%Y-%m-%dT%H-%M-%S.%f}{path.suffix}"
        for at, one in enumerate(stored):
            if (self._rotation.backups and at >= self._rotation.backups) or (self._rotation.days and one.name < oldest):
                one.unlink(missing_ok=True)


def _escaped(text: str) -> str:
    return "".join(f"[{sign}]" if sign in "*?[" else sign for sign in text)
