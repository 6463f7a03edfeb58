"""Storage in memory: multi-version, for one event loop. Everything is lost when the process ends."""

from __future__ import annotations

import asyncio
from bisect import bisect_left, bisect_right, insort
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Self

from kubeloop.apiserver.storage.protocol import Compacted, Event, FutureRevision, KeyValue, Range, Written
from kubeloop.timing import Clock, SystemClock
from kubeloop.timing.clock import Timer


class MemoryStorage:
    """Implements ``Storage``.

    Cost
        A write copies nothing but a list of keys (8 bytes each) when a key is new. Each version of a value stays until it is compacted.
        A range costs what it returns, plus one step per change since the revision asked for.
    """

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._revision = 1
        self._oldest = 1
        self._keys: list[str] = []  # sorted; deleted keys too, until compaction
        self._dead: list[str] = []  # sorted; the deleted ones among them
        self._versions: dict[str, list[KeyValue | int]] = {}  # ascending; an int is the revision of a deletion
        self._log: list[Event] = []  # one event per revision, (_log_start, _revision]
        self._log_start = 1
        self._streams: set[_Stream] = set()
        self._leases: dict[int, tuple[Timer, set[str]]] = {}
        self._lease_of: dict[str, int] = {}
        self._next_lease = 1

    async def revision(self) -> int:
        return self._revision

    async def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        at = self._check(revision)
        return self._at(key, at), at

    async def range(self, start: str, end: str, *, revision: int = 0, limit: int = 0) -> Range:
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
            found = self._at(self._keys[index], at)
            if found is not None:
                items.append(found)
                if len(items) == limit:
                    break
        return Range(items, at, count, len(items) < count)

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> Written:
        current = self._at(key, self._revision)
        if (current.mod_revision if current else 0) != expected:
            return Written(False, self._revision, current)
        if value is None and current is None:
            return Written(True, self._revision, None)
        if lease and lease not in self._leases:
            raise KeyError(f"no such lease: {lease}")
        written = self._put(key, value, current)
        self._attach(key, lease if value is not None else 0)
        return Written(True, self._revision, written)

    def watch(self, prefix: str, start_revision: int) -> _Stream:
        return _Stream(self, prefix, start_revision)

    async def compact(self, revision: int) -> None:
        if revision <= self._oldest:
            raise Compacted(revision, self._oldest)
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        gone = revision - self._log_start
        touched = {event.key for event in self._log[:gone]}
        del self._log[:gone]
        self._oldest = self._log_start = revision
        for key in touched:
            self._forget(key, revision)
        for stream in self._streams:
            stream.wake()

    async def grant(self, seconds: float) -> int:
        lease, self._next_lease = self._next_lease, self._next_lease + 1
        self._leases[lease] = (self._clock.call_later(seconds, lambda: self._expire(lease)), set())
        return lease

    async def close(self) -> None:
        for timer, _ in self._leases.values():
            timer.cancel()
        self._leases.clear()
        for stream in list(self._streams):
            stream.end()

    def _check(self, revision: int) -> int:
        if revision > self._revision:
            raise FutureRevision(revision, self._revision)
        if revision and revision < self._oldest:
            raise Compacted(revision, self._oldest)
        return revision or self._revision

    def _at(self, key: str, revision: int) -> KeyValue | None:
        versions = self._versions.get(key)
        if not versions:
            return None
        last = versions[-1]
        if _revision_of(last) > revision:
            position = bisect_right(versions, revision, key=_revision_of)
            if position == 0:
                return None
            last = versions[position - 1]
        return None if isinstance(last, int) else last

    def _since(self, revision: int) -> list[Event]:
        return self._log[revision - self._log_start :] if revision < self._revision else []

    def _put(self, key: str, value: bytes | None, current: KeyValue | None) -> KeyValue | None:
        self._revision += 1
        revision = self._revision
        versions = self._versions.get(key)
        if versions is None:
            versions = self._versions[key] = []
            insort(self._keys, key)
        elif current is None:
            del self._dead[bisect_left(self._dead, key)]
        written: KeyValue | None = None
        if value is None:
            versions.append(revision)
            insort(self._dead, key)
        else:
            written = KeyValue(key, value, current.create_revision if current else revision, revision)
            versions.append(written)
        self._log.append(Event(revision, key, value, current))
        for stream in self._streams:
            stream.wake()
        return written

    def _forget(self, key: str, revision: int) -> None:
        versions = self._versions[key]
        keep = bisect_right(versions, revision, key=_revision_of) - 1
        if keep > 0:
            del versions[:keep]
        if isinstance(versions[0], int) and versions[0] <= revision:
            del versions[0]
        if not versions:
            del self._versions[key]
            del self._keys[bisect_left(self._keys, key)]
            del self._dead[bisect_left(self._dead, key)]

    def _attach(self, key: str, lease: int) -> None:
        before = self._lease_of.pop(key, 0)
        if before and before in self._leases:
            self._leases[before][1].discard(key)
        if lease:
            self._lease_of[key] = lease
            self._leases[lease][1].add(key)

    def _expire(self, lease: int) -> None:
        _, keys = self._leases.pop(lease)
        for key in sorted(keys):
            self._lease_of.pop(key, None)
            current = self._at(key, self._revision)
            if current is not None:
                self._put(key, None, current)

    def events(self, prefix: str, start_revision: int) -> tuple[list[Event], int]:
        """Changes of ``prefix`` from ``start_revision`` up to now, and the revision to go on from.

        Raises:
            Compacted: some of them are gone.
        """
        if start_revision <= self._oldest and self._oldest > 1:
            raise Compacted(start_revision, self._oldest)
        found = [event for event in self._since(max(start_revision - 1, self._log_start)) if event.key.startswith(prefix)]
        return found, max(self._revision + 1, start_revision)

    def register(self, stream: _Stream) -> None:
        self._streams.add(stream)

    def unregister(self, stream: _Stream) -> None:
        self._streams.discard(stream)


class _Stream:
    """Reads the store's log at a position of its own; holds no events."""

    __slots__ = ("_ended", "_next", "_prefix", "_ready", "_store")

    def __init__(self, store: MemoryStorage, prefix: str, start_revision: int) -> None:
        self._store = store
        self._prefix = prefix
        self._next = start_revision
        self._ready = asyncio.Event()
        self._ended = False

    def wake(self) -> None:
        self._ready.set()

    def end(self) -> None:
        self._ended = True
        self._ready.set()

    async def __aenter__(self) -> Self:
        self._store.register(self)
        self._ready.set()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._store.unregister(self)

    async def __aiter__(self) -> AsyncIterator[list[Event]]:
        while not self._ended:
            await self._ready.wait()
            self._ready.clear()
            found, self._next = self._store.events(self._prefix, self._next)
            if found:
                yield found


def _revision_of(version: KeyValue | int) -> int:
    return version if isinstance(version, int) else version.mod_revision
