"""Controllers inside the server: indexes that follow stored objects, and reconcile loops that retry failed objects."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial

from kubeloop.apiserver.registry.objects import Objects
from kubeloop.apiserver.storage import KeyValue, Storage, StorageEvent, prefix_end
from kubeloop.apiserver.storage.watch_cache import Subscription, WatchCache
from kubeloop.endpoints.encoding import decode
from kubeloop.tasks import SupervisedTask, Supervisor
from kubeloop.timing import Backoff, Timer
from kubeloop.types import JSONObject

# Indexes of stored objects: roles, flow control, the node authorizer. A write of such an object is answered after the index has it, because
# the writer waits for the watch cache (``Objects.on_write``).


#: Called with namespace, name and object; None: it was deleted.
Put = Callable[[str, str, JSONObject | None], None]


async def follow_objects(prefix: str, put: Put, objects: Objects, cache: WatchCache, *, wait: bool) -> None:
    """Call ``put`` for every stored object below a prefix, and again after each change. The watch cache must have been started.

    Args:
        prefix: The storage prefix of a resource.
        put: Stores an object, or removes it (None).
        objects: Objects over storage.
        cache: The watch cache.
        wait: Delay the response of each write of these objects until ``put`` was called with it.
    """
    waiting: list[StorageEvent] = []
    revision = -1

    def changed(event: StorageEvent) -> None:
        if revision < 0:
            waiting.append(event)
        elif event.revision > revision:
            put(*place(prefix, event.key), None if event.value is None else decode(event.value))

    cache.observe(prefix, changed)
    start = await objects.storage.range(prefix, prefix_end(prefix))
    for kv in start.items:
        put(*place(prefix, kv.key), decode(kv.value))
    revision = start.revision
    for event in waiting:
        changed(event)
    if wait:
        objects.on_write(prefix, cache.wait_until)


def place(prefix: str, key: str) -> tuple[str, str]:
    """Return namespace and name in a key below ``prefix``. The namespace is empty for cluster-scoped objects."""
    namespace, _, name = key[len(prefix) :].rpartition("/")
    return namespace, name


_LOG = logging.getLogger("kubeloop.apiserver")

#: Reconciles one object: called with its key and newest state; None: it was deleted.
Sync = Callable[[str, KeyValue | None], Awaitable[None]]


class WatchEnded(Exception):
    """The watch of a controller ended before the controller did."""


class ResourceController:
    """Calls ``sync`` for each stored object of a resource, and then for each change, in order, one at a time.

    Guarantees:
        A ``sync`` that raises does not stop the syncs of other objects. The failure is logged and counted, and shown by the health of the
        task until ``sync`` succeeds for that object; it is repeated with back-off, with the newest state.
        When the watch breaks, all objects are listed again, and objects that were deleted during the gap are synced as deleted.
    """

    def __init__(self, name: str, prefix: str, storage: Storage, changes: WatchCache, sync: Sync) -> None:
        """Create the controller.

        Args:
            name: Name of the task; see ``Supervisor.start``.
            prefix: Storage prefix of the resource.
            storage: The storage whose objects are listed at the start.
            changes: The watch cache to follow afterwards. It must have been started.
            sync: Called with each object, perhaps twice with the same state.
        """
        self.name = name
        self._prefix = prefix
        self._storage = storage
        self._changes = changes
        self._sync = sync
        self._known: set[str] = set()
        self._due: dict[str, None] = {}
        self._retries: dict[str, tuple[Backoff, Timer]] = {}
        self._subscription: Subscription | None = None
        self._task: SupervisedTask | None = None
        self._tasks: Supervisor | None = None

    async def start(self, tasks: Supervisor) -> None:
        """Sync the stored objects, then follow changes in a task until ``stop``.

        Raises:
            StorageFailed: The objects cannot be listed.
        """
        self._tasks = tasks
        self._subscription = self._changes.subscribe(self._prefix)
        failures = await self._resync()
        self._task = tasks.start(self._run, name=self.name)
        for key, error in failures:
            self._failed(key, error)

    async def stop(self) -> None:
        """Cancel the task and return when it has ended."""
        for _, timer in self._retries.values():
            timer.cancel()
        self._retries.clear()
        task, self._task = self._task, None
        if task is not None:
            await task.stop()
        self._close_subscription()

    def enqueue(self, key: str) -> None:
        """Sync an object again with its newest state, after the waiting changes."""
        self._due[key] = None
        if self._subscription is not None:
            self._subscription.wake()

    async def _run(self) -> None:
        try:
            subscription = self._subscription
            if subscription is None or subscription.ended:
                self._close_subscription()
                subscription = self._subscription = self._changes.subscribe(self._prefix)
                for key, error in await self._resync():
                    self._failed(key, error)
            while True:
                events = await subscription.receive()
                for event in events:
                    await self._attempt(event.key, None if event.event.value is None else event.current())
                await self._sync_due()
                if subscription.ended and not subscription.waiting:
                    raise WatchEnded(f"the watch of {self._prefix} ended" + (": too many changes waited" if subscription.cut else ""))
        except BaseException:
            self._close_subscription()  # Some changes may not be synced yet; the next run lists all objects.
            raise

    async def _resync(self) -> list[tuple[str, Exception]]:
        result = await self._storage.range(self._prefix, prefix_end(self._prefix))
        failures: list[tuple[str, Exception]] = []
        stored = {kv.key: kv for kv in result.items}
        for key in [*stored, *sorted(self._known - stored.keys())]:
            try:
                await self._synced(key, stored.get(key))
            except Exception as error:  # noqa: BLE001 - reported by the caller, when there is a task to report to
                failures.append((key, error))
        return failures

    async def _sync_due(self) -> None:
        while self._due:
            key = next(iter(self._due))
            del self._due[key]
            kv, _ = await self._storage.get(key)
            await self._attempt(key, kv)

    async def _attempt(self, key: str, kv: KeyValue | None) -> None:
        try:
            await self._synced(key, kv)
        except Exception as error:  # noqa: BLE001 - whatever it is: other objects go on, and this one is tried again
            self._failed(key, error)

    async def _synced(self, key: str, kv: KeyValue | None) -> None:
        self._known.add(key)
        await self._sync(key, kv)
        if kv is None:
            self._known.discard(key)
        retry = self._retries.pop(key, None)
        if retry is not None:
            retry[1].cancel()
        if self._task is not None:
            self._task.recovered(key.removeprefix(self._prefix))

    def _failed(self, key: str, error: Exception) -> None:
        assert self._task is not None
        assert self._tasks is not None
        self._task.failed(error, key.removeprefix(self._prefix))
        known = self._retries.get(key)
        backoff = known[0] if known is not None else Backoff(initial=0.1, cap=30.0, clock=self._tasks.clock)
        if known is not None:
            known[1].cancel()
        self._retries[key] = backoff, self._tasks.clock.call_later(backoff.next(), partial(self.enqueue, key))

    def _close_subscription(self) -> None:
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            subscription.close()
