"""Storage in memory: versions of keys, watches and leases, for one event loop.

``SqliteStorage`` is built from the same ``History``, ``HistoryStreams`` and ``Leases``.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator, Callable, Iterable
from types import TracebackType
from typing import Self

from kubeloop.apiserver.storage.protocol import Compacted, FutureRevision, KeyValue, Range, StorageEvent, WriteOutcome
from kubeloop.timing import Clock, SystemClock
from kubeloop.timing.clock import Timer


class History:
    """The multi-version index of all storages: keys, their versions, and a log of changes.

    Cost
        A write of a new key copies the list of keys (8 bytes each). Versions stay in memory until they are compacted.
        A range costs the keys that it returns, plus one step per change after its revision.
    """

    def __init__(self) -> None:
        self.revision = 1
        self.oldest = 1
        self._keys: list[str] = []  # sorted, with deleted keys until compaction
        self._dead: list[str] = []  # sorted: the deleted keys
        #: Key -> its versions, ascending; an int is the revision of a deletion.
        #: A single version is stored without a list, which saves 90 bytes.
        self._versions: dict[str, KeyValue | list[KeyValue | int]] = {}
        self._log: list[StorageEvent] = []  # one event per revision, (_log_start, revision]
        self._log_start = 1

    @classmethod
    def restored(cls, oldest: int, base: Iterable[KeyValue], changes: Iterable[tuple[str, bytes | None]]) -> History:
        """Rebuild a history from stored records.

        Args:
            oldest: The revision of the last compaction.
            base: The keys at this revision.
            changes: The later changes (key, value), one per revision; a value of None is a deletion.
        """
        made = cls()
        made.revision = made.oldest = made._log_start = oldest
        for kv in base:
            made._versions[kv.key] = kv
        made._keys = sorted(made._versions)
        for key, value in changes:
            made.put(key, value)
        return made

    def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        """Return a key at a revision; 0 stands for the current revision. Raises Compacted, FutureRevision."""
        at = self._check(revision)
        return self._at(key, at), at

    def newest(self, key: str) -> KeyValue | None:
        """Return the current version of a key, or None."""
        versions = self._versions.get(key)
        if not isinstance(versions, list):
            return versions
        last = versions[-1]
        return None if isinstance(last, int) else last

    def range(self, start: str, end: str, revision: int = 0, limit: int = 0) -> Range:
        """Read a range of keys. See ``Storage.range``.

        Args:
            start: First key.
            end: First key after the range.
            revision: Revision to read; 0: the current one.
            limit: Maximum number of keys; 0: all.

        Returns:
            The keys, sorted.

        Raises:
            Compacted: The revision was compacted.
            FutureRevision: The revision does not exist yet.
        """
        at = self._check(revision)
        first, last = bisect_left(self._keys, start), bisect_left(self._keys, end)
        count = last - first - (bisect_left(self._dead, end) - bisect_left(self._dead, start))
        for event in self._since(at):
            if start <= event.key < end:
                if event.value is None:
                    count += 1
                elif event.previous is None:
                    count -= 1
        items: list[KeyValue] = []
        for index in range(first, last):
            result = self._at(self._keys[index], at)
            if result is not None:
                items.append(result)
                if len(items) == limit:
                    break
        return Range(items, at, count, len(items) < count)

    def put(self, key: str, value: bytes | None) -> KeyValue | None:
        """Write a key at the next revision, or delete it if ``value`` is None. Return the new version, or None for a deletion."""
        self.revision += 1
        revision = self.revision
        current = self.newest(key)
        versions = self._versions.get(key)
        if versions is None:
            insort(self._keys, key)
        elif current is None:
            del self._dead[bisect_left(self._dead, key)]
        written: KeyValue | None = None
        if value is None:
            insort(self._dead, key)
        else:
            value = bytes(memoryview(value))  # an exact copy: the buffer of an encoder may be half as large again
            written = KeyValue(key, value, current.create_revision if current else revision, revision)
        version = revision if written is None else written
        if isinstance(versions, list):
            versions.append(version)
        elif versions is not None:
            self._versions[key] = [versions, version]
        else:
            self._versions[key] = [version] if isinstance(version, int) else version
        self._log.append(StorageEvent(revision, key, value, current))
        return written

    def events(self, prefix: str, start_revision: int) -> tuple[list[StorageEvent], int]:
        """Return the changes of keys with a prefix from ``start_revision`` on, and the next revision to read.

        Raises:
            Compacted: Some of the changes were compacted.
        """
        if start_revision <= self.oldest and self.oldest > 1:
            raise Compacted(start_revision, self.oldest)
        result = [event for event in self._since(max(start_revision - 1, self._log_start)) if event.key.startswith(prefix)]
        return result, max(self.revision + 1, start_revision)

    def check_compaction(self, revision: int) -> None:
        """Check that the history can be compacted to a revision. Raises Compacted or FutureRevision if not."""
        if revision <= self.oldest:
            raise Compacted(revision, self.oldest)
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)

    def superseded(self, revision: int) -> list[int]:
        """Return the revisions of records that a compaction to ``revision`` makes unnecessary."""
        result: list[int] = []
        for key in {event.key for event in self._log[: revision - self._log_start]}:
            versions = self._versions[key]
            if isinstance(versions, list):
                result += map(_revision_of, versions[: self._worthless(versions, revision)])
        return result

    def compact(self, revision: int) -> None:
        """Discard the history before ``revision``. Raises Compacted, FutureRevision."""
        self.check_compaction(revision)
        gone = revision - self._log_start
        touched = {event.key for event in self._log[:gone]}
        del self._log[:gone]
        self.oldest = self._log_start = revision
        for key in touched:
            versions = self._versions[key]
            if not isinstance(versions, list):
                continue
            del versions[: self._worthless(versions, revision)]
            if len(versions) == 1 and not isinstance(versions[0], int):
                self._versions[key] = versions[0]
            elif not versions:
                del self._versions[key]
                del self._keys[bisect_left(self._keys, key)]
                del self._dead[bisect_left(self._dead, key)]

    @staticmethod
    def _worthless(versions: list[KeyValue | int], revision: int) -> int:
        """Return the number of the oldest versions that can no longer be read after a compaction to ``revision``."""
        last = bisect_right(versions, revision, key=_revision_of) - 1
        return last + 1 if isinstance(versions[last], int) else last

    def _check(self, revision: int) -> int:
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)
        if revision and revision < self.oldest:
            raise Compacted(revision, self.oldest)
        return revision or self.revision

    def _at(self, key: str, revision: int) -> KeyValue | None:
        versions = self._versions.get(key)
        if not isinstance(versions, list):
            return versions if versions is not None and versions.mod_revision <= revision else None
        last = versions[-1]
        if _revision_of(last) > revision:
            position = bisect_right(versions, revision, key=_revision_of)
            if position == 0:
                return None
            last = versions[position - 1]
        return None if isinstance(last, int) else last

    def _since(self, revision: int) -> list[StorageEvent]:
        return self._log[revision - self._log_start :] if revision < self.revision else []


def _revision_of(version: KeyValue | int) -> int:
    return version if isinstance(version, int) else version.mod_revision


class HistoryStreams:
    """The open watches of one storage."""

    def __init__(self, history: History) -> None:
        self.history = history
        self._open: set[HistoryStream] = set()

    def stream(self, prefix: str, start_revision: int) -> HistoryStream:
        """Create a watch of keys with a prefix. It begins when its context is entered."""
        return HistoryStream(self, prefix, start_revision)

    def wake(self) -> None:
        """Wake all watches, after a write or a compaction."""
        for one in self._open:
            one.wake()

    def end(self) -> None:
        """End all watches."""
        for one in self._open:
            one.end()

    def register(self, stream: HistoryStream) -> None:
        """Add an open watch."""
        self._open.add(stream)

    def unregister(self, stream: HistoryStream) -> None:
        """Remove a closed watch."""
        self._open.discard(stream)


class HistoryStream:
    """A watch that reads events from the history; it stores none. Implements ``WatchStream``."""

    __slots__ = ("_ended", "_next", "_prefix", "_ready", "_streams")

    def __init__(self, streams: HistoryStreams, prefix: str, start_revision: int) -> None:
        self._streams = streams
        self._prefix = prefix
        self._next = start_revision
        self._ready = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        """Let the iteration read new events."""
        self._ready.set()

    def end(self) -> None:
        """End the iteration."""
        self._ended = True
        self._ready.set()

    async def __aenter__(self) -> Self:
        self._streams.register(self)
        self._ready.set()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._streams.unregister(self)

    async def __aiter__(self) -> AsyncIterator[list[StorageEvent]]:
        while not self._ended:
            await self._ready.wait()
            self._ready.clear()
            result, self._next = self._streams.history.events(self._prefix, self._next)
            if result:
                yield result


class Leases:
    """Leases with timers. When a lease ends, ``due`` is called with its sorted keys. A key has at most one lease."""

    def __init__(self, clock: Clock, due: Callable[[list[str]], None]) -> None:
        self._clock = clock
        self._due = due
        self._leases: dict[int, tuple[Timer, float, set[str]]] = {}
        self._lease_of: dict[str, int] = {}
        self._next = 1

    def grant(self, seconds: float) -> int:
        """Create a lease that ends after ``seconds``. Raises RuntimeError if no event loop is running."""
        lease, self._next = self._next, self._next + 1
        ends = self._clock.wall().timestamp() + seconds
        self._leases[lease] = (self._clock.call_later(seconds, lambda: self._end(lease)), ends, set())
        return lease

    def ends(self, lease: int) -> float | None:
        """Return the end of a lease in seconds since 1970, or None for lease 0, which never ends.

        Raises:
            KeyError: The lease does not exist or has ended.
        """
        if not lease:
            return None
        if lease not in self._leases:
            raise KeyError(f"no such lease: {lease}")
        return self._leases[lease][1]

    def attach(self, key: str, lease: int) -> bool:
        """Move ``key`` to ``lease``, or out of its lease if ``lease`` is 0. Return False if that lease has ended."""
        before = self._lease_of.pop(key, 0)
        if before in self._leases:
            self._leases[before][2].discard(key)
        if lease in self._leases:
            self._lease_of[key] = lease
            self._leases[lease][2].add(key)
        return not lease or lease in self._leases

    def close(self) -> None:
        """Cancel all timers."""
        for timer, _, _ in self._leases.values():
            timer.cancel()
        self._leases.clear()

    def _end(self, lease: int) -> None:
        _, _, keys = self._leases.pop(lease)
        for key in keys:
            del self._lease_of[key]
        self._due(sorted(keys))


class MemoryStorage:
    """Storage in memory; all data is lost when the process ends. Implements ``Storage``. For the costs see ``History``."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._history = History()
        self._streams = HistoryStreams(self._history)
        self._leases = Leases(clock or SystemClock(), self._expire)

    @property
    def fault(self) -> str:
        return ""

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
        """
        history = self._history
        current = history.newest(key)
        if (current.mod_revision if current else 0) != expected:
            return WriteOutcome(False, history.revision, current)
        if value is None and current is None:
            return WriteOutcome(True, history.revision, None)
        self._leases.ends(lease)
        written = history.put(key, value)
        self._leases.attach(key, lease if value is not None else 0)
        self._streams.wake()
        return WriteOutcome(True, history.revision, written)

    def watch(self, prefix: str, start_revision: int) -> HistoryStream:
        return self._streams.stream(prefix, start_revision)

    def events(self, prefix: str, start_revision: int) -> tuple[list[StorageEvent], int]:
        """Return the changes of keys with a prefix from ``start_revision`` on, and the next revision to read.

        Raises:
            Compacted: Some of the changes were compacted.
        """
        return self._history.events(prefix, start_revision)

    async def compact(self, revision: int) -> None:
        self._history.compact(revision)
        self._streams.wake()

    async def grant(self, seconds: float) -> int:
        return self._leases.grant(seconds)

    async def close(self) -> None:
        self._leases.close()
        self._streams.end()

    def _expire(self, keys: list[str]) -> None:
        for key in keys:
            if self._history.newest(key) is not None:
                self._history.put(key, None)
        self._streams.wake()
