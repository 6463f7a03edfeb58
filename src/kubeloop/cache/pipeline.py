"""Pipeline: the path of events from an informer's lists and watches through queue and store to readers and handlers.

The module fixes the order of these steps: the store changes before a handler sees the event.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

import msgspec
from msgspec import Struct

from kubeloop.cache import arguments
from kubeloop.cache.blobs.blob_store import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.blobs.retention import warn_of_unknown
from kubeloop.cache.deltas import Delta, Removed, Replaced, Resync, Sync, Upserted, VersionBookmark
from kubeloop.cache.handlers.event import EventType, InformerEvent
from kubeloop.cache.handlers.processor import Create, Processor
from kubeloop.cache.handlers.registration import Callbacks, Registration
from kubeloop.cache.leaks import UsageMonitor
from kubeloop.cache.lister.readers import Readers
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.reflector.reporter import HOPELESS
from kubeloop.cache.scope import InformerDefaults, InformerScope
from kubeloop.cache.store.index_sources import IndexSource, check_sources, make_index, path_of
from kubeloop.cache.store.store import Snapshot, Store
from kubeloop.meta import Resource
from kubeloop.meta.repr import counted
from kubeloop.transport import logger_with_context

_ADDED, _MODIFIED, _DELETED, _RESYNC = EventType.ADDED, EventType.MODIFIED, EventType.DELETED, EventType.RESYNC


class StoreChange(Struct, frozen=True, gc=False):
    """A change of the store: the new state (for a deletion, the last known state) and the previous one.

    Attributes:
        handler: the registration that the change is for; None: all registrations.
    """

    type: EventType
    head: Head
    old: Head | None
    tombstone: bool = False
    handler: object = None


def apply(store: Store, delta: Delta) -> Iterable[StoreChange]:
    """Apply a delta to the store and return the changes, in the order in which handlers must see them.

    Guarantees
        When the function returns, the store shows all of the changes. The changes of a replacement begin with the objects that vanished
        (as tombstones, with the last state known); the objects of the list follow in its order. An object with an unchanged version is not
        among the changes. The replacement of one namespace leaves the other namespaces as they are. A ``Resync`` changes nothing: the
        pipeline replays the store for it.
    """
    if type(delta) is Upserted:
        head = delta.head
        old = store.put(head)
        if delta.ordered:
            store.version = head.resource_version or store.version
        if old is None:
            return (StoreChange(_ADDED, head, None),)
        return (StoreChange(_MODIFIED, head, old),) if _differ(old, head) else ()
    if isinstance(delta, Removed):
        head = delta.head
        old = store.remove(head.namespace, head.name)
        if delta.ordered and not delta.tombstone:
            store.version = head.resource_version or store.version
        # The deletion of an object that the store lacks is a change too: handlers that react to deletions must not miss one.
        return (StoreChange(_DELETED, head, old, delta.tombstone),)
    if isinstance(delta, VersionBookmark):
        store.version = delta.version or store.version
    elif isinstance(delta, Sync):
        return (StoreChange(_RESYNC, delta.head, delta.head, False, delta.handler),)
    elif isinstance(delta, Replaced):
        return _replace(store, delta)
    return ()


def _replace(store: Store, delta: Replaced) -> Iterator[StoreChange]:
    scope = delta.scope
    # An object of another namespace does not belong in the list of one namespace: the next list could never remove it.
    heads = delta.heads if scope is None else [head for head in delta.heads if head.namespace == scope]
    present: dict[str, set[str]] = {}
    # The whole replacement is done before the first change is returned, and is atomic for other threads:
    # a reader sees either the old list or the new one.
    with store.lock:
        if len(store):
            for head in heads:
                present.setdefault(head.namespace, set()).add(head.name)
        vanished = [head for head in store.heads(scope) if head.name not in present.get(head.namespace, ())]
        for head in vanished:
            store.remove(head.namespace, head.name)
        before = [store.put(head) for head in heads]
        store.version = delta.version
    return _changes(vanished, heads, before)


def _changes(vanished: Iterable[Head], heads: Iterable[Head], before: Iterable[Head | None]) -> Iterator[StoreChange]:
    # One at a time: a list of a million changes would take 100 MB.
    for head in vanished:
        yield StoreChange(_DELETED, head, head, True)
    for head, old in zip(heads, before, strict=True):
        if old is None:
            yield StoreChange(_ADDED, head, None)
        # An object that was deleted and created again meanwhile is one update, too: the uids differ (behaviour X1).
        elif old is not head and _differ(old, head):
            yield StoreChange(_MODIFIED, head, old)


def _differ(old: Head, new: Head) -> bool:
    """Return whether two states differ. Objects without versions, which some aggregated servers send, always count as changed."""
    if old.resource_version != new.resource_version or old.uid != new.uid or not new.resource_version:
        return True
    # The text has changed, or the informer reads further paths. Behind a proxy with changed rules, the contents differ as well.
    before, after = old.document(), new.document()
    return before != after and msgspec.json.decode(before) != msgspec.json.decode(after)


R = TypeVar("R", bound=Resource)

_LOG = logger_with_context("kubeloop.cache")


class ReflectorTarget:
    """The ``ReflectorStore`` of one list and watch: passes its objects to the pipeline and records its progress.

    An informer of several namespaces has one for each; each syncs, fails and relists independently of the others.

    Args:
        pipeline: Receives the objects.
        listwatch: The list and watch.
        namespace: The watched namespace. None: all.
        description: The watched objects, for errors.
    """

    def __init__(self, pipeline: InformerPipeline[Any], listwatch: ListWatch, namespace: str | None, description: str) -> None:
        self.namespace = namespace
        #: The objects in words: ``pods in namespace "shop"``.
        self.description = description
        self.listwatch = listwatch
        self.synced = False
        #: resourceVersion of the cache, from a list, an event or a bookmark; "" before the first list.
        self.version = ""
        #: Error of the last request; None after a success.
        self.failure: Exception | None = None
        #: Reason why the first state is late although no request failed; "" if unknown.
        self.late = ""
        #: When a server last confirmed the state of the cache, by a list, an event or a bookmark; None before the first time.
        self.confirmed: float | None = None
        #: When ``version`` may last have changed, on ``time.perf_counter``, as ``Write.sent``.
        self.moved = 0.0
        self._pipeline = pipeline

    def check(self) -> bool:
        """Return whether this list and watch has synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: it failed in a way that retrying cannot help.
        """
        if self.synced:
            return True
        if isinstance(self.failure, HOPELESS):
            raise self.failure
        return False

    def waiting_for(self) -> str:
        """Return the watched objects in words, with the reason why they are not synced."""
        return f"{self.description} ({self.failure or self.late or 'no answer from the server yet'})"

    # ------------------------------------------------------------------------------------------------- the reflector's store

    @property
    def reader(self) -> HeadReader:
        return self._pipeline.reader

    def before(self, namespace: str, name: str) -> Head | None:
        return self._pipeline.store.get(namespace, name)

    def begin_list(self) -> None:
        self._pipeline.archive.begin_list()

    def replace(self, heads: list[Head], version: str) -> None:
        pipeline = self._pipeline
        self.failure = None
        pipeline.readers.listed(self, version)
        self.version = version
        self.moved = time.perf_counter()
        self.confirmed = pipeline.replace(self, heads, version) or self.confirmed

    def change(self, head: Head) -> None:
        self.version = head.resource_version or self.version
        self._pipeline.queue.push(Upserted(head))

    def remove(self, head: Head) -> None:
        self.version = head.resource_version or self.version
        self._pipeline.queue.push(Removed(head))

    def bookmark(self, version: str) -> None:
        self.version = version or self.version
        self._pipeline.queue.push(VersionBookmark(version))

    def flush(self) -> None:
        pipeline = self._pipeline
        self.moved = time.perf_counter()
        self.confirmed = pipeline.flush() or self.confirmed
        pipeline.processor.deliver(at_once=True)

    def watching(self) -> None:
        self.failure = None
        self._pipeline.check_usage()

    def waiting(self, reason: str) -> None:
        self.late = reason

    def failed(self, error: Exception) -> None:
        self.failure = error
        self._pipeline.count_failure(error)


class InformerPipeline(Generic[R]):
    """The parts of one informer, in the order in which an event passes them. Its only tasks are those of handlers and resyncs.

    Guarantees
        A batch is applied whole before other tasks of the loop run: between two batches, queue and store agree.
    """

    def __init__(self, scope: InformerScope[R], sources: Sequence[ListWatch], defaults: InformerDefaults, description: str) -> None:
        """Create the parts of one informer.

        Args:
            scope: the objects of the informer.
            sources: one list and watch for each of ``scope.feeds``, in their order.
            defaults: clock, progress and names that all informers of a factory share.
            description: the objects in words, for logs and errors.
        """
        self.synced = False
        self.store = Store()
        self.queue = scope.queue(self.store)
        self.archive = BlobStore()
        self.archive.population = self.store.snapshot
        self._scope = scope
        self._description = description
        self._defaults = defaults
        self._shared = StringInterner()
        #: Makes the heads of received objects. It is replaced when paths are added.
        self.reader = self._make_reader(())
        self.readers = Readers(scope, description, self.store, defaults, lambda: self.reader, lambda: self.version)
        self.view: CacheView[R] = self.readers.view
        self._overlay = self.readers.overlay
        self.processor: Processor[R] = Processor(description, defaults, self.view, self.check)
        #: Changes since the start, by type.
        self.counts = dict.fromkeys(EventType, 0)
        #: Failed requests since the start, by the name of the error.
        self.failures: Counter[str] = Counter()
        self._now = defaults.clock.now()
        self._usage = UsageMonitor(description, self._now)
        #: Whether the changes that are being applied belong to the first list of a feed.
        self._initial = False
        #: Whether to make no events for the changes that are being applied: handlers get them as a replay afterwards.
        self._quiet = False
        self._create: Create | None = None
        self.feeds = tuple(
            ReflectorTarget(self, source, namespace, scope.describe(namespace))
            for source, namespace in zip(sources, scope.feeds, strict=True)
        )
        self.readers.watches(self.feeds)

    @property
    def version(self) -> str:
        """resourceVersion of the cache, from a list, an event or a bookmark; "" before the first list.

        With several namespaces, which are watched separately, it is the lowest of their versions: the cache contains all changes up to it.
        """
        if len(self.feeds) == 1:
            return self.store.version
        versions = [feed.version for feed in self.feeds]
        return "" if "" in versions else min(versions, key=lambda version: (len(version), version))

    def check(self) -> bool:
        """Return whether all lists and watches of the informer have synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: one of them failed in a way that retrying cannot help.
        """
        # Every feed is checked, so that a permanent failure is reported even while another feed is only slow.
        return sum(feed.check() for feed in self.feeds) == len(self.feeds)

    def waiting_for(self) -> str:
        """Return the lists and watches that have not synced, in words, with the reasons."""
        return "; ".join(feed.waiting_for() for feed in self.feeds if not feed.synced)

    # ------------------------------------------------------------------------------------------------------------- handlers

    def start(self, create: Create) -> None:
        """Run the present handlers, and handlers that are added later, in tasks made by ``create``."""
        self._create = create
        self.processor.start(create)
        for registration in self.processor.registrations:
            self._start_resyncs(create, registration)

    def add_handler(self, callbacks: Callbacks[R]) -> Registration[R]:
        """Add a handler. It gets every object of the store as added; later changes follow without a gap."""
        registration = self.processor.add(callbacks)
        self.processor.replay(_ADDED, self.store.snapshot(), self._defaults.clock.now(), registration)
        if self.synced:
            registration.initial_end()
        if self._create is not None:
            self._start_resyncs(self._create, registration)
        return registration

    def forget(self) -> None:
        """Empty the store and emit a DELETED event for each object."""
        self.queue.push(Replaced((), self.version))
        self._apply_queue()
        self.processor.deliver()

    def _start_resyncs(self, create: Create, registration: Registration[R]) -> None:
        if registration.resync:
            registration.timer = create(self._resync_periodically(registration), f"kubeloop resync of {self._description}")

    async def _resync_periodically(self, registration: Registration[R]) -> None:
        while registration.active:
            await self._defaults.clock.sleep(registration.resync)
            if self.synced:
                # Through the queue, so that a resync never shows a state older than an event before it.
                self.queue.push(Resync(registration))
                self._apply_queue()
                self.processor.deliver()

    # -------------------------------------------------------------------------------------------------------------- indexes

    def add_indexes(self, indexes: Mapping[str, IndexSource[R]], paths: Iterable[str] = ()) -> None:
        """Add indexes, which are complete at once, and paths that ``Head.value`` can read. Rebuilds the cached heads (15 us each).

        Raises:
            ValueError: an index of that name exists with another source, or a path is malformed, or its part of the objects is not stored.
            TypeError: a source has a wrong type, or ``paths`` is not a list of strings.
        """
        check_sources(indexes)
        paths = arguments.paths("paths", paths)
        present = self.store.indexes
        for name, source in indexes.items():
            if name in present and present[name].source != source:
                raise ValueError(f'{self._description}: index "{name}" exists already, over {present[name].source!r}; choose another name')
        new = {name: source for name, source in indexes.items() if name not in present}
        indexed = (path for path in map(path_of, new.values()) if path is not None)
        every = (*self.reader.projection.paths, *indexed, *paths)
        if added := dict.fromkeys(path for path in every if path not in self.reader.projection.paths):
            stored = self._scope.keep.fields  # the factory has already logged warnings for these
            warn_of_unknown(self._scope.kind, (path for path in added if path not in stored), self._description)
            self.reader = self._make_reader(every)
            for head in self.store.heads():
                self.store.put(self.reader.again(head))
            self.readers.rebuild_overlay_heads(self.reader)
        for name, source in new.items():
            self.readers.add_index(partial(make_index, name, source, self.reader.attributes, self.view.decode))

    def _make_reader(self, paths: tuple[str, ...]) -> HeadReader:
        kind = self._scope.kind
        return HeadReader(kind.api_version, kind.kind, paths, self.archive, self._shared, self._scope.keep)

    # ------------------------------------------------------------------------------------------------- lists and watches

    def replace(self, feed: ReflectorTarget, heads: list[Head], version: str) -> float | None:
        """Replace the objects of the feed's namespace, or all objects if it is the only feed. Return the time as ``flush`` does."""
        self.archive.end_list()
        reader = self.reader
        current = tuple(head if reader.is_current(head) else reader.again(head) for head in heads)
        namespace = feed.namespace if len(self.feeds) > 1 else None
        self._initial = not feed.synced
        # The first state needs no event for each object and handler in advance: a replay makes them while the handler takes them.
        self._quiet = self._initial and not len(self.store.snapshot(namespace))
        self.queue.push(Replaced(current, version, namespace))
        received = self.flush()
        self.processor.deliver()
        self.readers.replaced(feed, version)
        if self._quiet:
            self.processor.replay(_ADDED, self.store.snapshot(namespace), self._now)
        self._initial = self._quiet = False
        if not feed.synced:
            feed.synced = True
            _LOG.debug("%s: synced, %s at version %s", feed.description, counted(len(current), "object"), version)
            if all(each.synced for each in self.feeds):
                self.synced = True
                self.processor.initial_end()
            self._defaults.progress.notify()
        return received

    def flush(self) -> float | None:
        """Apply the deltas of a batch. Return the clock's time of this call, or None for a batch without deltas, such as a single error."""
        received = bool(self.queue)
        self._apply_queue()
        return self._now if received else None

    def check_usage(self) -> None:
        """Warn if the informer runs without handlers and queries. Called when a watch was opened."""
        self._usage.check(self._defaults.clock.now(), len(self.processor.registrations), self.view.reads, len(self.store))

    def count_failure(self, error: Exception) -> None:
        """Count a failed request of a feed, and wake the tasks that wait for a sync."""
        self.failures[type(error).__name__] += 1
        self._defaults.progress.notify()

    # --------------------------------------------------------------------------------------------------- from queue to handlers

    def _apply_queue(self) -> None:
        """Apply the queue's deltas. First the store changes, then handlers get the events; ``Processor.deliver`` calls them later."""
        self._now = self._defaults.clock.now()
        queue, store = self.queue, self.store
        while queue:
            delta = queue.pop()
            if type(delta) is Resync:
                self._replay(store.snapshot(), delta.handler)
                continue
            for change in apply(store, delta):
                self._dispatch(change)
        if self._shared.full:
            self._shared.sweep(store.heads())
        self.readers.applied()

    def _dispatch(self, change: StoreChange) -> None:
        """Report a change of the store to readers and handlers."""
        kind, head = change.type, change.head
        self.counts[kind] += 1
        if kind is _DELETED or self._overlay.alert:
            self.readers.record(head, deleted=kind is _DELETED)
        if self.processor.audience and not self._quiet:
            event = InformerEvent(kind, head, change.old, self.view, self._initial, change.tombstone, self._now)
            self.processor.offer(event, change.handler)

    def _replay(self, heads: Snapshot, handler: object) -> None:
        self.counts[_RESYNC] += len(heads)
        self.processor.replay(_RESYNC, heads, self._now, handler)
