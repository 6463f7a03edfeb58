"""ContractChecker: a handler that compares its events with the informer's contract. For one registration; collects violations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

from kubeloop.cache import EventType, Informer, InformerEvent
from kubeloop.cache.blobs.head import Head
from kubeloop.cache.handlers.registration import Registration
from kubeloop.meta import Resource

R = TypeVar("R", bound=Resource)
#: Namespace and name.
Key = tuple[str, str]

#: More violations than this are counted, not described.
_MOST_DESCRIBED = 20


class Seen(NamedTuple):
    """A state as far as the contract is about it."""

    uid: str
    version: int

    @classmethod
    def of(cls, head: Head) -> Seen:
        return cls(head.uid, int(head.resource_version))


class ContractChecker:
    """``checker.attach(informer)``, let things happen, then ``finish``; ``violations`` must be empty.

    Checks
        Only absent objects are added, and only added objects are updated or deleted. ``old`` is the last delivered state.
        The versions of one object rise with each event (resyncs repeat the last state). A recreated object has another uid.
        ``initial`` is only said before the handler is synced. No event is delivered after ``removed``.
        When it is called, the lister shows the delivered state or a later one.
        At the end its last events are exactly the present states.
    """

    def __init__(self, name: str, *, coalescing: bool = False) -> None:
        """``coalescing``: the handler is registered so, and may be spared states in between: a tombstone may show a newer one."""
        self.name = name
        self._coalescing = coalescing
        self.states: dict[Key, Seen] = {}
        #: Events by type.
        self.delivered: Counter[EventType] = Counter()
        self.tombstones = 0
        self.violations: list[str] = []
        #: The server may have lost its state: a recreated object may have a lower version than its predecessor.
        self.server_forgets = False
        self._closed = False
        self._informer: Informer[Any] | None = None
        self._registration: Registration[Any] | None = None

    def attach(self, informer: Informer[R], *, pause: Callable[[], Awaitable[None]] | None = None, **options: Any) -> Registration[R]:
        """Register it; ``options`` are those of ``on_event``. With ``pause`` it is an ``async`` handler that waits so long each time."""

        async def slowly(event: InformerEvent[R]) -> None:
            self(event)
            assert pause is not None
            await pause()

        handler = self if pause is None else slowly
        registration = informer.on_event(added=handler, updated=handler, deleted=handler, name=self.name, **options)
        self._informer, self._registration = informer, registration
        return registration

    @property
    def events(self) -> int:
        return sum(self.delivered.values())

    def removed(self) -> None:
        """The registration was removed: from here on silence is owed."""
        self._closed = True

    def __call__(self, event: InformerEvent[Any]) -> None:
        self.delivered[event.type] += 1
        key = (event.head.namespace, event.head.name)
        now, before = Seen.of(event.head), self.states.get(key)
        if self._closed:
            self._violation(key, f"{event.type.value} was delivered after the handler was removed")
        if event.initial and (event.type is not EventType.ADDED or (self._registration is not None and self._registration.synced)):
            self._violation(key, f"{event.type.value} is said to be initial")
        match event.type:
            case EventType.ADDED:
                if before is not None:
                    self._violation(key, f"added {now}, but {before} is there")
                if event.old is not None:
                    self._violation(key, "ADDED with an old state")
            case EventType.MODIFIED:
                self._check_update(key, before, now, event.old)
            case EventType.DELETED:
                self._check_deletion(key, before, now, event)
            case EventType.RESYNC:
                if before != now:
                    self._violation(key, f"resync shows {now}, but the last delivered state is {before}")
        if event.type is EventType.DELETED:
            self.states.pop(key, None)
        else:
            self.states[key] = now
        self._check_lister(key, now, event.type)

    def _check_update(self, key: Key, before: Seen | None, now: Seen, old: Head | None) -> None:
        if before is None:
            self._violation(key, f"updated to {now}, but it was never added")
            return
        if old is None or Seen.of(old) != before:
            self._violation(key, f"updated from {old and Seen.of(old)}, but the last delivered state is {before}")
        if now.version <= before.version and (now.uid == before.uid or not self.server_forgets):
            self._violation(key, f"MODIFIED from {before} to {now}: versions must rise")

    def _check_deletion(self, key: Key, before: Seen | None, now: Seen, event: InformerEvent[Any]) -> None:
        self.tombstones += event.tombstone
        if before is None:
            self._violation(key, f"deleted {now}, but it was never added")
        elif event.tombstone and now != before and not (self._coalescing and (now.version > before.version or self.server_forgets)):
            self._violation(key, f"deleted as {now} (tombstone), but the last delivered state is {before}")
        elif not event.tombstone and now.version <= before.version and not self.server_forgets:
            self._violation(key, f"deleted at {now}, but {before} is newer")

    def _check_lister(self, key: Key, now: Seen, type_: EventType) -> None:
        if self._informer is None:
            return
        head = self._informer.lister.head(key[1], key[0])
        if head is None:
            return  # the object was deleted since; if it was not, ``finish`` finds out
        shown = Seen.of(head)
        if shown.uid == now.uid and (shown.version < now.version or (type_ is EventType.DELETED and shown.version == now.version)):
            self._violation(key, f"{type_.value} {now} was delivered while the lister still showed {shown}")

    def finish(self, expected: Mapping[Key, Seen]) -> None:
        """All has come to rest, and ``expected`` is what there is."""
        if self._closed:
            return
        for key in sorted(self.states.keys() | expected.keys()):
            if self.states.get(key) != expected.get(key):
                self._violation(key, f"the last delivered state is {self.states.get(key)}, but {expected.get(key)} is there")

    def _violation(self, key: Key, message: str) -> None:
        if len(self.violations) < _MOST_DESCRIBED:
            self.violations.append(f"handler {self.name}, {'/'.join(key)}, event {self.events}: {message}")
        elif len(self.violations) == _MOST_DESCRIBED:
            self.violations.append("... and more")


def seen(heads: Iterable[Head]) -> dict[Key, Seen]:
    """What a store holds, in the form that ``finish`` compares with."""
    return {(head.namespace, head.name): Seen.of(head) for head in heads}
