"""Readers: what one informer offers to those who read its cache: view and lister, own writes laid over, deletions remembered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from kubeloop.cache.documents.head import Head, HeadReader
from kubeloop.cache.handlers.fanout import Around
from kubeloop.cache.reading.changes import Deletions
from kubeloop.cache.reading.freshness import Freshness, Reached
from kubeloop.cache.reading.lister import Lister
from kubeloop.cache.reading.overlay import Overlay
from kubeloop.cache.reading.own_writes import OwnWrites
from kubeloop.cache.reading.view import View
from kubeloop.cache.scope import Scope
from kubeloop.cache.store.index import SecondaryIndex
from kubeloop.cache.store.store import Store
from kubeloop.client import Write
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)


class Readers(Generic[R]):
    """Hears from the informer what is applied and from the client what is written, so that readers see the newer of both."""

    def __init__(
        self, scope: Scope[R], what: str, store: Store, around: Around, reader: Callable[[], HeadReader], version: Callable[[], str]
    ) -> None:
        """``what``: the objects in words. ``reader``: makes heads as the informer keeps them. ``version``: what the cache is at."""
        self._store = store
        # To a watch that selects, an object that leaves the selection is deleted; it may come back.
        selects = scope.labels is not None or scope.field_selector is not None
        self.overlay = Overlay(what, store, Store(), scope.namespaces, around.clock, selects=selects)
        self._deletions = Deletions()
        self._own_writes = OwnWrites(scope, self.overlay, store, self._deletions, reader, selects=selects)
        self._feeds: Sequence[Reached] = ()
        self._freshness = Freshness(what, self.overlay, around.progress, lambda: self._feeds)
        self.view: View[R] = View(store, scope.kind, around.cluster, scope.keep, self.overlay)
        self.lister: Lister[R] = Lister(self.view, scope.namespaces, version, self._deletions, self._freshness)

    # --------------------------------------------------------------------------------------------------------------- preparing

    def watches(self, feeds: Sequence[Reached]) -> None:
        """These fill the cache."""
        self._feeds = feeds

    def add_index(self, make: Callable[[], SecondaryIndex]) -> None:
        """One more index. It is made twice: the overlay has its own."""
        self._store.add_index(make())
        with self._store.lock:
            self.overlay.shown.add_index(make())

    def carry(self, reader: HeadReader) -> None:
        """Heads carry this reader's paths from now on; those of the store do already."""
        self.view.attributes = reader.attributes
        with self._store.lock:
            self.overlay.reread(reader.again)

    # -------------------------------------------------------------------------------------------------------- while it is filled

    def wrote(self, write: Write) -> None:
        """The client has written something, of whatever kind."""
        if self._own_writes.concern(write):
            with self._store.lock:
                self._moved()
                self._own_writes.lay(write, self._sent_afterwards(write))

    def told(self, head: Head, *, deleted: bool) -> None:
        """One change was applied."""
        if deleted:
            self._deletions.add(head, self._store.version)
        if self.overlay.alert:
            with self._store.lock:
                self.overlay.told(head, deleted=deleted)

    def listed(self, feed: Reached, version: str) -> None:
        """A list at ``version`` is about to be applied; the feed is at what it saw before."""
        self._deletions.listed(feed.version, version)
        with self._store.lock:
            self.overlay.listed(feed.namespace, version)

    def replaced(self, feed: Reached, version: str) -> None:
        """The list is applied."""
        with self._store.lock:
            self.overlay.replaced(feed.namespace, version)

    def applied(self) -> None:
        """A batch is applied."""
        if self.overlay.active:
            with self._store.lock:
                self._moved()
        self._freshness.moved()

    def close(self) -> None:
        """Nothing changes any more."""
        self.overlay.close()
        self._freshness.stop()

    def _sent_afterwards(self, write: Write) -> bool:
        """Whether the watch was where it is before the write was sent."""
        feeds = [feed for feed in self._feeds if feed.namespace in (None, write.namespace)]
        return write.sent is not None and all(feed.moved < write.sent for feed in feeds)

    def _moved(self) -> None:
        for feed in self._feeds:
            self.overlay.reached(feed.namespace, feed.version)
