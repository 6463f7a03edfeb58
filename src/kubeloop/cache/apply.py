"""Applies deltas to a store and says what changed. The store decides whether an object was added or updated, not the event's type."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from kubeloop.cache.delta_queue import Bookmark, Changed, Delta, Removed, Replaced, Resync
from kubeloop.cache.event import EventType
from kubeloop.cache.head import Head
from kubeloop.cache.store import Store


class Notice(NamedTuple):
    """One change, as handlers will be told. ``handler`` None: all of them."""

    type: EventType
    head: Head
    old: Head | None = None
    tombstone: bool = False
    handler: object = None


def apply(store: Store, delta: Delta) -> Iterator[Notice]:
    """Change the store, and yield the changes in the order in which handlers must hear of them.

    Guarantees
        When a notice is yielded, the store shows its state already. Of a replacement: first what vanished (as tombstones, with the last
        state known), then the list in its order; an object whose version did not change is no change.
    """
    match delta:
        case Changed(head):
            old = store.put(head)
            store.version = head.resource_version or store.version
            if old is None:
                yield Notice(EventType.ADDED, head)
            elif (old.resource_version, old.uid) != (head.resource_version, head.uid):
                yield Notice(EventType.UPDATED, head, old)
        case Removed(head):
            old = store.remove(head.namespace, head.name)
            store.version = head.resource_version or store.version
            # Told also when it was not known here: whoever reacts to deletions must not miss one.
            yield Notice(EventType.DELETED, head, old)
        case Replaced():
            yield from _replace(store, delta)
        case Resync(handler):
            for head in store.heads():
                yield Notice(EventType.RESYNC, head, head, handler=handler)
        case Bookmark(version):
            store.version = version or store.version


def _replace(store: Store, delta: Replaced) -> Iterator[Notice]:
    present = {(head.namespace, head.name) for head in delta.heads}
    notices = [
        Notice(EventType.DELETED, head, head, tombstone=True) for head in store.heads() if (head.namespace, head.name) not in present
    ]
    for notice in notices:
        store.remove(notice.head.namespace, notice.head.name)
    for head in delta.heads:
        old = store.get(head.namespace, head.name)
        if old is head:
            continue
        store.put(head)
        if old is None:
            notices.append(Notice(EventType.ADDED, head))
        elif (old.resource_version, old.uid) != (head.resource_version, head.uid):
            # One update also for an object that was deleted and made again meanwhile: the uids tell (behaviour X1).
            notices.append(Notice(EventType.UPDATED, head, old))
    store.version = delta.version
    # The whole replacement is done before the first notice: a reader sees the old list or the new one, never half.
    yield from notices
