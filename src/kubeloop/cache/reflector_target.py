"""The target of one list and watch: brings its events into an informer. An informer of several namespaces has one for each."""

from __future__ import annotations

import time
from typing import Protocol

from kubeloop.cache.blobs.head import Head, HeadReader
from kubeloop.cache.deltas.delta_queue import Bookmark, Changed, Removed
from kubeloop.cache.reflector.failures import HOPELESS
from kubeloop.cache.reflector.listwatch import ListWatch


class Fed(Protocol):
    """The informer, as its feeds know it."""

    @property
    def reader(self) -> HeadReader:
        """Makes the heads."""

    def before(self, namespace: str, name: str) -> Head | None:
        """The state that the cache has of an object."""

    def listing(self) -> None:
        """A list begins."""

    def listed(self, feed: ReflectorTarget, version: str) -> None:
        """A list at ``version`` is about to replace what there is; the feed is at what it saw before."""

    def replace(self, feed: ReflectorTarget, heads: list[Head], version: str) -> float | None:
        """This is all there is in this feed's namespace. Answers as ``flush``."""

    def push(self, delta: Changed | Removed | Bookmark, /) -> None:
        """Something happened."""

    def flush(self) -> float | None:
        """A batch is complete: apply it. Answers when it came, None if nothing did."""

    def deliver(self) -> None:
        """A batch was applied: those who are told of it may be called now."""

    def watching(self) -> None:
        """A watch was opened."""

    def failed(self, error: Exception) -> None:
        """A request failed; it will be tried again."""


class ReflectorTarget:
    """The sink of one list and watch: forwards to its informer, and knows how far it is itself.

    Each feed syncs, fails and relists by itself: the others do not notice.
    """

    def __init__(self, informer: Fed, listwatch: ListWatch, namespace: str | None, what: str) -> None:
        self.namespace = namespace
        #: The objects in words: ``pods in namespace "shop"``.
        self.what = what
        self.listwatch = listwatch
        self.synced = False
        #: The version that it is at: of the list, an event or a bookmark; "" before the first list.
        self.version = ""
        #: Why the last request failed; None while all is well.
        self.failure: Exception | None = None
        #: Why it has not synced although nothing failed, if that is known.
        self.late = ""
        #: When a server last showed that the cache is as it has things: by a list, an event or a bookmark. None: never yet.
        self.heard: float | None = None
        #: When ``version`` may last have changed, on ``time.perf_counter``, as ``Write.sent``.
        self.moved = 0.0
        self._informer = informer
        self._push = informer.push
        self.before = informer.before
        self.listing = informer.listing

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
        return f"{self.what} ({self.failure or self.late or 'no answer from the server yet'})"

    # --------------------------------------------------------------------------------------------- for list and watch: the sink

    @property
    def reader(self) -> HeadReader:
        return self._informer.reader

    def replace(self, heads: list[Head], version: str) -> None:
        self.failure = None
        self._informer.listed(self, version)
        self.version = version
        self.moved = time.perf_counter()
        self.heard = self._informer.replace(self, heads, version) or self.heard

    def change(self, head: Head) -> None:
        self.version = head.resource_version or self.version
        self._push(Changed(head))

    def remove(self, head: Head) -> None:
        self.version = head.resource_version or self.version
        self._push(Removed(head))

    def bookmark(self, version: str) -> None:
        self.version = version or self.version
        self._push(Bookmark(version))

    def flush(self) -> None:
        self.moved = time.perf_counter()
        self.heard = self._informer.flush() or self.heard
        self._informer.deliver()

    def watching(self) -> None:
        self.failure = None
        self._informer.watching()

    def waiting(self, why: str) -> None:
        self.late = why

    def failed(self, error: Exception) -> None:
        self.failure = error
        self._informer.failed(error)
