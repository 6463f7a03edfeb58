"""Applies deltas to a store and says what changed. The store decides whether an object was added or updated, not the event's type."""

from __future__ import annotations

from typing import Protocol

from kubeloop.cache.deltas.delta_queue import Bookmark, Changed, Delta, Removed, Replaced, Resync, Sync
from kubeloop.cache.documents.head import Head
from kubeloop.cache.handlers.event import EventType
from kubeloop.cache.store.store import Snapshot, Store

_ADDED, _UPDATED, _DELETED, _RESYNC = EventType.ADDED, EventType.UPDATED, EventType.DELETED, EventType.RESYNC


class Tell(Protocol):
    """Hears of one change. ``handler`` None: it is for all handlers."""

    def __call__(self, kind: EventType, head: Head, old: Head | None, tombstone: bool = False, handler: object = None, /) -> None: ...


class Replay(Protocol):
    """One handler, or all (None), shall hear of each of these once more. What is told later comes after them."""

    def __call__(self, heads: Snapshot, handler: object, /) -> None: ...


def apply(store: Store, delta: Delta, tell: Tell, replay: Replay) -> None:
    """Change the store and tell the changes, in the order in which handlers must hear of them.

    Guarantees
        When a change is told, the store shows it already. Of a replacement: first what vanished (as tombstones, with the last state
        known), then the list in its order; an object whose version did not change is no change. A replacement of one namespace
        leaves the others as they are.
    """
    if type(delta) is Changed:
        head = delta.head
        old = store.put(head)
        if delta.ordered:
            store.version = head.resource_version or store.version
        if old is None:
            tell(_ADDED, head, None)
        elif _differ(old, head):
            tell(_UPDATED, head, old)
    elif isinstance(delta, Removed):
        head = delta.head
        old = store.remove(head.namespace, head.name)
        if delta.ordered and not delta.tombstone:
            store.version = head.resource_version or store.version
        # Told also when it was not known here: whoever reacts to deletions must not miss one.
        tell(_DELETED, head, old, delta.tombstone)
    elif isinstance(delta, Bookmark):
        store.version = delta.version or store.version
    elif isinstance(delta, Resync):
        replay(store.snapshot(), delta.handler)
    elif isinstance(delta, Sync):
        tell(_RESYNC, delta.head, delta.head, False, delta.handler)
    elif isinstance(delta, Replaced):
        _replace(store, delta, tell)


def _replace(store: Store, delta: Replaced, tell: Tell) -> None:
    scope = delta.scope
    # An object of another namespace has no place in the list of one: the next list could never take it away again.
    heads = delta.heads if scope is None else [head for head in delta.heads if head.namespace == scope]
    present: dict[str, set[str]] = {}
    # The whole replacement is done before the first change is told, and is one moment for other threads:
    # a reader sees the old list or the new one, never half.
    with store.lock:
        if len(store):
            for head in heads:
                present.setdefault(head.namespace, set()).add(head.name)
        vanished = [head for head in store.heads(scope) if head.name not in present.get(head.namespace, ())]
        for head in vanished:
            store.remove(head.namespace, head.name)
        before = [store.put(head) for head in heads]
        store.version = delta.version
    for head in vanished:
        tell(_DELETED, head, head, True)
    for head, old in zip(heads, before, strict=True):
        if old is None:
            tell(_ADDED, head, None)
        # One update also for an object that was deleted and made again meanwhile: the uids tell (behaviour X1).
        elif old is not head and _differ(old, head):
            tell(_UPDATED, head, old)


def _differ(old: Head, new: Head) -> bool:
    """Of objects without versions, as some aggregated servers have them, nobody can say that nothing changed."""
    return old.resource_version != new.resource_version or old.uid != new.uid or not new.resource_version
