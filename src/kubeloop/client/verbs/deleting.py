"""Deleting: one object, by name or as it was seen, or all of a namespace that match."""

from __future__ import annotations

import builtins
from typing import TypeVar, overload

import msgspec

from kubeloop.client.lists import ObjectList, objects_in
from kubeloop.client.options import DeleteOptions, ListOptions, Propagation
from kubeloop.client.selector_text import Fields, Labels
from kubeloop.client.verbs.base import Verbs
from kubeloop.codec import decode
from kubeloop.meta import Resource, Status
from kubeloop.meta.type_checks import require_kind
from kubeloop.transport import Response

R = TypeVar("R", bound=Resource)


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
    ) -> R | Status: ...

    @overload
    async def delete(
        self,
        target: R,
        *,
        propagation_policy: Propagation | None = ...,
        grace_period_seconds: int | None = ...,
        options: DeleteOptions | None = ...,
    ) -> R | Status: ...

    async def delete(
        self,
        target: type[R] | R,
        name: str | None = None,
        *,
        namespace: str | None = None,
        propagation_policy: Propagation | None = None,
        grace_period_seconds: int | None = None,
        options: DeleteOptions | None = None,
    ) -> R | Status:
        """Ask for an object to be deleted, by kind and name or by the object itself.

        Gives the object if it goes on existing for a while (finalizers, a pod's grace period) or the server hands out its last state,
        else a ``Status``. An object given is deleted only if it is still the same one (its uid is a precondition): a new one of the
        same name stays.

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
        gone = _deleted(kind, answer)
        if self._writes and not options.dry_run:
            mapping = await self.mapping(kind)
            self._writes.deleted(mapping, self._namespace_of(mapping, namespace) or "", name, options.uid, gone)
        return gone

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
    ) -> ObjectList[R] | Status:
        """Delete all objects of ONE namespace (default: ``client.namespace``) that match; all of them if no selector is given.

        ``selection``: what else a list can be told, such as a page's size or a version; not together with selectors of their own.

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
        return _status(answer) or objects_in(kind, answer)

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


def _deleted(kind: type[R], answer: Response) -> R | Status:
    return _status(answer) or decode(kind, answer.body)
