"""Informer: a local copy of one kind that follows the API server, and its handlers.

``Informer`` is the side for users. ``InformerRunner`` is the side for the factory: it starts and stops the tasks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kubeloop.cache.blobs.compression import RecentDocuments
from kubeloop.cache.blobs.head import HeadReader
from kubeloop.cache.diagnostics.stats import InformerStats, feed_stats, handler_stats, identity, sizes
from kubeloop.cache.handlers.event import Predicate
from kubeloop.cache.handlers.registration import Callbacks, Handler, Registration
from kubeloop.cache.lister.lister import Lister
from kubeloop.cache.persistence import Persistence
from kubeloop.cache.pipeline import InformerPipeline, ReflectorTarget
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.scope import InformerDefaults, InformerScope
from kubeloop.cache.store.index_sources import IndexSource
from kubeloop.cache.store.store import Snapshot
from kubeloop.cache.tasks import InformerStopped, Tasks, all_drained, end
from kubeloop.client import Write
from kubeloop.meta import DeadlineError, Resource
from kubeloop.meta.repr import counted
from kubeloop.timing import Clock
from kubeloop.transport import log_context, logger_with_context

R = TypeVar("R", bound=Resource)

_LOG = logger_with_context("kubeloop.cache")


class Informer(Generic[R]):
    """Keeps a local copy of all objects of one kind and notifies handlers of changes. ``InformerFactory.for_kind`` makes it.

    Guarantees
        A handler sees the states of one object in the order of their resourceVersions, each at most once (resyncs apart).
        When a handler runs, the lister already shows that state or a later one.
        An object that vanished while the watch was down is reported as deleted, with its last known state (``tombstone``).
        A handler that is added late first sees every object as added (``initial``), then only changes, without a gap.

    Not guaranteed
        Every state: when the server compacts or the watch restarts, states in between are skipped. Write level-based handlers.
        A DELETED event for every deletion: an object deleted and created again between two lists is one update with another uid.
        Order between different objects after a relist.

    Cost
        About 2 KiB and no decoded object per cached Pod; reading decodes a new one, about 30 us.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     pods = informers.for_kind(Pod, indexes={"node": "spec.nodeName"})
        ...     await pods.wait_synced()
        ...     print(pods.lister.by_index("node", "node-7"))
        []
    """

    def __init__(self, runner: InformerRunner[R]) -> None:
        """Make the user's side of an informer. Only the factory calls it."""
        self._runner = runner
        self._pipeline = runner.pipeline
        self.kind: type[R] = runner.scope.kind
        #: The objects in words, ``pods in namespace "shop"``; unique among the informers of a factory.
        self.description = runner.description
        #: Seconds between resyncs of handlers that set no period; 0 is never.
        self.resync: float = runner.defaults.resync
        self.lister: Lister[R] = self._pipeline.readers.lister

    @property
    def synced(self) -> bool:
        """Whether the first list of each of the informer's namespaces is in the cache."""
        return self._pipeline.synced

    @property
    def stopped(self) -> bool:
        """Whether the informer has stopped: the cache does not change any more, and handlers cannot be added."""
        return self._runner.stopped

    @property
    def scope(self) -> InformerScope[R]:
        """The objects that the informer caches: namespaces, selectors, and the parts of each object that it stores."""
        return self._runner.scope

    @property
    def clock(self) -> Clock:
        """The clock for the informer's waits and measurements."""
        return self._runner.defaults.clock

    @property
    def resource_version(self) -> str:
        """resourceVersion of the cache, from a list, an event or a bookmark; "" before the first list.

        With several namespaces, which are watched separately, it is the lowest of their versions: the cache contains all changes up to it.
        """
        return self._pipeline.version

    @property
    def failure(self) -> Exception | None:
        """Error of the last request of a list or watch; None if the last request of each of them succeeded."""
        return next((feed.failure for feed in self._pipeline.feeds if feed.failure is not None), None)

    @property
    def reconnects(self) -> int:
        """Number of times that a watch ended and was opened again."""
        return sum(feed.listwatch.reconnects for feed in self._pipeline.feeds)

    @property
    def registrations(self) -> list[Registration[R]]:
        """The handlers that have not been removed."""
        return self._pipeline.processor.registrations

    @property
    def stats(self) -> InformerStats:
        """The informer's present statistics, from any thread. Reading takes 1 us per object; a cache of over 10,000 objects is sampled."""
        pipeline, defaults = self._pipeline, self._runner.defaults
        now = defaults.clock.now()
        confirmed = [feed.confirmed for feed in pipeline.feeds]
        with pipeline.store.lock:
            own_writes = len(pipeline.readers.overlay.places())
        return InformerStats(
            **identity(self._runner.scope, defaults.cluster, self.description),
            **sizes(pipeline.store.snapshot(), pipeline.archive),
            by_type={kind.value: count for kind, count in pipeline.counts.items()},
            failures=dict(pipeline.failures),
            undecodable=pipeline.view.undecodable,
            transform_failures=pipeline.reader.keeper.failures,
            reads=pipeline.view.reads,
            own_writes=own_writes,
            queued=len(pipeline.queue),
            lag=None if None in confirmed else now - min(each for each in confirmed if each is not None),
            synced=self.synced,
            stopped=self.stopped,
            resource_version=self.resource_version,
            feeds=tuple(map(feed_stats, pipeline.feeds)),
            handlers=tuple(handler_stats(registration, now) for registration in self.registrations),
        )

    def on_event(
        self,
        *,
        added: Handler[R] | None = None,
        updated: Handler[R] | None = None,
        deleted: Handler[R] | None = None,
        predicate: Predicate | None = None,
        coalesce: bool = False,
        resync: float | None = None,
        name: str = "",
    ) -> Registration[R]:
        """Add a handler: call these functions for each change, one at a time.

        Plain functions run on the event loop, ``async`` functions are awaited. The same functions may be added several times: each
        registration gets every event.

        Args:
            added: Called for each object that is new to the handler, first for all cached objects.
            updated: Called for each changed object, and for each object at a resync.
            deleted: Called for each deleted object.
            predicate: Shows the handler only objects whose head the predicate accepts (see ``EventFilter``); it decodes nothing.
            coalesce: Merge the waiting changes of one object (``merge``); the order between objects is lost.
            resync: Seconds after which ``updated`` is called for each object again, with the type RESYNC. 0: never; otherwise at least 1.
                None: the period of the informer, or of the factory.
            name: Name of the handler in logs and metrics. Empty: the name of the first function.

        Returns:
            The registration: it waits for the initial events and removes the handler.

        Raises:
            InformerStopped: the informer has stopped and will never call the functions.
            TypeError: one of the functions is not callable.
        """
        if self.stopped:
            _LOG.warning("handler %s was not added: the informer of %s has stopped", name or "without a name", self.description)
            raise InformerStopped(f"the informer of {self.description} has stopped; handlers must be added before")
        period = self.resync if resync is None else resync
        return self._pipeline.add_handler(
            Callbacks(added=added, updated=updated, deleted=deleted, where=predicate, coalesce=coalesce, resync=period, name=name)
        )

    def add_indexes(self, indexes: Mapping[str, IndexSource[R]], paths: Iterable[str] = ()) -> None:
        """Add indexes, which are complete at once, and paths that ``Head.value`` can read. Rebuilds the cached heads (15 us each).

        Raises:
            ValueError: an index of that name exists with another source, or a path is malformed, or its part of the objects is not stored.
        """
        self._pipeline.add_indexes(indexes, paths)

    def keep_recent(self, limit: int = 256 << 10) -> None:
        """Also cache the documents of the last changes uncompressed, up to ``limit`` bytes: for handlers that read each changed object."""
        self._pipeline.archive.recent = RecentDocuments(limit)

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until the first list of each of the informer's namespaces is in the cache. ``timeout`` is in seconds.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: raised immediately, since waiting does not help.
            InformerStopped: the informer has stopped.
            DeadlineError: the timeout expired; the message names the objects that have not synced and why the last request failed.
        """
        await self._runner.wait_synced(timeout)

    def waiting_for(self) -> str:
        """Describe the objects that have not synced, with the reasons."""
        return self._pipeline.waiting_for()

    def __repr__(self) -> str:
        state = "synced" if self.synced else "not synced"
        return f"<Informer of {self.description}: {counted(len(self._pipeline.store), 'object')}, {state}>"


class InformerRunner(Generic[R]):
    """Starts and stops the tasks of one informer. Only the factory uses it."""

    def __init__(
        self,
        scope: InformerScope[R],
        sources: Sequence[ListWatch],
        defaults: InformerDefaults,
        description: str,
        persistence: Persistence | None = None,
    ) -> None:
        """Make an informer that does not run yet.

        Args:
            scope: the objects of the informer.
            sources: one list and watch for each of ``scope.feeds``, in their order.
            defaults: clock, progress and names that all informers of a factory share.
            description: the objects in words, unique among the informers of the factory.
            persistence: the saved states; None: the informer begins with a list.
        """
        self.scope = scope
        self.defaults = defaults
        self.description = description
        self.stopped = False
        self.pipeline: InformerPipeline[R] = InformerPipeline(scope, sources, defaults, description)
        self.informer: Informer[R] = Informer(self)
        self._persistence = persistence
        self._tasks: Tasks | None = None
        self._own: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []

    @property
    def feeds(self) -> tuple[ReflectorTarget, ...]:
        """The lists and watches, one for each namespace."""
        return self.pipeline.feeds

    @property
    def reader(self) -> HeadReader:
        """The reader that makes a head of each received object."""
        return self.pipeline.reader

    def snapshot(self, namespace: str | None = None) -> Snapshot:
        """Return the present objects, all or those of a namespace."""
        return self.pipeline.store.snapshot(namespace)

    def record(self, write: Write) -> None:
        """Record a write of the client, so that readers see it before the watch shows it."""
        self.pipeline.readers.wrote(write)

    def check(self) -> bool:
        """Return whether the informer has synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: the informer has not synced, and a retry cannot help.
        """
        return self.pipeline.check()

    async def wait_synced(self, timeout: float) -> None:
        """Wait until the informer has synced. See ``Informer.wait_synced``."""
        await self.defaults.progress.until(self._synced_or_stopped, timeout, lambda: f"not synced: {self.pipeline.waiting_for()}")

    def _synced_or_stopped(self) -> bool:
        if self.stopped:
            state = "its lister stays as it was" if self.pipeline.synced else "it had not synced"
            raise InformerStopped(f"the informer of {self.description} has stopped; {state}")
        return self.check()

    def start(self, tasks: Tasks) -> None:
        """Start to list, watch and call handlers, in tasks of ``tasks``. A second call does nothing."""
        if self._tasks is not None or self.stopped:
            return
        self._tasks = tasks
        for feed in self.feeds:
            self._watching.append(self._create(self._run(feed), f"kubeloop informer of {feed.description}"))
        self.pipeline.start(self._create)

    async def stop(self) -> None:
        """Stop list, watch and handlers permanently, and drop waiting events. The lister still reads the last state."""
        self.close()
        await end(self._own, self.defaults.clock)

    async def emit_deletions(self, timeout: float) -> None:
        """Stop list and watch, and emit a DELETED event (``tombstone``) for each object that the cache has.

        Returns when the handlers have returned from these events, or after ``timeout`` seconds.
        """
        await end(self._watching, self.defaults.clock)
        self.pipeline.forget()
        try:
            await all_drained(self.pipeline.processor.registrations, timeout)
        except DeadlineError as error:
            _LOG.warning("%s: removed, but not all handlers were notified: %s", self.description, error)

    def close(self) -> None:
        """Remove the handlers; no more can be added."""
        self.stopped = True
        self.pipeline.processor.stop()
        self.pipeline.readers.close()

    def _create(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None
        task = self._tasks.create(work, name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    async def _run(self, feed: ReflectorTarget) -> None:
        with log_context(cluster=self.defaults.cluster, informer=feed.description):
            if self._persistence is None:
                await feed.listwatch.run(feed)
            else:
                await self._persistence.run(self, feed)
