"""Informer: a local copy of one kind, kept equal to what servers have, and any number of handlers. Made by ``Informers.of``; never by hand.

It wires the parts and decides nothing: what to ask is the reflector's, what changed is ``apply``'s, who hears it the fan-out's.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

from kubeloop.cache.apply import apply
from kubeloop.cache.compression import Archive
from kubeloop.cache.delta_queue import Bookmark, Changed, Removed, Replaced, Resync
from kubeloop.cache.event import Event, EventType
from kubeloop.cache.fanout import Around, Fanout
from kubeloop.cache.feed import Feed
from kubeloop.cache.filtering import Predicate
from kubeloop.cache.head import Head, HeadReader, Shared
from kubeloop.cache.index_sources import IndexSource, make_index, path_of
from kubeloop.cache.leaks import Usage
from kubeloop.cache.lister import Lister
from kubeloop.cache.listwatch import ListWatch
from kubeloop.cache.readers import Readers
from kubeloop.cache.registration import Callbacks, Handler, InformerStopped, Registration
from kubeloop.cache.scope import Scope
from kubeloop.cache.stats import InformerStats, feed_stats, handler_stats, identity, sizes
from kubeloop.cache.store import Store
from kubeloop.cache.tasks import Tasks, end
from kubeloop.cache.view import View
from kubeloop.cache.waiting import all_told
from kubeloop.meta import DeadlineError, Resource
from kubeloop.transport import log_context, logger_with_context

R = TypeVar("R", bound=Resource)

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

    def __init__(self, scope: Scope[R], sources: Sequence[ListWatch], around: Around, what: str) -> None:
        """``sources``: one for each of ``scope.feeds``, in their order. ``what``: the objects in words, unlike any other informer's."""
        self.scope = scope
        self.kind = scope.kind
        #: The objects in words, ``pods in namespace "shop"``; unique among the informers of a factory.
        self.what = what
        #: Period in seconds of handlers that name none; 0 is never.
        self.resync = around.resync
        self.synced = False
        self.stopped = False
        self._around = around
        self._store = Store()
        self._queue = scope.queue(self._store)
        self._archive = Archive()
        self._shared = Shared()
        self._reader = HeadReader(self.kind.api_version, self.kind.kind, (), self._archive, self._shared, scope.keep)
        self._readers = Readers(scope, what, self._store, around, lambda: self._reader, lambda: self.resource_version)
        self._view: View[R] = self._readers.view
        #: Called with each write of the client, that readers may see it before the watch brings it.
        self.wrote = self._readers.wrote
        self._laid_over = self._readers.overlay
        self._fanout: Fanout[R] = Fanout(self.what, around, self._view, self.check, self._resync)
        self._tasks: Tasks | None = None
        self._own: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []
        #: Changes told since the start, by what they were.
        self._counts = dict.fromkeys(EventType, 0)
        #: Failed requests since the start, by the name of the error.
        self._failures: Counter[str] = Counter()
        self._now = around.clock.now()
        self._usage = Usage(what, self._now)
        #: What is applied now belongs to the first list of a feed.
        self._initial = False
        #: It is told as a whole, afterwards.
        self._quiet = False
        #: Put a delta behind all others; ``flush`` applies them.
        self.push: Callable[[Changed | Removed | Bookmark], None] = self._queue.push
        self.lister: Lister[R] = self._readers.lister
        self.feeds = tuple(
            Feed(self, source, namespace, scope.what(namespace)) for source, namespace in zip(sources, scope.feeds, strict=True)
        )
        self._readers.watches(self.feeds)

    # ------------------------------------------------------------------------------------------------------------- for users

    @property
    def resource_version(self) -> str:
        """What the cache is at: the version of the list, an event or a bookmark; "" before the first list.

        Of several namespaces, which are watched apart, the lowest: everything up to it is here.
        """
        if len(self.feeds) == 1:
            return self._store.version
        versions = [feed.version for feed in self.feeds]
        return "" if "" in versions else min(versions, key=lambda version: (len(version), version))

    @property
    def failure(self) -> Exception | None:
        """Why the last request failed, of one that did; None while all is well."""
        return next((feed.failure for feed in self.feeds if feed.failure is not None), None)

    @property
    def reconnects(self) -> int:
        """How often a watch ended and was opened again."""
        return sum(feed.listwatch.reconnects for feed in self.feeds)

    @property
    def registrations(self) -> list[Registration[R]]:
        """The handlers that have not been removed."""
        return self._fanout.registrations

    @property
    def stats(self) -> InformerStats:
        """Numbers of this moment, from any thread. Takes 1 us an object up to 20,000 objects; of more, a part is measured."""
        now = self._around.clock.now()
        heard = [feed.heard for feed in self.feeds]
        with self._store.lock:
            own_writes = len(self._laid_over.places())
        return InformerStats(
            **identity(self.scope, self._around.cluster, self.what),
            **sizes(self._store.snapshot(), self._archive),
            by_type={kind.value: count for kind, count in self._counts.items()},
            failures=dict(self._failures),
            undecodable=self._view.undecodable,
            reads=self._view.reads,
            own_writes=own_writes,
            queued=len(self._queue),
            lag=None if None in heard else now - min(each for each in heard if each is not None),
            synced=self.synced,
            stopped=self.stopped,
            resource_version=self.resource_version,
            feeds=tuple(map(feed_stats, self.feeds)),
            handlers=tuple(handler_stats(registration, now) for registration in self.registrations),
        )

    def on_event(
        self,
        *,
        added: Handler[R] | None = None,
        updated: Handler[R] | None = None,
        deleted: Handler[R] | None = None,
        where: Predicate | None = None,
        coalesce: bool = False,
        resync: float | None = None,
        name: str = "",
    ) -> Registration[R]:
        """Call these for each change, one at a time; plain functions on the loop, ``async`` ones awaited.

        ``resync``: every so many seconds ``updated`` is called for each object with ``event.type`` "resync" (0: never; at least 1);
        None is what the informer, or else the informers, were made with.
        ``where``: only objects whose head it accepts exist for this handler (see ``Filter``); nothing is decoded for that.
        ``coalesce``: changes of one object that wait for a slow handler become one (see ``merge``); the order between objects is lost.
        ``name`` is for logs and metrics. The same functions may be registered several times: each registration is told.

        Raises:
            InformerStopped: nobody would ever call them.
        """
        if self.stopped:
            raise InformerStopped(f"the informer of {self.what} has stopped; handlers must be added before")
        period = self.resync if resync is None else resync
        calls = Callbacks(added=added, updated=updated, deleted=deleted, where=where, coalesce=coalesce, resync=period, name=name)
        registration = self._fanout.add(calls)
        # Between this line and the last no delta is applied: what is in the store is told here, what comes later comes as an event.
        self._fanout.replay(EventType.ADDED, self._store.heads(), self._around.clock.now(), registration)
        if self.synced:
            registration.initial_end()
        return registration

    def add_indexes(self, indexes: Mapping[str, IndexSource[R]], paths: Iterable[str] = ()) -> None:
        """More indexes, complete at once, and more ``paths`` that heads carry. Objects that are cached are read again (15 us each).

        Raises:
            ValueError: an index of that name is there with another source, or a path is malformed or not kept of objects.
        """
        present = self._store.indexes
        for name, source in indexes.items():
            if name in present and present[name].source != source:
                raise ValueError(f'{self.what}: index "{name}" exists already, over {present[name].source!r}; choose another name')
        new = {name: source for name, source in indexes.items() if name not in present}
        needed = (path for path in map(path_of, new.values()) if path is not None)
        wanted = (*self._reader.projection.paths, *needed, *paths)
        if set(wanted) - set(self._reader.projection.paths):
            self._reader = HeadReader(self.kind.api_version, self.kind.kind, wanted, self._archive, self._shared, self.scope.keep)
            for head in self._store.heads():
                self._store.put(self._reader.again(head))
            self._readers.carry(self._reader)
        for name, source in new.items():
            self._readers.add_index(partial(make_index, name, source, self._reader.attributes, self._view.decode))

    def __repr__(self) -> str:
        return f"<Informer of {self.what}: {len(self._store)} objects, {'synced' if self.synced else 'not synced'}>"

    # ----------------------------------------------------------------------------------------------------- for the factory

    def check(self) -> bool:
        """Whether it has synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: it has not, and only a person can help.
        """
        # Each is looked at, so that a hopeless one is reported even while another is merely slow.
        return sum(feed.check() for feed in self.feeds) == len(self.feeds)

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until it has its first list, of each of its namespaces. Seconds.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: at once: waiting does not help. InformerStopped: it ended before.
            DeadlineError: not in time; the text names what has not synced and why the last request failed.
        """
        await self._around.progress.until(self._usable, timeout, lambda: f"not synced: {self.waiting_for()}")

    def _usable(self) -> bool:
        if self.stopped and not self.synced:
            raise InformerStopped(f"the informer of {self.what} has stopped before it had synced")
        return self.check()

    def waiting_for(self) -> str:
        """What has not synced, and why."""
        return "; ".join(feed.waiting_for() for feed in self.feeds if not feed.synced)

    def start(self, tasks: Tasks) -> None:
        """List and watch, until the tasks are closed. Starting again does nothing."""
        if self._tasks is not None or self.stopped:
            return
        self._tasks = tasks
        for feed in self.feeds:
            self._watching.append(self._create(self._run(feed), f"kubeloop informer of {feed.what}"))
        self._fanout.start(self._create)

    async def stop(self) -> None:
        """End its list and watch and its handlers; what waits for them is dropped. For ever: a stopped informer takes no more handlers."""
        self.close()
        await end(self._own, self._around.clock)

    async def forsake(self, patience: float) -> None:
        """Its kind is gone: ask the server no more, and tell handlers of the end of each object that is still here (``tombstone``).

        Returns when they have heard of it, or after ``patience`` seconds. The informer is to be stopped then.
        """
        await end(self._watching, self._around.clock)
        self._queue.push(Replaced((), self.resource_version))
        self._apply()
        try:
            await all_told(self.registrations, patience)
        except DeadlineError as error:
            _log.warning("%s: gone, and not all handlers have heard of it: %s", self.what, error)

    def close(self) -> None:
        """Its handlers hear nothing more and none can be added."""
        self.stopped = True
        self._fanout.stop()
        self._readers.close()

    def _create(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None
        task = self._tasks.create(work, name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    async def _run(self, feed: Feed) -> None:
        with log_context(cluster=self._around.cluster, informer=feed.what):
            await feed.listwatch.run(feed)

    def _resync(self, registration: Registration[R]) -> None:
        if self.synced:
            # Through the queue, so that a resync never shows a state older than an event before it.
            self._queue.push(Resync(registration))
            self._apply()

    # ------------------------------------------------------------------------------------------------------------ for the feeds

    @property
    def reader(self) -> HeadReader:
        return self._reader

    def before(self, namespace: str, name: str) -> Head | None:
        return self._store.get(namespace, name)

    def listing(self) -> None:
        self._archive.listing()

    def listed(self, feed: Feed, version: str) -> None:
        """A list at ``version`` is about to replace what there is; the feed is at what it saw before."""
        self._readers.listed(feed, version)

    def replace(self, feed: Feed, heads: list[Head], version: str) -> float | None:
        """This is all there is, in the feed's namespace if it has one. Answers as ``flush``."""
        self._archive.settle()
        reader = self._reader
        current = tuple(head if reader.made(head) else reader.again(head) for head in heads)
        namespace = feed.namespace if len(self.feeds) > 1 else None
        self._initial = not feed.synced
        # The first state that there is needs no events, one for each object and handler at once: it is replayed as fast as a handler goes.
        self._quiet = self._initial and not self._store.heads(namespace)
        self._queue.push(Replaced(current, version, namespace))
        heard = self.flush()
        self._readers.replaced(feed, version)
        if self._quiet:
            self._fanout.replay(EventType.ADDED, self._store.heads(namespace), self._now)
        self._initial = self._quiet = False
        if not feed.synced:
            feed.synced = True
            _log.info("%s: synced, %d objects at version %s", feed.what, len(current), version)
            if all(each.synced for each in self.feeds):
                self.synced = True
                self._fanout.initial_end()
            self._around.progress.notify()
        return heard

    def watching(self) -> None:
        """A watch was opened."""
        self._usage.look(self._around.clock.now(), len(self.registrations), self._view.reads, len(self._store))

    def failed(self, error: Exception) -> None:
        """A request of a feed failed."""
        self._failures[type(error).__name__] += 1
        self._around.progress.notify()

    def flush(self) -> float | None:
        """A batch came from the server: apply it. Answers when it came; None if it held nothing, as an error alone does."""
        something = bool(self._queue)
        self._apply()
        return self._now if something else None

    def _apply(self) -> None:
        """Apply what waits. Store first, handlers after: they run in tasks of their own, never in between."""
        self._now = self._around.clock.now()
        queue, store, tell = self._queue, self._store, self._tell
        while queue:
            delta = queue.pop()
            if type(delta) is Resync:
                heads = store.heads()
                self._counts[EventType.RESYNC] += len(heads)
                self._fanout.replay(EventType.RESYNC, heads, self._now, delta.handler)
            else:
                apply(store, delta, tell)
        if self._shared.full:
            self._shared.sweep(store.heads())
        self._readers.applied()

    def _tell(self, kind: EventType, head: Head, old: Head | None, tombstone: bool = False, handler: object = None, /) -> None:
        self._counts[kind] += 1
        if kind is EventType.DELETED or self._laid_over.active:
            self._readers.told(head, deleted=kind is EventType.DELETED)
        if not self._quiet:
            self._fanout.tell(Event(kind, head, old, self._view, self._initial, tombstone, self._now), handler)
