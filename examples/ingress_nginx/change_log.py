"""The hand-off from the informers to the sync worker: a bounded queue of changed objects that never delays an informer."""

from __future__ import annotations

from collections import deque

from examples.ingress_nginx.ingress.builder import ObjectRef


class ChangeLog:
    """Collects changed objects in the order of their events until the worker takes them.

    A full log drops its entries and remembers that everything may have changed: the worker then builds the whole configuration, so that
    nothing is lost. A new log is in that state.

    Args:
        capacity: Largest number of entries.
    """

    def __init__(self, capacity: int = 1024) -> None:
        self._capacity = capacity
        self._entries: deque[ObjectRef] = deque()
        self._overflowed = True

    def add(self, kind: str, namespace: str, name: str) -> None:
        if self._overflowed:
            return
        if len(self._entries) == self._capacity:
            self.add_everything()
        else:
            self._entries.append((kind, namespace, name))

    def add_everything(self) -> None:
        """Remember that everything may have changed."""
        self._entries.clear()
        self._overflowed = True

    def take(self) -> list[ObjectRef] | None:
        """Return the changed objects in order, each once, and empty the log; None: everything may have changed."""
        entries = None if self._overflowed else list(dict.fromkeys(self._entries))
        self._entries.clear()
        self._overflowed = False
        return entries
