"""Events of handlers, and the filter that shows a handler only the objects that a predicate accepts."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Generic, TypeVar

import msgspec
from msgspec import Struct

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.lister.view import CacheView
from kubeloop.meta import ObjectKey, Resource, Unstructured

R = TypeVar("R", bound=Resource)


class EventType(StrEnum):
    """Type of a change, with the names of watch events; RESYNC repeats the cached state."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    RESYNC = "RESYNC"


class InformerEvent(Struct, Generic[R], frozen=True, gc=False):
    """One change of one object. ``type`` and ``object`` are named as in a watch event (``kubeloop.client.Event``).

    Reading ``head`` and ``old`` decodes nothing. Each access to ``object`` decodes a new object (about 30 us for a Pod), which belongs to
    the caller: assign it to a variable to read or change it more than once.

    Attributes:
        type: ADDED, MODIFIED, DELETED or RESYNC.
        head: The new state; the last known state of a deleted object.
        old: The previous state; None for an added object.
        view: The cache of the informer.
        initial: The object existed before the handler was added, or before the informer started.
        tombstone: The deletion itself was not observed because the watch was down, so ``head`` may not be the final state.
        received: When the cache received it, in monotonic seconds of the informer's clock.

    Example:
        >>> async with InformerFactory(client) as informers:
        ...     config_maps = informers.for_kind(ConfigMap)
        ...     handler = config_maps.on_event(added=lambda event: print(event.type, event.object.metadata.name))
        ...     await config_maps.wait_synced()
        ...     settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
        ...     await config_maps.lister.wait_fresh(settings.metadata.resource_version)
        ...     await handler.wait_drained()
        ADDED settings
    """

    type: EventType
    head: Head
    old: Head | None
    view: CacheView[R]
    initial: bool = False
    tombstone: bool = False
    received: float = 0.0

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.view.cluster, self.head.namespace, self.head.name)

    @property
    def object(self) -> R:
        """The object in the state of ``head``, decoded at each access.

        Raises:
            DecodeError: the object does not fit its type.
        """
        return self.view.decode(self.head)

    def unstructured(self) -> Unstructured:
        """Return the object of ``head`` as a tree, even if it does not fit its type."""
        return self.view.unstructured(self.head)

    @property
    def old_object(self) -> R | None:
        """The object in the state of ``old``, decoded at each access; None for an added object.

        Raises:
            DecodeError: the object does not fit its type.
        """
        return None if self.old is None else self.view.decode(self.old)


#: Called with heads, so that nothing is decoded. ``paths=`` adds further fields to heads (``head.value("spec.nodeName")``).
Predicate = Callable[[Head], bool]


class EventFilter(Generic[R]):
    """Shows a handler the objects that a predicate accepts, as if there were no others.

    Guarantees
        An object that begins to match is "added" (not ``initial``); an object that ceases to match is "deleted", with the state before as
        ``head`` (the state that the handler knows); the handler gets no event of other objects. The filter remembers which objects the
        handler knows and does not apply the predicate to old states: even if the predicate changes its result, or raises, no object is
        added twice and none is deleted that was not added. A changed result takes effect with the object's next change or resync.

    Raises
        The exceptions of the predicate. The object then counts as it did before: a known one stays known, an unknown one unknown.

    Cost
        One call for each event, and one set entry for each object that matches.
    """

    __slots__ = ("_matches", "_shown")

    def __init__(self, matches: Predicate) -> None:
        self._matches = matches
        #: Names of the objects that the handler knows, by namespace.
        self._shown: dict[str, set[str]] = {}

    def __call__(self, event: InformerEvent[R]) -> InformerEvent[R] | None:
        """Return the event to send to the handler, or None to send no event."""
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
                # Known objects are not added twice: a replay sends every object as added.
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
