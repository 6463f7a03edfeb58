"""Overlay: the process's own writes, shown on top of the store until the watch confirms them. Modelled on client-go's mutation cache.

It decides which state is newer, and never hides later writes of other clients. ``view.py`` merges store and overlay for readers.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import cast

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.store.store import Store
from kubeloop.meta.strconv import decimal
from kubeloop.timing import Clock, Timer
from kubeloop.transport import logger_with_context

#: Seconds after which an unconfirmed write is dropped. Servers send a bookmark each minute even if there are no events
#: (KEP-956), so a working watch has passed the version by then.
PATIENCE = 120.0

_LOG = logger_with_context("kubeloop.cache")

Key = tuple[str, str]
"""Namespace and name."""


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """An unconfirmed write and its object. ``head`` is None if the selector of this cache does not match the object.

    ``version`` is None if it is not a number and cannot be compared.
    """

    namespace: str
    name: str
    uid: str
    version: int | None
    head: Head | None
    since: float
    #: Whether the watch will report it: it does not report an object that the selector excludes before and after the write.
    expected: bool

    def over(self, head: Head | None) -> Head | None:
        """Return ``head``, the store's state, if it is as new as this write; else the head of this write."""
        if head is not None and self.version is not None:
            there = decimal(head.resource_version)
            if there is not None and there >= self.version:
                return head
        return self.head


@dataclass(frozen=True, slots=True)
class PendingDelete:
    """An object that an unconfirmed write deleted.

    ``floor``: a version of the object before its deletion. ``last``: the version of its last state, if the server's response has it.
    """

    namespace: str
    name: str
    uid: str
    floor: int
    last: int | None
    since: float
    expected: bool


@dataclass(slots=True)
class _WatchPosition:
    """One watch: the version that it has reached, and the writes that it has not confirmed yet, ordered by version."""

    reached: int = 0
    #: Version reached in a history that the server has lost; None if no loss is known.
    lost: int | None = None
    waiting: list[tuple[int, Key]] = field(default_factory=list)


class MutationCache:
    """This process's writes that the watch has not reported yet, shown on top of the store.

    Guarantees
        A write is shown until the watch of its namespace has reached its version by an event of any object, a bookmark or a list. Versions
        of one resource are compared as numbers (KEP-5504). If the watch is already past the version of a write, the write changes nothing,
        so it hides neither a later state nor an object that was recreated under the name.
        A deleted object is identified by its uid and hidden until the watch has reported the deletion. If the object still exists, although
        the response looked as if it did not, it is shown again with its next state.
        If the server has lost its history (a list at a lower version than before), all writes are dropped. The same happens if a creation
        that was sent after the watch reached a version gets a response with a lower version. That creation and later writes are shown
        instead of the states of the lost history until the watch advances; the other objects of that history are still shown.

    Not guaranteed
        Anything after ``PATIENCE`` seconds without confirmation: the write is dropped then, and logged if readers could see it.
        A deletion hides a predecessor of the same name whose deletion the watch has not reported yet: responses to deletions have no
        version, so the two cannot be ordered.
        After the server lost its history: an update, patch or deletion before the first creation, and before the watch advances. The
        response to a write without changes also has a low version, so it proves nothing and counts as confirmed.
        Order of versions that are not numbers (some aggregated servers): such a write is shown until the next event of its object, which
        may be an older one, or the next list.
    """

    def __init__(
        self, description: str, store: Store, shown: Store, namespaces: tuple[str, ...], clock: Clock, *, selects: bool = False
    ) -> None:
        """Make an empty overlay.

        Args:
            description: The informer's objects, for logs.
            store: The cache that the watch fills.
            shown: An empty store with the indexes of ``store``; it receives the written objects.
            namespaces: The namespaces that are watched separately. Empty: one watch of all namespaces.
            clock: Clock of the time limit of writes.
            selects: The informer has a selector, so that the watch reports an object that leaves the selection as deleted.
        """
        self.description = description
        #: Key -> state that is newer than the store's.
        self.written: dict[Key, PendingWrite] = {}
        #: uid -> deleted object.
        self.dead: dict[str, PendingDelete] = {}
        self.shown = shown
        #: Whether there are any writes; read in the hot path.
        self.active = False
        #: Whether events must be reported to the overlay.
        self.alert = False
        self._selects = selects
        #: The deleted objects that the watch reported as deleted. They may only have left the selector, and match it again before they end.
        self._unselected: dict[str, PendingDelete] = {}
        self._store = store
        self._clock = clock
        self._apart = len(namespaces) > 1
        self._feeds: dict[str | None, _WatchPosition] = {name: _WatchPosition() for name in (namespaces if self._apart else (None,))}
        self._timer: Timer | None = None

    # ------------------------------------------------------------------------------------------------------------------- reading

    def over(self, namespace: str, name: str) -> Head | None:
        """Return the state of an object to show to readers; None if the object does not exist for them."""
        head = self._store.get(namespace, name)
        written = self.written.get((namespace, name))
        if written is not None:
            # The store is of a history that the server has lost; its versions cannot be compared with new ones.
            head = written.head if self._feed(namespace).lost is not None else written.over(head)
        return None if head is not None and head.uid in self.dead else head

    def places(self) -> set[Key]:
        """Return the keys of the objects whose state may differ from the store's because of this process's own writes."""
        return {*self.written, *((dead.namespace, dead.name) for dead in self.dead.values())}

    # ---------------------------------------------------------------------------------------------------------------- own writes

    def stored(self, head: Head, member: bool | None, seen: Callable[[str], bool], *, new: bool = False) -> None:
        """Record the state of an object that the server returned for a write.

        Args:
            head: The state.
            member: Whether the selector of this cache matches the object. None: unknown; then an object that the cache shows stays in it,
                and no write is applied for other objects.
            seen: Returns whether the watch has reported the deletion of a uid.
            new: The write created the object, and was sent after the watch reached its current version.
        """
        key = (head.namespace, head.name)
        there = self._store.get(*key)
        before = self.written.get(key)
        version = decimal(head.resource_version)
        if member is None and there is None and (before is None or before.head is None):
            return
        feed = self._feed(head.namespace)
        if new and version is not None and version <= feed.reached and head.uid not in self.dead:
            self._lose(feed)
            before = None
        if seen(head.uid) or self._known(there, before, head, version):
            return
        # Responses may overtake each other: if the object has ended meanwhile, its predecessor has ended too.
        shows = member is not False and head.uid not in self.dead and head.uid not in self._unselected
        self._put(PendingWrite(*key, head.uid, version, head if shows else None, self._clock.now(), shows or there is not None))

    def ended(self, namespace: str, name: str, uid: str, version: str, seen: Callable[[str], bool]) -> None:
        """Record a successful deletion.

        Args:
            namespace: Namespace of the object; empty for cluster-scoped kinds.
            name: Name of the object.
            uid: uid of the object. Empty: that of the object that is shown under this name.
            version: resourceVersion of the response; empty if it has none.
            seen: Returns whether the watch has reported the deletion of a uid.
        """
        there, current = self._store.get(namespace, name), self.over(namespace, name)
        before = self.written.get((namespace, name))
        if not uid and current is not None:
            uid = current.uid
        if not uid or seen(uid) or uid in self.dead or uid in self._unselected:
            return
        floors = [decimal(head.resource_version) or 0 for head in (there, current) if head is not None and head.uid == uid]
        last, expected = decimal(version), bool(floors)
        if before is not None and before.uid == uid:
            # The previous object does not reappear: the write at this version remains valid.
            self._put(replace(before, head=None))
        self.dead[uid] = PendingDelete(namespace, name, uid, max([*floors, last or 0]), last, self._clock.now(), expected)
        self._wake()

    def _known(self, there: Head | None, before: PendingWrite | None, head: Head, version: int | None) -> bool:
        """Return whether readers see this state or a later one."""
        if version is not None:
            if self._feed(head.namespace).reached >= version:
                return True
            return before is not None and before.version is not None and before.version >= version
        same = (head.uid, head.resource_version)
        return there is not None and (there.uid, there.resource_version) == same

    def _put(self, written: PendingWrite) -> None:
        key = (written.namespace, written.name)
        if key in self.written:
            self._drop(self.written[key])
        self.written[key] = written
        if written.head is not None:
            self.shown.put(written.head)
        if written.version is not None:
            heapq.heappush(self._feed(written.namespace).waiting, (written.version, key))
        self._wake()

    # ----------------------------------------------------------------------------------------------------------------- the watch

    def reached(self, namespace: str | None, version: str) -> None:
        """Record that a watch (of one namespace, if each has its own) shows everything up to ``version``."""
        feed = self._feeds[namespace if self._apart else None]
        number = decimal(version)
        if number is None or number == feed.lost:
            return
        feed.reached, feed.lost = number, None
        waiting = feed.waiting
        while waiting and waiting[0][0] <= number:
            _, key = heapq.heappop(waiting)
            written = self.written.get(key)
            if written is not None and written.version is not None and written.version <= number:
                self._drop(written)

    def confirm(self, head: Head, *, deleted: bool) -> None:
        """Record that an event of one object was applied."""
        if deleted:
            self._leave(head.uid)
        else:
            self._return(head)
        written = self.written.get((head.namespace, head.name))
        if written is not None and written.version is None:
            self._drop(written)
        self._settle()

    def listed(self, namespace: str | None, version: str) -> None:
        """Record that a list at ``version`` is about to replace the store (of one namespace, if each is watched separately)."""
        number = decimal(version)
        feed = self._feeds[namespace if self._apart else None]
        rewound = number is not None and number < feed.reached
        if rewound:
            feed.reached = number or 0
        feed.lost = None
        for written in [each for each in self.written.values() if self._feed(each.namespace) is feed]:
            if rewound or written.version is None:
                self._drop(written)
        if rewound:
            self._bury(feed)
        self._settle()

    def replaced(self, namespace: str | None, version: str) -> None:
        """Record that a list was applied to the store. If it is newer than a deleted object and lacks it, the deletion is confirmed."""
        number = decimal(version)
        feed = self._feeds[namespace if self._apart else None]
        for dead in [each for each in (*self.dead.values(), *self._unselected.values()) if self._feed(each.namespace) is feed]:
            head = self._store.get(dead.namespace, dead.name)
            if head is not None and head.uid == dead.uid:
                self._return(head)
            elif number is not None and 0 < dead.floor < number:
                self._leave(dead.uid)
        self._settle()

    def unconfirmed(self) -> list[PendingWrite | PendingDelete]:
        """Return this process's writes that the watch has not reported yet but will."""
        return [each for each in self._all() if each.expected]

    def confirmed(self, write: PendingWrite | PendingDelete) -> bool:
        """Return whether the watch has reported a write that ``unconfirmed`` returned."""
        if isinstance(write, PendingDelete):
            return write.uid not in self.dead  # an object that left the selector is confirmed too: no caller waits for its return
        if write.version is None:
            return self.written.get((write.namespace, write.name)) is not write
        return self._feed(write.namespace).reached >= write.version

    def reread(self, again: Callable[[Head], Head]) -> None:
        """Replace the head of each pending write by ``again(head)``, because the paths that heads carry have changed."""
        for key, written in list(self.written.items()):
            if written.head is not None:
                self.written[key] = changed = replace(written, head=again(written.head))
                self.shown.put(cast("Head", changed.head))

    def close(self) -> None:
        """Stop the timer; the applied writes stay."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # ------------------------------------------------------------------------------------------------------------------- keeping

    def _all(self) -> list[PendingWrite | PendingDelete]:
        return [*self.written.values(), *self.dead.values()]

    def _leave(self, uid: str) -> None:
        """Record that the watch reported the deletion of an object, which may only have left the selector."""
        dead = self.dead.pop(uid, None)
        if dead is not None and self._selects:
            self._unselected[uid] = dead

    def _return(self, head: Head) -> None:
        """Record that the watch showed a state of a deleted object: a state before its deletion, or proof that it still exists."""
        dead = self.dead.get(head.uid) or self._unselected.pop(head.uid, None)
        if dead is None:
            return
        if dead.last is not None and (decimal(head.resource_version) or 0) > dead.last:
            self.dead.pop(head.uid, None)
        elif head.uid not in self.dead and dead.since > self._clock.now() - PATIENCE:
            self.dead[head.uid] = dead
            self._wake()

    def _lose(self, feed: _WatchPosition) -> None:
        """Drop the writes of a feed: the server has lost its history, with the version that the watch has reached."""
        feed.lost, feed.reached = feed.reached, 0
        for written in [each for each in self.written.values() if self._feed(each.namespace) is feed]:
            self._drop(written)
        self._bury(feed)
        self._settle()

    def _bury(self, feed: _WatchPosition) -> None:
        for known in (self.dead, self._unselected):
            for dead in [each for each in known.values() if self._feed(each.namespace) is feed]:
                del known[dead.uid]

    def _feed(self, namespace: str) -> _WatchPosition:
        return self._feeds[namespace if self._apart else None]

    def _drop(self, written: PendingWrite) -> None:
        del self.written[(written.namespace, written.name)]
        if written.head is not None:
            self.shown.remove(written.namespace, written.name)
        self._settle()

    def _wake(self) -> None:
        self.active = self.alert = True
        if self._timer is None:
            self._timer = self._clock.call_later(PATIENCE, self._expire)

    def _settle(self) -> None:
        while self._unselected and next(iter(self._unselected.values())).since <= self._clock.now() - PATIENCE:
            del self._unselected[next(iter(self._unselected))]
        self.active = bool(self.written or self.dead)
        self.alert = self.active or bool(self._unselected)
        if not self.active and self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        limit = self._clock.now() - PATIENCE
        for written in [each for each in self.written.values() if each.since <= limit]:
            if self.over(written.namespace, written.name) is not self._store.get(written.namespace, written.name):
                self._warn(written, f"version {written.version}")
            self._drop(written)
        for dead in [each for each in self.dead.values() if each.since <= limit]:
            head = self._store.get(dead.namespace, dead.name)
            if head is not None and head.uid == dead.uid:
                self._warn(dead, "deletion")
            del self.dead[dead.uid]
        self._settle()
        if self.active:
            first = min(each.since for each in self._all())
            self._timer = self._clock.call_later(max(0.0, first + PATIENCE - self._clock.now()), self._expire)

    def _warn(self, description: PendingWrite | PendingDelete, write: str) -> None:
        name = f"{description.namespace}/{description.name}" if description.namespace else description.name
        _LOG.warning(
            "%s: the watch did not show our own write of %s (%s) within %g s; readers see the watch's state again",
            self.description,
            name,
            write,
            PATIENCE,
            extra={"key": name},
        )
