"""Read, change, write in one call: what an object should be like is a function, and the answer says what had to be done.

Source: controller-runtime pkg/controller/controllerutil (CreateOrUpdate, CreateOrPatch); client-go util/retry.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from kubeloop.client.conflict import DEFAULT_RETRY, Retries, retry_on_conflict
from kubeloop.client.options import WriteOptions
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.verbs.patching import PATCH_TYPES, changes_of
from kubeloop.codec import decode, document_of, encode, require_document
from kubeloop.codec.apply_configuration import document_changes
from kubeloop.codec.checking import checked
from kubeloop.meta import NotFound, Resource, Unstructured

R = TypeVar("R", bound=Resource)


class Writing(Verbs):
    """create and update.

    Raises
        ValueError: a field holds a value of another type; the text names it, and nothing was sent.
    """

    @limited
    async def create(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None, timeout: float | None = None) -> R:
        """Store a new object; gives it back as the server stored it, defaults filled in.

        Raises:
            AlreadyExists: the name is taken. Invalid: with a cause per field.
        """
        body = checked(obj, encode)
        mapping = await self.mapping(type(obj))
        path = mapping.path(self._namespace_of(mapping, namespace or obj.metadata.namespace))
        sent = self._writes.now()
        answer = await self.transport.request("POST", path, query=self._query(options), body=body)
        return await self._stored("create", decode(type(obj), answer.body), options, sent)

    @limited
    async def update(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None, timeout: float | None = None) -> R:
        """Replace an object by ``obj``: the document that it was read from, with the caller's changes; unknown fields survive.

        With ``metadata.resource_version`` set (as in every object that was read) the write is refused if somebody wrote in between.

        Raises:
            Conflict: somebody did. IncompleteObject: only a part of the object is known here, and sending that would erase the rest.
        """
        return await self._put(obj, namespace, options, None)

    @limited
    async def update_status(
        self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None, timeout: float | None = None
    ) -> R:
        """Replace an object's status; the spec is left as it is, whatever ``obj`` says (some kinds take labels and annotations too).

        Raises:
            Conflict, IncompleteObject: as ``update``. NotFound: also where the kind has no status subresource.
        """
        return await self._put(obj, namespace, options, "status")

    async def _put(self, obj: R, namespace: str | None, options: WriteOptions | None, subresource: str | None) -> R:
        body = checked(obj, require_document)  # before anything else: what is only metadata has no kind to find a path by
        path = await self._path(type(obj), obj.metadata.name, namespace or obj.metadata.namespace, subresource)
        answer = await self.transport.request("PUT", path, query=self._query(options), body=body)
        return await self._stored("update", decode(type(obj), answer.body), options)


class OperationResult(StrEnum):
    """What ``create_or_update`` or ``create_or_patch`` did, in controller-runtime's words."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    #: The object was updated, or patched; its status was not.
    UPDATED = "updated"
    #: The object and its status were patched.
    UPDATED_STATUS = "updatedStatus"
    #: Its status alone was patched.
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


class CreateOrUpdateResult(NamedTuple, Generic[R]):
    """The object as it is now, and what was done: ``obj, operation = await client.create_or_update(...)``."""

    object: R
    operation: OperationResult


class Changing(Writing):
    """update_with_retry, create_or_update and create_or_patch.

    ``mutate`` brings the object it is given to what it should be, in place, and must give the same each time: it is called anew with a
    fresh object after a conflict, and with an object that is not stored yet when there is none. It must not change name or namespace.
    """

    @limited
    async def update_with_retry(
        self,
        kind: type[R],
        name: str,
        mutate: Callable[[R], object],
        *,
        namespace: str | None = None,
        subresource: str | None = None,
        retries: Retries = DEFAULT_RETRY,
        options: WriteOptions | None = None,
        timeout: float | None = None,
    ) -> R:
        """Read an object, let ``mutate`` change it, and update it; read anew and once more on conflict. Nothing is sent if nothing changed.

        Raises:
            NotFound: it is not there. Conflict: others kept writing. ValueError: ``mutate`` renamed it.
        """

        async def attempt() -> R:
            found = await self._read(kind, name, namespace)
            return found if not _mutated(found, mutate) else await self._put(found, namespace, options, subresource)

        return await retry_on_conflict(attempt, retries=retries, clock=self.clock)

    @limited
    async def create_or_update(
        self, obj: R, mutate: Callable[[R], object], *, options: WriteOptions | None = None, timeout: float | None = None
    ) -> CreateOrUpdateResult[R]:
        """Bring the object named by ``obj`` to what ``mutate`` makes of it: created from ``obj`` if there is none, else updated as a whole.

        Nothing is written if ``mutate`` changed nothing. What ``obj`` itself sets counts only when the object is created.

        Raises:
            Conflict, AlreadyExists: somebody else wrote in between. ValueError: ``mutate`` renamed it.
        """
        try:
            found = await self._read(type(obj), obj.metadata.name, obj.metadata.namespace)
        except NotFound:
            return await self._created(obj, mutate, options)
        if not _mutated(found, mutate):
            return CreateOrUpdateResult(found, OperationResult.UNCHANGED)
        return CreateOrUpdateResult(await self._put(found, None, options, None), OperationResult.UPDATED)

    @limited
    async def create_or_patch(
        self, obj: R, mutate: Callable[[R], object], *, options: WriteOptions | None = None, timeout: float | None = None
    ) -> CreateOrUpdateResult[R]:
        """As ``create_or_update``, but what changed is sent as merge patches: one for the object, one for its status if that changed.

        A patch that replaces a list is bound to the version that was read.

        Raises:
            Conflict, AlreadyExists, ValueError: as ``create_or_update``.
        """
        try:
            found = await self._read(type(obj), obj.metadata.name, obj.metadata.namespace)
        except NotFound:
            return await self._created(obj, mutate, options)
        _mutate(found, mutate)
        changes = changes_of(found, merge=True).patch
        if not changes:
            return CreateOrUpdateResult(found, OperationResult.UNCHANGED)
        metadata, status = changes.pop("metadata", {}), changes.pop("status", None)
        bound = {key: metadata.pop(key) for key in ("uid", "resourceVersion") if key in metadata}
        result = found
        if changes or metadata:
            result = await self._send_patch(result, {"metadata": metadata | bound, **changes}, None, options)
            if status is None:
                return CreateOrUpdateResult(result, OperationResult.UPDATED)
            if "resourceVersion" in bound:
                bound["resourceVersion"] = result.metadata.resource_version
        result = await self._send_patch(result, {"metadata": bound, "status": status}, "status", options)
        operation = OperationResult.UPDATED_STATUS if changes or metadata else OperationResult.UPDATED_STATUS_ONLY
        return CreateOrUpdateResult(result, operation)

    async def _read(self, kind: type[R], name: str, namespace: str | None) -> R:
        path = await self._path(kind, name, namespace)
        return decode(kind, (await self.transport.request("GET", path)).body)

    async def _created(self, obj: R, mutate: Callable[[R], object], options: WriteOptions | None) -> CreateOrUpdateResult[R]:
        _mutate(obj, mutate)
        return CreateOrUpdateResult(await self.create(obj, options=options), OperationResult.CREATED)

    async def _send_patch(self, obj: R, patch: dict[str, Any], subresource: str | None, options: WriteOptions | None) -> R:
        path = await self._path(type(obj), obj.metadata.name, obj.metadata.namespace, subresource)
        body = msgspec.json.encode(patch)
        answer = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES["merge"])
        return await self._stored("patch", decode(type(obj), answer.body), options)


def _mutate(obj: R, mutate: Callable[[R], object]) -> None:
    before = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
    mutate(obj)
    after = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
    if before != after:
        raise ValueError(f'metadata: {obj.kind} "{before}" was renamed to "{after}" by mutate; an object keeps name and namespace for life')


def _mutated(obj: R, mutate: Callable[[R], object]) -> bool:
    """Whether ``mutate`` changed it."""
    _mutate(obj, mutate)
    body = checked(obj, require_document)
    if not isinstance(obj, Unstructured):
        return body != document_of(obj)
    old, new = document_changes(obj) or ({}, {})
    return msgspec.json.encode(old, order="sorted") != msgspec.json.encode(new, order="sorted")
