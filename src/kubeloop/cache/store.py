"""Store: heads by namespace and name, with indexes that never disagree with it. Knows nothing of servers, handlers or types."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from kubeloop.cache.head import Head
from kubeloop.cache.index import Index
from kubeloop.meta.errors import KubeloopError


class UnknownIndex(KubeloopError):
    """A query names an index that the informer was not given."""


class Store:
    """The states that a cache shows.

    Guarantees
        Every query is answered from one moment: the list it returns never changes and never holds a key twice.
        Each index finds an object under exactly the values of its present state.

    Not guaranteed
        Order, other than: objects of a namespace in the order in which they first came.
    """

    def __init__(self, indexes: Iterable[Index] = ()) -> None:
        self._namespaces: dict[str, dict[str, Head]] = {}
        self._indexes: dict[str, Index] = {index.name: index for index in indexes}
        self._changing = tuple(self._indexes.values())
        #: The resourceVersion that the store is at: of the list, an event or a bookmark.
        self.version = ""

    def get(self, namespace: str, name: str) -> Head | None:
        objects = self._namespaces.get(namespace)
        return None if objects is None else objects.get(name)

    def heads(self, namespace: str | None = None) -> list[Head]:
        """Everything, or everything in a namespace ("" for cluster-scoped objects)."""
        if namespace is None:
            return list(chain.from_iterable(map(dict.values, self._namespaces.values())))
        return list(self._namespaces.get(namespace, {}).values())

    def namespaces(self) -> list[str]:
        return list(self._namespaces)

    def __len__(self) -> int:
        return sum(map(len, self._namespaces.values()))

    def put(self, head: Head) -> Head | None:
        """Add or replace; returns the state before."""
        objects = self._namespaces.get(head.namespace)
        if objects is None:
            objects = self._namespaces[head.namespace] = {}
        old = objects.get(head.name)
        objects[head.name] = head
        for index in self._changing:
            index.change(old, head)
        return old

    def remove(self, namespace: str, name: str) -> Head | None:
        """Returns the last state; None if it was not there."""
        objects = self._namespaces.get(namespace)
        old = None if objects is None else objects.pop(name, None)
        if objects is not None and not objects:
            del self._namespaces[namespace]
        if old is not None:
            for index in self._changing:
                index.change(old, None)
        return old

    # ---------------------------------------------------------------------------------------------------------------- indexes

    @property
    def indexes(self) -> dict[str, Index]:
        return dict(self._indexes)

    def add_index(self, index: Index) -> None:
        """From now on, and complete at once: objects that are here already are indexed."""
        for head in self.heads():
            index.change(None, head)
        self._indexes[index.name] = index
        self._changing = tuple(self._indexes.values())

    def by_index(self, name: str, value: str) -> list[Head]:
        return self._index(name).heads(value)

    def index_values(self, name: str) -> list[str]:
        """The values that at least one object has."""
        return self._index(name).all_values()

    def _index(self, name: str) -> Index:
        index = self._indexes.get(name)
        if index is None:
            known = ", ".join(sorted(self._indexes)) or "none"
            raise UnknownIndex(
                f'no index "{name}" (there are: {known}); give it to informers.of(..., indexes={{"{name}": "path.to.field"}})'
            )
        return index
