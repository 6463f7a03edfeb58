"""Storage in memory: multi-version, for one event loop. Everything is lost when the process ends."""

from __future__ import annotations

from kubeloop.apiserver.storage.history import History
from kubeloop.apiserver.storage.leases import Leases
from kubeloop.apiserver.storage.protocol import Event, KeyValue, Range, Written
from kubeloop.apiserver.storage.streams import Stream, Streams
from kubeloop.timing import Clock, SystemClock


class MemoryStorage:
    """Implements ``Storage``. Costs what ``History`` does."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._history = History()
        self._streams = Streams(self._history)
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
        return self._history.range(start, end, revision, limit)

    async def write(self, key: str, value: bytes | None, *, expected: int, lease: int = 0) -> Written:
        history = self._history
        current = history.newest(key)
        if (current.mod_revision if current else 0) != expected:
            return Written(False, history.revision, current)
        if value is None and current is None:
            return Written(True, history.revision, None)
        self._leases.ends(lease)
        written = history.put(key, value)
        self._leases.attach(key, lease if value is not None else 0)
        self._streams.wake()
        return Written(True, history.revision, written)

    def watch(self, prefix: str, start_revision: int) -> Stream:
        return self._streams.stream(prefix, start_revision)

    def events(self, prefix: str, start_revision: int) -> tuple[list[Event], int]:
        """Changes of ``prefix`` from ``start_revision`` up to now, and the revision to go on from.

        Raises:
            Compacted: some of them are gone.
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
