"""View: the one place through which everything reads the cache, and where bytes become typed objects."""

from __future__ import annotations

import logging
from typing import Generic, TypeVar, cast

from kubeloop.cache.head import Head
from kubeloop.cache.keeping import LEAN, Keep
from kubeloop.cache.store import Store
from kubeloop.codec import decode
from kubeloop.meta import DecodeError, PartialObject, Resource, Unstructured, kind_info

R = TypeVar("R", bound=Resource)

#: So many objects that do not fit their type are remembered as reported; then all are forgotten, and reported once more.
MAX_REPORTED = 10_000

log = logging.getLogger("kubeloop.cache")


class View(Generic[R]):
    """What readers see of a store. (Writes of this process that the watch has not shown yet would be laid over it here.)"""

    __slots__ = ("_plain", "_reported", "_store", "cluster", "kind", "model", "partial", "reads", "undecodable")

    def __init__(self, store: Store, kind: type[R], cluster: str, keep: Keep = LEAN) -> None:
        self._store = store
        self.kind = kind
        #: What objects are read as: of metadata alone no object of the kind itself can be made.
        self.model: type[R] = cast("type[R]", PartialObject) if keep.metadata_only else kind
        #: What is missing of them, for a person; "" if they are good for an update.
        self.partial = keep.partial
        self._plain: type[Unstructured] | None = None
        self._reported: dict[tuple[str, str], tuple[str, str]] = {}
        self.cluster = cluster
        #: Queries answered, and objects that did not fit their type when somebody read them.
        self.reads = 0
        self.undecodable = 0

    def get(self, namespace: str, name: str) -> Head | None:
        self.reads += 1
        return self._store.get(namespace, name)

    def heads(self, namespace: str | None) -> list[Head]:
        self.reads += 1
        return self._store.heads(namespace)

    def by_index(self, name: str, value: str) -> list[Head]:
        self.reads += 1
        return self._store.by_index(name, value)

    def index_values(self, name: str) -> list[str]:
        return self._store.index_values(name)

    def __len__(self) -> int:
        return len(self._store)

    def decode(self, head: Head) -> R:
        """A fresh object, the caller's own.

        Raises:
            DecodeError: the object does not fit its type.
        """
        try:
            return decode(self.model, head.document(), checked=True, partial=self.partial)
        except DecodeError as error:
            self.undecodable += 1
            self._report(head, error)
            raise

    def unstructured(self, head: Head) -> Unstructured:
        """The object as the tree that is kept of it, which needs no type to fit."""
        if self._plain is None:
            info = kind_info(self.kind)
            self._plain = Unstructured.of(info.gvk.api_version, info.gvk.kind, plural=info.plural, namespaced=info.namespaced)
        return decode(self._plain, head.document(), checked=True, partial=self.partial)

    def _report(self, head: Head, error: DecodeError) -> None:
        """Once for each state of an object, however often it is read."""
        key, state = (head.namespace, head.name), (head.uid, head.resource_version)
        if self._reported.get(key) == state:
            return
        if len(self._reported) >= MAX_REPORTED:
            self._reported.clear()
        self._reported[key] = state
        log.error("%s; it stays in the cache: read it with lister.unstructured(...) or event.unstructured()", error)
