"""Writes one child: created, updated or left alone, by server-side apply or by merge patch; and deletes one that is no longer wanted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import msgspec

from kubeloop.client import Client, DeleteOptions, WriteOptions
from kubeloop.client.waits.trees import tree_of
from kubeloop.controller.children.report import ChildDid, ChildOutcome, ForeignChild
from kubeloop.controller.children.sameness import as_stored, covers, fields_set, target, type_of
from kubeloop.controller.children.wanted import APPLIED, FIELDS_SET, SET_LABEL, Wanted
from kubeloop.controller.ownership import controller_of, is_controlled_by
from kubeloop.merge.fields import ElementError, TypeMismatch
from kubeloop.merge.go_text import same
from kubeloop.merge.merge_patch import create_merge_patch
from kubeloop.meta import Conflict, NotFound, Resource

#: Children whose stored form is remembered; each is a few KiB.
_REMEMBERED = 4096


def check_ownership(live: Resource, owner: Resource, *, adopt: bool) -> None:
    """Raises ForeignChild: ``live`` belongs to somebody else."""
    if is_controlled_by(live, owner):
        return
    where = f" in namespace {live.metadata.namespace}" if live.metadata.namespace else ""
    what = f"{live.kind} {live.metadata.name}{where} exists and"
    other = controller_of(live)
    if other is not None:
        raise ForeignChild(
            f"{what} is controlled by {other.kind} {other.name} (uid {other.uid}), not by {owner.kind} {owner.metadata.name}: "
            "it was left alone; give the child another name, or delete the other owner"
        )
    if not adopt:
        raise ForeignChild(
            f"{what} is not controlled by {owner.kind} {owner.metadata.name} or anybody else: it was left alone; "
            "delete it, give the child another name, or take such objects over with adopt=True"
        )


class Writer(ABC):
    """Brings one child to what is wanted."""

    def __init__(self, client: Client, field_manager: str, *, force: bool) -> None:
        self._client = client
        self._manager = field_manager
        self._force = force

    @abstractmethod
    def is_so(self, live: Resource, wanted: Wanted) -> bool:
        """Whether ``live`` is as wanted, so that nothing need be sent."""

    @abstractmethod
    async def create(self, wanted: Wanted, *, dry_run: bool) -> Resource: ...

    @abstractmethod
    async def update(self, live: Resource, wanted: Wanted, *, dry_run: bool, exactly: bool = False) -> Resource:
        """``exactly``: raises Conflict if the child is no longer at the version of ``live``."""

    @abstractmethod
    def forget(self, wanted_key: tuple[Any, str, str]) -> None:
        """The child is gone."""

    def _options(self, dry_run: bool) -> WriteOptions:
        return WriteOptions(dry_run=dry_run, field_manager=self._manager)


class ApplyWriter(Writer):
    """Server-side apply: the server merges, and takes out what is no longer applied.

    Nothing need be sent if the child's annotation says that the same was applied last, and every value is still there.
    """

    def __init__(self, client: Client, field_manager: str, *, force: bool) -> None:
        super().__init__(client, field_manager, force=force)
        self._stored: dict[tuple[Any, str, str], tuple[str, dict[str, Any]]] = {}

    def is_so(self, live: Resource, wanted: Wanted) -> bool:
        if live.metadata.annotations.get(APPLIED) != wanted.digest:
            return False
        digest, stored = self._stored.get(wanted.key, ("", wanted.tree))
        return covers(tree_of(live), stored if digest == wanted.digest else wanted.tree, type_of(wanted.kind))

    async def create(self, wanted: Wanted, *, dry_run: bool) -> Resource:
        return await self._apply(wanted, {}, dry_run)

    async def update(self, live: Resource, wanted: Wanted, *, dry_run: bool, exactly: bool = False) -> Resource:
        # Bound to the uid: should the child have been replaced since it was looked at, its successor may be somebody else's.
        bound = {"uid": live.metadata.uid} | ({"resourceVersion": live.metadata.resource_version} if exactly else {})
        return await self._apply(wanted, bound, dry_run)

    def forget(self, wanted_key: tuple[Any, str, str]) -> None:
        self._stored.pop(wanted_key, None)

    async def _apply(self, wanted: Wanted, bound: dict[str, str], dry_run: bool) -> Resource:
        tree = wanted.annotated(APPLIED, wanted.digest)
        tree = {**tree, "metadata": {**tree["metadata"], **bound}}
        options = msgspec.structs.replace(self._options(dry_run), force=self._force or None)
        answer = await self._client.patch(wanted.kind, wanted.name, tree, type="apply", namespace=wanted.namespace or None, options=options)
        if not dry_run:
            self._remember(wanted, answer)
        return answer

    def _remember(self, wanted: Wanted, answer: Resource) -> None:
        """The stored form, where it is not what was sent; else every reconcile would send it again."""
        self.forget(wanted.key)
        type_, tree = type_of(wanted.kind), tree_of(answer)
        if not covers(tree, wanted.tree, type_) and (stored := as_stored(tree, wanted.tree, type_)) is not None:
            if len(self._stored) >= _REMEMBERED:
                del self._stored[next(iter(self._stored))]
            self._stored[wanted.key] = wanted.digest, stored


class PatchWriter(Writer):
    """Created as a whole, then merge patches of what differs: for servers and proxies without server-side apply, and older objects.

    Fields that were set before and no longer are taken out by the list of them that an annotation keeps.
    """

    def is_so(self, live: Resource, wanted: Wanted) -> bool:
        return not self._patch(live, wanted)

    async def create(self, wanted: Wanted, *, dry_run: bool) -> Resource:
        tree = wanted.annotated(FIELDS_SET, _text(fields_set(wanted.tree, type_of(wanted.kind))))
        made = wanted.kind.from_dict(tree)
        return await self._client.create(made, namespace=wanted.namespace or None, options=self._options(dry_run))

    async def update(self, live: Resource, wanted: Wanted, *, dry_run: bool, exactly: bool = False) -> Resource:  # noqa: ARG002 - always
        patch = self._patch(live, wanted)
        bound = {"uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version}
        patch["metadata"] = {**patch.get("metadata", {}), **bound}
        where = wanted.namespace or None
        return await self._client.patch(wanted.kind, wanted.name, patch, namespace=where, options=self._options(dry_run))

    def forget(self, wanted_key: tuple[Any, str, str]) -> None:
        """Nothing is remembered: all is in the annotation."""

    def _patch(self, live: Resource, wanted: Wanted) -> dict[str, Any]:
        type_, tree = type_of(wanted.kind), tree_of(live)
        fields = fields_set(wanted.tree, type_)
        whole = wanted.annotated(FIELDS_SET, _text(fields))
        try:
            before = msgspec.json.decode(live.metadata.annotations.get(FIELDS_SET, "{}"), type=dict[str, Any])
            return create_merge_patch(tree, target(tree, whole, before, type_))
        except (msgspec.DecodeError, ElementError):  # somebody wrote into the annotation: what was set before is not known
            return create_merge_patch(tree, target(tree, whole, {}, type_))
        except TypeMismatch as error:
            raise ValueError(f"{wanted.kind.kind} {wanted.name}: {error}") from error


async def delete_child(client: Client, live: Resource, *, dry_run: bool) -> None:
    """Delete that very state of the child: one that somebody changed since it was looked at may be somebody else's now.

    Raises:
        Conflict: it was changed.
    """
    options = DeleteOptions(resource_version=live.metadata.resource_version, dry_run=dry_run, propagation_policy="Background")
    try:
        await client.delete(live, options=options)
    except NotFound:
        return


def outcome_of(wanted: Wanted, live: Resource | None, answer: Resource, *, dry_run: bool) -> ChildOutcome:
    did: ChildDid = "created"
    if live is not None:
        # A write that was only tried has no version of its own.
        as_before = same(_content(live), _content(answer)) if dry_run else _version(answer) == _version(live)
        did = "unchanged" if as_before else "updated"
    return ChildOutcome(wanted.kind, wanted.namespace, wanted.name, did, answer, sent=True)


def _content(obj: Resource) -> dict[str, Any]:
    tree = tree_of(obj)
    metadata = {name: value for name, value in tree["metadata"].items() if name not in ("managedFields", "resourceVersion")}
    return {**tree, "metadata": metadata}


def _version(obj: Resource) -> str:
    return obj.metadata.resource_version


def is_part(live: Resource, owner: Resource, label: str) -> bool:
    """Whether the object is a child of that set, by label and by owner."""
    return live.metadata.labels.get(SET_LABEL) == label and is_controlled_by(live, owner)


def _text(fields: dict[str, Any]) -> str:
    return msgspec.json.encode(fields).decode()


def was_changed(error: Exception) -> bool:
    """Somebody wrote between the look at a child and what was done on the strength of it; a conflict of field managers is another thing."""
    return isinstance(error, NotFound) or (isinstance(error, Conflict) and not error.causes)
