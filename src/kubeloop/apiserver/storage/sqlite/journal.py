"""The database file of a store, which holds changes in the order of their revisions.

This module is synchronous, and has no conditional writes, watches or clocks. Source: sqlite.org "Write-Ahead Logging", "PRAGMA
synchronous": with WAL and FULL, a committed transaction survives a power failure.
"""

from __future__ import annotations

import os
import sqlite3
import struct
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from kubeloop.apiserver.storage.protocol import StorageFailed
from kubeloop.meta.errors import ConfigError


class Record(NamedTuple):
    """One change, at ``revision``.

    ``value`` is None for a deletion. ``created`` is the revision that created the key. ``expires`` is the end of its lease in milliseconds
    since 1970, or None.
    """

    revision: int
    key: str
    value: bytes | None
    created: int
    expires: int | None = None

    @property
    def checksum(self) -> int:
        """Return the checksum of all fields."""
        head = f"{self.revision}\0{self.key}\0{self.created}\0{self.expires}\0{self.value is None}\0"
        return zlib.crc32(self.value or b"", zlib.crc32(head.encode()))


def number_checksum(name: str, number: int) -> int:
    return zlib.crc32(f"{name}\0{number}".encode())


# Check of the write-ahead log before SQLite opens it: SQLite takes a broken frame for the end and silently drops all later transactions.
# Source: sqlite.org "WAL-mode File Format".


#: Header of the log: magic, format, page size, number of checkpoints, two salts, two checksums.
#: Header of a frame: page, pages after a commit, two salts.
_HEAD = struct.Struct(">8I")
_FRAME = struct.Struct(">4I")
_FRAME_HEAD = 24
_MAGIC = (0x377F0682, 0x377F0683)  # checksums over little and over big endian words


@dataclass(frozen=True, slots=True)
class WriteAheadLog:
    """A parsed write-ahead log. ``headless`` is True if its header is damaged.

    ``commits`` has the numbers (from 1) of the frames that end a transaction of the current log.
    """

    headless: bool
    commits: tuple[int, ...]

    @classmethod
    def read(cls, path: Path) -> WriteAheadLog:
        """Read the log in ``path``. A missing or empty file is an empty log."""
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
        """Return the damage of the log if SQLite accepts only its first ``valid`` frames, or "" if there is none.

        The last transaction may be incomplete: a power failure interrupts only transactions that were never acknowledged.
        """
        if self.headless:
            return "the head of its write-ahead log is wrong"
        lost = sum(number > valid for number in self.commits)
        return f"its write-ahead log is broken after frame {valid}, and {lost} transactions come after that" if lost > 1 else ""


@contextmanager
def examine_log(path: Path) -> Iterator[WriteAheadLog]:
    """Context manager: reads the log in ``path``. On an error it restores the file, which SQLite deletes when it closes a database."""
    log = WriteAheadLog.read(path)
    stored = path.with_name(f"{path.name}.kept")
    if path.exists() and (log.headless or log.commits):
        stored.unlink(missing_ok=True)
        os.link(path, stored)
    try:
        yield log
    except BaseException:
        if stored.exists():
            stored.replace(path)
        raise
    stored.unlink(missing_ok=True)


def _checksum(data: bytes, magic: int) -> tuple[int, int]:
    words = struct.unpack(f"{'>' if magic == _MAGIC[1] else '<'}{len(data) // 4}I", data)
    one = two = 0
    for at in range(0, len(words), 2):
        one = (one + words[at] + two) & 0xFFFFFFFF
        two = (two + words[at + 1] + one) & 0xFFFFFFFF
    return one, two


#: Marks a SQLite file as a store of kubeloop ("klop"): PRAGMA application_id.
APPLICATION = 0x6B6C6F70

#: Step n converts format n-1 to format n; ``PRAGMA user_version`` is the format of a file. Add steps; never change a released step.
_FORMATS = (
    """
    CREATE TABLE changes (
        revision INTEGER PRIMARY KEY, key TEXT NOT NULL, value BLOB, created INTEGER NOT NULL, expires INTEGER, checksum INTEGER NOT NULL
    );
    CREATE TABLE numbers (name TEXT PRIMARY KEY, number INTEGER NOT NULL, checksum INTEGER NOT NULL) WITHOUT ROWID;
    """,
)

#: Primary result codes of SQLite for a damaged file: a broken page, no header, a missing table.
_DAMAGE = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)

#: Page size in bytes. A page of 4 KiB, the default, stores only one object of 2 KiB, which doubles the size of the file.
_PAGE = 8192

_OLDEST = "oldest"
_SELECT = "SELECT revision, key, value, created, expires, checksum FROM changes ORDER BY revision"
_INSERT = "INSERT INTO changes (revision, key, value, created, expires, checksum) VALUES (?, ?, ?, ?, ?, ?)"
#: Bytes of write-ahead log that stay on disk after a checkpoint.
_MOST_LOG = 64 * 1024 * 1024


class StoreDamaged(ConfigError):
    """The content of a store's file is damaged, so that the server does not start. ``what`` describes the damaged place."""

    def __init__(self, path: Path, damage: str) -> None:
        super().__init__(f"{path} is damaged: {damage}; restore a snapshot into another folder, or move this one away to start empty")
        self.what = damage


def create_database(path: Path, *, synced: bool) -> None:
    """Create an empty store at revision 1 in the empty file ``path``. ``synced`` calls fsync. Raises OSError, sqlite3.Error."""
    connection = sqlite3.connect(path, isolation_level=None)
    try:
        connection.execute(f"PRAGMA page_size = {_PAGE}")
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(_synchronous(synced))
        _migrate(connection, 0)
        _set_oldest(connection, 1)
    finally:
        connection.close()


class Journal:
    """The open SQLite database of a store, a log of all changes. Only one thread may use it at a time.

    Guarantees
        When ``commit`` returns, the staged changes are on disk; when it raises, none of them is. With ``synced`` False, the operating
        system has them: they survive the end of the process, but not a power failure.

    Raises
        StoreDamaged: From the constructor and ``load``.
        ConfigError: From the constructor: the file is not a store, or a newer kubeloop wrote it.
        StorageFailed: From methods that write. After any error but a full disk, all writes fail until the store is opened again, because
            the state on disk is unknown.
    """

    def __init__(self, path: Path, *, synced: bool = True) -> None:
        self.path = path
        self._synced = synced
        #: The error after which all writes fail; "" if there is none.
        self.fault = ""
        self._oldest = self._last = self._staged = 0
        with examine_log(path.with_name(f"{path.name}-wal")) as log:
            try:
                # mode=rw: SQLite must not create a file that has vanished.
                uri = f"{path.absolute().as_uri()}?mode=rw"
                self._connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
            except sqlite3.Error as error:
                raise ConfigError(f"cannot open {path}: {error}") from None
            try:
                self._prepare(log)
            except sqlite3.Error as error:
                self._connection.close()
                if error.sqlite_errorcode & 0xFF in _DAMAGE:
                    raise StoreDamaged(path, str(error)) from None
                raise ConfigError(f"cannot open {path}: {error}") from None
            except BaseException:
                self._connection.close()
                raise

    @property
    def oldest(self) -> int:
        """The revision of the last compaction."""
        return self._oldest

    def load(self) -> Iterator[Record]:
        """Iterate over all changes, by revision. After an interrupted compaction there may be unnecessary records up to ``oldest``.

        Raises:
            StoreDamaged: A record is damaged or missing.
        """
        before = self._oldest
        self._last = before
        try:
            for revision, key, value, created, expires, checksum in self._connection.execute(_SELECT):
                if not (isinstance(key, str) and isinstance(value, bytes | None) and isinstance(created, int)):
                    raise StoreDamaged(self.path, f"the record of revision {revision} is of another type")
                record = Record(revision, key, value, created, expires)
                if record.checksum != checksum:
                    raise StoreDamaged(self.path, f"the checksum of revision {revision} ({key}) is wrong")
                if revision > self._oldest:
                    if revision != before + 1:
                        missing = f"revision {before + 1} is" if revision == before + 2 else f"revisions {before + 1} to {revision - 1} are"
                        raise StoreDamaged(self.path, f"{missing} missing")
                    self._last = before = revision
                yield record
        except sqlite3.Error as error:
            raise StoreDamaged(self.path, str(error)) from None
        except UnicodeDecodeError:
            raise StoreDamaged(self.path, f"a key after revision {before} is not text") from None

    def stage(self, records: list[Record]) -> None:
        """Begin a transaction and write these changes (at least one) to it. ``commit`` ends the transaction."""
        self._check()
        self._staged = records[-1].revision
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, [(*record, record.checksum) for record in records])
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def commit(self) -> None:
        """Commit the staged changes."""
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from None
        self._last = self._staged

    def set_oldest(self, revision: int) -> None:
        """Record a compaction to ``revision``. Older records may stay in the file, but are not read any more."""
        self._check()
        try:
            _set_oldest(self._connection, revision)
        except sqlite3.Error as error:
            raise self._failed(error) from None
        self._oldest = revision
        self._last = max(self._last, revision)

    def remove(self, revisions: Iterable[int]) -> None:
        """Delete records that a compaction made unnecessary."""
        self._check()
        try:
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany("DELETE FROM changes WHERE revision = ?", [(one,) for one in revisions])
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            raise self._failed(error) from None

    def close(self) -> None:
        """Close the database. All data is then in the one file ``path``."""
        self._connection.close()

    def _prepare(self, log: WriteAheadLog) -> None:
        # The first read recovers the log of a crash; before it, numbers in the file header may be old.
        result = self._connection.execute("PRAGMA application_id").fetchone()[0]
        if result != APPLICATION:
            raise ConfigError(f"{self.path} is not a store of kubeloop; name another folder")
        version = self._connection.execute("PRAGMA user_version").fetchone()[0]
        if version > len(_FORMATS):
            raise ConfigError(f"{self.path} has format {version}, and this kubeloop knows formats up to {len(_FORMATS)}; use a newer one")
        if self._connection.execute("PRAGMA journal_mode = WAL").fetchone()[0] != "wal":
            raise ConfigError(f"{self.path}: its file system cannot hold a write-ahead log; name a folder on a local disk")
        self._connection.execute(_synchronous(self._synced))
        _, frames, _ = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if error := log.fault(frames):
            raise StoreDamaged(self.path, error)
        self._connection.execute(f"PRAGMA journal_size_limit = {_MOST_LOG}")
        for (error,) in self._connection.execute("PRAGMA quick_check(1)"):
            if error != "ok":
                raise StoreDamaged(self.path, " ".join(error.removeprefix("*** in database main ***").split()))
        _migrate(self._connection, version)
        rows = self._connection.execute("SELECT number, checksum FROM numbers WHERE name = ?", (_OLDEST,)).fetchall()
        if len(rows) != 1 or rows[0][1] != number_checksum(_OLDEST, rows[0][0]):
            raise StoreDamaged(self.path, "the checksum of the oldest revision is wrong")
        self._oldest = rows[0][0]

    def _last_stored(self) -> int:
        return max(self._oldest, self._connection.execute("SELECT max(revision) FROM changes").fetchone()[0] or 0)

    def _check(self) -> None:
        if self.fault:
            raise StorageFailed(self.fault)

    def _failed(self, error: sqlite3.Error) -> StorageFailed:
        """Roll back the transaction and return the error to raise."""
        full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
            full = full and self._last_stored() == self._last
        except sqlite3.Error:
            full = False
        if full:
            return StorageFailed(f"cannot write {self.path}: the disk is full; reads go on, and so do writes when there is room again")
        self.fault = f"cannot write {self.path}: {error}; the server writes nothing more until it is started again"
        return StorageFailed(self.fault)


def _synchronous(synced: bool) -> str:
    return f"PRAGMA synchronous = {'FULL' if synced else 'OFF'}"


def _migrate(connection: sqlite3.Connection, version: int) -> None:
    for number, step in enumerate(_FORMATS[version:], version + 1):
        connection.executescript(f"BEGIN IMMEDIATE; {step}; PRAGMA user_version = {number}; COMMIT;")


def _set_oldest(connection: sqlite3.Connection, revision: int) -> None:
    connection.execute("INSERT OR REPLACE INTO numbers VALUES (?, ?, ?)", (_OLDEST, revision, number_checksum(_OLDEST, revision)))
