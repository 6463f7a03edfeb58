"""View: the one place through which everything reads the cache, and where bytes become typed objects."""

from __future__ import annotations

from typing import Generic, TypeVar

from kubeloop.cache.head import Head
from kubeloop.cache.store import Store
from kubeloop.codec import decode
from kubeloop.meta import DecodeError, Resource

R = TypeVar("R", bound=Resource)


class View(Generic[R]):
    """What readers see of a store. (Writes of this process that the watch has not shown yet would be laid over it here.)"""

    __slots__ = ("_store", "cluster", "kind", "reads", "undecodable")

    def __init__(self, store: Store, kind: type[R], cluster: str) -> None:
        self._store = store
        self.kind = kind
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
            return decode(self.kind, head.document(), checked=True)
        except DecodeError:
            self.undecodable += 1
            raise
