"""The objects of one resource as the reflector brings them, and their changes in order."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.blobs.retention import WHOLE
from kubeloop.meta.errors import ApiError
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.proxy.cached.event_log import CachedEvent, EventLog
from kubeloop.timing import Clock, TimeLimit

Key = tuple[str, str]

#: Errors after which the state must not be shown any longer: the resource is gone, or the proxy's permission.
_REFUSALS: Final = frozenset({401, 403, 404, 405})

#: Paths that are read from pods besides the metadata: the fields that a kube-apiserver can select pods by.
POD_FIELDS: Final = (
    "spec.hostNetwork",
    "spec.nodeName",
    "spec.restartPolicy",
    "spec.schedulerName",
    "spec.serviceAccountName",
    "status.nominatedNodeName",
    "status.phase",
    "status.podIP",
)
_PODS: Final = GroupVersionKind("", "v1", "Pod")


class CachedObjects:
    """The objects of one resource, compressed, and the log of their changes. It is the ``ReflectorStore`` of the cache.

    Guarantees
        Versions only grow, until ``ended`` is called. The state includes every change up to ``version``.
        After a new list, the log has the differences from the old state as changes, so that watches go on.

    Not guaranteed
        Each state of an object: after a new list, and for an object that was created and deleted while the state was confirmed, the
        states between are missing.

    Args:
        kind: The kind of the objects.
        changed: Called after changes were appended to the log.
        ended: Called when the state cannot be continued: all watches have to end.
    """

    def __init__(
        self, kind: GroupVersionKind, changed: Callable[[], object], ended: Callable[[], object], log: EventLog | None = None
    ) -> None:
        self.log = log or EventLog()
        self.archive = BlobStore()
        self.archive.population = self._population
        self._shared = StringInterner()
        paths = POD_FIELDS if kind == _PODS else ()
        api_version = f"{kind.group}/{kind.version}" if kind.group else kind.version
        self.reader = HeadReader(api_version, kind.kind, paths, self.archive, self._shared, WHOLE)
        self._objects: dict[Key, Head] = {}
        self._snapshot: tuple[Head, ...] | None = ()
        self._changed = changed
        self._ended = ended
        self._waiting: set[asyncio.Future[None]] = set()
        #: The newest resourceVersion up to which every change is included; 0 before the first list.
        self.version = 0
        #: The last failure since the last success.
        self.error: Exception | None = None
        #: The cache cannot go on: a resourceVersion was no number, or the API server no longer serves the resource to the proxy.
        self.unusable = False
        self._flushed = 0

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def synced(self) -> bool:
        """Whether the first list is complete."""
        return self.version > 0

    def get(self, key: Key) -> Head | None:
        """Return the state of an object by namespace and name."""
        return self._objects.get(key)

    def items(self) -> Iterable[tuple[Key, Head]]:
        """Return all objects by key."""
        return self._objects.items()

    def snapshot(self) -> tuple[Head, ...]:
        """Return the objects in the order of a list, which is that of their paths. Callers share it until the next change."""
        if self._snapshot is None:
            self._snapshot = tuple(self._objects[key] for key in sorted(self._objects, key="/".join))
        return self._snapshot

    async def wait(self, clock: Clock, seconds: float, holds: Callable[[], bool]) -> bool:
        """Wait until a condition holds, which is checked after each change of the state or of ``error``.

        Args:
            clock: Measures the time.
            seconds: Maximum time.
            holds: The condition.

        Returns:
            Whether it holds.
        """
        try:
            async with TimeLimit(clock, seconds) as limit:
                while not holds():
                    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
                    self._waiting.add(future)
                    try:
                        await future
                    finally:
                        self._waiting.discard(future)
        except TimeoutError:
            if not limit.expired:
                raise
            return holds()
        return True

    def advance(self, version: int) -> None:
        """Record that every change up to a version is included, which was confirmed in another way than by the watch."""
        if version > self.version:
            self.version = version
            self.wake()

    # ------------------------------------------------------------------------------------------------------ ReflectorStore

    def before(self, namespace: str, name: str) -> Head | None:
        return self._objects.get((namespace, name))

    def begin_list(self) -> None:
        self.archive.begin_list()

    def replace(self, heads: list[Head], version: str) -> None:
        self.archive.end_list()
        number = _number(version)
        if not number:
            self._fail()
            return
        listed = {(head.namespace, head.name): head for head in heads}
        events = self._differences(listed, number) if self.synced else []
        first = not self.synced
        self._objects = listed
        self._snapshot = None
        self.version = number
        if events is None or first:
            self.log.restart(number)
            if not first:
                self._ended()
        for event in events or ():
            self.log.append(event)
        self.error = None
        self.unusable = False
        self._sweep()
        self.flush()

    def change(self, head: Head) -> None:
        number = _number(head.resource_version)
        if not number:
            self._fail()
            return
        if number <= self.version:
            return  # of an object that was created and deleted again before the state was confirmed
        key = head.namespace, head.name
        self.log.append(CachedEvent(number, self._objects.get(key), head))
        self._objects[key] = head
        self._snapshot = None
        self.version = number

    def remove(self, head: Head) -> None:
        number = _number(head.resource_version)
        before = self._objects.pop((head.namespace, head.name), None)
        if before is None:
            return
        self._snapshot = None
        # Some aggregated API servers send the version of the last change.
        self.version = max(number, self.version)
        self.log.append(CachedEvent(self.version, before, head, deleted=True))

    def bookmark(self, version: str) -> None:
        self.version = max(_number(version), self.version)

    def flush(self) -> None:
        if self._shared.full:
            self._sweep()
        if self.log.end != self._flushed:
            self._flushed = self.log.end
            self._changed()
        self.wake()

    def watching(self) -> None:
        self.error = None

    def waiting(self, reason: str) -> None:
        """Do nothing: the reflector logs it."""

    def failed(self, error: Exception) -> None:
        self.error = error
        if isinstance(error, ApiError) and error.status.code in _REFUSALS:
            self._fail()
        self.wake()

    # -------------------------------------------------------------------------------------------------------------- parts

    def _differences(self, listed: dict[Key, Head], version: int) -> list[CachedEvent] | None:
        """Return the changes from the present objects to those of a new list, in the order of their versions; None if there is no order.

        The version of a deletion is unknown. It gets the newest version that no other change has: each deletion had a separate
        version between the last state and the list. So a client that continues after any of these changes gets all later ones.
        """
        if version < self.version:
            return None  # the API server was restored from a backup
        changes = [(key, head) for key, head in listed.items() if self._objects.get(key) is not head]
        numbers = {_number(head.resource_version): (key, head) for key, head in changes}
        if len(numbers) != len(changes) or any(not self.version < number <= version for number in numbers):
            return None
        vanished = [(key, head) for key, head in self._objects.items() if key not in listed]
        free = version
        for key, head in vanished:
            while free in numbers:
                free -= 1
            if free <= self.version:
                return None
            numbers[free] = key, head
        events = []
        for number in sorted(numbers):
            key, head = numbers[number]
            gone = key not in listed
            events.append(CachedEvent(number, self._objects.get(key), head, deleted=gone))
        return events

    def _fail(self) -> None:
        """End the use of the cache."""
        self.unusable = True
        self.version = 0
        self._objects = {}
        self._snapshot = ()
        self.log.restart(0)
        self._ended()
        self.wake()

    def wake(self) -> None:
        """Let the waiting calls of ``wait`` check their conditions."""
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    def _population(self) -> Iterable[Head]:
        return list(self._objects.values())

    def _sweep(self) -> None:
        if self._shared.full:
            self._shared.sweep(list(self._objects.values()))


def _number(version: str) -> int:
    """Return a resourceVersion as a number; 0 if it is none."""
    return int(version) if version.isdecimal() else 0
