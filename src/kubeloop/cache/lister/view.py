"""View: merges the store with the overlay of own writes for all readers, and decodes objects."""

from __future__ import annotations

import heapq
import logging
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from operator import itemgetter
from typing import Any, Generic, NamedTuple, TypeVar, cast

from kubeloop.cache.blobs.head import Head
from kubeloop.cache.blobs.retention import LEAN, Retention
from kubeloop.cache.lister.mutation_cache import MutationCache
from kubeloop.cache.store.index import SecondaryIndex
from kubeloop.cache.store.sorted_index import Bound, SortedIndex, sort_of
from kubeloop.cache.store.store import Store
from kubeloop.codec import decode
from kubeloop.meta import DecodeError, PartialObject, Resource, Unstructured, kind_info
from kubeloop.meta.type_checks import described_word

R = TypeVar("R", bound=Resource)

#: Number of undecodable objects that are remembered as logged; beyond it all are forgotten and logged again.
MAX_REPORTED = 10_000

_LOG = logging.getLogger("kubeloop.cache")


class _Corrections(NamedTuple):
    """Differences of the overlay from the store: heads of the store to hide, and heads to show in addition."""

    masked: set[Head]
    added: list[Head]

    def of(self, heads: Iterable[Head], added: Iterable[Head]) -> list[Head]:
        """Merge the store's result of a query with the overlay's result of the same query."""
        masked, shown = self.masked, set(self.added)
        return [*(head for head in heads if head not in masked), *(head for head in added if head in shown)]


class CacheView(Generic[R]):
    """The objects that readers see: the store with the unconfirmed writes of this process on top.

    Guarantees
        Every query reads one moment, from any thread.

    Cost
        While own writes wait for the watch, a query checks each of them (1 us).

    Args:
        store: The cache that the watch fills.
        kind: Class of the objects.
        cluster: Name of the cluster, for keys.
        keep: The parts of objects that are stored.
        overlay: Unconfirmed writes. None: there are none.
    """

    __slots__ = ("_overlay", "_plain", "_reported", "_store", "attributes", "cluster", "kind", "model", "partial", "reads", "undecodable")

    def __init__(self, store: Store, kind: type[R], cluster: str, keep: Retention = LEAN, overlay: MutationCache | None = None) -> None:
        self._store = store
        self._overlay = overlay
        self.kind = kind
        #: Class to decode objects as: the kind, or ``PartialObject`` if only metadata is stored.
        self.model: type[R] = cast("type[R]", PartialObject) if keep.metadata_only else kind
        #: Description of the missing parts of objects; "" if objects may be used for an update.
        self.partial = keep.partial
        #: Path -> attribute of heads that carries its value.
        self.attributes: Mapping[str, str] = {}
        self._plain: type[Unstructured] | None = None
        self._reported: dict[tuple[str, str], tuple[str, str]] = {}
        self.cluster = cluster
        #: Number of queries, and number of reads of objects that do not fit their type.
        self.reads = 0
        self.undecodable = 0

    def get(self, namespace: str, name: str) -> Head | None:
        self.reads += 1
        overlay = self._overlay
        if overlay is None or not overlay.active:
            return self._store.get(namespace, name)
        with self._store.lock:
            return overlay.over(namespace, name)

    def heads(self, namespace: str | None) -> list[Head]:
        self.reads += 1
        with self._store.lock:
            heads = self._store.heads(namespace)
            corrections = self._corrections(namespace)
            return heads if corrections is None else corrections.of(heads, corrections.added)

    def moment(self, namespace: str | None) -> Iterator[Head]:
        """Return an iterator over the heads as of this call. It copies nothing, so it suits long iterations."""
        self.reads += 1
        with self._store.lock:
            snapshot = self._store.snapshot(namespace)
            corrections = self._corrections(namespace)
        return iter(snapshot) if corrections is None else _corrected(snapshot, corrections)

    def by_index(self, name: str, value: str) -> list[Head]:
        self.reads += 1
        with self._store.lock:
            heads = self._store.by_index(name, value)
            overlay = self._overlay
            if overlay is None or not overlay.active:
                return heads
            # Each result is looked up, not each own write: there may be thousands of writes in flight, and few results.
            both = chain(heads, overlay.shown.by_index(name, value))
            return [head for head in both if overlay.over(head.namespace, head.name) is head]

    def range(self, name: str, low: Bound | None, high: Bound | None, reverse: bool, limit: int | None) -> list[Head]:
        """Return the heads in a range of a sorted index; see ``Lister.range``.

        Args:
            name: See ``Lister.range``.
            low: See ``Lister.range``.
            high: See ``Lister.range``.
            reverse: See ``Lister.range``.
            limit: See ``Lister.range``.

        Raises:
            UnknownIndex, ValueError, TypeError: as ``Lister.range``.
        """
        self.reads += 1
        with self._store.lock:
            heads = self._range(name, low, high, reverse, limit)
            # Only an empty result needs a check whether the bounds could match anything.
            bound = high if low is None else low
            if not heads and bound is not None:
                stores = (self._store,) if self._overlay is None else (self._store, self._overlay.shown)
                indexes = [cast("SortedIndex", store.indexes[name]) for store in stores]
                sorts = {sort for index in indexes for sort in index.sorts()}
                if sorts and sort_of(bound) not in sorts:
                    raise TypeError(
                        f'index "{name}" has {" and ".join(sorted(sorts))}: nothing in it compares with {described_word(bound)}'
                    )
            return heads

    def _range(self, name: str, low: Bound | None, high: Bound | None, reverse: bool, limit: int | None) -> list[Head]:
        corrections = self._corrections(None)
        if corrections is None or self._overlay is None:
            return self._store.range(name, low, high, reverse=reverse, limit=limit)
        enough = None if limit is None else limit + self._places(name, corrections.masked)
        heads = [head for head in self._store.range(name, low, high, reverse=reverse, limit=enough) if head not in corrections.masked]
        shown = set(corrections.added)
        added = [head for head in self._overlay.shown.range(name, low, high, reverse=reverse) if head in shown]
        if not added:
            return heads[:limit]
        placed = (
            _placed(cast("SortedIndex", store.indexes[name]), part, low, high, reverse)
            for store, part in ((self._store, heads), (self._overlay.shown, added))
        )
        return [head for _, head in heapq.merge(*placed, key=itemgetter(0), reverse=reverse)][:limit]

    def index_values(self, name: str) -> list[str]:
        with self._store.lock:
            values = self._store.index_values(name)
            corrections = self._corrections(None)
            if corrections is None:
                return values
            index = self._store.indexes[name]
            masked = corrections.masked
            gone = {
                value
                for value in {value for head in masked for value in index.values(head)}
                if all(head in masked for head in self._store.by_index(name, value))
            }
            added = (value for head in corrections.added for value in index.values(head))
            return list(dict.fromkeys([*(value for value in values if value not in gone), *added]))

    def index_over(self, source: object) -> str | None:
        """Return the name of an index that was made from ``source``, or None."""
        return next((name for name, index in self._store.indexes.items() if index.source == source), None)

    def __len__(self) -> int:
        with self._store.lock:
            corrections = self._corrections(None)
            return len(self._store) if corrections is None else len(self._store) - len(corrections.masked) + len(corrections.added)

    def _corrections(self, namespace: str | None) -> _Corrections | None:
        overlay = self._overlay
        if overlay is None or not overlay.active:
            return None
        corrections = _Corrections(set(), [])
        for place in overlay.places():
            if namespace is not None and place[0] != namespace:
                continue
            stored, current = self._store.get(*place), overlay.over(*place)
            if stored is not current:
                if stored is not None:
                    corrections.masked.add(stored)
                if current is not None:
                    corrections.added.append(current)
        return corrections

    def _places(self, name: str, heads: set[Head]) -> int:
        index: SecondaryIndex | None = self._store.indexes.get(name)
        return 0 if index is None else sum(len(index.values(head)) for head in heads)

    # ------------------------------------------------------------------------------------------------------------------ decoding

    def decode(self, head: Head) -> R:
        """Return a new object, which belongs to the caller.

        Raises:
            DecodeError: the object does not fit its type.
        """
        try:
            return decode(self.model, head.document(), checked=True, partial=self.partial)
        except DecodeError as error:
            self.undecodable += 1
            self._report(head, error)
            raise

    def decodable(self, head: Head) -> R | None:
        """Return a new object as ``decode`` does, or None if the object does not fit its type; the error is logged."""
        try:
            return self.decode(head)
        except DecodeError:
            return None

    def unstructured(self, head: Head) -> Unstructured:
        """Return the stored tree of the object, which need not fit its type."""
        if self._plain is None:
            info = kind_info(self.kind)
            self._plain = Unstructured.for_kind(info.gvk.api_version, info.gvk.kind, plural=info.plural, namespaced=info.namespaced)
        return decode(self._plain, head.document(), checked=True, partial=self.partial)

    def _report(self, head: Head, error: DecodeError) -> None:
        """Log an object that does not fit its type, once for each of its states."""
        key, state = (head.namespace, head.name), (head.uid, head.resource_version)
        if self._reported.get(key) == state:
            return
        if len(self._reported) >= MAX_REPORTED:
            self._reported.clear()
        self._reported[key] = state
        _LOG.error("%s; it stays in the cache: read it with lister.unstructured(...) or event.unstructured()", error)


def _corrected(heads: Iterable[Head], corrections: _Corrections) -> Iterator[Head]:
    masked = corrections.masked
    yield from (head for head in heads if head not in masked)
    yield from corrections.added


def _placed(
    index: SortedIndex, heads: list[Head], low: Bound | None, high: Bound | None, reverse: bool
) -> Iterator[tuple[tuple[Any, ...], Head]]:
    """Yield each head with its place in the sort order. An object with several values occurs once for each, in their order."""
    counts: dict[Head, int] = {}
    for head in heads:
        number = counts.get(head, 0)
        counts[head] = number + 1
        yield index.places(head, low, high, reverse=reverse)[number], head
