"""Lookup of children: in a controller's caches if they hold the kind, otherwise at the server."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

from kubeloop.cache import Head, Informer, Lister, UnknownIndex
from kubeloop.client import Client
from kubeloop.controller.builder.controller import OWNER_INDEX, ControllerBase
from kubeloop.controller.errors import DeclarationError
from kubeloop.controller.ownership import is_controlled_by
from kubeloop.meta import NotFound, Resource
from kubeloop.meta.resource import source_of

R = TypeVar("R", bound=Resource)


class Member(NamedTuple):
    """An existing child, found by its label."""

    kind: type[Resource]
    namespace: str
    name: str


class ChildReader:
    """Reads children from a controller's caches, or from the server. ``controller`` None: all reads go to the server."""

    def __init__(self, client: Client, controller: ControllerBase[Any] | None) -> None:
        self.client = client
        self._controller = controller

    def informer(self, kind: type[R]) -> Informer[R] | None:
        """Return the controller's informer of a kind; None if it has none."""
        if self._controller is None:
            return None
        try:
            return self._controller.informer(kind)
        except DeclarationError:
            return None

    async def get(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Return a child from the cache, or from the server if whole objects of its kind are not cached. None if it does not exist."""
        informer = self.informer(kind)
        if informer is not None:
            existing = informer.lister.get(name, namespace)
            if existing is None:
                return None
            source = source_of(existing)
            if source is not None and not source.partial:
                return existing
        return await self.newest(kind, namespace, name)

    async def newest(self, kind: type[R], namespace: str, name: str) -> R | None:
        """Return a child from the server; None if it does not exist."""
        try:
            return await self.client.get(kind, name, namespace=namespace or None)
        except NotFound:
            return None

    async def members(self, kind: type[Resource], namespace: str | None, owner: Resource, label: tuple[str, str]) -> list[Member]:
        """Return the objects of a kind that ``owner`` controls and that have the label, without objects that are being deleted.

        Args:
            kind: Class of the objects.
            namespace: The namespace to search. None: all.
            owner: The owner.
            label: Key and value of the label.
        """
        name, value = label
        lister = self._lister(kind)
        if lister is not None:
            return [
                Member(kind, head.namespace, head.name)
                for head in _of_owner(lister, owner, namespace)
                if head.labels.get(name) == value
                and head.controller is not None
                and head.controller.uid == owner.metadata.uid
                and not head.deleting
            ]
        existing = await self.client.list(kind, namespace=namespace, label_selector={name: value})
        return [
            Member(kind, obj.metadata.namespace, obj.metadata.name)
            for obj in existing
            if is_controlled_by(obj, owner) and obj.metadata.deletion_timestamp is None
        ]

    def _lister(self, kind: type[Resource]) -> Lister[Any] | None:
        """Return the lister of whole objects, or of their metadata, which is enough for labels and owners; None if there is none."""
        informer = self.informer(kind)
        if informer is not None or self._controller is None:
            return None if informer is None else informer.lister
        try:
            return self._controller.metadata_lister(kind)
        except DeclarationError:
            return None


def _of_owner(lister: Lister[Any], owner: Resource, namespace: str | None) -> list[Head]:
    """Return the heads of the owner's objects if the kind is in ``owns`` (by an index); otherwise of all objects in ``namespace``."""
    try:
        return lister.heads_by_index(OWNER_INDEX, owner.metadata.uid)
    except UnknownIndex:
        return lister.heads(namespace)
