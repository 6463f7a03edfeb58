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
#: Number of cached uids of deleted owners, so that the dependents of one owner do not each read it from the server. Upstream caches 500.
_GONE = 4096


class OwnerEdge(NamedTuple):
    """One owner reference of a dependent; ``blocks`` is blockOwnerDeletion."""

    api_version: str
    kind: str
    name: str
    uid: str
    blocks: bool = False


class Item(NamedTuple):
    """An object's identity in the graph. Prints as people name it."""

    uid: str
    api_version: str
    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Node:
    """The last seen state of one object."""

    __slots__ = ("deleting", "finalizers", "item", "owners")

    def __init__(self, item: Item, owners: tuple[OwnerEdge, ...], *, deleting: bool = False, finalizers: Iterable[str] = ()) -> None:
        """Create the state.

        Args:
            item: Identity of the object.
            owners: Its owner references.
            deleting: Whether it has a deletion timestamp.
            finalizers: Its finalizers.
        """
        self.item = item
        self.owners = owners
        self.deleting = deleting
        self.finalizers = frozenset(finalizers)

    @property
    def orphans(self) -> bool:
        """It is being deleted, and its dependents are to be orphaned first."""
        return self.deleting and ORPHAN in self.finalizers

    @property
    def waits(self) -> bool:
        """It is being deleted, and waits for its blocking dependents to go first (foreground deletion)."""
        return self.deleting and FOREGROUND in self.finalizers

    def blocks(self, owner: str) -> bool:
        """Return whether the foreground deletion of the owner with that uid has to wait for this object."""
        return any(reference.uid == owner and reference.blocks for reference in self.owners)


class OwnershipGraph:
    """Processes the events of all kinds and returns the objects to check after each of them.

    ``put`` and ``remove`` return items whose state may have changed: an object with an unknown owner; the dependents of an owner
    that vanished or began a foreground deletion; an owner whose last blocking dependent may have gone. Only the server knows whether an
    unknown
    owner really does not exist.
    """

    def __init__(self) -> None:
        self._nodes: dict[str, Node] = {}
        self._dependents: dict[str, set[str]] = {}
        self._gone: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._nodes)

    def find(self, uid: str) -> Node | None:
        """Return an object by uid, or None."""
        return self._nodes.get(uid)

    def uids(self, group: str, kind: str) -> set[str]:
        """Return the uids of all objects of a kind, in any version, that are known or named as an owner. Scans every object."""
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
        """Return whether the object with that uid is known to be deleted. False also means that its state is unknown."""
        return uid in self._gone

    def forget_owner(self, uid: str) -> None:
        """Record that the server has no object with that uid. (Uids are never reused, so this stays true.)"""
        if uid in self._nodes:
            return
        self._gone[uid] = None
        self._gone.move_to_end(uid)
        if len(self._gone) > _GONE:
            self._gone.popitem(last=False)

    def put(self, node: Node) -> list[Item]:
        """Record an added or changed object."""
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
        """Record the deletion of an object."""
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
        """Return whether an owner is known, is not being deleted, and matches the reference.

        A reference to an object in another namespace, or with another name, refers to nothing (upstream addDependentToOwners).
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
