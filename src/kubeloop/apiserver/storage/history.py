"""Versions of keys in memory: what each key held at each revision since the last compaction. Synchronous; no leases, nobody is told."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable

from kubeloop.apiserver.storage.protocol import Compacted, Event, FutureRevision, KeyValue, Range


class History:
    """The index behind the storages.

    Cost
        A write copies nothing but a list of keys (8 bytes each) when a key is new. Each version of a value stays until it is compacted.
        A range costs what it returns, plus one step per change since the revision asked for.
    """

    def __init__(self) -> None:
        self.revision = 1
        self.oldest = 1
        self._keys: list[str] = []  # sorted; deleted keys too, until compaction
        self._dead: list[str] = []  # sorted; the deleted ones among them
        #: Ascending; an int is the revision of a deletion. One version alone, as most keys have, is in no list: that would take 90 bytes.
        self._versions: dict[str, KeyValue | list[KeyValue | int]] = {}
        self._log: list[Event] = []  # one event per revision, (_log_start, revision]
        self._log_start = 1

    @classmethod
    def restored(cls, oldest: int, base: Iterable[KeyValue], changes: Iterable[tuple[str, bytes | None]]) -> History:
        """As it was: ``base`` is what was current at revision ``oldest``, ``changes`` are those since, one per revision."""
        made = cls()
        made.revision = made.oldest = made._log_start = oldest
        for kv in base:
            made._versions[kv.key] = kv
        made._keys = sorted(made._versions)
        for key, value in changes:
            made.put(key, value)
        return made

    def get(self, key: str, revision: int = 0) -> tuple[KeyValue | None, int]:
        """Raises Compacted, FutureRevision."""
        at = self._check(revision)
        return self._at(key, at), at

    def newest(self, key: str) -> KeyValue | None:
        versions = self._versions.get(key)
        if not isinstance(versions, list):
            return versions
        last = versions[-1]
        return None if isinstance(last, int) else last

    def range(self, start: str, end: str, revision: int = 0, limit: int = 0) -> Range:
        """Raises Compacted, FutureRevision."""
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

    def put(self, key: str, value: bytes | None) -> KeyValue | None:
        """Write, or delete (None) what is there, at the next revision."""
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
            value = bytes(memoryview(value))  # exactly as large as it is: what an encoder made may have room for half as much again
            written = KeyValue(key, value, current.create_revision if current else revision, revision)
        version = revision if written is None else written
        if isinstance(versions, list):
            versions.append(version)
        elif versions is not None:
            self._versions[key] = [versions, version]
        else:
            self._versions[key] = [version] if isinstance(version, int) else version
        self._log.append(Event(revision, key, value, current))
        return written

    def events(self, prefix: str, start_revision: int) -> tuple[list[Event], int]:
        """Changes of ``prefix`` from ``start_revision`` up to now, and the revision to go on from.

        Raises:
            Compacted: some of them are gone.
        """
        if start_revision <= self.oldest and self.oldest > 1:
            raise Compacted(start_revision, self.oldest)
        found = [event for event in self._since(max(start_revision - 1, self._log_start)) if event.key.startswith(prefix)]
        return found, max(self.revision + 1, start_revision)

    def check_compaction(self, revision: int) -> None:
        """Raises Compacted, FutureRevision."""
        if revision <= self.oldest:
            raise Compacted(revision, self.oldest)
        if revision > self.revision:
            raise FutureRevision(revision, self.revision)

    def superseded(self, revision: int) -> list[int]:
        """The revisions whose records a compaction up to ``revision`` makes worthless."""
        found: list[int] = []
        for key in {event.key for event in self._log[: revision - self._log_start]}:
            versions = self._versions[key]
            if isinstance(versions, list):
                found += map(_revision_of, versions[: self._worthless(versions, revision)])
        return found

    def compact(self, revision: int) -> None:
        """Raises Compacted, FutureRevision."""
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
        """How many of the oldest versions nobody can ask for any more: those before the one of ``revision``, and a deletion itself."""
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

    def _since(self, revision: int) -> list[Event]:
        return self._log[revision - self._log_start :] if revision < self.revision else []


def _revision_of(version: KeyValue | int) -> int:
    return version if isinstance(version, int) else version.mod_revision
