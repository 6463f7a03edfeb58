"""Patching: parts of an object changed, said as a tree, as a typed part, or as the changes made to an object that was read."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

import msgspec

from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.reading import JSON, PARTIAL
from kubeloop.codec import decode, encode
from kubeloop.codec.apply_configuration import fresh_tree
from kubeloop.codec.checking import checked, checked_changes
from kubeloop.meta import IncompleteObject, PartialObject, Resource, kind_info
from kubeloop.meta.resource import source_of
from kubeloop.meta.type_checks import described_word, require_kind

if TYPE_CHECKING:
    from kubeloop.merge.strategic_diff import StrategicDiff

R = TypeVar("R", bound=Resource)

PatchType: TypeAlias = Literal["merge", "json", "strategic", "apply"]
Patch: TypeAlias = Mapping[str, Any] | list[Any] | bytes

PATCH_TYPES: dict[PatchType, str] = {
    "merge": "application/merge-patch+json",
    "json": "application/json-patch+json",
    "strategic": "application/strategic-merge-patch+json",
    "apply": "application/apply-patch+yaml",
}


class Patching(Verbs):
    """patch and patch_metadata."""

    @overload
    async def patch(
        self,
        target: type[R],
        name: str,
        patch: Patch | R,
        *,
        type: PatchType = ...,
        namespace: str | None = ...,
        subresource: str | None = ...,
        options: WriteOptions | None = ...,
        timeout: float | None = ...,
    ) -> R: ...

    @overload
    async def patch(
        self,
        target: R,
        *,
        optimistic_lock: bool | None = ...,
        subresource: str | None = ...,
        options: WriteOptions | None = ...,
        timeout: float | None = ...,
    ) -> R: ...

    @limited
    async def patch(
        self,
        target: type[R] | R,
        name: str | None = None,
        patch: Patch | R | None = None,
        *,
        type: PatchType = "merge",  # noqa: A002 - the field's own word
        namespace: str | None = None,
        optimistic_lock: bool | None = None,
        subresource: str | None = None,
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> R:
        """Change parts of an object.

        ``patch(Pod, "web-0", {...})``
            A tree, for ``json`` a list of operations, or the encoded bytes; or a ``Pod`` of which only the fields that were set are sent.
            ``strategic`` is for built-in kinds only; ``apply`` is server-side apply (``client.apply`` says it better).
        ``patch(pod)``
            What was changed in ``pod`` since it was read: no paths to write, and fields that nobody touched are not sent; objects of
            which only a part was read will do. It holds for that very object only, not for a successor of its name. Nothing is sent if
            nothing was changed. Lists of built-in kinds that have keys are patched item by item (strategic); any other list is replaced
            whole, and then the patch is bound to the version that was read. ``optimistic_lock`` True binds it always, False never.

        Raises:
            Conflict: the object is no longer at the version that the patch names, or applied fields belong to another manager.
            ValueError: the patch is not of its type's form, or a field of it not of its type.
        """
        if isinstance(target, Resource):
            return await self._patch_changes(target, optimistic_lock, subresource, options)
        require_kind(target)
        if name is None or patch is None:
            raise TypeError(f"patch: say which and how, patch({target.__name__}, NAME, PATCH), or give an object that was read and changed")
        path = await self._path(target, name, namespace, subresource)
        body = patch_body(target, patch, type)
        answer = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES[type])
        return await self._stored("patch", decode(target, answer.body), options)

    @overload
    async def patch_metadata(
        self,
        kind: builtins.type[Resource],
        target: str,
        patch: Patch,
        *,
        type: PatchType = ...,
        namespace: str | None = ...,
        options: WriteOptions | None = ...,
        timeout: float | None = ...,
    ) -> PartialObject: ...

    @overload
    async def patch_metadata(
        self,
        kind: builtins.type[Resource],
        target: PartialObject,
        *,
        optimistic_lock: bool | None = ...,
        options: WriteOptions | None = ...,
        timeout: float | None = ...,
    ) -> PartialObject: ...

    @limited
    async def patch_metadata(
        self,
        kind: builtins.type[Resource],
        target: str | PartialObject,
        patch: Patch | None = None,
        *,
        type: PatchType = "merge",  # noqa: A002 - the field's own word
        namespace: str | None = None,
        optimistic_lock: bool | None = None,
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> PartialObject:
        """As ``patch``, of an object of which only the metadata is read: by name and patch, or by the changes made to it.

        Raises:
            Conflict, ValueError: as ``patch``.
        """
        if isinstance(target, PartialObject):
            changes = changes_of(target, optimistic_lock)
            if not changes.patch:
                return target
            name, namespace, body = target.metadata.name, target.metadata.namespace, msgspec.json.encode(changes.patch)
        else:
            if patch is None:
                raise TypeError("patch_metadata: no patch was given")
            name, body = target, patch_body(kind, patch, type)
        path = await self._path(kind, name, namespace)
        answer = await self.transport.request(
            "PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES[type], accept=PARTIAL
        )
        return decode(PartialObject, answer.body)

    async def _patch_changes(self, obj: R, optimistic_lock: bool | None, subresource: str | None, options: WriteOptions | None) -> R:
        changes = changes_of(obj, optimistic_lock)
        if not changes.patch:
            return obj
        path = await self._path(type(obj), obj.metadata.name, obj.metadata.namespace, subresource)
        body, media_type = msgspec.json.encode(changes.patch), PATCH_TYPES[changes.type]
        answer = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=media_type, accept=JSON)
        return await self._stored("patch", decode(type(obj), answer.body), options)


class Changes(NamedTuple):
    """A patch that says what was changed in an object; empty if nothing was."""

    type: PatchType
    patch: dict[str, Any]


def changes_of(obj: Resource, optimistic_lock: bool | None = None, *, merge: bool = False) -> Changes:
    """What was changed in ``obj`` since it was read, as a patch for that very object.

    ``optimistic_lock``: whether it is bound to the version that was read; None: if it replaces a list.
    ``merge``: as a merge patch in any case.

    Raises:
        IncompleteObject: it was made here. ValueError: name or namespace were changed, or a field is not of its type.
    """
    from kubeloop.merge.merge_patch import create_merge_patch  # what only some programs need costs the others no start-up

    if source_of(obj) is None:
        raise IncompleteObject(
            f'{obj.kind or "object"} "{obj.object_key()}" was made here, not read from the server: there is nothing to compare it with. '
            "Send it as a part: client.patch(KIND, NAME, obj)."
        )
    trees = checked_changes(obj)
    assert trees is not None
    old, new = trees
    form: PatchType = "merge"
    patch = create_merge_patch(old, new)
    replaces = _replaces_a_list(patch)
    if replaces and not merge and (strategic := _item_by_item(obj, old, new)) is not None:
        form, (patch, replaces) = "strategic", strategic
    if not patch:
        return Changes(form, {})
    before: dict[str, Any] = old.get("metadata") or {}
    metadata: dict[str, Any] = patch.setdefault("metadata", {})
    for name in ("name", "namespace"):
        if name in metadata:
            raise ValueError(f'metadata.{name}: changed from "{before.get(name, "")}"; an object keeps it for life')
    bound = ["uid"] + (["resourceVersion"] if optimistic_lock or (optimistic_lock is None and replaces) else [])
    metadata.update({name: before[name] for name in bound if before.get(name)})
    return Changes(form, patch)


def _item_by_item(obj: Resource, old: dict[str, Any], new: dict[str, Any]) -> StrategicDiff | None:
    """As a strategic merge patch, which knows the keys of lists; None for kinds and fields of which no schema is known here."""
    from kubeloop.merge import PatchError
    from kubeloop.merge.strategic_diff import create_strategic_patch
    from kubeloop.schema import builtin

    schemas = builtin()
    schema = schemas.kind(kind_info(obj).gvk) if obj.kind else None
    if schema is None:
        return None
    try:
        return create_strategic_patch(old, new, schema, schemas)
    except PatchError:
        return None


def patch_body(kind: builtins.type[Resource], patch: Patch | Resource, type: PatchType) -> bytes:  # noqa: A002 - the field's own word
    """The body of a patch of a ``kind``.

    Raises:
        ValueError: it is not of the form of its type, or was read from a server. TypeError: a part of another kind.
    """
    if str(type) not in PATCH_TYPES:
        raise ValueError(f"type={described_word(type)}: must be one of {', '.join(PATCH_TYPES)}")
    if isinstance(patch, bytes):
        return patch
    if isinstance(patch, Resource):
        if not isinstance(patch, kind):
            raise TypeError(f"patch: a part of a {builtins.type(patch).__name__} was given for a {kind.__name__}")
        if source_of(patch) is not None:
            raise ValueError(
                f'{patch.kind} "{patch.object_key()}" was read from the server: to merge it in would write all of its fields. '
                "Send its changes, client.patch(obj), or a new object that sets only what is to be changed."
            )
        if type == "apply":
            raise ValueError("patch: an object is applied with client.apply, which sends what it owns")
        checked(patch, encode)
        patch = fresh_tree(patch)
    if isinstance(patch, Mapping) == (type == "json"):
        wanted = "a list of operations" if type == "json" else "an object"
        raise ValueError(f"patch: a {type} patch is {wanted}, a {builtins.type(patch).__name__} was given")
    return msgspec.json.encode(patch)


def _replaces_a_list(patch: dict[str, Any]) -> bool:
    return any(isinstance(value, list) or (isinstance(value, dict) and _replaces_a_list(value)) for value in patch.values())
