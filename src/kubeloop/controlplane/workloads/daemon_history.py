"""The ControllerRevisions of a DaemonSet: finds or creates the one of the present template, merges duplicates, deletes old ones.

Source: Kubernetes pkg/controller/daemon/update.go.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeloop.api.apps.v1 import ControllerRevision, DaemonSet
from kubeloop.api.core.v1 import Pod
from kubeloop.client import Client
from kubeloop.codec import to_dict
from kubeloop.controller import set_controller_reference
from kubeloop.controlplane.workloads.history import (
    HISTORY_LIMIT,
    REVISION_LABEL,
    delete_revision,
    encode_data,
    in_order,
    next_number,
    template_patch,
)
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot
from kubeloop.controlplane.workloads.template import template_hash
from kubeloop.meta import AlreadyExists, KubeloopError, ObjectMeta


class DaemonHistory:
    """Manages the ControllerRevisions of one DaemonSet.

    Args:
        client: Writes revisions, and labels of pods.
        daemon_set: The DaemonSet.
        revisions: The revisions that the DaemonSet owns.
        pods: The pods of the DaemonSet, whose labels are updated when equal revisions are merged.
    """

    def __init__(self, client: Client, daemon_set: DaemonSet, revisions: Iterable[ControllerRevision], pods: Sequence[PodSnapshot]) -> None:
        self._client = client
        self._set = daemon_set
        self._data = template_patch(daemon_set)
        self._encoded = encode_data(self._data)
        self._pods = pods
        self._revisions = list(revisions)
        self.old = [one for one in self._revisions if not self._matches(one)]

    def _matches(self, revision: ControllerRevision) -> bool:
        return encode_data(revision.data or {}) == self._encoded

    async def find_current(self) -> ControllerRevision:
        """Return the revision of the present template, with the newest number; create it if it does not exist.

        Raises:
            KubeloopError: The server refused a write, or a revision of another template has the name; the next attempt uses another name.
        """
        for one in self._revisions:
            if REVISION_LABEL not in one.metadata.labels:
                one.metadata.labels = {**one.metadata.labels, REVISION_LABEL: one.metadata.name}
                await self._client.update(one)
        number = next_number(self.old)
        current = [one for one in self._revisions if self._matches(one)]
        if not current:
            return await self._create(number)
        chosen = in_order(current)[-1]
        if len(current) > 1:
            await self._merge(chosen, current)
        if chosen.revision < number:
            chosen.revision = number
            chosen = await self._client.update(chosen)
        return chosen

    async def _merge(self, chosen: ControllerRevision, equal: Sequence[ControllerRevision]) -> None:
        """Set the label of the revision ``chosen`` on all pods, and delete the other equal revisions."""
        value = chosen.metadata.labels[REVISION_LABEL]
        change = {"metadata": {"labels": {REVISION_LABEL: value}}}
        for pod in self._pods:
            if pod.labels.get(REVISION_LABEL) != value:
                await self._client.patch(Pod, pod.name, change, namespace=self._set.metadata.namespace)
        for one in equal:
            if one is not chosen:
                await delete_revision(self._client, one)

    async def _create(self, number: int) -> ControllerRevision:
        metadata, count = self._set.metadata, self._set.status.collision_count
        value = template_hash(to_dict(self._set)["spec"]["template"], count)
        labels = {**self._set.spec.template.metadata.labels, REVISION_LABEL: value}
        name = f"{metadata.name}-{value}"
        made = ControllerRevision(
            metadata=ObjectMeta(name=name, namespace=metadata.namespace, labels=labels, annotations=dict(metadata.annotations)),
            data=self._data,
            revision=number,
        )
        set_controller_reference(self._set, made)
        try:
            return await self._client.create(made)
        except AlreadyExists:
            existing = await self._client.get(ControllerRevision, name, namespace=metadata.namespace)
            if self._matches(existing):
                return existing
            await self._raise_collision_count()
            raise

    async def _raise_collision_count(self) -> None:
        metadata, count = self._set.metadata, self._set.status.collision_count
        live = await self._client.get(DaemonSet, metadata.name, namespace=metadata.namespace)
        if live.status.collision_count != count:
            raise KubeloopError(
                f'found a stale collision count ({count}, expected {live.status.collision_count}) of DaemonSet "{metadata.name}" '
                "while processing; will retry until it is updated"
            )
        live.status.collision_count = (count or 0) + 1
        await self._client.update_status(live)

    async def truncate(self) -> None:
        """Delete old revisions beyond the history limit, the oldest first, except revisions of existing pods."""
        limit = self._set.spec.revision_history_limit
        surplus = len(self.old) - (HISTORY_LIMIT if limit is None else limit)
        live = {pod.labels.get(REVISION_LABEL) for pod in self._pods}
        unused = [one for one in in_order(self.old) if one.metadata.labels.get(REVISION_LABEL) not in live]
        for one in unused[: max(surplus, 0)]:
            await delete_revision(self._client, one)
