"""The watch cache: one reader of the storage's changes, a window of recent ones for each resource, and any number of watchers.

A change is decoded and encoded at most once for each form, however many watch it; a watcher that does not keep up is cut off alone.
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

#: Changes, and bytes of them, that may wait for one watcher. Beyond it, it is cut off; its client resumes from the last version it saw.
MOST_WAITING = 16384
MOST_BYTES = 64 << 20
#: Bytes that it is given at once: frames of so many are made and wait for the client to read.
_BYTES_AT_ONCE = 1 << 20

#: Encoded frames are kept for this many of the newest changes; older ones are encoded again for whoever asks.
_MOST_FRAMES = 1024


class ResourceVersionTooOld(KubeloopError):
    """The revision is older than the oldest change kept (``oldest``)."""

    def __init__(self, revision: int, oldest: int) -> None:
        super().__init__(f"changes after revision {revision} are no longer kept; the oldest is {oldest}")
        self.revision = revision
        self.oldest = oldest


class WatchEvent:
    """One change, shared by all watchers, of ``size`` bytes. ``memo`` keeps what was made of it (trees and frames), by form."""

    __slots__ = ("_memo", "event", "size")

    def __init__(self, event: StorageEvent) -> None:
        self.event = event
        self.size = 0 if event.value is None else len(event.value)
        self._memo: dict[Hashable, Any] | None = {}

    @property
    def revision(self) -> int:
        return self.event.revision

    @property
    def key(self) -> str:
        return self.event.key

    def current(self) -> KeyValue:
        """What the event shows: the new state; for a deletion the last state, at the revision of the deletion."""
        event = self.event
        if event.value is not None:
            created = event.previous.create_revision if event.previous else event.revision
            return KeyValue(event.key, event.value, created, event.revision)
        assert event.previous is not None
        return replace(event.previous, mod_revision=event.revision)

    def memo(self, form: Hashable, make: Callable[[], T]) -> T:
        """What ``make`` made the first time it was called for ``form``, while the event is among the newest."""
        if self._memo is None:
            return make()
        if form not in self._memo:
            self._memo[form] = make()
        made: T = self._memo[form]
        return made

    def forget(self) -> None:
        """Keep nothing that can be made again, from now on."""
        self._memo = None


class Subscription:
    """Changes below a prefix, in order, from the moment of subscription. ``cut`` says that the watcher fell too far behind."""

    def __init__(self, cache: WatchCache, prefix: str, resource_prefix: str) -> None:
        self._cache = cache
        self._waiting: deque[WatchEvent] = deque()
        self._bytes = 0
        self._ready = asyncio.Event()
        self.prefix = prefix
        self.resource_prefix = resource_prefix
        self.cut = False
        self.ended = False
        self._nudged = False

    def offer(self, event: WatchEvent) -> None:
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
        """No more changes come; those that wait are still delivered."""
        self.ended = True
        self._ready.set()

    def nudge(self) -> None:
        """Let ``take`` return though nothing came: something else is due."""
        self._nudged = True
        self._ready.set()

    @property
    def waiting(self) -> bool:
        """Whether ``take`` has something to give."""
        return bool(self._waiting)

    async def take(self) -> list[WatchEvent]:
        """Wait for changes and take them, some MiB at most; an empty list: it ended, or was nudged."""
        while not self._waiting:
            if self.ended or self._nudged:
                self._nudged = False
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
        self._cache.unsubscribe(self)


class WatchCache:
    """Reads the storage's changes and hands them out.

    Guarantees
        A subscription sees every change below its prefix after ``revision``, in order, once.
        ``revision`` only grows; when it is N, every change up to N has been handed out.
        When changes can no longer be read or handed out, ``fault`` says so, all watches end and nobody waits for more.

    Not guaranteed
        That the window reaches back to any revision: ``since`` says when it does not.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        #: How many events have gone out, by resource.
        self.events_sent: Counter[GroupVersionResource] = Counter()
        self._subscriptions: dict[str, list[Subscription]] = {}
        self._observers: dict[str, list[Callable[[StorageEvent], None]]] = {}
        self._windows: dict[str, list[WatchEvent]] = {}
        self._recent: deque[WatchEvent] = deque()
        self._waiters: list[tuple[int, asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None
        self.revision = 0
        #: Changes up to this revision are not kept.
        self.oldest = 0
        #: Why there are no more changes; empty while all is well.
        self.fault = ""

    async def start(self, *, history: bool = False) -> None:
        """``history``: the window reaches back as far as the storage's history; else it begins now, as that of a kube-apiserver."""
        newest = await self._storage.revision()
        self.revision = self.oldest = await self._storage.oldest() if history else newest
        if self.oldest == 1:
            self.oldest = 0  # never compacted, or an empty store: the window reaches back to the beginning
        self._task = asyncio.create_task(self._read(), name="watch cache")
        await self.reached(newest)

    async def stop(self) -> None:
        try:
            await end_tasks(self._task)
        finally:
            for subscriptions in list(self._subscriptions.values()):
                for one in list(subscriptions):
                    one.end()
            for _, waiter in self._waiters:
                waiter.cancel()

    def subscribe(self, prefix: str) -> Subscription:
        """Changes below ``prefix`` (a resource's, or one namespace's of it), from now on."""
        resource_prefix = resource_of(prefix)
        subscription = Subscription(self, prefix, resource_prefix)
        self._subscriptions.setdefault(resource_prefix, []).append(subscription)
        return subscription

    def observe(self, resource_prefix: str, observer: Callable[[StorageEvent], None]) -> None:
        """Call ``observer`` with every change of a resource, in order, before ``revision`` says that it was handed out.

        Until the cache ends; it must not raise.
        """
        self._observers.setdefault(resource_prefix, []).append(observer)

    def unsubscribe(self, subscription: Subscription) -> None:
        subscriptions = self._subscriptions.get(subscription.resource_prefix, [])
        if subscription in subscriptions:
            subscriptions.remove(subscription)
        if not subscriptions:
            self._subscriptions.pop(subscription.resource_prefix, None)

    def subscriptions(self, resource_prefix: str) -> list[Subscription]:
        """Of one resource, in whatever namespace."""
        return list(self._subscriptions.get(resource_prefix, ()))

    def end(self, resource_prefix: str) -> None:
        """End all watches of a resource (it is no longer served)."""
        for one in self.subscriptions(resource_prefix):
            one.end()

    def since(self, prefix: str, revision: int) -> list[WatchEvent]:
        """Changes below ``prefix`` after ``revision``, up to ``self.revision``.

        Raises:
            ResourceVersionTooOld
        """
        if revision < self.oldest:
            raise ResourceVersionTooOld(revision, self.oldest)
        window = self._windows.get(resource_of(prefix), [])
        start = bisect_right(window, revision, key=_revision)
        if prefix.count("/") == 4:
            return window[start:]
        return [event for event in window[start:] if event.key.startswith(prefix)]

    def trim(self, revision: int) -> None:
        """Forget changes up to ``revision``, as the storage does when it compacts."""
        self.oldest = max(self.oldest, revision)
        for prefix, window in list(self._windows.items()):
            del window[: bisect_right(window, revision, key=_revision)]
            if not window:
                del self._windows[prefix]

    async def reached(self, revision: int) -> None:
        """Wait until changes up to ``revision`` have been handed out; for ever if it never comes.

        Raises:
            StorageFailed: there are no more changes.
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
        except Exception as error:  # noqa: BLE001 - whatever it is: nobody may go by a state that changes no more
            self._fail(f"{type(error).__name__}: {error}")
            _LOG.exception("%s", self.fault)
        else:
            self._fail("the storage ended")

    def _fail(self, why: str) -> None:
        self.fault = f"changes are no longer followed ({why}); the server must be started again"
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
    """``/registry/GROUP/RESOURCE/`` of a key or prefix."""
    return key[: key.index("/", key.index("/", len(ROOT)) + 1) + 1]


def _revision(event: WatchEvent) -> int:
    return event.event.revision
