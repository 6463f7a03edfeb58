"""Filtering: shows a handler only the objects that a predicate accepts, as if there were no others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

import msgspec

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.handlers.event import Event, EventType
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)
#: Sees heads, so that nothing is decoded; fields that a head lacks come with ``paths=`` (``head.value("spec.nodeName")``).
Predicate = Callable[[Head], bool]


class Filter(Generic[R]):
    """What a handler behind a predicate is told.

    Guarantees
        An object that begins to match is "added" (not ``initial``), one that ceases to is "deleted", with the state before as ``head``
        (which is what the handler knows of it); one that does not match is not told of. What counts is what this handler was told, not what
        the predicate would say of an old state today: a predicate may change its mind, or raise, and still no object is added twice,
        and none is deleted that was not added. Its new opinion shows with the object's next change or resync.

    Raises
        Whatever the predicate raises. The object then counts as it did before: a known one stays known, an unknown one unknown.

    Cost
        One call for each event, and one set entry for each object that matches.
    """

    __slots__ = ("_matches", "_shown")

    def __init__(self, matches: Predicate) -> None:
        self._matches = matches
        #: Names of the objects that the handler knows, by namespace.
        self._shown: dict[str, set[str]] = {}

    def __call__(self, event: Event[R]) -> Event[R] | None:
        """The event as the handler must see it; None: not at all."""
        head = event.head
        names = self._shown.get(head.namespace)
        known = names is not None and head.name in names
        if event.type is EventType.DELETED:
            if not known:
                return None
            self._forget(head)
            return event
        if self._matches(head):
            if known:
                # Never twice: a replay shows what it has to show as added.
                return event if event.type is not EventType.ADDED else msgspec.structs.replace(event, type=EventType.MODIFIED, old=head)
            self._shown.setdefault(head.namespace, set()).add(head.name)
            return event if event.type is EventType.ADDED else msgspec.structs.replace(event, type=EventType.ADDED, old=None)
        if not known:
            return None
        self._forget(head)
        return msgspec.structs.replace(event, type=EventType.DELETED, head=head if event.old is None else event.old)

    def _forget(self, head: Head) -> None:
        names = self._shown[head.namespace]
        names.discard(head.name)
        if not names:
            del self._shown[head.namespace]
