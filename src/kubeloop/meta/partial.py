"""PartialObject: only the metadata of an object of any kind."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from kubeloop.meta.model import Model
from kubeloop.meta.object_meta import ObjectMeta
from kubeloop.meta.resource import Resource


class PartialObject(Resource):
    """An object's metadata, as a server sends it for ``PartialObjectMetadata``. Never enough for an update."""


class BookmarkObject(Model):
    """The content of a bookmark event: a resourceVersion to resume from, and whether the initial events have ended.

    Real servers fill required fields of the object with nulls; therefore a bookmark is never decoded as its kind.
    Source: Kubernetes API concepts, "Watch bookmarks"; KEP-3157.
    """

    INITIAL_EVENTS_END: ClassVar[str] = "k8s.io/initial-events-end"

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)

    @property
    def ends_initial_events(self) -> bool:
        return self.metadata.annotations.get(self.INITIAL_EVENTS_END) == "true"
