"""The watch cache: one reader of the storage's changes, a window of recent changes, and any number of watchers.

A change is decoded and encoded at most once per form for all watchers. Only a watcher that is too slow is cut off.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

from msgspec.structs import replace

from kubeloop.apiserver.storage import KeyValue, Storage, StorageEvent, StorageFailed
from kubeloop.meta.errors import KubeloopError
from kubeloop.meta.kinds import GroupVersionResource
from kubeloop.tasks import end_tasks

_LOG = logging.getLogger("kubeloop.apiserver")

T = TypeVar("T")

ROOT = "/registry/"

#: Maximum changes, and their bytes, that wait for one watcher. A slower watcher ends; its client resumes from the last version it saw.
MOST_WAITING = 16384
MOST_BYTES = 64 << 20
#: Maximum bytes of changes that ``receive`` returns at once; their frames wait until the client reads.
_BYTES_AT_ONCE = 1 << 20

#: Number of newest changes whose encoded frames are cached; older changes are encoded again on request.
_MOST_FRAMES = 1024


class ResourceVersionTooOld(KubeloopError):
    """The revision is older than the oldest change in the window (``oldest``)."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"changes after revision {revision} are no longer kept; the oldest is {oldest}")
        self.revision = revision
        self.oldest = oldest


class WatchEvent:
    """One change, shared by all watchers. ``size`` is in bytes; ``cached`` caches decoded trees and encoded frames by form."""

    __slots__ = ("_cache", "event", "size")

    def __init__(self, event: StorageEvent) -> None:
        self.event = event
        self.size = 0 if event.value is None else len(event.value)
        self._cache: dict[Hashable, Any] | None = {}

    @property
    def revision(self) -> int:
        """Revision of the change."""
        return self.event.revision

    @property
    def key(self) -> str:
        """Storage key of the object."""
        return self.event.key

    def current(self) -> KeyValue:
        """Return the new state of the key. For a deletion, it is the last state with the revision of the deletion."""
        event = self.event
        if event.value is not None:
            created = event.previous.create_revision if event.previous else event.revision
            return KeyValue(event.key, event.value, created, event.revision)
        assert event.previous is not None
        return replace(event.previous, mod_revision=event.revision)

    def cached(self, form: Hashable, make: Callable[[], T]) -> T:
        """Return the cached value for ``form``, computed by ``make`` if necessary. Old events do not cache values."""
        if self._cache is None:
            return make()
        if form not in self._cache:
            self._cache[form] = make()
        made: T = self._cache[form]
        return made

    def forget(self) -> None:
        """Drop the cached values and cache none from now on."""
        self._cache = None


class Subscription:
    """A queue of changes of keys with a prefix, in order. ``cut`` is True if the watcher was too slow."""

    def __init__(self, cache: WatchCache, prefix: str, resource_prefix: str) -> None:
        self._cache = cache
        self._waiting: deque[WatchEvent] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        self.prefix = prefix
        self.resource_prefix = resource_prefix
        self.cut = False
        self.ended = False
        self._woken = False

    def offer(self, event: WatchEvent) -> None:
        """Add a change. End the subscription if too many changes wait."""
        if self.ended:
            return
        if len(self._waiting) >= MOST_WAITING or self._bytes >= MOST_BYTES:
            self.cut = True
            self._waiting.clear()
            self.end()
            return
        self._waiting.append(event)
        self._bytes += event.size
        self._ready.set()

    def end(self) -> None:
        """End the subscription. Waiting changes are still delivered."""
        self.ended = True
        self._ready.set()

    def wake(self) -> None:
        """Let ``receive`` return without changes, for example for a bookmark."""
        self._woken = True
        self._ready.set()

    @property
    def waiting(self) -> bool:
        """Whether ``receive`` would return changes at once."""
        return bool(self._waiting)

    async def receive(self) -> list[WatchEvent]:
        """Wait for changes and return about 1 MiB of them at most. The list is empty if the subscription ended or ``wake`` was called."""
        while not self._waiting:
            if self.ended or self._woken:
                self._woken = False
                return []
            self._ready.clear()
            await self._ready.wait()
        if self._bytes <= _BYTES_AT_ONCE:
            taken = list(self._waiting)
            self._waiting.clear()
            self._bytes = 0
            return taken
        taken, size = [], 0
        while self._waiting and size < _BYTES_AT_ONCE:
            taken.append(self._waiting.popleft())
            size += taken[-1].size
        self._bytes -= size
        return taken

    def close(self) -> None:
        """Unsubscribe."""
        self._cache.unsubscribe(self)


class WatchCache:
    """Reads the changes of the storage and distributes them to subscriptions.

    Guarantees
        A subscription gets every change of its keys after ``revision``, in order, once.
        ``revision`` only grows; when it is N, every change up to N was distributed.
        If changes can no longer be read or distributed, ``fault`` has the error, and all watches and waits end.

    Not guaranteed
        The window may not reach back to a revision. ``since`` then raises.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: Number of events sent, by resource.
        self.events_sent: Counter[GroupVersionResource] = Counter()
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._observers: dict[str, list[Callable[[StorageEvent], None]]] = {}
        self._windows: dict[str, list[WatchEvent]] = {}
        self._recent: deque[WatchEvent] = deque()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self.revision = 0
        #: The window has the changes after this revision.
        self.oldest = 0
        #: The error that ended the cache; "" if there is none.
        self.fault = ""

    async def start(self, *, history: bool = False) -> None:
        """Start to read changes.

        With ``history`` the window includes the stored history. By default it begins at the current revision, as upstream.
        """
        newest = await self._storage.revision()
        self.revision = self.oldest = await self._storage.oldest() if history else newest
        if self.oldest == 1:
            self.oldest = 0  # never compacted: the window begins with the first change
        self._task = asyncio.create_task(self._read(), name="watch cache")
        await self.wait_until(newest)

    async def stop(self) -> None:
        """Stop reading and end all subscriptions."""
        try:
            await end_tasks(self._task)
        finally:
            for subscriptions in list(self._subscriptions.values()):
                for one in list(subscriptions):
                    one.end()
            for _, waiter in self._waiters:
                waiter.cancel()

    def subscribe(self, prefix: str) -> Subscription:
        """Subscribe to changes of keys with a prefix (of a resource, or of one namespace in it) from now on."""
        resource_prefix = resource_of(prefix)
        subscription = Subscription(self, prefix, resource_prefix)
        self._subscriptions.setdefault(resource_prefix, []).append(subscription)
        return subscription

    def observe(self, resource_prefix: str, observer: Callable[[StorageEvent], None]) -> None:
        """Call ``observer`` with every change of a resource, in order, before ``revision`` includes the change.

        The observer stays until the cache ends. It must not raise.
        """
        self._observers.setdefault(resource_prefix, []).append(observer)

    def unsubscribe(self, subscription: Subscription) -> None:
        """Remove a subscription."""
        subscriptions = self._subscriptions.get(subscription.resource_prefix, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
        if not subscriptions:
            self._subscriptions.pop(subscription.resource_prefix, None)

    def subscriptions(self, resource_prefix: str) -> list[Subscription]:
        """Return the subscriptions of a resource, in all namespaces."""
        return list(self._subscriptions.get(resource_prefix, ()))

    def end(self, resource_prefix: str) -> None:
        """End all watches of a resource that is no longer served."""
        for one in self.subscriptions(resource_prefix):
            one.end()

    def since(self, prefix: str, revision: int) -> list[WatchEvent]:
        """Return the changes of keys with a prefix after ``revision``, up to ``self.revision``.

        Raises:
            ResourceVersionTooOld: The window begins after ``revision``.
        """
        if revision < self.oldest:
            raise ResourceVersionTooOld(revision, self.oldest)
        window = self._windows.get(resource_of(prefix), [])
        start = bisect_right(window, revision, key=_revision)
        if prefix.count("/") == 4:
            return window[start:]
        return [event for event in window[start:] if event.key.startswith(prefix)]

    def trim(self, revision: int) -> None:
        """Remove changes up to ``revision`` from the window, when the storage compacts."""
        self.oldest = max(self.oldest, revision)
        for prefix, window in list(self._windows.items()):
            del window[: bisect_right(window, revision, key=_revision)]
            if not window:
                del self._windows[prefix]

    async def wait_until(self, revision: int) -> None:
        """Wait until all changes up to ``revision`` have been distributed. The wait has no time limit.

        Raises:
            StorageFailed: The cache has ended.
        """
        if revision <= self.revision:
            return
        if self.fault:
            raise StorageFailed(self.fault)
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        entry = (revision, waiter)
        self._waiters.append(entry)
        try:
            await waiter
        finally:
            if entry in self._waiters:
                self._waiters.remove(entry)

    async def _read(self) -> None:
        try:
            await self._changes()
        except Exception as error:  # noqa: BLE001 - after any error the state is stale, so all watches must end
            self._fail(f"{type(error).__name__}: {error}")
            _LOG.exception("%s", self.fault)
        else:
            self._fail("the storage ended")

    def _fail(self, reason: str) -> None:
        self.fault = f"changes are no longer followed ({reason}); restart the server"
        for prefix in list(self._subscriptions):
            self.end(prefix)
        for _, waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(StorageFailed(self.fault))

    async def _changes(self) -> None:
        async with self._storage.watch(ROOT, self.revision + 1) as changes:
            async for batch in changes:
                for event in batch:
                    self._hand_out(WatchEvent(event))
                if self._waiters:
                    self._wake()

    def _hand_out(self, event: WatchEvent) -> None:
        resource_prefix = resource_of(event.key)
        self._windows.setdefault(resource_prefix, []).append(event)
        self._recent.append(event)
        if len(self._recent) > _MOST_FRAMES:
            self._recent.popleft().forget()
        for observer in self._observers.get(resource_prefix, ()):
            observer(event.event)
        self.revision = event.revision
        for one in tuple(self._subscriptions.get(resource_prefix, ())):
            if event.key.startswith(one.prefix):
                one.offer(event)

    def _wake(self) -> None:
        for revision, waiter in self._waiters:
            if revision <= self.revision and not waiter.done():
                waiter.set_result(None)


def resource_of(key: str) -> str:
    """Return the prefix ``/registry/GROUP/RESOURCE/`` of a key or prefix."""
    return key[: key.index("/", key.index("/", len(ROOT)) + 1) + 1]


def _revision(event: WatchEvent) -> int:
    return event.event.revision
