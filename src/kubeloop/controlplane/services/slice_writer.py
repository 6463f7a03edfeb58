"""Slice writer: executes the plan of one owner's EndpointSlices, and tells its own writes from foreign changes.

Source: k8s.io/endpointslice (reconciler.go finalize, util/endpointslice_tracker.go).
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.api.discovery.v1 import EndpointSlice
from kubeloop.cache import Head, Lister
from kubeloop.client import Client, DeleteOptions
from kubeloop.controlplane.services.slices import SlicePlan
from kubeloop.meta import ApiError, Conflict, NotFound, ObjectKey, Resource


class SliceWriter:
    """Writes the slices of many owners, and remembers the versions that it wrote.

    Guarantees:
        An update or a deletion has the uid of the cached slice as a precondition, an update also its version, so that a slice of the same
        name and changes of other writers are never overwritten.
    """

    def __init__(self) -> None:
        self._written: dict[ObjectKey, dict[str, int]] = {}
        self._deleted: dict[ObjectKey, set[str]] = {}

    def start(self, owner: ObjectKey, existing: Iterable[EndpointSlice]) -> None:
        """Begin the writes of one reconcile; slices that are gone are dropped."""
        written = self._written.get(owner, {})
        self._written[owner] = {uid: written[uid] for one in existing if (uid := one.metadata.uid) in written}
        self._deleted.pop(owner, None)

    def forget(self, owner: ObjectKey) -> None:
        """Drop the records of an owner."""
        self._written.pop(owner, None)
        self._deleted.pop(owner, None)

    def is_own(self, owner: ObjectKey, head: Head, slices: Lister[EndpointSlice]) -> bool:
        """Return whether a write of this writer led to this state of a slice, or to its end. ``slices``: the cached slices."""
        cached = slices.head(head.name, head.namespace)
        if cached is None or cached.uid != head.uid:
            return head.uid in self._deleted.get(owner, ())
        return int(head.resource_version or 0) <= self._written.get(owner, {}).get(head.uid, 0)

    async def execute(self, client: Client, owner: Resource, plan: SlicePlan) -> None:
        """Create, update and delete slices. An owner that is being deleted gets no new slices, as the garbage collector deletes them.

        Raises:
            ApiError: The server refuses a write, which a note of the error names; the next reconcile makes the others.
        """
        key, kind = owner.object_key(""), type(owner).__kind_info__.gvk.kind
        place = f"EndpointSlice for {kind} {owner.metadata.namespace}/{owner.metadata.name}"
        if owner.metadata.deletion_timestamp is None:
            for one in plan.create:
                try:
                    created = await client.create(one)
                except ApiError as error:
                    if error.has_cause("NamespaceTerminating"):
                        return
                    error.add_note(f"failed to create {place}")
                    raise
                self._record(key, created)
        for one in plan.update:
            try:
                updated = await client.update(one)
            except ApiError as error:
                error.add_note(f"failed to update {one.metadata.name} {place}")
                raise
            self._record(key, updated)
        await self.delete(client, key, plan.delete)

    async def delete(self, client: Client, owner: ObjectKey, slices: Iterable[EndpointSlice]) -> None:
        """Delete slices, except for missing and replaced ones."""
        for one in slices:
            try:
                await client.delete(one, options=DeleteOptions(uid=one.metadata.uid))
            except (NotFound, Conflict):
                continue
            self._deleted.setdefault(owner, set()).add(one.metadata.uid)

    def _record(self, owner: ObjectKey, endpoint_slice: EndpointSlice) -> None:
        self._written.setdefault(owner, {})[endpoint_slice.metadata.uid] = int(endpoint_slice.metadata.resource_version or 0)
