"""Resume: stands before a feed until the server has accepted a watch from a saved state's version, then hands the state over."""

from __future__ import annotations

from kubeloop.cache.documents.head import Head, HeadReader
from kubeloop.cache.reflector.sink import Sink
from kubeloop.timing import Clock
from kubeloop.timing.clock import Timer

#: A server that no longer has the version says so in the first event of the watch, in seconds: nothing is shown before.
GRACE = 0.25


class Resuming:
    """The sink of a list and watch that begins with ``resume_from``. Afterwards it is the feed by other names, and costs nothing.

    Guarantees
        The saved state is installed once, before anything that the watch brings; or never, if a list begins or the watch is refused first.
    """

    def __init__(self, feed: Sink, heads: list[Head], version: str, clock: Clock) -> None:
        self._feed = feed
        self._heads = heads
        self._version = version
        self._clock = clock
        self._timer: Timer | None = None
        self.before = feed.before

    @property
    def reader(self) -> HeadReader:
        return self._feed.reader

    def watching(self) -> None:
        self._stop_timer()
        self._feed.watching()
        self._timer = self._clock.call_later(GRACE, self._install)

    def change(self, head: Head) -> None:
        self._install()
        self._feed.change(head)

    def remove(self, head: Head) -> None:
        self._install()
        self._feed.remove(head)

    def bookmark(self, version: str) -> None:
        self._install()
        self._feed.bookmark(version)

    def listing(self) -> None:
        self._pass_on()
        self._feed.listing()

    def failed(self, error: Exception) -> None:
        # Not in vain yet: where nobody answered, the same watch is tried again.
        self._stop_timer()
        self._feed.failed(error)

    def waiting(self, why: str) -> None:
        # The watch came to nothing, such as for a version that the server has forgotten: a list will follow.
        self._stop_timer()
        self._feed.waiting(why)

    def replace(self, heads: list[Head], version: str) -> None:
        self._pass_on()
        self._feed.replace(heads, version)

    def flush(self) -> None:
        self._feed.flush()

    def close(self) -> None:
        """The watch ended for good."""
        self._stop_timer()

    def _install(self) -> None:
        heads, version = self._heads, self._version
        self._pass_on()
        self._feed.replace(heads, version)

    def _pass_on(self) -> None:
        self._stop_timer()
        self._heads = []
        feed = self._feed
        names = ("watching", "change", "remove", "bookmark", "listing", "failed", "waiting", "replace", "flush")
        for name in names:
            setattr(self, name, getattr(feed, name))

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
