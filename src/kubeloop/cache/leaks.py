"""Leaks: warns of duplicate or unused informers and handlers. The checks run when one is made or a watch is opened, without a timer.

Each leak is logged as a warning that says what to do; nothing is stopped.
"""

from __future__ import annotations

from collections import Counter

from kubeloop.transport import logger_with_context

#: Number of handlers of one name at one informer, or of informers of one kind, that is logged; again each time it doubles.
MANY = 50
#: Seconds after which an unused informer is logged. It is checked when its watch is reopened, every 5 to 10 minutes.
UNUSED_AFTER = 600.0

_LOG = logger_with_context("kubeloop.cache")


class DuplicateInformerCheck:
    """Warns when the number of informers of one kind, or of handlers of one name, reaches ``MANY``, and at each doubling."""

    def __init__(self) -> None:
        self._next: Counter[str] = Counter()

    def grown(self, name: str, count: int) -> bool:
        """Return whether to warn that ``count`` informers or handlers have ``name``. True raises the limit to twice ``count``."""
        if count < max(MANY, self._next[name]):
            return False
        self._next[name] = 2 * count
        return True

    def handlers(self, name: str, count: int, description: str) -> None:
        """Warn if an informer has too many handlers of one name. A common mistake is to add a handler per request.

        ``count`` is their number, including the handler that is being added; ``description`` names the informer.
        """
        if self.grown(name, count):
            _LOG.warning(
                "%s: %d handlers named %s, and none was removed; each gets every event: call registration.remove() on handlers that "
                "are done with, or add one handler once",
                description,
                count,
                name,
            )

    def informers(self, kind: str, count: int, description: str) -> None:
        """Warn if there are too many informers of one kind. ``count`` is their number; ``description`` names the newest."""
        if self.grown(kind, count):
            _LOG.warning(
                "%d informers of %s, the last of %s; each has a watch and a copy of its objects: one of all namespaces with an index or "
                "label queries may be enough, and informers.remove(...) ends unused ones",
                count,
                kind,
                description,
            )


class UsageMonitor:
    """Warns of an informer that is never read and has no handler, or has lost its last handler."""

    def __init__(self, description: str, now: float) -> None:
        self._description = description
        self._since = now
        self._reads = 0
        self._handled = False
        self._said = False

    def check(self, now: float, handlers: int, reads: int, objects: int) -> None:
        """Check an informer's use, and warn at most once.

        Args:
            now: Time of the informer's clock, in seconds.
            handlers: Number of its handlers.
            reads: Number of queries answered since the start.
            objects: Number of its objects.
        """
        self._handled = self._handled or handlers > 0
        if handlers or reads != self._reads:
            self._since, self._reads = now, reads
            return
        if reads and not self._handled:  # a cache that is read from time to time needs no handler
            return
        unused = now - self._since
        if unused >= UNUSED_AFTER and not self._said:
            self._said = True
            _LOG.warning(
                "%s: no handler and no query for %.0f min, but a watch and %d objects are kept; informers.remove(...) ends it",
                self._description,
                unused / 60,
                objects,
            )
