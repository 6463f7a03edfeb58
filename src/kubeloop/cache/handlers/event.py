"""Event: what a handler is told. Cheap: it names states; objects are decoded when somebody reads them."""

from __future__ import annotations

from enum import StrEnum
from typing import Generic, TypeVar

from msgspec import Struct

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.lister.view import View
from kubeloop.meta import ObjectKey, Resource, Unstructured

R = TypeVar("R", bound=Resource)


class EventType(StrEnum):
    """What happened to an object, in the words of a watch; RESYNC repeats the state that the cache holds."""

    ADDED = "ADDED"
    MODIFIED = "MODIFIED"
    DELETED = "DELETED"
    RESYNC = "RESYNC"


class Event(Struct, Generic[R], frozen=True, gc=False):
    """One change of one object. ``type`` and ``object`` are those of a watch event (``kubeloop.client.Event``).

    ``head`` is the new state; of a deleted object the last one known. ``old`` is the state before, None for an added object.
    ``initial``: the object was there when the handler's view of the cache began.
    ``tombstone``: the deletion itself was not seen (the watch was down), so the last known state may not have been the final one.
    ``received``: when the cache took it in, monotonic seconds of the informer's clock.

    Reading ``head`` and ``old`` decodes nothing; each access to ``object`` decodes a new one (about 30 us for a Pod), which the caller
    owns: keep it in a variable to read or change it more than once.
    """

    type: EventType
    head: Head
    old: Head | None
    view: View[R]
    initial: bool = False
    tombstone: bool = False
    received: float = 0.0

    @property
    def key(self) -> ObjectKey:
        return ObjectKey(self.view.cluster, self.head.namespace, self.head.name)

    @property
    def object(self) -> R:
        """The object as ``head`` has it.

        Raises:
            DecodeError: the object does not fit its type.
        """
        return self.view.decode(self.head)

    def unstructured(self) -> Unstructured:
        """The object as ``head`` has it, as a tree: also one that does not fit its type."""
        return self.view.unstructured(self.head)

    @property
    def old_object(self) -> R | None:
        """The object as ``old`` has it.

        Raises:
            DecodeError: as ``object``.
        """
        return None if self.old is None else self.view.decode(self.old)
