"""Writes one child, by server-side apply or by create and merge patch, if it differs from its desired state; and deletes children."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cache
from typing import Any

import msgspec

from kubeloop.client import Client, DeleteOptions, WriteOptions
from kubeloop.client.waits.trees import tree_of
from kubeloop.codec import decode
from kubeloop.controller.children.desired import APPLIED, FIELDS_SET, SET_LABEL, DesiredChild
from kubeloop.controller.children.report import ChildDid, ChildOutcome, ForeignChild
from kubeloop.controller.ownership import controller_of, is_controlled_by
from kubeloop.merge.fields import DEDUCED, ElementError, FieldSet, MergeType, TypeMismatch, builtin_types, extract, field_set, merge, remove
from kubeloop.merge.go_text import same
from kubeloop.merge.merge_patch import create_merge_patch
from kubeloop.meta import Conflict, GroupVersionKind, NotFound, Resource, kind_info
from kubeloop.types import JSONObject

# Comparison of a live child with its desired state, over JSON trees and by the schema of its kind.
#
# Lists with keys of built-in kinds are compared item by item, so that items of others do not count. Lists of custom kinds,
# whose schema is unknown here, are compared as a whole.


def type_of(kind: type[Resource]) -> MergeType:
    return _type_of(kind_info(kind).gvk)


@cache
def _type_of(gvk: GroupVersionKind) -> MergeType:
    return builtin_types().of_kind(gvk) or DEDUCED


def covers(live: JSONObject, desired: JSONObject, type_: MergeType) -> bool:
    """Return whether ``live`` has every value of ``desired``."""
    try:
        return same(merge(live, desired, type_), live)
    except (TypeMismatch, ElementError):
        return False


def as_stored(answer: JSONObject, desired: JSONObject, type_: MergeType) -> JSONObject | None:
    """Return the fields of ``desired`` with the values of the server's response (1000m is stored as 1); None if they cannot be matched."""
    try:
        return extract(answer, field_set(desired, type_), type_)
    except (TypeMismatch, ElementError):
        return None


def target(live: JSONObject, desired: JSONObject, before: JSONObject, type_: MergeType) -> JSONObject:
    """Return ``live`` with the values of ``desired``, and without fields that were applied before and are not desired any more.

    Args:
        live: The live object.
        desired: The desired child.
        before: The fields that were applied before, in the format FieldsV1.
        type_: The type of the object.

    Raises:
        TypeMismatch, ElementError: ``desired`` does not fit the type.
    """
    gone = FieldSet.from_json(before) - field_set(desired, type_)
    return merge(remove(live, gone.leaves(), type_), desired, type_)


def fields_set(desired: JSONObject, type_: MergeType) -> JSONObject:
    """Return the fields that ``desired`` sets, in the format FieldsV1."""
    return field_set(desired, type_).to_json()


#: Number of children whose stored form is remembered, a few KiB each.
_REMEMBERED = 4096


def check_ownership(live: Resource, owner: Resource, *, adopt: bool) -> None:
    """Raise ForeignChild if ``live`` belongs to another owner, or to none and ``adopt`` is False."""
    if is_controlled_by(live, owner):
        return
    where = f" in namespace {live.metadata.namespace}" if live.metadata.namespace else ""
    what = f"{live.kind} {live.metadata.name}{where} exists and"
    other = controller_of(live)
    if other is not None:
        raise ForeignChild(
            f"{what} is controlled by {other.kind} {other.name} (uid {other.uid}), not by {owner.kind} {owner.metadata.name}: "
            "it was not changed; give the child another name, or delete the other owner"
        )
    if not adopt:
        raise ForeignChild(
            f"{what} is not controlled by {owner.kind} {owner.metadata.name} or any other owner: it was not changed; "
            "delete it, give the child another name, or adopt such objects with adopt=True"
        )


class ChildWriter(ABC):
    """Writes the desired state of one child."""

    def __init__(self, client: Client, field_manager: str, *, force: bool) -> None:
        self._client = client
        self._manager = field_manager
        self._force = force

    @abstractmethod
    def is_so(self, live: Resource, desired: DesiredChild) -> bool:
        """Return whether ``live`` has the desired state, so that no write is needed."""

    @abstractmethod
    def stored_form(self, desired: DesiredChild) -> Resource:
        """Return the child as a server stores it, if it adds nothing."""

    @abstractmethod
    async def create(self, desired: DesiredChild, *, dry_run: bool) -> Resource: ...

    @abstractmethod
    async def update(self, live: Resource, desired: DesiredChild, *, dry_run: bool, exactly: bool = False) -> Resource:
        """Update a child, and return the server's state.

        Args:
            live: The child as it was read.
            desired: The desired child.
            dry_run: The server does everything but store.
            exactly: Raise Conflict if the child is no longer at the version of ``live``.
        """

    @abstractmethod
    def forget(self, wanted_key: tuple[Any, str, str]) -> None:
        """Drop the state that the writer holds for a deleted child."""

    def _options(self, dry_run: bool) -> WriteOptions:
        return WriteOptions(dry_run=dry_run, field_manager=self._manager)


class ApplyWriter(ChildWriter):
    """Writes children by server-side apply: the server merges, and removes fields that are no longer applied.

    No write is needed if the child's annotation has the digest of the desired state, and every value is still there.
    """

    def __init__(self, client: Client, field_manager: str, *, force: bool) -> None:
        super().__init__(client, field_manager, force=force)
        self._stored: dict[tuple[Any, str, str], tuple[str, dict[str, Any]]] = {}

    def is_so(self, live: Resource, desired: DesiredChild) -> bool:
        if live.metadata.annotations.get(APPLIED) != desired.digest:
            return False
        digest, stored = self._stored.get(desired.key, ("", desired.tree))
        return covers(tree_of(live), stored if digest == desired.digest else desired.tree, type_of(desired.kind))

    def stored_form(self, desired: DesiredChild) -> Resource:
        return decode(desired.kind, msgspec.json.encode(desired.annotated(APPLIED, desired.digest)))

    async def create(self, desired: DesiredChild, *, dry_run: bool) -> Resource:
        return await self._apply(desired, {}, dry_run)

    async def update(self, live: Resource, desired: DesiredChild, *, dry_run: bool, exactly: bool = False) -> Resource:
        """Update a child by server-side apply, and return the server's state.

        Args:
            live: See ``ChildWriter.update``.
            desired: See ``ChildWriter.update``.
            dry_run: See ``ChildWriter.update``.
            exactly: See ``ChildWriter.update``.
        """
        # Bound to the uid: if the child was replaced since it was read, its successor may belong to another owner.
        bound = {"uid": live.metadata.uid} | ({"resourceVersion": live.metadata.resource_version} if exactly else {})
        return await self._apply(desired, bound, dry_run)

    def forget(self, wanted_key: tuple[Any, str, str]) -> None:
        self._stored.pop(wanted_key, None)

    async def _apply(self, desired: DesiredChild, bound: dict[str, str], dry_run: bool) -> Resource:
        tree = desired.annotated(APPLIED, desired.digest)
        tree = {**tree, "metadata": {**tree["metadata"], **bound}}
        options = msgspec.structs.replace(self._options(dry_run), force=self._force or None)
        namespace = desired.namespace or None
        answer = await self._client.patch(desired.kind, desired.name, tree, type="apply", namespace=namespace, options=options)
        if not dry_run:
            self._remember(desired, answer)
        return answer

    def _remember(self, desired: DesiredChild, answer: Resource) -> None:
        """Remember the stored form if it differs from the sent one; otherwise every reconcile would send the child again."""
        self.forget(desired.key)
        type_, tree = type_of(desired.kind), tree_of(answer)
        if not covers(tree, desired.tree, type_) and (stored := as_stored(tree, desired.tree, type_)) is not None:
            if len(self._stored) >= _REMEMBERED:
                del self._stored[next(iter(self._stored))]
            self._stored[desired.key] = desired.digest, stored


class PatchWriter(ChildWriter):
    """Writes children by create and merge patch, for servers and proxies without server-side apply.

    An annotation lists the fields that were set, so that fields that are no longer desired can be removed.
    """

    def is_so(self, live: Resource, desired: DesiredChild) -> bool:
        return not self._patch(live, desired)

    def stored_form(self, desired: DesiredChild) -> Resource:
        return decode(desired.kind, msgspec.json.encode(self._annotated(desired)))

    async def create(self, desired: DesiredChild, *, dry_run: bool) -> Resource:
        made = desired.kind.from_dict(self._annotated(desired))
        return await self._client.create(made, namespace=desired.namespace or None, options=self._options(dry_run))

    async def update(self, live: Resource, desired: DesiredChild, *, dry_run: bool, exactly: bool = False) -> Resource:  # noqa: ARG002 - always exact
        """Update a child by a merge patch, and return the server's state.

        Args:
            live: See ``ChildWriter.update``.
            desired: See ``ChildWriter.update``.
            dry_run: See ``ChildWriter.update``.
            exactly: See ``ChildWriter.update``.
        """
        patch = self._patch(live, desired)
        bound = {"uid": live.metadata.uid, "resourceVersion": live.metadata.resource_version}
        patch["metadata"] = {**patch.get("metadata", {}), **bound}
        where = desired.namespace or None
        return await self._client.patch(desired.kind, desired.name, patch, namespace=where, options=self._options(dry_run))

    def forget(self, wanted_key: tuple[Any, str, str]) -> None:
        """Do nothing, since the state is in the annotation of the child."""

    def _annotated(self, desired: DesiredChild) -> dict[str, Any]:
        """Return the tree of the child with the annotation of its fields."""
        return desired.annotated(FIELDS_SET, _text(fields_set(desired.tree, type_of(desired.kind))))

    def _patch(self, live: Resource, desired: DesiredChild) -> dict[str, Any]:
        type_, tree = type_of(desired.kind), tree_of(live)
        fields = fields_set(desired.tree, type_)
        whole = desired.annotated(FIELDS_SET, _text(fields))
        try:
            before = msgspec.json.decode(live.metadata.annotations.get(FIELDS_SET, "{}"), type=dict[str, Any])
            return create_merge_patch(tree, target(tree, whole, before, type_))
        except (msgspec.DecodeError, ElementError):  # another program changed the annotation, so the previously set fields are unknown
            return create_merge_patch(tree, target(tree, whole, {}, type_))
        except TypeMismatch as error:
            raise ValueError(f"{desired.kind.kind} {desired.name}: {error}") from error


async def delete_child(client: Client, live: Resource, *, dry_run: bool) -> None:
    """Delete a child if it is unchanged since it was read; a changed child may have another owner. A missing child is ignored.

    Raises:
        Conflict: the child was changed.
    """
    options = DeleteOptions(resource_version=live.metadata.resource_version, dry_run=dry_run, propagation_policy="Background")
    try:
        await client.delete(live, options=options)
    except NotFound:
        return


def outcome_of(desired: DesiredChild, live: Resource | None, answer: Resource, *, dry_run: bool) -> ChildOutcome:
    """Return the result for a child that was written.

    Args:
        desired: The desired child.
        live: State of the child before the write. None: the child was created.
        answer: The server's state after the write.
        dry_run: The write was a dry run.
    """
    did: ChildDid = "created"
    if live is not None:
        # A dry run returns no new version.
        as_before = same(_content(live), _content(answer)) if dry_run else _version(answer) == _version(live)
        did = "unchanged" if as_before else "updated"
    return ChildOutcome(desired.kind, desired.namespace, desired.name, did, answer, sent=True)


def _content(obj: Resource) -> dict[str, Any]:
    tree = tree_of(obj)
    metadata = {name: value for name, value in tree["metadata"].items() if name not in ("managedFields", "resourceVersion")}
    return {**tree, "metadata": metadata}


def _version(obj: Resource) -> str:
    return obj.metadata.resource_version


def is_part(live: Resource, owner: Resource, label: str) -> bool:
    """Return whether the object is a child of the set, by label and by owner."""
    return live.metadata.labels.get(SET_LABEL) == label and is_controlled_by(live, owner)


def _text(fields: dict[str, Any]) -> str:
    return msgspec.json.encode(fields).decode()


def was_changed(error: Exception) -> bool:
    """Return whether an error means that the object was changed or deleted since it was read. Conflicts of field managers do not count."""
    return isinstance(error, NotFound) or (isinstance(error, Conflict) and not error.causes)
