"""Pipeline: the way of what one informer's feeds bring: queue, store, those who read it, those who are told.

The order is what matters, and stands here once: the store changes before anybody hears of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, Protocol, TypeVar

from kubeloop.cache import arguments
from kubeloop.cache.blobs.compression import BlobStore
from kubeloop.cache.blobs.head import Head, HeadReader, StringInterner
from kubeloop.cache.blobs.known_paths import warn_of_unknown
from kubeloop.cache.deltas.delta_queue import Bookmark, Changed, Delta, Removed, Replaced, Resync, Sync
from kubeloop.cache.diagnostics.leaks import Usage
from kubeloop.cache.handlers.event import Event, EventType
from kubeloop.cache.handlers.processor import Fanout, InformerDefaults
from kubeloop.cache.handlers.registration import Registration
from kubeloop.cache.lister.readers import Readers
from kubeloop.cache.lister.view import View
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.reflector_target import ReflectorTarget
from kubeloop.cache.scope import Scope
from kubeloop.cache.store.index_sources import IndexSource, check_sources, make_index, path_of
from kubeloop.cache.store.store import Snapshot, Store
from kubeloop.meta import Resource
from kubeloop.meta.repr import counted
from kubeloop.transport import logger_with_context

_ADDED, _MODIFIED, _DELETED, _RESYNC = EventType.ADDED, EventType.MODIFIED, EventType.DELETED, EventType.RESYNC


class Tell(Protocol):
    """Hears of one change. ``handler`` None: it is for all handlers."""

    def __call__(self, kind: EventType, head: Head, old: Head | None, tombstone: bool = False, handler: object = None, /) -> None: ...


class Replay(Protocol):
    """One handler, or all (None), shall hear of each of these once more. What is told later comes after them."""

    def __call__(self, heads: Snapshot, handler: object, /) -> None: ...


def apply(store: Store, delta: Delta, tell: Tell, replay: Replay) -> None:
    """Change the store and tell the changes, in the order in which handlers must hear of them.

    Guarantees
        When a change is told, the store shows it already. Of a replacement: first what vanished (as tombstones, with the last state
        known), then the list in its order; an object whose version did not change is no change. A replacement of one namespace
        leaves the others as they are.
    """
    if type(delta) is Changed:
        head = delta.head
        old = store.put(head)
        if delta.ordered:
            store.version = head.resource_version or store.version
        if old is None:
            tell(_ADDED, head, None)
        elif _differ(old, head):
            tell(_MODIFIED, head, old)
    elif isinstance(delta, Removed):
        head = delta.head
        old = store.remove(head.namespace, head.name)
        if delta.ordered and not delta.tombstone:
            store.version = head.resource_version or store.version
        # Told also when it was not known here: whoever reacts to deletions must not miss one.
        tell(_DELETED, head, old, delta.tombstone)
    elif isinstance(delta, Bookmark):
        store.version = delta.version or store.version
    elif isinstance(delta, Resync):
        replay(store.snapshot(), delta.handler)
    elif isinstance(delta, Sync):
        tell(_RESYNC, delta.head, delta.head, False, delta.handler)
    elif isinstance(delta, Replaced):
        _replace(store, delta, tell)


def _replace(store: Store, delta: Replaced, tell: Tell) -> None:
    scope = delta.scope
    # An object of another namespace has no place in the list of one: the next list could never take it away again.
    heads = delta.heads if scope is None else [head for head in delta.heads if head.namespace == scope]
    present: dict[str, set[str]] = {}
    # The whole replacement is done before the first change is told, and is one moment for other threads:
    # a reader sees the old list or the new one, never half.
    with store.lock:
        if len(store):
            for head in heads:
                present.setdefault(head.namespace, set()).add(head.name)
        vanished = [head for head in store.heads(scope) if head.name not in present.get(head.namespace, ())]
        for head in vanished:
            store.remove(head.namespace, head.name)
        before = [store.put(head) for head in heads]
        store.version = delta.version
    for head in vanished:
        tell(_DELETED, head, head, True)
    for head, old in zip(heads, before, strict=True):
        if old is None:
            tell(_ADDED, head, None)
        # One update also for an object that was deleted and made again meanwhile: the uids tell (behaviour X1).
        elif old is not head and _differ(old, head):
            tell(_MODIFIED, head, old)


def _differ(old: Head, new: Head) -> bool:
    """Of objects without versions, as some aggregated servers have them, nobody can say that nothing changed."""
    return old.resource_version != new.resource_version or old.uid != new.uid or not new.resource_version


R = TypeVar("R", bound=Resource)

_log = logger_with_context("kubeloop.cache")


class Pipeline(Generic[R]):
    """Made by its informer, which starts and stops what runs; here nothing runs by itself.

    Guarantees
        A batch is applied whole before anything else on the loop runs: between two of them, queue and store agree.
    """

    def __init__(self, scope: Scope[R], sources: Sequence[ListWatch], around: InformerDefaults, what: str) -> None:
        """As ``Informer``."""
        self.synced = False
        self.store = Store()
        self.queue = scope.queue(self.store)
        self.archive = BlobStore()
        self.archive.population = self.store.snapshot
        self._scope = scope
        self._what = what
        self._around = around
        self._shared = StringInterner()
        self._reader = self._reading(())
        self.readers = Readers(scope, what, self.store, around, lambda: self._reader, lambda: self.version)
        self.view: View[R] = self.readers.view
        self._laid_over = self.readers.overlay
        self.fanout: Fanout[R] = Fanout(what, around, self.view, self.check, self.resync)
        #: Changes told since the start, by what they were.
        self.counts = dict.fromkeys(EventType, 0)
        #: Failed requests since the start, by the name of the error.
        self.failures: Counter[str] = Counter()
        self._now = around.clock.now()
        self._usage = Usage(what, self._now)
        #: What is applied now belongs to the first list of a feed.
        self._initial = False
        #: It is told as a whole, afterwards.
        self._quiet = False
        #: Put a delta behind all others; ``flush`` applies them.
        self.push: Callable[[Changed | Removed | Bookmark], None] = self.queue.push
        self.feeds = tuple(
            ReflectorTarget(self, source, namespace, scope.what(namespace)) for source, namespace in zip(sources, scope.feeds, strict=True)
        )
        self.readers.watches(self.feeds)

    @property
    def version(self) -> str:
        """What the cache is at: the version of the list, an event or a bookmark; "" before the first list.

        Of several namespaces, which are watched apart, the lowest: everything up to it is here.
        """
        if len(self.feeds) == 1:
            return self.store.version
        versions = [feed.version for feed in self.feeds]
        return "" if "" in versions else min(versions, key=lambda version: (len(version), version))

    def check(self) -> bool:
        """Whether it has synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: it has not, and only a person can help.
        """
        # Each is looked at, so that a hopeless one is reported even while another is merely slow.
        return sum(feed.check() for feed in self.feeds) == len(self.feeds)

    def waiting_for(self) -> str:
        """What has not synced, and why."""
        return "; ".join(feed.waiting_for() for feed in self.feeds if not feed.synced)

    # ------------------------------------------------------------------------------------------------------- for the informer

    def begin(self, registration: Registration[R]) -> None:
        """Tell a handler what is there; what comes later comes as an event, without a gap, as nothing is applied meanwhile."""
        self.fanout.replay(EventType.ADDED, self.store.snapshot(), self._around.clock.now(), registration)
        if self.synced:
            registration.initial_end()

    def resync(self, registration: Registration[R]) -> None:
        """Show a handler everything once more."""
        if self.synced:
            # Through the queue, so that a resync never shows a state older than an event before it.
            self.queue.push(Resync(registration))
            self._apply()
            self.fanout.deliver()

    def forget(self) -> None:
        """There is nothing any more; handlers are told of the end of each object."""
        self.queue.push(Replaced((), self.version))
        self._apply()
        self.fanout.deliver()

    def add_indexes(self, indexes: Mapping[str, IndexSource[R]], paths: Iterable[str] = ()) -> None:
        """More indexes, complete at once, and more ``paths`` that heads carry. Objects that are cached are read again (15 us each).

        Raises:
            ValueError: an index of that name is there with another source, or a path is malformed or not kept of objects.
            TypeError: no index can be made of a source, or ``paths`` is no list of texts.
        """
        check_sources(indexes)
        paths = arguments.paths("paths", paths)
        present = self.store.indexes
        for name, source in indexes.items():
            if name in present and present[name].source != source:
                raise ValueError(f'{self._what}: index "{name}" exists already, over {present[name].source!r}; choose another name')
        new = {name: source for name, source in indexes.items() if name not in present}
        needed = (path for path in map(path_of, new.values()) if path is not None)
        wanted = (*self._reader.projection.paths, *needed, *paths)
        if fresh := dict.fromkeys(path for path in wanted if path not in self._reader.projection.paths):
            kept = self._scope.keep.fields  # told of already
            warn_of_unknown(self._scope.kind, (path for path in fresh if path not in kept), self._what)
            self._reader = self._reading(wanted)
            for head in self.store.heads():
                self.store.put(self._reader.again(head))
            self.readers.carry(self._reader)
        for name, source in new.items():
            self.readers.add_index(partial(make_index, name, source, self._reader.attributes, self.view.decode))

    def _reading(self, paths: tuple[str, ...]) -> HeadReader:
        kind = self._scope.kind
        return HeadReader(kind.api_version, kind.kind, paths, self.archive, self._shared, self._scope.keep)

    # ------------------------------------------------------------------------------------------------------------ for the feeds

    @property
    def reader(self) -> HeadReader:
        return self._reader

    def before(self, namespace: str, name: str) -> Head | None:
        return self.store.get(namespace, name)

    def listing(self) -> None:
        self.archive.listing()

    def listed(self, feed: ReflectorTarget, version: str) -> None:
        """A list at ``version`` is about to replace what there is; the feed is at what it saw before."""
        self.readers.listed(feed, version)

    def replace(self, feed: ReflectorTarget, heads: list[Head], version: str) -> float | None:
        """This is all there is, in the feed's namespace if it has one. Answers as ``flush``."""
        self.archive.settle()
        reader = self._reader
        current = tuple(head if reader.made(head) else reader.again(head) for head in heads)
        namespace = feed.namespace if len(self.feeds) > 1 else None
        self._initial = not feed.synced
        # The first state that there is needs no events, one for each object and handler at once: it is replayed as fast as a handler goes.
        self._quiet = self._initial and not len(self.store.snapshot(namespace))
        self.queue.push(Replaced(current, version, namespace))
        heard = self.flush()
        self.fanout.deliver()
        self.readers.replaced(feed, version)
        if self._quiet:
            self.fanout.replay(EventType.ADDED, self.store.snapshot(namespace), self._now)
        self._initial = self._quiet = False
        if not feed.synced:
            feed.synced = True
            _log.debug("%s: synced, %s at version %s", feed.what, counted(len(current), "object"), version)
            if all(each.synced for each in self.feeds):
                self.synced = True
                self.fanout.initial_end()
            self._around.progress.notify()
        return heard

    def watching(self) -> None:
        """A watch was opened."""
        self._usage.look(self._around.clock.now(), len(self.fanout.registrations), self.view.reads, len(self.store))

    def failed(self, error: Exception) -> None:
        """A request of a feed failed."""
        self.failures[type(error).__name__] += 1
        self._around.progress.notify()

    def flush(self) -> float | None:
        """A batch came from the server: apply it. Answers when it came; None if it held nothing, as an error alone does."""
        something = bool(self.queue)
        self._apply()
        return self._now if something else None

    def deliver(self) -> None:
        """A batch of a watch was applied, and there is nothing to be done before handlers are called."""
        self.fanout.deliver(at_once=True)

    def _apply(self) -> None:
        """Apply what waits. Store first, handlers after (``Fanout.deliver``): never in between."""
        self._now = self._around.clock.now()
        queue, store, tell = self.queue, self.store, self._tell
        while queue:
            apply(store, queue.pop(), tell, self._replay)
        if self._shared.full:
            self._shared.sweep(store.heads())
        self.readers.applied()

    def _replay(self, heads: Snapshot, handler: object, /) -> None:
        self.counts[EventType.RESYNC] += len(heads)
        self.fanout.replay(EventType.RESYNC, heads, self._now, handler)

    def _tell(self, kind: EventType, head: Head, old: Head | None, tombstone: bool = False, handler: object = None, /) -> None:
        self.counts[kind] += 1
        if kind is EventType.DELETED or self._laid_over.alert:
            self.readers.told(head, deleted=kind is EventType.DELETED)
        if self.fanout.audience and not self._quiet:
            self.fanout.tell(Event(kind, head, old, self.view, self._initial, tombstone, self._now), handler)
