"""Storage that outlives its process: everything is read from memory, and each change is in a file before anybody sees it."""

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

from kubeloop.apiserver.storage.memory import History, Leases, Stream, Streams
from kubeloop.apiserver.storage.protocol import Event, KeyValue, Range, StorageFailed, Written
from kubeloop.apiserver.storage.sqlite.folder import Lock, ensure_store
from kubeloop.apiserver.storage.sqlite.ledger import Journal, Record
from kubeloop.tasks import finish, wait_all
from kubeloop.timing import Clock, SystemClock

T = TypeVar("T")

_LOG = logging.getLogger("kubeloop.apiserver.storage")

#: Worthless records that are deleted from the file in one transaction; writes wait for no more.
_REMOVED_AT_ONCE = 2000

#: Seconds after which keys are tried again that could not be deleted when their lease ended.
_NEXT_TRY = 60.0


@dataclass(slots=True)
class _Write:
    key: str
    value: bytes | None
    expected: int
    lease: int
    ends: float | None
    done: asyncio.Future[Written]


class SqliteStorage:
    """Implements ``Storage``; made by ``open``.

    Guarantees
        A write that succeeded survives the end of the process, and a loss of power where the disk keeps what it was told to.
        What was read, or seen in a watch, survives as well: nothing shows before it is on disk. So no revision is ever given twice.
        History since the last compaction survives, and leases end when they would have.

    Cost
        As in memory, and one ``fsync`` for all writes that come while the one before is under way. Opening reads the whole file.
        One thread, for ``fsync`` alone.

    Without ``synced`` nothing waits for the disk: what was written survives the end of the process, not a loss of power.
    """

    def __init__(self, lock: Lock, ledger: Journal, history: History, clock: Clock, *, synced: bool = True) -> None:
        self._synced = synced
        self._lock = lock
        self._ledger = ledger
        self._history = history
        self._streams = Streams(history)
        self._leases = Leases(clock, self._expire)
        self._thread = ThreadPoolExecutor(1, "kubeloop-storage")
        self._waiting: list[_Write] = []
        self._flushing: asyncio.Task[None] | None = None
        self._file = asyncio.Lock()  # held by whoever has something under way in the file
        self._closed = False
        self._told = ""  # the fault that the log has last

    @classmethod
    async def open(cls, folder: Path, clock: Clock | None = None, *, synced: bool = True) -> SqliteStorage:
        """The store in ``folder``, which is made the first time.

        Raises:
            ConfigError: another process has it open, or it is damaged, or of a newer kubeloop. OSError: the folder cannot be used.
        """
        clock = clock or SystemClock()
        lock = Lock(folder)
        try:
            ledger = Journal(ensure_store(folder, synced=synced), synced=synced)
            try:
                loaded = _Loaded(ledger)
                with contextlib.suppress(StorageFailed):  # the disk is full: another time
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
        return self._history.range(start, end, revision, limit)

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> Written:
        if self._closed:
            raise StorageFailed(f"cannot write {self._ledger.path}: it is closed")
        ends = self._leases.ends(lease)
        done: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
        self._add(_Write(key, value, expected, lease, ends, done))
        return await done

    def watch(self, prefix: str, start_revision: int) -> Stream:
        return self._streams.stream(prefix, start_revision)

    def events(self, prefix: str, start_revision: int) -> tuple[list[Event], int]:
        """Changes of ``prefix`` from ``start_revision`` up to now, and the revision to go on from.

        Raises:
            Compacted: some of them are gone.
        """
        return self._history.events(prefix, start_revision)

    async def compact(self, revision: int) -> None:
        async with self._file:
            self._history.check_compaction(revision)
            worthless = self._history.superseded(revision)
            await self._in_thread(functools.partial(self._ledger.set_oldest, revision))
            self._history.compact(revision)
        self._streams.wake()
        # From here on nothing depends on it: what is left over when the process ends now is removed when the store is opened again.
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
        # Also when the caller is cancelled: no other process can use the folder until it is closed.
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
                # Not if it is written meanwhile: that write has put it under another lease, or none.
                done: asyncio.Future[Written] = asyncio.get_running_loop().create_future()
                done.add_done_callback(functools.partial(self._expire_again, key))
                self._add(_Write(key, None, current.mod_revision, 0, None, done))

    def _expire_again(self, key: str, done: asyncio.Future[Written]) -> None:
        """A key that could not be deleted, since the disk was full, is tried again later."""
        if not done.cancelled() and done.exception() is not None and not self._closed:
            self._leases.attach(key, self._leases.grant(_NEXT_TRY))

    def _add(self, write: _Write) -> None:
        self._waiting.append(write)
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.get_running_loop().create_task(self._flush(), name="storage")

    async def _flush(self) -> None:
        """Write what waits, all that has come together in one transaction, until nothing waits."""
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
                        write.done.cancel()  # nobody waits for what does not come
                    raise

    async def _settle(self, batch: list[_Write]) -> None:
        plan = _Plan(self._history)
        outcomes = [plan.add(write) for write in batch]
        if plan.records:
            try:
                self._ledger.stage(plan.records)
                await self._in_thread(self._ledger.commit)
            except StorageFailed as fault:
                if str(fault) != self._told:
                    self._told = str(fault)
                    _LOG.error("%s", fault)
                for write in batch:
                    if not write.done.done():
                        write.done.set_exception(StorageFailed(*fault.args))
                return
            self._told = ""
            for write in plan.changes:
                self._history.put(write.key, write.value)
            self._streams.wake()
            ended = [one.key for one in plan.changes if not self._leases.attach(one.key, one.lease if one.value is not None else 0)]
            self._expire(ended)
        for write, outcome in zip(batch, outcomes, strict=True):
            if not write.done.done():
                write.done.set_result(outcome)

    async def _in_thread(self, work: Callable[[], T]) -> T:
        """Its outcome. Whoever is cancelled meanwhile waits for its end all the same: until then nobody else may use the file."""
        if not self._synced:
            return work()  # a commit without fsync takes less time than the way to the thread and back
        return await finish(asyncio.get_running_loop().run_in_executor(self._thread, work))


class _Plan:
    """What a batch of writes comes to, each seeing those before it. Changes nothing."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._new: dict[str, KeyValue | None] = {}
        self._revision = history.revision
        self.records: list[Record] = []
        self.changes: list[_Write] = []

    def add(self, write: _Write) -> Written:
        key, value = write.key, write.value
        current = self._new[key] if key in self._new else self._history.newest(key)
        if (current.mod_revision if current else 0) != write.expected:
            return Written(False, self._revision, current)
        if value is None and current is None:
            return Written(True, self._revision, None)
        self._revision += 1
        created = current.create_revision if current else self._revision
        expires = None if value is None or write.ends is None else int(write.ends * 1000)
        self.records.append(Record(self._revision, key, value, created, expires))
        self.changes.append(write)
        written = None if value is None else KeyValue(key, value, created, self._revision)
        self._new[key] = written
        return Written(True, self._revision, written)


class _Loaded:
    """What a store's file holds: its history, the records in it that are worth nothing any more, and when which keys end."""

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
        found = (KeyValue(one.key, one.value, one.created, one.revision) for one in base.values() if one.value is not None)
        self.history = History.restored(ledger.oldest, found, changes)
