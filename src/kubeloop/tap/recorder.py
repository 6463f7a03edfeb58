"""Writes a recording while it grows, and makes a HAR file of it at the end.

While the tap runs, the file is a journal of lines, so that the file of a killed tap is complete up to its last step; ``recording.py`` reads
both forms.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import BinaryIO, Final

import msgspec

from kubeloop.meta.errors import ConfigError
from kubeloop.tap.har_entry import FORMAT, EntryWriter, har_meta, log_of
from kubeloop.tap.observed_request import ObservedFrame, ObservedRequest
from kubeloop.tap.traffic import ConnectionClosed, ConnectionFailed, ConnectionOpened, TapMessage
from kubeloop.types import JSONObject
from kubeloop.version import VERSION

#: The first member of a journal's first line.
JOURNAL: Final = "kubeloopTapJournal"


def create_private(path: Path, *, overwrite: bool) -> BinaryIO:
    """Create a file with mode 0600 and open it. Devices and pipes are opened as they are.

    Args:
        path: The file.
        overwrite: Whether to empty a file that exists.

    Raises:
        ConfigError: It exists and must not be overwritten, or it cannot be written.
    """
    special = _is_special(path)
    exclusive = 0 if overwrite or special else os.O_EXCL
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC | exclusive, 0o600)
        if not special:
            os.fchmod(descriptor, 0o600)
    except FileExistsError:
        raise ConfigError(f"{path}: the file exists; name another one, or overwrite it with --force") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written ({error.strerror}); choose another file") from None
    return os.fdopen(descriptor, "wb" if special else "w+b")


def remove_file(path: Path) -> None:
    """Remove a file, if it exists. Devices and pipes stay."""
    if not _is_special(path):
        path.unlink(missing_ok=True)


def _is_special(path: Path) -> bool:
    """Return whether a path is a device or a pipe, which have no content that could be lost."""
    try:
        return not stat.S_ISREG(path.stat().st_mode)
    except OSError:
        return False


class HarRecorder:
    """Records a conversation into a file of mode 0600. It is a ``ConversationListener``.

    Guarantees:
        After each step the file contains all steps before it. ``close`` replaces the file by a HAR file at once.
        If the disk is full, the recording ends, ``failure`` says so, and the relay continues.
    """

    def __init__(self, path: Path, started: datetime, details: JSONObject, *, show_secrets: bool = False, overwrite: bool = False) -> None:
        """Create the file.

        Args:
            path: The file.
            started: The time of day at the start of the tap.
            details: Facts about the tap, such as its server and command; without secrets.
            show_secrets: Record credentials and the values of Secrets.
            overwrite: Whether to empty a file that exists.

        Raises:
            ConfigError: The file exists and must not be overwritten, or it cannot be written.
        """
        self.path = path
        self.failure = ""
        self._entries = EntryWriter(started, show_secrets=show_secrets)
        self._meta = har_meta(VERSION, {"format": FORMAT, "started": started.isoformat(), "redacted": not show_secrets, **details})
        self._file = create_private(path, overwrite=overwrite)
        self._write({JOURNAL: FORMAT, "log": self._meta})

    def on_connection(self, fact: ConnectionOpened | ConnectionFailed | ConnectionClosed) -> None:
        """Record the connection."""
        kind = {ConnectionOpened: "opened", ConnectionFailed: "failed", ConnectionClosed: "closed"}[type(fact)]
        details = {key: value for key, value in msgspec.to_builtins(fact).items() if key != "at"}
        self._write({"connection": {"event": kind, "time": round(fact.at * 1000, 3), **details}})

    def on_started(self, request: ObservedRequest) -> None:
        """Record the request."""
        self._write({"request": request.number, "entry": self._entries.started(request)})

    def on_answered(self, request: ObservedRequest) -> None:
        """Record the response's head, if its end may be far away."""
        if request.is_stream:
            self._write({"request": request.number, "entry": self._entries.answered(request)})

    def on_waiting(self, request: ObservedRequest, seconds: float) -> None:
        """Do nothing: the entry has the times."""

    def on_frame(self, request: ObservedRequest, frame: ObservedFrame) -> None:
        """Record the frame."""
        self._write({"request": request.number, "frame": self._entries.frame(request, frame)})

    def on_ended(self, request: ObservedRequest) -> None:
        """Record the whole entry."""
        self._write({"request": request.number, "entry": self._entries.ended(request)})

    def on_message(self, fact: TapMessage) -> None:
        """Do nothing: messages are for the terminal."""

    def discard(self) -> None:
        """Remove the file, for a command that was never started."""
        self._file.close()
        remove_file(self.path)

    def close(self) -> None:
        """Make a HAR file of the journal. If that fails, the journal stays and is readable, and ``failure`` says why."""
        if self._file.closed:
            return
        temporary = ""
        try:
            with self._file as journal:
                handle, temporary = tempfile.mkstemp(dir=self.path.absolute().parent, prefix=f".{self.path.name}.")
                with os.fdopen(handle, "wb") as file:
                    for part in har_of(journal):
                        file.write(part)
            Path(temporary).replace(self.path)
        except OSError as error:
            if temporary:
                Path(temporary).unlink(missing_ok=True)
            self.failure = self.failure or (
                f"{self.path}: no HAR file could be made of the recording ({error.strerror}); kubeloop tap report and replay read it so"
            )

    def _write(self, line: JSONObject) -> None:
        if self.failure:
            return
        try:
            self._file.write(msgspec.json.encode(line) + b"\n")
            self._file.flush()
        except OSError as error:
            self.failure = f"{self.path}: the recording is incomplete: {error.strerror or error}"


def har_of(journal: BinaryIO) -> Iterator[bytes]:
    """Yield a HAR file from a journal. It needs memory for the positions of the lines and for one entry.

    A damaged line ends the recording.
    """
    meta: JSONObject = har_meta(VERSION, {})
    connections: list[JSONObject] = []
    lines: dict[int, list[int]] = defaultdict(list)
    journal.seek(0)
    position = 0
    for line in journal:
        record = read_line(line)
        if record is None:
            break
        if "log" in record:
            meta = record["log"]
        elif "connection" in record:
            connections.append(record["connection"])
        elif "request" in record:
            lines[record["request"]].append(position)
        position += len(line)
    meta.setdefault("_kubeloop", {})["connections"] = connections

    def entries() -> Iterator[bytes]:
        for positions in lines.values():  # in the order of their first lines
            yield msgspec.json.encode(_entry(journal, positions))

    yield from log_of(meta, entries())


def read_line(line: bytes) -> JSONObject | None:
    """Return a line of a journal, or None if it is damaged: the last line of a killed tap may be."""
    try:
        record = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return record if isinstance(record, dict) and line.endswith(b"\n") else None


def _entry(journal: BinaryIO, positions: list[int]) -> JSONObject:
    entry: JSONObject = {}
    frames: list[JSONObject] = []
    for position in positions:
        journal.seek(position)
        record = read_line(journal.readline()) or {}
        if "frame" in record:
            frames.append(record["frame"])
        else:
            entry |= record.get("entry") or {}
    if frames or "_frames" in entry:
        entry["_frames"] = frames
        if frames and not entry.get("time"):
            entry["time"] = frames[-1]["time"]
    return entry
