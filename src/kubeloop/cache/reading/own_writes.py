"""Own writes: brings what the client has written to the overlay of one informer, if it is an object that the informer may have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubeloop.cache.documents.head import HeadReader
from kubeloop.cache.reading.changes import Deletions
from kubeloop.cache.reading.membership import Membership
from kubeloop.cache.reading.overlay import Overlay
from kubeloop.cache.scope import Scope
from kubeloop.cache.store.store import Store
from kubeloop.client import Write
from kubeloop.meta import kind_info


class OwnWrites:
    """The writes of a client, as they concern one informer.

    Guarantees
        What is laid over has the form that the informer keeps (``fields``, ``transform``, metadata only), and its indexes.

    Not guaranteed
        Writes through another version of the kind (``autoscaling/v1`` for an informer of ``autoscaling/v2``): their documents are of
        another shape, and are left to the watch.
    """

    def __init__(
        self,
        scope: Scope[Any],
        overlay: Overlay,
        store: Store,
        deletions: Deletions,
        reader: Callable[[], HeadReader],
        *,
        selects: bool,
    ) -> None:
        """``selects``: by labels or fields, so that a deletion that the watch told may not be the object's end."""
        self._kind = kind_info(scope.kind).gvk
        self._namespaces = scope.namespaces
        self._membership = Membership(scope.labels, scope.field_selector)
        self._overlay = overlay
        self._store = store
        self._known = (lambda _: False) if selects else deletions.knows
        self._reader = reader

    def concern(self, write: Write) -> bool:
        """Whether it is of the informer's kind and namespaces."""
        return write.mapping.gvk == self._kind and (not self._namespaces or write.namespace in self._namespaces)

    def lay(self, write: Write, sent_afterwards: bool = False) -> None:
        """Lay one over that is of concern. ``sent_afterwards``: when it was sent, the watch had got where it is already."""
        document = write.document
        if document is None or write.gone:
            self._overlay.ended(write.namespace, write.name, write.uid, write.resource_version, self._known)
            return
        reader = self._reader()
        projected = reader.projection.object(document)
        before = self._store.get(write.namespace, write.name)
        head = reader.head(projected, memoryview(document), before)
        # Of the writes, only a creation always gets a version of its own: one that changes nothing is answered with what there was.
        new = sent_afterwards and write.verb == "create"
        self._overlay.stored(head, self._membership.of(document), self._known, new=new)
