"""Scheme: maps group, version and kind to Python classes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeloop.meta.errors import UnknownKind
from kubeloop.meta.kinds import GroupVersionKind
from kubeloop.meta.resource import Resource, kind_info

Finder = Callable[[GroupVersionKind], type[Resource] | None]


class Scheme:
    """Maps kinds to classes. Added classes take precedence; then each finder is called once per kind, in order (generated modules load
    lazily).

    Not global: two schemes in one process may differ. Not thread-safe while classes are added.
    """

    def __init__(self, classes: Iterable[type[Resource]] = (), finders: Iterable[Finder] = ()) -> None:
        self._classes: dict[GroupVersionKind, type[Resource]] = {}
        self._finders = tuple(finders)
        for cls in classes:
            self.add(cls)

    def add(self, cls: type[Resource]) -> None:
        """Register ``cls`` in place of any class of the same kind.

        Raises:
            UnknownKind: the class has no kind.
        """
        self._classes[kind_info(cls).gvk] = cls

    def find(self, gvk: GroupVersionKind) -> type[Resource] | None:
        """Return the class of a kind; None if the kind is unknown."""
        found = self._classes.get(gvk)
        if found is None:
            found = next((cls for finder in self._finders if (cls := finder(gvk)) is not None), None)
            if found is not None:
                self._classes[gvk] = found
        return found

    def class_of(self, gvk: GroupVersionKind) -> type[Resource]:
        """Return the class of a kind.

        Raises:
            UnknownKind: the kind is unknown.
        """
        found = self.find(gvk)
        if found is None:
            raise UnknownKind(f"no class is known for {gvk}; declare one with @custom_resource, or use Unstructured.of(...)")
        return found

    def __contains__(self, gvk: GroupVersionKind) -> bool:
        return self.find(gvk) is not None
