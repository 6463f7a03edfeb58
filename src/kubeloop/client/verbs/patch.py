"""Patches: a change of parts of an object, expressed as a tree, as a typed part, or as the changes to an object that was read."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, TypeVar, overload

import msgspec

from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.get_list import JSON, PARTIAL
from kubeloop.codec import decode, encode
from kubeloop.codec.apply_configuration import fresh_tree
from kubeloop.codec.encoding_checks import checked, checked_changes
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
_TWO_PATCHES = (
    "patch: an object was given together with a name, a namespace or a patch, which would be ignored; patch(obj) sends the changes to obj, "
    "patch({name}, NAME, PATCH) sends a patch"
)


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
            The patch is a tree (for ``json`` a list of operations), its encoded bytes, or a ``Pod`` whose set fields are sent.
            ``strategic`` works for built-in kinds only; for ``apply`` prefer ``client.apply``.
        ``patch(pod)``
            Sends the changes to ``pod`` since it was read. Unchanged fields are not sent, so a partially known object is sufficient. The
            patch applies only to the object with the same uid. Nothing is sent without changes. Lists with keys in built-in kinds are
            patched item by item (strategic); other lists are replaced as a whole, and then the patch requires the version that was read.

        Args:
            target: A class, or an object that was read.
            name: The object's name, if ``target`` is a class.
            patch: The patch, if ``target`` is a class.
            type: ``merge``, ``json``, ``strategic`` or ``apply``.
            namespace: None: the object's own, else the client's.
            optimistic_lock: For ``patch(pod)``. True: always require the version that was read; False: never; None: if a list is replaced.
            subresource: Name of the subresource to patch, such as ``status``.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            Conflict: The object no longer has the version that the patch requires, or another manager owns applied fields.
            ValueError: The patch does not have the form of its type, or a field has another type.
            TypeError: An object that was read was given with a name, a namespace or a patch.
        """
        if isinstance(target, Resource):
            if name is not None or patch is not None or namespace is not None:
                raise TypeError(_TWO_PATCHES.format(name=builtins.type(target).__name__))
            return await self._patch_changes(target, optimistic_lock, subresource, options)
        require_kind(target)
        if name is None or patch is None:
            raise TypeError(f"patch: say which and how, patch({target.__name__}, NAME, PATCH), or give an object that was read and changed")
        path = await self._path(target, name, namespace, subresource)
        body = patch_body(target, patch, type)
        response = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES[type])
        return await self._stored("patch", decode(target, response.body), options)

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
        """Change an object and read only its metadata: by name and patch, or by the changes to a ``PartialObject``.

        Args:
            kind: The class of the object.
            target: The object's name, or metadata that was read and changed.
            patch: The patch, if ``target`` is a name.
            type: ``merge``, ``json``, ``strategic`` or ``apply``.
            namespace: None: the object's own, else the client's.
            optimistic_lock: As for ``patch``.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The new metadata.

        Raises:
            Conflict, ValueError: See ``patch``.
        """
        if isinstance(target, PartialObject):
            if patch is not None or namespace is not None:
                raise TypeError(
                    "patch_metadata: metadata that was read was given together with a patch or a namespace; change the metadata, or give "
                    "the object's name and the patch"
                )
            changes = changes_of(target, optimistic_lock)
            if not changes.patch:
                return target
            name, namespace, body = target.metadata.name, target.metadata.namespace, msgspec.json.encode(changes.patch)
        else:
            if patch is None:
                raise TypeError("patch_metadata: no patch was given")
            name, body = target, patch_body(kind, patch, type)
        path = await self._path(kind, name, namespace)
        response = await self.transport.request(
            "PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES[type], accept=PARTIAL
        )
        return decode(PartialObject, response.body)

    async def _patch_changes(self, obj: R, optimistic_lock: bool | None, subresource: str | None, options: WriteOptions | None) -> R:
        changes = changes_of(obj, optimistic_lock)
        if not changes.patch:
            return obj
        path = await self._path(type(obj), obj.metadata.name, obj.metadata.namespace, subresource)
        body, media_type = msgspec.json.encode(changes.patch), PATCH_TYPES[changes.type]
        response = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=media_type, accept=JSON)
        return await self._stored("patch", decode(type(obj), response.body), options)


class Changes(NamedTuple):
    """The changes to an object as a patch, which is empty if nothing has changed."""

    type: PatchType
    patch: dict[str, Any]


def changes_of(obj: Resource, optimistic_lock: bool | None = None, *, merge: bool = False) -> Changes:
    """Return the changes to ``obj`` since it was read, as a patch that requires the same uid.

    ``optimistic_lock`` says whether the patch requires the resourceVersion that was read; None means that it does if it replaces a list.
    ``merge`` requests a merge patch in every case.

    Raises:
        IncompleteObject: ``obj`` was not read. ValueError: name or namespace changed, or a field has another type.
    """
    from kubeloop.merge.merge_patch import create_merge_patch  # here, so that programs without patches start faster

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
    """Return a strategic merge patch, which uses the keys of lists, or None if the models have no schema of the kind or field."""
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
    """Return the body of a patch of a ``kind``.

    Raises:
        ValueError: It does not have the form of its type, or is an object that was read. TypeError: it is a part of another kind.
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
                "Send its changes, client.patch(obj), or a new object that sets only the fields to change."
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
