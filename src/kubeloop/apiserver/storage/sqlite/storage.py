"""Durable storage: reads from memory, and writes each change to a file before any reader sees it."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from kubeloop.apiserver.storage.memory import History, HistoryStream, HistoryStreams, Leases
from kubeloop.apiserver.storage.protocol import KeyValue, Range, StorageEvent, StorageFailed, WriteOutcome
from kubeloop.apiserver.storage.sqlite.folder import Lock, ensure_store
from kubeloop.apiserver.storage.sqlite.journal import Journal, Record
from kubeloop.tasks import finish, wait_all
from kubeloop.timing import Clock, SystemClock

T = TypeVar("T")

_LOG = logging.getLogger("kubeloop.apiserver.storage")

#: Maximum unnecessary records that one transaction deletes, because writes wait for it.
_REMOVED_AT_ONCE = 2000

#: Seconds until the next attempt to delete a key whose lease ended while the disk was full.
_NEXT_TRY = 60.0


@dataclass(slots=True)
class _Write:
    """A write that waits for the next transaction."""

    key: str
    value: bytes | None
    expected: int
    lease: int
    ends: float | None
    done: asyncio.Future[WriteOutcome]


class SqliteStorage:
    """Storage in a SQLite file. Implements ``Storage``. ``open`` returns an instance.

    Guarantees
        A successful write survives the end of the process, and a power failure if the disk honours fsync.
        Data that was read or watched survives as well, because it becomes visible only when it is on disk. No revision is used twice.
        History since the last compaction survives, and leases end at their time.

    Cost
        The same as in memory, plus one ``fsync`` for all writes that arrive during the previous ``fsync``. ``open`` reads the whole file.
        One thread is used for ``fsync``.

    With ``synced`` False no write waits for the disk: data survives the end of the process, but not a power failure.
    """

    def __init__(self, lock: Lock, ledger: Journal, history: History, clock: Clock, *, synced: bool = True) -> None:
        """Create the storage from an open database; most callers use ``open`` instead.

        Args:
            lock: The lock of the folder.
            ledger: The open database.
            history: The content of the database.
            clock: The clock for leases.
            synced: Call fsync for each transaction.
        """
        self._synced = synced
        self._lock = lock
        self._ledger = ledger
        self._history = history
        self._streams = HistoryStreams(history)
        self._leases = Leases(clock, self._expire)
        self._thread = ThreadPoolExecutor(1, "kubeloop-storage")
        self._waiting: list[_Write] = []
        self._flushing: asyncio.Task[None] | None = None
        self._file = asyncio.Lock()  # locked during each operation on the file
        self._closed = False
        self._logged = ""  # the fault that was logged last

    @classmethod
    async def open(cls, folder: Path, clock: Clock | None = None, *, synced: bool = True) -> SqliteStorage:
        """Open the store in ``folder``, and create it if the folder has none.

        Args:
            folder: The folder of the store.
            clock: Clock for leases; None: the system clock.
            synced: Whether commits call fsync.

        Raises:
            ConfigError: Another process has the store open, it is damaged, or a newer kubeloop wrote it.
            OSError: The folder cannot be used.
        """
        clock = clock or SystemClock()
        lock = Lock(folder)
        try:
            ledger = Journal(ensure_store(folder, synced=synced), synced=synced)
            try:
                loaded = _Loaded(ledger)
                with contextlib.suppress(StorageFailed):  # the disk is full; a later compaction removes them
                    for start in range(0, len(loaded.worthless), _REMOVED_AT_ONCE):
                        ledger.remove(loaded.worthless[start : start + _REMOVED_AT_ONCE])
            except BaseException:
                ledger.close()
                raise
        except BaseException:
            lock.release()
            raise
        made = cls(lock, ledger, loaded.history, clock, synced=synced)
        made._resume_leases(loaded.expires, clock)
        return made

    @property
    def fault(self) -> str:
        return self._ledger.fault

    async def revision(self) -> int:
        return self._history.revision

    async def oldest(self) -> int:
        return self._history.oldest

    async def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        return self._history.get(key, revision)

    async def range(self, start: str, end: str, *, revision: int = 0, limit: int = 0) -> Range:
        """Read a range of keys. See ``Storage.range``.

        Args:
            start: First key.
            end: First key after the range.
            revision: Revision to read; 0: the current one.
            limit: Maximum number of keys; 0: all.

        Returns:
            The keys, sorted.
        """
        return self._history.range(start, end, revision, limit)

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> WriteOutcome:
        """Write or delete a key if its ``mod_revision`` is ``expected``. See ``Storage.write``.

        Args:
            key: The key.
            value: The new value; None deletes the key.
            expected: The revision that the key must have; 0: the key must not exist.
            lease: A lease whose end deletes the key; 0: none.

        Returns:
            Whether the write succeeded, the revision, and the current key.

        Raises:
            StorageFailed: The change could not be stored.
        """
        if self._closed:
            raise StorageFailed(f"cannot write {self._ledger.path}: it is closed")
        ends = self._leases.ends(lease)
        done: asyncio.Future[WriteOutcome] = asyncio.get_running_loop().create_future()
        self._add(_Write(key, value, expected, lease, ends, done))
        return await done

    def watch(self, prefix: str, start_revision: int) -> HistoryStream:
        return self._streams.stream(prefix, start_revision)

    def events(self, prefix: str, start_revision: int) -> tuple[list[StorageEvent], int]:
        """Return the changes of keys with a prefix from ``start_revision`` on, and the next revision to read.

        Raises:
            Compacted: Some of the changes were compacted.
        """
        return self._history.events(prefix, start_revision)

    async def compact(self, revision: int) -> None:
        async with self._file:
            self._history.check_compaction(revision)
            worthless = self._history.superseded(revision)
            await self._in_thread(functools.partial(self._ledger.set_oldest, revision))
            self._history.compact(revision)
        self._streams.wake()
        # The compaction is complete. If the process ends here, ``open`` removes the unnecessary records.
        for start in range(0, len(worthless), _REMOVED_AT_ONCE):
            part = worthless[start : start + _REMOVED_AT_ONCE]
            async with self._file:
                await self._in_thread(functools.partial(self._ledger.remove, part))

    async def grant(self, seconds: float) -> int:
        return self._leases.grant(seconds)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._leases.close()
        # Also when the caller is cancelled, because the lock of the folder must be released.
        await finish(self._close())

    async def _close(self) -> None:
        try:
            await wait_all(self._flushing)
            async with self._file:
                await self._in_thread(self._ledger.close)
        finally:
            self._thread.shutdown()
            self._streams.end()
            self._lock.release()

    def _resume_leases(self, expires: dict[str, int], clock: Clock) -> None:
        now = clock.wall().timestamp()
        leases: dict[int, int] = {}
        for key, end in expires.items():
            if end not in leases:
                leases[end] = self._leases.grant(max(end / 1000 - now, 0))
            self._leases.attach(key, leases[end])

    def _expire(self, keys: list[str]) -> None:
        for key in keys:
            current = self._history.newest(key)
            if current is not None:
                # A key that was written meanwhile has another lease, or none.
                done: asyncio.Future[WriteOutcome] = asyncio.get_running_loop().create_future()
                done.add_done_callback(functools.partial(self._expire_again, key))
                self._add(_Write(key, None, current.mod_revision, 0, None, done))

    def _expire_again(self, key: str, done: asyncio.Future[WriteOutcome]) -> None:
        """Schedule another attempt to delete a key after its deletion failed because the disk was full."""
        if not done.cancelled() and done.exception() is not None and not self._closed:
            self._leases.attach(key, self._leases.grant(_NEXT_TRY))

    def _add(self, write: _Write) -> None:
        self._waiting.append(write)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="storage")

    async def _flush(self) -> None:
        """Write waiting changes, each batch in one transaction, until no change waits."""
        while self._waiting:
            async with self._file:
                batch, self._waiting = self._waiting, []
                try:
                    await self._settle(batch)
                except Exception as error:  # noqa: BLE001 - whatever it is, the writers must get an answer, and later writes a new try
                    _LOG.exception("writing to %s failed", self._ledger.path)
                    for write in batch:
                        if not write.done.done():
                            write.done.set_exception(StorageFailed(f"cannot write {self._ledger.path}: {type(error).__name__}: {error}"))
                except BaseException:
                    for write in batch:
                        write.done.cancel()  # its waiter must not wait forever
                    raise

    async def _settle(self, batch: list[_Write]) -> None:
        plan = _Plan(self._history)
        outcomes = [plan.add(write) for write in batch]
        if plan.records:
            try:
                self._ledger.stage(plan.records)
                await self._in_thread(self._ledger.commit)
            except StorageFailed as error:
                if str(error) != self._logged:
                    self._logged = str(error)
                    _LOG.error("%s", error)
                for write in batch:
                    if not write.done.done():
                        write.done.set_exception(StorageFailed(*error.args))
                return
            self._logged = ""
            for write in plan.changes:
                self._history.put(write.key, write.value)
            self._streams.wake()
            ended = [one.key for one in plan.changes if not self._leases.attach(one.key, one.lease if one.value is not None else 0)]
            self._expire(ended)
        for write, outcome in zip(batch, outcomes, strict=True):
            if not write.done.done():
                write.done.set_result(outcome)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Run ``work`` in the thread or, without fsync, directly.

        Even a cancelled caller waits for the end of ``work``, because the file must not be used before.
        """
        if not self._synced:
            return work()  # a commit without fsync is faster than a switch to the thread
        return await finish(asyncio.get_running_loop().run_in_executor(self._thread, work))


class _Plan:
    """The changes of a batch of writes, each of which sees the earlier ones. It does not change the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._new: dict[str, KeyValue | None] = {}
        self._revision = history.revision
        self.records: list[Record] = []
        self.changes: list[_Write] = []

    def add(self, write: _Write) -> WriteOutcome:
        key, value = write.key, write.value
        current = self._new[key] if key in self._new else self._history.newest(key)
        if (current.mod_revision if current else 0) != write.expected:
            return WriteOutcome(False, self._revision, current)
        if value is None and current is None:
            return WriteOutcome(True, self._revision, None)
        self._revision += 1
        created = current.create_revision if current else self._revision
        expires = None if value is None or write.ends is None else int(write.ends * 1000)
        self.records.append(Record(self._revision, key, value, created, expires))
        self.changes.append(write)
        written = None if value is None else KeyValue(key, value, created, self._revision)
        self._new[key] = written
        return WriteOutcome(True, self._revision, written)


class _Loaded:
    """The content of a store's file: history, unnecessary records, and the ends of leases."""

    def __init__(self, ledger: Journal) -> None:
        base: dict[str, Record] = {}
        changes: list[tuple[str, bytes | None]] = []
        self.worthless: list[int] = []
        self.expires: dict[str, int] = {}
        for record in ledger.load():
            if record.revision > ledger.oldest:
                changes.append((record.key, record.value))
            else:
                if record.key in base:
                    self.worthless.append(base.pop(record.key).revision)
                if record.value is None:
                    self.worthless.append(record.revision)
                else:
                    base[record.key] = record
            self.expires.pop(record.key, None)
            if record.expires is not None:
                self.expires[record.key] = record.expires
        result = (KeyValue(one.key, one.value, one.created, one.revision) for one in base.values() if one.value is not None)
        self.history = History.restored(ledger.oldest, result, changes)
