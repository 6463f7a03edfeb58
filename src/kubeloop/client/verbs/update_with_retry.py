"""Writes of whole objects, and read-change-write cycles in which a function changes the object.

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
from kubeloop.client.verbs.patch import PATCH_TYPES, changes_of
from kubeloop.codec import decode, document_of, encode, require_document
from kubeloop.codec.apply_configuration import document_changes
from kubeloop.codec.encoding_checks import checked
from kubeloop.meta import NotFound, Resource, Unstructured

R = TypeVar("R", bound=Resource)


class Writing(Verbs):
    """The methods create, update and update_status.

    Raises
        ValueError: a field has a value of another type; the text names the field, and nothing was sent.
    """

    @limited
    async def create(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None, timeout: float | None = None) -> R:
        """Create an object.

        Args:
            obj: A new object.
            namespace: None: the object's own, else the client's.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The object as the server stored it, with defaults.

        Raises:
            AlreadyExists: An object with this name exists. Invalid: the object is invalid; a cause names each field.
        """
        body = checked(obj, encode)
        mapping = await self.mapping(type(obj))
        path = mapping.path(self._namespace_of(mapping, namespace or obj.metadata.namespace))
        sent = self._writes.now()
        response = await self.transport.request("POST", path, query=self._query(options), body=body)
        return await self._stored("create", decode(type(obj), response.body), options, sent)

    @limited
    async def update(self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None, timeout: float | None = None) -> R:
        """Replace an object: send the document that ``obj`` was read from, with the caller's changes. Unknown fields stay.

        With ``metadata.resource_version`` (which every object that was read has) the server refuses the write if another writer changed the
        object.

        Args:
            obj: An object that was read, with changes.
            namespace: None: the object's own, else the client's.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            Conflict: Another writer changed the object. IncompleteObject: only a part of it is known here; an update would erase the rest.
        """
        return await self._put(obj, namespace, options, None)

    @limited
    async def update_status(
        self, obj: R, *, namespace: str | None = None, options: WriteOptions | None = None, timeout: float | None = None
    ) -> R:
        """Replace an object's status; the spec stays unchanged, whatever ``obj`` contains (some kinds accept labels and annotations too).

        Args:
            obj: An object that was read, with changes of its status.
            namespace: None: the object's own, else the client's.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            Conflict, IncompleteObject: See ``update``. NotFound: the object, or the kind's status subresource, does not exist.
        """
        return await self._put(obj, namespace, options, "status")

    async def _put(self, obj: R, namespace: str | None, options: WriteOptions | None, subresource: str | None) -> R:
        body = checked(obj, require_document)  # first, because metadata alone has no kind and so no path
        path = await self._path(type(obj), obj.metadata.name, namespace or obj.metadata.namespace, subresource)
        response = await self.transport.request("PUT", path, query=self._query(options), body=body)
        return await self._stored("update", decode(type(obj), response.body), options)


class OperationResult(StrEnum):
    """The operation of ``create_or_update``, ``create_or_patch`` or a ``StatusWriter``, in controller-runtime's words."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    #: The object was updated, or patched; its status was not.
    UPDATED = "updated"
    #: The object and its status were patched.
    UPDATED_STATUS = "updatedStatus"
    #: Only its status was patched.
    UPDATED_STATUS_ONLY = "updatedStatusOnly"


class CreateOrUpdateResult(NamedTuple, Generic[R]):
    """The resulting object, and the operation that was necessary.

    >>> def set_color(settings):
    ...     settings.data["color"] = "blue"
    >>> settings = ConfigMap(metadata=ObjectMeta(name="settings"))
    >>> obj, operation = await client.create_or_update(settings, set_color)
    >>> obj.data, str(operation)
    ({'color': 'blue'}, 'created')
    >>> str((await client.create_or_update(settings, set_color)).operation)
    'unchanged'
    """

    object: R
    operation: OperationResult


class Changing(Writing):
    """update_with_retry, create_or_update and create_or_patch.

    ``mutate`` changes an object in place to its desired state. Its result must depend only on the object: after a conflict it is called
    again with the newly read object. It must not change name or namespace.
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
        """Read an object, change it with ``mutate`` and update it; repeat on conflict. Nothing is sent if nothing changed.

        Args:
            kind: The class of the object.
            name: The object's name.
            mutate: Changes the object in place.
            namespace: None: the client's.
            subresource: Name of the subresource to update, such as ``status``.
            retries: The number of attempts and the pauses between them.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The object as the server stored it.

        Raises:
            NotFound: The object does not exist. Conflict: others changed it at every attempt. ValueError: ``mutate`` renamed it.
        """

        async def attempt() -> R:
            found = await self._read(kind, name, namespace)
            return found if not _mutated(found, mutate) else await self._put(found, namespace, options, subresource)

        return await retry_on_conflict(attempt, retries=retries, clock=self.clock)

    @limited
    async def create_or_update(
        self, obj: R, mutate: Callable[[R], object], *, options: WriteOptions | None = None, timeout: float | None = None
    ) -> CreateOrUpdateResult[R]:
        """Create the object if it does not exist; otherwise change it with ``mutate`` and update it.

        Nothing is written if ``mutate`` changed nothing. Fields that ``obj`` itself sets are used only for the creation.

        Args:
            obj: The object's name and namespace, and fields for the creation.
            mutate: Changes the object in place, both before a creation and before an update.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The resulting object and the operation.

        Raises:
            Conflict, AlreadyExists: Another writer changed or created the object in between. ValueError: ``mutate`` renamed it.
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
        """Create the object if it does not exist; otherwise change it with ``mutate`` and send the changes as merge patches.

        One patch changes the object, another its status. A patch that replaces a list requires the version that was read. Nothing is
        written if ``mutate`` changed nothing. Fields that ``obj`` itself sets are used only for the creation.

        Args:
            obj: The object's name and namespace, and fields for the creation.
            mutate: Changes the object in place, both before a creation and before a patch.
            options: Further options of the write.
            timeout: Seconds for the whole call. None: only each request is limited.

        Returns:
            The resulting object and the operation.

        Raises:
            Conflict, AlreadyExists, ValueError: See ``create_or_update``.
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
        response = await self.transport.request("PATCH", path, query=self._query(options), body=body, content_type=PATCH_TYPES["merge"])
        return await self._stored("patch", decode(type(obj), response.body), options)


def _mutate(obj: R, mutate: Callable[[R], object]) -> None:
    before = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
    mutate(obj)
    after = f"{obj.metadata.namespace}/{obj.metadata.name}".lstrip("/")
    if before != after:
        raise ValueError(f'metadata: {obj.kind} "{before}" was renamed to "{after}" by mutate; an object keeps name and namespace for life')


def _mutated(obj: R, mutate: Callable[[R], object]) -> bool:
    """Call ``mutate`` with the object, and return whether it changed the object."""
    _mutate(obj, mutate)
    body = checked(obj, require_document)
    if not isinstance(obj, Unstructured):
        return body != document_of(obj)
    old, new = document_changes(obj) or ({}, {})
    return msgspec.json.encode(old, order="sorted") != msgspec.json.encode(new, order="sorted")
