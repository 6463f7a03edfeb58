"""Informer: one list and watch, one store, any number of handlers. Made by ``Informers.of``; never by hand.

It wires the parts and decides nothing: what to ask is the reflector's, what changed is ``apply``'s, who hears it the registrations'.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Generic, TypeVar

from kubeloop.cache.apply import apply
from kubeloop.cache.compression import Archive
from kubeloop.cache.delta_queue import Bookmark, Changed, DeltaQueue, Removed, Replaced, Resync
from kubeloop.cache.event import Event, EventType
from kubeloop.cache.failures import HOPELESS
from kubeloop.cache.head import Head, HeadReader, Shared
from kubeloop.cache.index import Index, IndexValues, by_function, by_path
from kubeloop.cache.lister import Lister
from kubeloop.cache.listwatch import ListWatch
from kubeloop.cache.progress import Progress
from kubeloop.cache.registration import Handler, InformerStopped, Registration
from kubeloop.cache.stats import InformerStats
from kubeloop.cache.store import Store
from kubeloop.cache.tasks import Tasks
from kubeloop.cache.view import View
from kubeloop.meta import Resource
from kubeloop.timing import Clock
from kubeloop.transport import log_context, logger_with_context

R = TypeVar("R", bound=Resource)
IndexSource = str | Callable[[R], IndexValues]
"""A path (``spec.nodeName``), which costs nothing; or a function of the typed object, which decodes it at each change."""

#: A handler that asks for resyncs more often gets them this often, in seconds.
MIN_RESYNC = 1.0

_log = logger_with_context("kubeloop.cache")


class Informer(Generic[R]):
    """Keeps a local copy of one kind of object and tells handlers how it changes.

    Guarantees
        For one object a handler sees states in the order of their resourceVersions, and never one twice (resyncs apart).
        When a handler runs, the lister already shows that state or a later one.
        An object that vanished while the watch was down is reported as deleted, with the last state known here (``tombstone``).
        A handler added late first sees every object as added (``initial``), then only changes, without a gap.

    Not guaranteed
        Every state: when the server compacts or the watch restarts, states in between are skipped. Write level-based handlers.
        That a deletion is seen as such: an object deleted and made again between two lists is one update with another uid.
        Order between different objects after a relist.

    Cost
        About 2 KiB and no parsed object per cached Pod; reading decodes a fresh one, about 30 us.
    """

    def __init__(
        self,
        kind: type[R],
        what: str,
        listwatch: ListWatch,
        scope: str | None,
        cluster: str,
        clock: Clock,
        progress: Progress,
        resync: float,
    ) -> None:
        self.kind = kind
        #: The objects in words: ``pods in namespace "shop"``.
        self.what = what
        self.synced = False
        self.stopped = False
        #: Why the last request failed; None while all is well.
        self.failure: Exception | None = None
        self._listwatch = listwatch
        self._cluster = cluster
        self._clock = clock
        self._progress = progress
        self._resync_period = resync
        self._store = Store()
        self._queue = DeltaQueue()
        self._archive = Archive()
        self._shared = Shared()
        self._reader = HeadReader(kind.api_version, kind.kind, (), self._archive, self._shared)
        self._view: View[R] = View(self._store, kind, cluster)
        self._registrations: list[Registration[R]] = []
        self._tasks: Tasks | None = None
        self._own: set[asyncio.Task[None]] = set()
        #: Changes told since the start, by what they were.
        self._counts = dict.fromkeys(EventType, 0)
        #: Failed requests since the start, by the name of the error.
        self._failures: Counter[str] = Counter()
        self._now = clock.now()
        #: When the server last showed that the cache is as it has things: by a list, an event or a bookmark. None: never yet.
        self._heard: float | None = None
        self.lister: Lister[R] = Lister(self._view, scope)

    # ------------------------------------------------------------------------------------------------------------- for users

    @property
    def resource_version(self) -> str:
        """What the cache is at: the version of the list, an event or a bookmark; "" before the first list."""
        return self._store.version

    @property
    def reconnects(self) -> int:
        """How often the watch ended and was opened again."""
        return self._listwatch.reconnects

    @property
    def stats(self) -> InformerStats:
        """Numbers of this moment. Walks the cache to add up its bytes: about 0.1 s for a million objects."""
        return InformerStats(
            objects=len(self._store),
            stored_bytes=sum(head.stored_bytes for head in self._store.heads()),
            events=sum(self._counts.values()),
            pending=max((registration.pending for registration in self._registrations), default=0),
            resource_version=self.resource_version,
            reconnects=self.reconnects,
            synced=self.synced,
        )

    def on_event(
        self,
        *,
        added: Handler[R] | None = None,
        updated: Handler[R] | None = None,
        deleted: Handler[R] | None = None,
        resync: float | None = None,
        name: str = "",
    ) -> Registration[R]:
        """Call these for each change, one at a time; plain functions on the loop, ``async`` ones awaited.

        ``resync``: every so many seconds ``updated`` is called for each object with ``event.type`` "resync" (0: never; at least 1);
        None is what the informers were made with.
        ``name`` is for log records. The same functions may be registered several times: each registration is told.

        Raises:
            InformerStopped: nobody would ever call them.
        """
        if self.stopped:
            raise InformerStopped(f"the informer of {self.what} has stopped; handlers must be added before")
        first = next((handler for handler in (added, updated, deleted) if handler is not None), None)
        name = name or str(getattr(first, "__qualname__", first))
        period = self._resync_period if resync is None else resync
        period = max(period, MIN_RESYNC) if period > 0 else 0.0
        registration = Registration(name, self._clock, self._progress, period, added, updated, deleted)
        if self.synced:
            # Between this line and the last no delta is applied: what is in the store is told here, what comes later comes as an event.
            for head in self._view.heads(None):
                registration.offer(Event(EventType.ADDED, head, None, self._view, initial=True, received=self._clock.now()))
            registration.initial_end()
        self._registrations = [*(each for each in self._registrations if each.active), registration]
        if self._tasks is not None:
            self._start_handler(self._tasks, registration)
        return registration

    def add_indexes(self, indexes: Mapping[str, IndexSource[R]], paths: Iterable[str] = ()) -> None:
        """More indexes, complete at once, and more ``paths`` that heads carry. Objects that are cached are read again (15 us each).

        Raises:
            ValueError: an index of that name is there with another source, or a path is malformed.
        """
        present = self._store.indexes
        for name, source in indexes.items():
            if name in present and present[name].source != source:
                raise ValueError(f'{self.what}: index "{name}" exists already, over {present[name].source!r}; choose another name')
        new = {name: source for name, source in indexes.items() if name not in present}
        wanted = (*self._reader.projection.paths, *(source for source in new.values() if isinstance(source, str)), *paths)
        if set(wanted) - set(self._reader.projection.paths):
            self._reader = HeadReader(self.kind.api_version, self.kind.kind, wanted, self._archive, self._shared)
            for head in self._store.heads():
                self._store.put(self._reader.again(head))
        for name, source in new.items():
            if isinstance(source, str):
                self._store.add_index(Index(name, source, by_path(self._reader.attributes[source])))
            else:
                self._store.add_index(Index(name, source, by_function(name, self._typed(source)), remember=True))

    def __repr__(self) -> str:
        return f"<Informer of {self.what}: {len(self._store)} objects, {'synced' if self.synced else 'not synced'}>"

    # ----------------------------------------------------------------------------------------------------- for the factory

    def check(self) -> bool:
        """Whether it has synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: it has not, and only a person can help.
        """
        if self.synced:
            return True
        if isinstance(self.failure, HOPELESS):
            raise self.failure
        return False

    def waiting_for(self) -> str:
        return f"{self.what} ({self.failure or 'no answer from the server yet'})"

    def start(self, tasks: Tasks) -> None:
        """List and watch, until the tasks are closed. Starting again does nothing."""
        if self._tasks is not None or self.stopped:
            return
        self._tasks = tasks
        self._create(tasks, self._run(), f"kubeloop informer of {self.what}")
        for registration in self._registrations:
            self._start_handler(tasks, registration)

    async def stop(self) -> None:
        """End its list and watch and its handlers; what waits for them is dropped. For ever: a stopped informer takes no more handlers."""
        self.stopped = True
        for task in self._own:
            task.cancel()
        if self._own:
            await asyncio.wait(set(self._own))

    def _create(self, tasks: Tasks, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        task = tasks.create(work, name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    async def _run(self) -> None:
        with log_context(cluster=self._cluster, informer=self.what):
            await self._listwatch.run(self)

    def _start_handler(self, tasks: Tasks, registration: Registration[R]) -> None:
        self._create(tasks, self._handle(registration), f"kubeloop handler {registration.name} of {self.what}")
        if registration.resync:
            registration.timer = self._create(tasks, self._resync(registration), f"kubeloop resync of {self.what}")

    async def _handle(self, registration: Registration[R]) -> None:
        with log_context(cluster=self._cluster, informer=self.what, handler=registration.name):
            await registration.run()

    async def _resync(self, registration: Registration[R]) -> None:
        while registration.active:
            await self._clock.sleep(registration.resync)
            if self.synced:
                # Through the queue, so that a resync never shows a state older than an event before it.
                self._queue.push(Resync(registration))
                self._apply()

    def _typed(self, function: Callable[[R], IndexValues]) -> Callable[[Head], IndexValues]:
        return lambda head: function(self._view.decode(head))

    # --------------------------------------------------------------------------------------- for list and watch: the sink

    @property
    def reader(self) -> HeadReader:
        return self._reader

    def before(self, namespace: str, name: str) -> Head | None:
        return self._store.get(namespace, name)

    def listing(self) -> None:
        self._archive.listing()

    def replace(self, heads: list[Head], version: str) -> None:
        self._archive.settle()
        reader = self._reader
        self._queue.push(Replaced(tuple(head if reader.made(head) else reader.again(head) for head in heads), version))
        self.flush()

    def change(self, head: Head) -> None:
        self._queue.push(Changed(head))

    def remove(self, head: Head) -> None:
        self._queue.push(Removed(head))

    def bookmark(self, version: str) -> None:
        self._queue.push(Bookmark(version))

    def watching(self) -> None:
        self.failure = None

    def failed(self, error: Exception) -> None:
        self.failure = error
        self._failures[type(error).__name__] += 1
        self._progress.notify()

    def flush(self) -> None:
        """A batch came from the server: apply it."""
        heard = bool(self._queue)  # an error alone shows nothing of what the server has
        self._apply()
        if heard:
            self._heard = self._now

    def _apply(self) -> None:
        """Apply what waits. Store first, handlers after: they run in tasks of their own, never in between."""
        self._now = self._clock.now()
        queue, store, tell = self._queue, self._store, self._tell
        while queue:
            delta = queue.pop()
            apply(store, delta, tell)
            if not self.synced and type(delta) is Replaced:
                self._has_synced()
        if self._shared.full:
            self._shared.sweep(store.heads())

    def _tell(self, kind: EventType, head: Head, old: Head | None, tombstone: bool = False, handler: object = None, /) -> None:
        self._counts[kind] += 1
        if self._registrations:
            event = Event(kind, head, old, self._view, not self.synced, tombstone, self._now)
            for registration in self._registrations:
                if handler is None or handler is registration:
                    registration.offer(event)

    def _has_synced(self) -> None:
        self.synced = True
        self.failure = None
        for registration in self._registrations:
            registration.initial_end()
        _log.info("%s: synced, %d objects at version %s", self.what, len(self._store), self._store.version)
        self._progress.notify()
