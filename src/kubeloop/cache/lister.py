"""Lister: reads the cache. Never waits, never asks the server."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Mapping
from typing import Generic, TypeVar

from kubeloop.cache.head import Head
from kubeloop.cache.index import index_key
from kubeloop.cache.view import View
from kubeloop.meta import KubeloopError, ObjectKey, Resource, Selector, Unstructured, kind_info, parse_label_selector, selector_from_labels

R = TypeVar("R", bound=Resource)
Labels = str | Mapping[str, str] | Selector


class OutsideScope(KubeloopError):
    """A question about a namespace that the informer does not watch: the honest answer would not be "nothing"."""


class Lister(Generic[R]):
    """Typed reads of one informer's cache.

    Guarantees
        Each read decodes fresh objects, which the caller owns: changing one changes nothing here.
        One call answers from one moment. What is not returned is not decoded: indexes, labels and heads are looked at without it.

    Cost
        About 30 us for each Pod returned; ``head`` and ``heads`` decode nothing. For many objects prefer ``each`` to ``list``.

    Raises
        OutsideScope: a namespace that the informer does not watch. DecodeError: an object does not fit its type.
    """

    __slots__ = ("_scope", "_view")

    def __init__(self, view: View[R], scope: tuple[str, ...]) -> None:
        """``scope``: the namespaces that the informer watches, none for all."""
        self._view = view
        self._scope = scope

    def get(self, name: str, namespace: str | None = None) -> R | None:
        """One object; None if it is not in the cache. Cluster-scoped kinds and informers of one namespace need no ``namespace``."""
        head = self.head(name, namespace)
        return None if head is None else self._view.decode(head)

    def unstructured(self, name: str, namespace: str | None = None) -> Unstructured | None:
        """One object as the tree that is kept of it: also one that does not fit its type. None if it is not in the cache."""
        head = self.head(name, namespace)
        return None if head is None else self._view.unstructured(head)

    def by_key(self, key: ObjectKey) -> R | None:
        """The object that a key names; the key's cluster is not looked at."""
        return self.get(key.name, key.namespace)

    def list(self, namespace: str | None = None, labels: Labels | None = None) -> builtins.list[R]:
        """All objects, of a namespace if one is given, that have these labels (``app=web,tier!=db``, or equal pairs)."""
        return [self._view.decode(head) for head in self.heads(namespace, labels)]

    def each(self, namespace: str | None = None, labels: Labels | None = None) -> Iterator[R]:
        """As ``list``, one object at a time: of the moment of the call, decoded when its turn comes."""
        heads = self.heads(namespace, labels)
        return (self._view.decode(head) for head in heads)

    def by_index(self, name: str, value: str | int | bool) -> builtins.list[R]:
        """The objects that have this value.

        Raises:
            UnknownIndex: the informer has no such index.
        """
        return [self._view.decode(head) for head in self.heads_by_index(name, value)]

    # ------------------------------------------------------------------------------------------------------ without decoding

    def head(self, name: str, namespace: str | None = None) -> Head | None:
        """What is kept decoded of one object.

        Raises:
            ValueError: the kind is namespaced, the informer watches several namespaces, and none is given.
        """
        if namespace is None:
            if len(self._scope) != 1 and kind_info(self._view.kind).namespaced:
                watched = f"this informer watches {', '.join(self._scope) or 'all of them'}"
                raise ValueError(f'a namespace is needed to name one {self._view.kind.__name__} ("{name}"): {watched}')
            namespace = self._scope[0] if self._scope else ""
        self._check(namespace)
        return self._view.get(namespace, name)

    def heads(self, namespace: str | None = None, labels: Labels | None = None) -> builtins.list[Head]:
        self._check(namespace)
        heads = self._view.heads(namespace)
        if labels is None:
            return heads
        matches = _selector(labels).matches
        return [head for head in heads if matches(head.labels)]

    def heads_by_index(self, name: str, value: str | int | bool) -> builtins.list[Head]:
        return self._view.by_index(name, index_key(value))

    def index_values(self, name: str) -> builtins.list[str]:
        """The values of an index that at least one object has."""
        return self._view.index_values(name)

    def __len__(self) -> int:
        return len(self._view)

    def _check(self, namespace: str | None) -> None:
        if self._scope and namespace is not None and namespace not in self._scope:
            watched = ", ".join(f'"{name}"' for name in self._scope)
            raise OutsideScope(
                f'this informer watches {self._view.kind.__name__} objects of namespace {watched} only, not of "{namespace}"; '
                "make one with informers.of(..., namespace=...)"
            )


def _selector(labels: Labels) -> Selector:
    if isinstance(labels, Selector):
        return labels
    return parse_label_selector(labels) if isinstance(labels, str) else selector_from_labels(labels)
