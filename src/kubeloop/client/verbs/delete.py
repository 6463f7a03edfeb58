"""Deletion of one object, by name or in the state that was read, and of all matching objects of a namespace."""

from __future__ import annotations

import builtins
from typing import Generic, TypeVar, overload

import msgspec

from kubeloop.client.lists import ObjectList, objects_in
from kubeloop.client.options import DeleteOptions, ListOptions, Propagation
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.base import Verbs, limited
from kubeloop.client.write_hooks import is_gone
from kubeloop.codec import decode
from kubeloop.meta import Resource, Status, kind_info
from kubeloop.meta.type_checks import require_kind
from kubeloop.transport import Response

R = TypeVar("R", bound=Resource)


class DeleteResult(msgspec.Struct, Generic[R], frozen=True):
    """The response to a deletion.

    >>> settings = await client.create(ConfigMap(metadata=ObjectMeta(name="settings")))
    >>> result = await client.delete(settings)
    >>> if not result.gone:
    ...     await client.wait_gone(ConfigMap, "settings", timeout=60)

    ``object`` is the object in the response: its state while finalizers or a pod's grace period delay the deletion, or its last state. It
    is None if the server sent a ``Status``, which is in ``status``.
    """

    object: R | None
    status: Status | None
    #: Whether the object exists no more; False while finalizers, a grace period or a namespace's contents hold it.
    gone: bool


class Deleting(Verbs):
    """delete and delete_collection."""

    @overload
    async def delete(
        self,
        target: type[R],
        name: str,
        *,
        namespace: str | None = ...,
        propagation_policy: Propagation | None = ...,
        grace_period_seconds: int | None = ...,
        options: DeleteOptions | None = ...,
        timeout: float | None = ...,
    ) -> DeleteResult[R]: ...

    @overload
    async def delete(
        self,
        target: R,
        *,
        propagation_policy: Propagation | None = ...,
        grace_period_seconds: int | None = ...,
        options: DeleteOptions | None = ...,
        timeout: float | None = ...,
    ) -> DeleteResult[R]: ...

    @limited
    async def delete(
        self,
        target: type[R] | R,
        name: str | None = None,
        *,
        namespace: str | None = None,
        propagation_policy: Propagation | None = None,
        grace_period_seconds: int | None = None,
        options: DeleteOptions | None = None,
        timeout: float | None = None,
    ) -> DeleteResult[R]:
        """Delete an object: ``delete(Pod, "web-0")`` by its name, or ``delete(pod)`` as it was read.

        Args:
            target: A class, or an object. An object is deleted only if it still has the same uid: a later object of that name stays.
            name: The object's name, if ``target`` is a class.
            namespace: None: the object's own, else the client's.
            propagation_policy: The deletion of dependents: ``Background``, ``Foreground`` or ``Orphan``. None: the kind's default.
            grace_period_seconds: Seconds in which a pod may end. None: the pod's own; 0: delete it without waiting for its node.
            options: Further options, such as preconditions.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The server's response, and whether the object is gone.

        Raises:
            NotFound: The object does not exist. Conflict: a precondition is not met.
        """
        options = self._delete_options(options, propagation_policy, grace_period_seconds)
        if isinstance(target, Resource):
            kind, name, namespace = builtins.type(target), target.metadata.name, target.metadata.namespace
            options = msgspec.structs.replace(options, uid=options.uid or target.metadata.uid)
        else:
            require_kind(target)
            kind = target
        if not name:
            raise ValueError(f"delete needs the name of the {kind.__name__}; delete_collection deletes many")
        path = await self._path(kind, name, namespace)
        response = await self.transport.request("DELETE", path, body=options.body())
        sent = _status(response) or decode(kind, response.body)
        if self._writes and not options.dry_run:
            mapping = await self.mapping(kind)
            self._writes.deleted(mapping, self._namespace_of(mapping, namespace) or "", name, options.uid, sent)
        if isinstance(sent, Status):
            return DeleteResult(None, sent, gone=not options.dry_run)
        # A dry run changes nothing.
        return DeleteResult(sent, None, gone=not options.dry_run and is_gone(kind_info(kind).gvk, response.body, deleted=True))

    @limited
    async def delete_collection(
        self,
        kind: type[R],
        *,
        namespace: str | None = None,
        label_selector: Labels | None = None,
        field_selector: Fields | None = None,
        propagation_policy: Propagation | None = None,
        grace_period_seconds: int | None = None,
        options: DeleteOptions | None = None,
        list_options: ListOptions | None = None,
        timeout: float | None = None,
    ) -> ObjectList[R]:
        """Delete all objects of a kind in one namespace, or only the objects that match the selectors.

        Args:
            kind: The class of the objects.
            namespace: None: the client's. ``ALL_NAMESPACES`` is not accepted.
            label_selector: Labels of the objects to delete.
            field_selector: Fields of the objects to delete.
            propagation_policy: As for ``delete``.
            grace_period_seconds: As for ``delete``.
            options: Further options of each deletion.
            list_options: Further options of the list, such as a limit or a version; not together with a selector.
            timeout: Seconds for the whole call. None: only the request is limited.

        Returns:
            The objects in the response; empty if the server sent a ``Status``.

        Raises:
            MethodNotAllowed: The kind does not support this.
        """
        if list_options is not None and (label_selector is not None or field_selector is not None):
            raise ValueError("delete_collection: give label_selector and field_selector either as keywords or in list_options")
        mapping = await self.mapping(kind)
        path = mapping.path(self._namespace_of(mapping, namespace))
        query = (list_options or ListOptions(label_selector=label_selector, field_selector=field_selector, limit=0)).query()
        body = self._delete_options(options, propagation_policy, grace_period_seconds).body()
        response = await self.transport.request("DELETE", path, query=query, body=body)
        return ObjectList() if _status(response) is not None else objects_in(kind, response)

    def _delete_options(
        self, options: DeleteOptions | None, propagation_policy: Propagation | None, grace_period_seconds: int | None
    ) -> DeleteOptions:
        options = options or DeleteOptions()
        return msgspec.structs.replace(
            options,
            propagation_policy=options.propagation_policy if propagation_policy is None else propagation_policy,
            grace_period_seconds=options.grace_period_seconds if grace_period_seconds is None else grace_period_seconds,
            dry_run=options.dry_run or self._defaults.dry_run,
        )


def _status(response: Response) -> Status | None:
    """Return the ``Status`` in the response, or None if the response is another object."""
    try:
        status = msgspec.json.decode(response.body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # an object whose fields of the same names are of other types
    return status if status.kind == "Status" and status.api_version == "v1" else None
