"""Slice writer: executes the plan for an owner's EndpointSlices, and distinguishes its own writes from changes of other clients.

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
    """Writes the slices of many owners, and remembers the resource versions that it wrote.

    Guarantees:
        An update or a deletion has the uid of the cached slice as a precondition, an update also its resource version, so that neither
        another slice of the same name nor changes of other clients are overwritten.
    """

    def __init__(self) -> None:
        self._written: dict[ObjectKey, dict[str, int]] = {}
        self._deleted: dict[ObjectKey, set[str]] = {}

    def start(self, owner: ObjectKey, existing: Iterable[EndpointSlice]) -> None:
        """Begin a reconcile: forget the writes to slices that no longer exist."""
        written = self._written.get(owner, {})
        self._written[owner] = {uid: written[uid] for one in existing if (uid := one.metadata.uid) in written}
        self._deleted.pop(owner, None)

    def forget(self, owner: ObjectKey) -> None:
        """Forget all writes for an owner."""
        self._written.pop(owner, None)
        self._deleted.pop(owner, None)

    def is_own(self, owner: ObjectKey, head: Head, slices: Lister[EndpointSlice]) -> bool:
        """Return whether this writer caused the state, or the deletion, of the slice in an event.

        Args:
            owner: The key of the slice's owner.
            head: The head of the slice in the event.
            slices: The cached slices.
        """
        cached = slices.head(head.name, head.namespace)
        if cached is None or cached.uid != head.uid:
            return head.uid in self._deleted.get(owner, ())
        return int(head.resource_version or 0) <= self._written.get(owner, {}).get(head.uid, 0)

    async def execute(self, client: Client, owner: Resource, plan: SlicePlan) -> None:
        """Create, update and delete slices. An owner that is being deleted gets no new slices: the garbage collector would delete them.

        Raises:
            ApiError: The server refused a write, which a note of the error names; the remaining writes are left to the next reconcile.
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
        """Delete slices; ignore slices that were already deleted or replaced."""
        for one in slices:
            try:
                await client.delete(one, options=DeleteOptions(uid=one.metadata.uid))
            except (NotFound, Conflict):
                continue
            self._deleted.setdefault(owner, set()).add(one.metadata.uid)

    def _record(self, owner: ObjectKey, endpoint_slice: EndpointSlice) -> None:
        self._written.setdefault(owner, {})[endpoint_slice.metadata.uid] = int(endpoint_slice.metadata.resource_version or 0)
