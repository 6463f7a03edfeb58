"""Readers: the view and the lister of one informer, with the overlay of own writes and the recorded deletions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from kubeloop.cache.blobs.head import Head, HeadReader
from kubeloop.cache.lister.changes import Deletions
from kubeloop.cache.lister.freshness import Freshness, Reached
from kubeloop.cache.lister.lister import Lister
from kubeloop.cache.lister.mutation_cache import MutationCache
from kubeloop.cache.lister.view import CacheView
from kubeloop.cache.scope import InformerDefaults, InformerScope
from kubeloop.cache.store.index import SecondaryIndex
from kubeloop.cache.store.store import Store
from kubeloop.client import Write
from kubeloop.codec.paths import parse_path
from kubeloop.meta import FieldSelector, Resource, Selector, kind_info, parse_field_selector, parse_label_selector

#: Values that a server compares if the field is absent: the printed zero value of the Go field, which is "" for all other fields.
_ZERO = {
    "spec.hostNetwork": "false",
    "spec.unschedulable": "false",
    "status.replicas": "0",
}
#: Field names that are not paths in the document. Source: pkg/registry/*/strategy.go and pkg/apis/*/v1/conversion.go of Kubernetes.
_COMPUTED = frozenset({"source", "status.successful", "status.podIP", "status.podIPs"})


class DocumentSelector:
    """Evaluates the label and field selectors of one informer for the document of an object.

    Guarantees
        The result of ``of`` equals the server's, or is None.
    """

    def __init__(self, labels: str | None, field_selector: str | None) -> None:
        """Parse selectors of an ``InformerScope``: canonical strings, or None to select everything."""
        self._labels: Selector | None = parse_label_selector(labels) if labels else None
        self._fields: FieldSelector | None = parse_field_selector(field_selector) if field_selector else None

    def of(self, document: bytes) -> bool | None:
        """Return whether the document is selected.

        None if only the server can tell: a computed field, or a field whose value is a list or an object.
        """
        if self._labels is None and self._fields is None:
            return True
        tree: Any = msgspec.json.decode(document)
        if self._labels is not None and not self._labels.matches(_labels(tree)):
            return False
        return True if self._fields is None else _selected(self._fields, tree)


def _labels(tree: Any) -> dict[str, str]:
    labels = tree.get("metadata", {}).get("labels") or {}
    return {name: value or "" for name, value in labels.items()}


def _selected(selector: FieldSelector, tree: Any) -> bool | None:
    unknown = False
    for term in selector.terms:
        value = _text(tree, term.field)
        if value is None:
            unknown = True
        elif not term.matches({term.field: value}):
            return False  # whatever the fields that only the server can evaluate
    return None if unknown else True


def _text(tree: Any, field: str) -> str | None:
    """Return the string that a server compares a field selector's value with; None if the document does not determine it."""
    path = parse_path(field)
    # Fields of another version of the kind, which Event has, are missing in this document but not empty.
    if field in _COMPUTED or (path[0] not in tree and path[0] not in ("spec", "status")):
        return None
    value = tree
    for segment in path:
        if value is None:
            break
        if not isinstance(value, dict):
            return None
        value = value.get(segment)
    if value is None:
        return _ZERO.get(field, "")
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int) else None


class WriteRecorder:
    """Records the client's writes that concern one informer in its overlay.

    Guarantees
        Applied writes have the informer's stored form (``fields``, ``transform``, metadata only), and its indexes.

    Not guaranteed
        Writes through another version of the kind (``autoscaling/v1`` for an informer of ``autoscaling/v2``): their documents have another
        schema; the watch reports them.
    """

    def __init__(
        self,
        scope: InformerScope[Any],
        overlay: MutationCache,
        store: Store,
        deletions: Deletions,
        reader: Callable[[], HeadReader],
        *,
        selects: bool,
    ) -> None:
        """Make a recorder for one informer.

        Args:
            scope: The objects of the informer.
            overlay: Receives the writes.
            store: The cache that the watch fills.
            deletions: Receives deletions, for ``changed_since``.
            reader: Returns the present ``HeadReader``.
            selects: The informer has a selector, so that a reported deletion may be an object that left it.
        """
        self._kind = kind_info(scope.kind).gvk
        self._namespaces = scope.namespaces
        self._membership = DocumentSelector(scope.label_selector, scope.field_selector)
        self._overlay = overlay
        self._store = store
        self._known = (lambda _: False) if selects else deletions.knows
        self._reader = reader

    def matches(self, write: Write) -> bool:
        """Return whether a write is of the informer's kind and namespaces."""
        return write.mapping.gvk == self._kind and (not self._namespaces or write.namespace in self._namespaces)

    def apply(self, write: Write, sent_afterwards: bool = False) -> None:
        """Apply a matching write to the overlay. ``sent_afterwards``: it was sent after the watch reached its current version."""
        document = write.document
        if document is None or write.gone:
            self._overlay.ended(write.namespace, write.name, write.uid, write.resource_version, self._known)
            return
        reader = self._reader()
        projected = reader.projection.object(document)
        before = self._store.get(write.namespace, write.name)
        head = reader.head(projected, memoryview(document), before)
        # Only a creation always gets a new version: the response to a write without changes has the old one.
        new = sent_afterwards and write.verb == "create"
        self._overlay.stored(head, self._membership.of(document), self._known, new=new)


R = TypeVar("R", bound=Resource)


class Readers(Generic[R]):
    """View and lister of one informer. It records applied changes and the client's writes, so that readers see the newer of both."""

    def __init__(
        self,
        scope: InformerScope[R],
        description: str,
        store: Store,
        defaults: InformerDefaults,
        reader: Callable[[], HeadReader],
        version: Callable[[], str],
    ) -> None:
        """Make view and lister of one store.

        Args:
            scope: the objects of the informer.
            description: the objects in words, for logs and errors.
            store: the cache that the watch fills.
            defaults: clock, progress and cluster of the informer.
            reader: returns the present ``HeadReader``.
            version: returns the version that the cache is at.
        """
        self._store = store
        # A watch with a selector reports an object that leaves the selector as deleted; the object may return.
        selects = scope.label_selector is not None or scope.field_selector is not None
        self.overlay = MutationCache(description, store, Store(), scope.namespaces, defaults.clock, selects=selects)
        self._deletions = Deletions()
        self._own_writes = WriteRecorder(scope, self.overlay, store, self._deletions, reader, selects=selects)
        self._feeds: Sequence[Reached] = ()
        self._freshness = Freshness(description, self.overlay, defaults.progress, lambda: self._feeds)
        self.view: CacheView[R] = CacheView(store, scope.kind, defaults.cluster, scope.keep, self.overlay)
        self.lister: Lister[R] = Lister(self.view, scope.namespaces, version, self._deletions, self._freshness)

    # --------------------------------------------------------------------------------------------------------------- preparing

    def watches(self, feeds: Sequence[Reached]) -> None:
        """Set the watches that fill the cache."""
        self._feeds = feeds

    def add_index(self, make: Callable[[], SecondaryIndex]) -> None:
        """Add an index to the store and to the overlay."""
        self._store.add_index(make())
        with self._store.lock:
            self.overlay.shown.add_index(make())

    def rebuild_overlay_heads(self, reader: HeadReader) -> None:
        """Make the heads of the overlay again with the paths of ``reader``. The heads of the store must have these paths already."""
        self.view.attributes = reader.attributes
        with self._store.lock:
            self.overlay.reread(reader.again)

    # -------------------------------------------------------------------------------------------------------- while it is filled

    def wrote(self, write: Write) -> None:
        """Record a write of the client, if it is of the informer's kind."""
        if self._own_writes.matches(write):
            with self._store.lock:
                self._moved()
                self._own_writes.apply(write, self._sent_afterwards(write))

    def record(self, head: Head, *, deleted: bool) -> None:
        """Record a change that was applied to the store."""
        if deleted:
            self._deletions.add(head, self._store.version)
        if self.overlay.alert:
            with self._store.lock:
                self.overlay.confirm(head, deleted=deleted)

    def listed(self, feed: Reached, version: str) -> None:
        """Record that a list at ``version`` is about to be applied."""
        self._deletions.listed(feed.version, version)
        with self._store.lock:
            self.overlay.listed(feed.namespace, version)

    def replaced(self, feed: Reached, version: str) -> None:
        """Record that a list was applied."""
        with self._store.lock:
            self.overlay.replaced(feed.namespace, version)

    def applied(self) -> None:
        """Record that a batch of changes was applied to the store, and wake the tasks that wait for it."""
        if self.overlay.active:
            with self._store.lock:
                self._moved()
        self._freshness.moved()

    def close(self) -> None:
        """Record that the cache does not change any more."""
        self.overlay.close()
        self._freshness.stop()

    def _sent_afterwards(self, write: Write) -> bool:
        """Return whether the watch had reached its present version before the write was sent."""
        feeds = [feed for feed in self._feeds if feed.namespace in (None, write.namespace)]
        return write.sent is not None and all(feed.moved < write.sent for feed in feeds)

    def _moved(self) -> None:
        for feed in self._feeds:
            self.overlay.reached(feed.namespace, feed.version)
