"""The graph of owner references in a cluster, by uid: the state of the garbage collector. No I/O.

Source: Kubernetes pkg/controller/garbagecollector/graph_builder.go; documentation, "Garbage Collection".
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator
from itertools import repeat
from typing import NamedTuple

ORPHAN = "orphan"
FOREGROUND = "foregroundDeletion"
#: Number of cached uids of deleted objects: without the cache, each dependent of a deleted owner causes a read. Upstream caches 500.
_GONE = 4096


class OwnerEdge(NamedTuple):
    """One owner reference of an object; ``blocks`` is its ``blockOwnerDeletion``."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False

    def in_namespace(self, namespace: str) -> str:
        """Return the text that upstream's Events contain for this owner in a namespace."""
        return f"[{self.api_version}/{self.kind}, namespace: {namespace}, name: {self.name}, uid: {self.uid}]"


class Item(NamedTuple):
    """The identity of an object in the graph; ``str`` returns kind, namespace and name."""

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Node:
    """The last seen state of one object: its owners, its finalizers, and whether it is being deleted."""

    __slots__ = ("deleting", "finalizers", "item", "owners")

    def __init__(self, item: Item, owners: tuple[OwnerEdge, ...], *, deleting: bool = False, finalizers: Iterable[str] = ()) -> None:
        """Create the state.

        Args:
            item: Identity of the object.
            owners: Owner references of the object.
            deleting: Whether the object has a deletion timestamp.
            finalizers: Finalizers of the object.
        """
        self.item = item
        self.owners = owners
        self.deleting = deleting
        self.finalizers = frozenset(finalizers)

    @property
    def orphans(self) -> bool:
        """Whether the object is being deleted, and its dependents must be orphaned first."""
        return self.deleting and ORPHAN in self.finalizers

    @property
    def waits(self) -> bool:
        """Whether the object is in foreground deletion, in which its blocking dependents are deleted first."""
        return self.deleting and FOREGROUND in self.finalizers

    def blocks(self, owner: str) -> bool:
        """Return whether the foreground deletion of the owner with the uid ``owner`` has to wait for this object."""
        return any(reference.uid == owner and reference.blocks for reference in self.owners)


class OwnershipGraph:
    """Owner references of all objects, which ``put`` and ``remove`` update from watch events.

    ``put`` and ``remove`` return the objects that the garbage collector must check: an object with an unknown owner, the dependents of an
    owner that was deleted or began a foreground deletion, and an owner whose last blocking dependent may have been deleted. Only the server
    knows whether an unknown owner really does not exist.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._dependents: dict[str, set[str]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def find(self, uid: str) -> Node | None:
        """Return the last seen state of the object with a uid, or None if it is unknown."""
        return self._nodes.get(uid)

    def uids(self, group: str, kind: str) -> set[str]:
        """Return the uids of all objects of a kind, in any version, that are known or referenced as owners. Scans every object."""
        own = {uid for uid, node in self._nodes.items() if (node.item.api_version.rpartition("/")[0], node.item.kind) == (group, kind)}
        named = {
            owner.uid
            for node in self._nodes.values()
            for owner in node.owners
            if (owner.api_version.rpartition("/")[0], owner.kind) == (group, kind)
        }
        return own | named

    def dependents(self, uid: str) -> list[Node]:
        """Return the known objects with an owner reference to ``uid``, whether or not ``uid`` itself is known."""
        return [self._nodes[dependent] for dependent in sorted(self._dependents.get(uid, ()))]

    def is_gone(self, uid: str) -> bool:
        """Return whether the object with a uid is known to be deleted. False may also mean that its state is unknown."""
        return uid in self._gone

    def forget_owner(self, uid: str) -> None:
        """Record that the server has no object with a uid; do nothing if the graph has the object. Uids are never reused."""
        if uid in self._nodes:
            return
        self._gone[uid] = None
        self._gone.move_to_end(uid)
        if len(self._gone) > _GONE:
            self._gone.popitem(last=False)

    def invalid_references(self, node: Node) -> list[tuple[Item, OwnerEdge]]:
        """Return references across namespaces that ``put`` of a node will add: the dependents and their references.

        An owner is cluster-scoped or in the namespace of its dependents (upstream reportInvalidNamespaceOwnerRef).
        """
        item = node.item
        before = self._nodes.get(item.uid)
        known = {owner.uid for owner in before.owners} if before else set()
        result = []
        for owner in node.owners:
            there = self._nodes.get(owner.uid)
            if owner.uid not in known and there is not None and there.item.namespace not in ("", item.namespace):
                result.append((item, owner))
        if before is None and item.namespace:
            for dependent in self.dependents(item.uid):
                if dependent.item.namespace != item.namespace:
                    result += [(dependent.item, owner) for owner in dependent.owners if owner.uid == item.uid]
        return result

    def put(self, node: Node) -> list[Item]:
        """Record an added or changed object, and return the objects to check."""
        uid = node.item.uid
        before = self._nodes.get(uid)
        self._nodes[uid] = node
        self._gone.pop(uid, None)
        owners_before = {owner.uid for owner in before.owners} if before else set()
        owners_now = {owner.uid for owner in node.owners}
        for owner in owners_before - owners_now:
            self._unlink(owner, uid)
        for owner in owners_now - owners_before:
            self._dependents.setdefault(owner, set()).add(uid)
        return list(self._look_after_put(node, before, owners_before))

    def remove(self, uid: str) -> list[Item]:
        """Record the deletion of an object, and return the objects to check."""
        node = self._nodes.pop(uid, None)
        self.forget_owner(uid)
        owners = node.owners if node is not None else ()
        for owner in owners:
            self._unlink(owner.uid, uid)
        look = [dependent.item for dependent in self.dependents(uid)]
        for owner in owners:
            look += self._waiting(owner.uid)
        return look

    def _look_after_put(self, node: Node, before: Node | None, owners_before: set[str]) -> Iterator[Item]:
        if node.orphans or node.waits:
            yield node.item
        if node.waits and not (before and before.waits):
            for dependent in self.dependents(node.item.uid):
                yield dependent.item
        if node.owners and not node.deleting and not all(map(self._is_well, node.owners, repeat(node.item.namespace))):
            yield node.item
        for owner in node.owners:
            if before and before.blocks(owner.uid) and not node.blocks(owner.uid):
                yield from self._waiting(owner.uid)
        for uid in owners_before - {owner.uid for owner in node.owners}:
            yield from self._waiting(uid)

    def _is_well(self, owner: OwnerEdge, namespace: str) -> bool:
        """Return whether an owner is known, is not in foreground deletion, and matches the reference.

        A reference to an object in another namespace, or with another name, is invalid (upstream addDependentToOwners).
        """
        node = self._nodes.get(owner.uid)
        if node is None or node.waits:
            return False
        item = node.item
        group = item.api_version.rpartition("/")[0], owner.api_version.rpartition("/")[0]
        return (item.kind, item.name, group[0]) == (owner.kind, owner.name, group[1]) and item.namespace in ("", namespace)

    def _waiting(self, uid: str) -> list[Item]:
        owner = self._nodes.get(uid)
        return [owner.item] if owner is not None and owner.waits else []

    def _unlink(self, owner: str, dependent: str) -> None:
        dependents = self._dependents.get(owner)
        if dependents is not None:
            dependents.discard(dependent)
            if not dependents:
                del self._dependents[owner]
