"""Informer: a local copy of one kind, kept equal to what servers have, and any number of handlers. Made by ``Informers.of``; never by hand.

What users see of it, and what runs: what comes in goes through ``pipeline.py``, what to ask is the reflector's to decide.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kubeloop.cache.blobs.head import HeadReader
from kubeloop.cache.blobs.recent import Recent
from kubeloop.cache.diagnostics.stats import InformerStats, feed_stats, handler_stats, identity, sizes
from kubeloop.cache.handlers.filtering import Predicate
from kubeloop.cache.handlers.processor import InformerDefaults
from kubeloop.cache.handlers.registration import Callbacks, Handler, InformerStopped, Registration
from kubeloop.cache.lister.lister import Lister
from kubeloop.cache.pipeline import Pipeline
from kubeloop.cache.reflector.listwatch import ListWatch
from kubeloop.cache.reflector_target import ReflectorTarget
from kubeloop.cache.scope import Scope
from kubeloop.cache.store.index_sources import IndexSource
from kubeloop.cache.store.store import Snapshot
from kubeloop.cache.tasks.tasks import Tasks, end
from kubeloop.cache.tasks.waiting import all_told
from kubeloop.meta import DeadlineError, Resource
from kubeloop.meta.repr import counted
from kubeloop.timing import Clock
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

    def __init__(self, scope: Scope[R], sources: Sequence[ListWatch], around: InformerDefaults, what: str) -> None:
        """``sources``: one for each of ``scope.feeds``, in their order. ``what``: the objects in words, unlike any other informer's."""
        self.scope = scope
        self.kind: type[R] = scope.kind
        #: The objects in words, ``pods in namespace "shop"``; unique among the informers of a factory.
        self.what = what
        #: Period in seconds of handlers that name none; 0 is never.
        self.resync: float = around.resync
        self.stopped = False
        self._around = around
        self._pipeline: Pipeline[R] = Pipeline(scope, sources, around, what)
        #: One for each namespace that is listed and watched.
        self.feeds = self._pipeline.feeds
        self.lister: Lister[R] = self._pipeline.readers.lister
        #: Called with each write of the client, that readers may see it before the watch brings it.
        self.wrote = self._pipeline.readers.wrote
        self._tasks: Tasks | None = None
        self._own: set[asyncio.Task[None]] = set()
        self._watching: list[asyncio.Task[None]] = []

    # ------------------------------------------------------------------------------------------------------------- for users

    @property
    def synced(self) -> bool:
        """Whether the first state is here, of all its namespaces."""
        return self._pipeline.synced

    @property
    def clock(self) -> Clock:
        """What its times are measured with."""
        return self._around.clock

    @property
    def resource_version(self) -> str:
        """What the cache is at: the version of the list, an event or a bookmark; "" before the first list.

        Of several namespaces, which are watched apart, the lowest: everything up to it is here.
        """
        return self._pipeline.version

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
        return self._pipeline.fanout.registrations

    @property
    def stats(self) -> InformerStats:
        """Numbers of this moment, from any thread. Takes 1 us an object; of more than 10,000, a part is measured."""
        pipeline = self._pipeline
        now = self._around.clock.now()
        heard = [feed.heard for feed in self.feeds]
        with pipeline.store.lock:
            own_writes = len(pipeline.readers.overlay.places())
        return InformerStats(
            **identity(self.scope, self._around.cluster, self.what),
            **sizes(pipeline.store.snapshot(), pipeline.archive),
            by_type={kind.value: count for kind, count in pipeline.counts.items()},
            failures=dict(pipeline.failures),
            undecodable=pipeline.view.undecodable,
            transform_failures=pipeline.reader.keeper.failures,
            reads=pipeline.view.reads,
            own_writes=own_writes,
            queued=len(pipeline.queue),
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
            _log.warning("handler %s was not added: the informer of %s has stopped", name or "without a name", self.what)
            raise InformerStopped(f"the informer of {self.what} has stopped; handlers must be added before")
        period = self.resync if resync is None else resync
        calls = Callbacks(added=added, updated=updated, deleted=deleted, where=where, coalesce=coalesce, resync=period, name=name)
        registration = self._pipeline.fanout.add(calls)
        self._pipeline.begin(registration)
        return registration

    def add_indexes(self, indexes: Mapping[str, IndexSource[R]], paths: Iterable[str] = ()) -> None:
        """More indexes, complete at once, and more ``paths`` that heads carry. Objects that are cached are read again (15 us each).

        Raises:
            ValueError: an index of that name is there with another source, or a path is malformed or not kept of objects.
        """
        self._pipeline.add_indexes(indexes, paths)

    def __repr__(self) -> str:
        return f"<Informer of {self.what}: {counted(len(self._pipeline.store), 'object')}, {'synced' if self.synced else 'not synced'}>"

    def keep_recent(self, limit: int = 256 << 10) -> None:
        """Keep the documents of the last changes unpacked, up to so many bytes, for who reads each changed object at once."""
        self._pipeline.archive.recent = Recent(limit)

    # ----------------------------------------------------------------------------------------------------- for the factory

    @property
    def reader(self) -> HeadReader:
        """Makes its heads."""
        return self._pipeline.reader

    def snapshot(self, namespace: str | None = None) -> Snapshot:
        """The objects of this moment, all or a namespace's, at the version of the feed that brought them."""
        return self._pipeline.store.snapshot(namespace)

    def check(self) -> bool:
        """Whether it has synced.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: it has not, and only a person can help.
        """
        return self._pipeline.check()

    async def wait_synced(self, timeout: float = 120.0) -> None:
        """Wait until it has its first list, of each of its namespaces. Seconds.

        Raises:
            Unauthorized, Forbidden, UntrustedCertificate: at once: waiting does not help. InformerStopped: it has ended, synced or not.
            DeadlineError: not in time; the text names what has not synced and why the last request failed.
        """
        await self._around.progress.until(self._usable, timeout, lambda: f"not synced: {self.waiting_for()}")

    def _usable(self) -> bool:
        if self.stopped:
            state = "its lister stays as it was" if self.synced else "it had not synced"
            raise InformerStopped(f"the informer of {self.what} has stopped; {state}")
        return self.check()

    def waiting_for(self) -> str:
        """What has not synced, and why."""
        return self._pipeline.waiting_for()

    def start(self, tasks: Tasks) -> None:
        """List and watch, until the tasks are closed. Starting again does nothing."""
        if self._tasks is not None or self.stopped:
            return
        self._tasks = tasks
        for feed in self.feeds:
            self._watching.append(self._create(self._run(feed), f"kubeloop informer of {feed.what}"))
        self._pipeline.fanout.start(self._create)

    async def stop(self) -> None:
        """End its list and watch and its handlers; what waits for them is dropped. For ever: a stopped informer takes no more handlers.

        Its lister goes on to answer, from the last state; nothing there changes any more.
        """
        self.close()
        await end(self._own, self._around.clock)

    async def forsake(self, patience: float) -> None:
        """Its kind is gone: ask the server no more, and tell handlers of the end of each object that is still here (``tombstone``).

        Returns when they have heard of it, or after ``patience`` seconds. The informer is to be stopped then.
        """
        await end(self._watching, self._around.clock)
        self._pipeline.forget()
        try:
            await all_told(self.registrations, patience)
        except DeadlineError as error:
            _log.warning("%s: gone, and not all handlers have heard of it: %s", self.what, error)

    def close(self) -> None:
        """Its handlers hear nothing more and none can be added."""
        self.stopped = True
        self._pipeline.fanout.stop()
        self._pipeline.readers.close()

    def _create(self, work: Coroutine[object, object, None], name: str) -> asyncio.Task[None]:
        assert self._tasks is not None
        task = self._tasks.create(work, name)
        self._own.add(task)
        task.add_done_callback(self._own.discard)
        return task

    async def _run(self, feed: ReflectorTarget) -> None:
        with log_context(cluster=self._around.cluster, informer=feed.what):
            if self._around.persistence is None:
                await feed.listwatch.run(feed)
            else:
                await self._around.persistence.run(self, feed)
