"""Deleting: one object, by name or as it was seen, or all of a namespace that match."""

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
    """The answer to a deletion: ``if not (await client.delete(Pod, "web-0")).gone: await client.wait_gone(...)``.

    ``object`` is the object as the server sent it: its state while it waits for finalizers or a pod's grace period, or its last state. None
    where the server sent a ``Status`` only, which is in ``status``.
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
        """Ask for an object to be deleted, by kind and name or by the object itself.

        The result says whether the object is gone, and holds what the server answered. An object given is deleted only
        if it is still the same one (its uid is a precondition): a new one of the same name stays.

        Raises:
            NotFound: it is not there. Conflict: a precondition does not hold.
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
        answer = await self.transport.request("DELETE", path, body=options.body())
        sent = _status(answer) or decode(kind, answer.body)
        if self._writes and not options.dry_run:
            mapping = await self.mapping(kind)
            self._writes.deleted(mapping, self._namespace_of(mapping, namespace) or "", name, options.uid, sent)
        if isinstance(sent, Status):
            return DeleteResult(None, sent, gone=not options.dry_run)
        # A dry run changes nothing.
        return DeleteResult(sent, None, gone=not options.dry_run and is_gone(kind_info(kind).gvk, answer.body, deleted=True))

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
        selection: ListOptions | None = None,
        timeout: float | None = None,
    ) -> ObjectList[R]:
        """Delete all objects of ONE namespace (default: ``client.namespace``) that match; all of them if no selector is given.

        ``selection``: what else a list can be told, such as a page's size or a version; not together with selectors of their own.

        Returns the objects as the server sent them; none where it sends a ``Status``.

        Raises:
            MethodNotAllowed: the kind does not offer it.
        """
        if selection is not None and (label_selector is not None or field_selector is not None):
            raise ValueError("delete_collection: give label_selector and field_selector either as they are or within selection")
        mapping = await self.mapping(kind)
        path = mapping.path(self._namespace_of(mapping, namespace))
        query = (selection or ListOptions(label_selector=label_selector, field_selector=field_selector, limit=0)).query()
        body = self._delete_options(options, propagation_policy, grace_period_seconds).body()
        answer = await self.transport.request("DELETE", path, query=query, body=body)
        return ObjectList() if _status(answer) is not None else objects_in(kind, answer)

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


def _status(answer: Response) -> Status | None:
    """The Status in the answer, if it is one."""
    try:
        status = msgspec.json.decode(answer.body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None  # an object whose fields of the same names are of other types
    return status if status.kind == "Status" and status.api_version == "v1" else None
