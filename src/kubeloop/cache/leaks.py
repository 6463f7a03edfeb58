"""Leaks: warns of duplicate or unused informers and handlers. Checked when one is made or a watch is opened, without a timer.

Each leak is logged as a warning that says what to do; nothing is stopped.
"""

from __future__ import annotations

from collections import Counter

from kubeloop.transport import logger_with_context

#: Number of handlers of one name at one informer, or of informers of one kind, that is logged; again each time it doubles.
MANY = 50
#: Seconds after which an unused informer is logged. It is checked when its watch is reopened, every 5 to 10 minutes.
UNUSED_AFTER = 600.0

_log = logger_with_context("kubeloop.cache")


class DuplicateInformerCheck:
    """Counts similar objects, and warns when their number passes ``MANY`` and at each doubling."""

    def __init__(self) -> None:
        self._next: Counter[str] = Counter()

    def grown(self, name: str, count: int) -> bool:
        """Return whether to log that there are ``count`` objects of ``name`` now."""
        if count < max(MANY, self._next[name]):
            return False
        self._next[name] = 2 * count
        return True

    def handlers(self, name: str, count: int, description: str) -> None:
        """Record that a handler was added, so that ``count`` have its name. A common mistake is to add one per request."""
        if self.grown(name, count):
            _log.warning(
                "%s: %d handlers named %s, and none was removed; each gets every change: call registration.remove() on handlers that "
                "are done with, or add one handler once",
                description,
                count,
                name,
            )

    def informers(self, kind: str, count: int, description: str) -> None:
        """Record that an informer was made, so that there are ``count`` of its kind."""
        if self.grown(kind, count):
            _log.warning(
                "%d informers of %s, the last of %s; each has a watch and a copy of its objects: one of all namespaces with an index or "
                "label queries may do, and informers.remove(...) ends unused ones",
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

    def look(self, now: float, handlers: int, reads: int, objects: int) -> None:
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
            _log.warning(
                "%s: no handler and no query for %.0f min, but a watch and %d objects are kept; informers.remove(...) ends it",
                self._description,
                unused / 60,
                objects,
            )
