"""Controllers of ReplicaSets and ReplicationControllers: they maintain a number of pods of a template, and report their counts.

Both kinds have the same logic. Source: Kubernetes pkg/controller/replicaset (replica_set.go, replica_set_utils.go),
pkg/controller/replication.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple, TypeVar

from kubeloop.api.apps.v1 import ReplicaSet, ReplicaSetCondition
from kubeloop.api.core.v1 import Pod, ReplicationController, ReplicationControllerCondition
from kubeloop.cache import Head
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, Result, WatchedKind, controller_of, set_controller_reference
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import (
    ComponentEvents,
    OrphanNames,
    ReconcilePacer,
    adoptable,
    claim_heads,
    deletion_order,
    is_active,
)
from kubeloop.controlplane.pod_control import Expectations, in_growing_batches, pod_from
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot, PodSnapshotCache
from kubeloop.meta import ApiError, KubeloopError, NotFound, ObjectKey, Selector, selector_from

W = TypeVar("W", bound=ReplicaSet | ReplicationController)

#: Maximum number of pods created or deleted in one reconcile.
BURST = 500
#: Seconds until the next reconcile if the cache does not show the last writes yet.
_RECHECK = 1.0
_OWNERS = "metadata.ownerReferences[*].uid"


class PodCounts(NamedTuple):
    """The numbers of pods in the status of a ReplicaSet or ReplicationController."""

    replicas: int
    fully_labeled: int
    ready: int
    available: int
    terminating: int


class PodReplicasController(Controller[W]):
    """Base class of the controllers of ReplicaSets and ReplicationControllers: creates, deletes and adopts pods."""

    def __init__(self) -> None:
        self._orphans = OrphanNames()

    async def start(self) -> None:
        self._expectations = Expectations(self.informer(Pod), self.clock)
        self._pacer = ReconcilePacer(self.clock)
        self._snapshots = PodSnapshotCache(self.lister(Pod), self.lister(self._replicas_kind()))

    def _replicas_kind(self) -> type[W]:
        raise NotImplementedError

    def _selector(self, owner: W) -> Selector:
        raise NotImplementedError

    def _terminating(self, owner: W) -> int:  # noqa: ARG002  # the status of a ReplicationController does not count terminating pods
        """Return the number of terminating pods in the status of an object."""
        return 0

    def _set_status(self, owner: W, counts: PodCounts, failure: tuple[str, str] | None) -> None:
        """Set the status of an object: the counts, and the condition ReplicaFailure with reason and message in ``failure``, if not None."""
        raise NotImplementedError

    def find_adopters(self, head: Head) -> list[ObjectKey]:
        """Return the keys of the objects that may adopt a pod without a controller."""
        if not self._orphans.note(head):
            return []
        owners = self.lister(self._replicas_kind()).each(head.namespace)
        return [one.object_key(self.cluster) for one in owners if self._selector(one).matches(head.labels)]

    async def reconcile(self, owner: W) -> Result | None:
        key, desired = owner.object_key(self.cluster), 1 if owner.spec.replicas is None else owner.spec.replicas
        if left := self._pacer.seconds_left(key, max(desired, owner.status.replicas + self._terminating(owner))):
            return Result(requeue_after=left)
        lister = self.lister(Pod)
        orphans = self._orphans.heads(lister, owner.metadata.namespace)
        heads = await claim_heads(self.client, owner, lister, orphans, self._selector(owner))
        pods = self._snapshots.read(owner.metadata.uid, heads)
        active = [pod for pod in pods if not pod.ended and not pod.terminating]
        failure: KubeloopError | None = None
        shown = self._expectations.met(key)
        reason = ""
        if shown and owner.metadata.deletion_timestamp is None:
            missing = desired - len(active)
            try:
                if missing > 0:
                    reason = "FailedCreate"
                    await self._create(owner, min(missing, BURST))
                elif missing < 0:
                    reason = "FailedDelete"
                    await self._delete(owner, active, min(-missing, BURST))
            except KubeloopError as error:
                failure = error
        terminating = sum(pod.terminating and not pod.ended for pod in pods)
        await self._write_status(owner, active, terminating, failure, reason)
        if failure is not None:
            raise failure
        if not shown:
            return Result(requeue_after=_RECHECK)
        return self._when_available(owner, active)

    async def _create(self, owner: W, count: int) -> None:
        template: dict[str, Any] = to_dict(owner)["spec"]["template"]
        key = owner.object_key(self.cluster)

        async def create_pod() -> None:
            pod = pod_from(template, owner.metadata.name, owner.metadata.namespace)
            set_controller_reference(owner, pod)
            created = await self.client.create(pod)
            self._expectations.created(key, created)
            self.events.normal(owner, "SuccessfulCreate", f"Created pod: {created.metadata.name}")

        try:
            await in_growing_batches(create_pod, count)
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):
                return  # Nothing can be created in this namespace again; retries would only fill logs.
            self.events.warning(owner, "FailedCreate", f"Error creating: {error.status.message}")
            raise

    async def _delete(self, owner: W, active: Sequence[PodSnapshot], count: int) -> None:
        key, namespace = owner.object_key(self.cluster), owner.metadata.namespace
        pods = [pod for one in active if (pod := self.lister(Pod).get(one.name, namespace)) is not None and pod.metadata.uid == one.uid]
        neighbours = Counter(pod.spec.node_name or "" for pod in [*pods, *self._active_of_siblings(owner)])
        chosen = deletion_order(pods, neighbours, self.clock.wall())[:count]

        async def delete_pod(pod: Pod) -> None:
            try:
                await self.client.delete(pod)
            except NotFound:
                pass
            else:
                self.events.normal(owner, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
            self._expectations.deleted(key, pod)

        outcomes = await asyncio.gather(*(delete_pod(pod) for pod in chosen), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.events.warning(owner, "FailedDelete", f"Error deleting: {outcome}")
        # As upstream, the reconcile fails with the first error; Events report all errors.
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _active_of_siblings(self, owner: W) -> list[Pod]:
        """Return the active pods of the other ReplicaSets of the same Deployment: pods on nodes that also run these are deleted first."""
        controller = controller_of(owner)
        if controller is None:
            return []
        heads = self.lister(self._replicas_kind()).heads_by_index(OWNER_INDEX, controller.uid)
        siblings = [one.uid for one in heads if one.uid != owner.metadata.uid]
        pods = (pod for uid in siblings for pod in self.lister(Pod).by_index(OWNER_INDEX, uid))
        return [pod for pod in pods if is_active(pod)]

    async def _write_status(
        self, owner: W, active: Sequence[PodSnapshot], terminating: int, failure: KubeloopError | None, reason: str
    ) -> None:
        now, least = self.clock.wall(), owner.spec.min_ready_seconds or 0
        template = owner.spec.template
        labels = template.metadata.labels.items() if template is not None else {}.items()
        counts = PodCounts(
            replicas=len(active),
            fully_labeled=sum(labels <= pod.labels.items() for pod in active),
            ready=sum(pod.ready for pod in active),
            available=sum(pod.is_available(least, now) for pod in active),
            terminating=terminating,
        )
        message = failure.status.message if isinstance(failure, ApiError) else str(failure)
        changed = copy.copy(owner)
        self._set_status(changed, counts, (reason, message) if failure is not None else None)
        if changed.status != owner.status:
            with contextlib.suppress(NotFound):
                await self.client.update_status(changed)

    def _when_available(self, owner: W, active: Sequence[PodSnapshot]) -> Result | None:
        """Return when to reconcile because a ready pod becomes available, for which no event comes."""
        least = owner.spec.min_ready_seconds or 0
        now = self.clock.wall()
        if least and any(pod.ready and not pod.is_available(least, now) for pod in active):
            return Result(requeue_after=float(least))
        return None


class ReplicaSetController(
    PodReplicasController[ReplicaSet],
    owns=[Pod],
    watches=[WatchedKind(Pod, to="find_adopters", predicates=(adoptable,))],
    indexes={ReplicaSet: {OWNER_INDEX: _OWNERS}, Pod: {OWNER_INDEX: _OWNERS}},
    workers=5,
    name="replicaset-controller",
):
    """The controller of ReplicaSets."""

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents()]

    def _replicas_kind(self) -> type[ReplicaSet]:
        return ReplicaSet

    def _terminating(self, owner: ReplicaSet) -> int:
        return owner.status.terminating_replicas or 0

    def _selector(self, owner: ReplicaSet) -> Selector:
        return selector_from(owner.spec.selector)

    def _set_status(self, owner: ReplicaSet, counts: PodCounts, failure: tuple[str, str] | None) -> None:
        before = next((one for one in owner.status.conditions if one.type == "ReplicaFailure"), None)
        status = owner.status = copy.copy(owner.status)
        status.replicas, status.fully_labeled_replicas = counts.replicas, counts.fully_labeled or None
        status.ready_replicas, status.available_replicas = counts.ready or None, counts.available or None
        status.terminating_replicas, status.observed_generation = counts.terminating, owner.metadata.generation
        status.conditions = [one for one in status.conditions if one.type != "ReplicaFailure"]
        if failure is not None:
            reason, message = failure
            now = self.clock.wall().replace(microsecond=0)
            made = ReplicaSetCondition(type="ReplicaFailure", status="True", reason=reason, message=message, last_transition_time=now)
            status.conditions.append(before or made)


class ReplicationManager(
    PodReplicasController[ReplicationController],
    owns=[Pod],
    watches=[WatchedKind(Pod, to="find_adopters", predicates=(adoptable,))],
    indexes={ReplicationController: {OWNER_INDEX: _OWNERS}, Pod: {OWNER_INDEX: _OWNERS}},
    workers=5,
    name="replicationcontroller-controller",
):
    """The controller of ReplicationControllers."""

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="replication-controller")]

    def _replicas_kind(self) -> type[ReplicationController]:
        return ReplicationController

    def _selector(self, owner: ReplicationController) -> Selector:
        return selector_from({"matchLabels": owner.spec.selector})

    def _set_status(self, owner: ReplicationController, counts: PodCounts, failure: tuple[str, str] | None) -> None:
        before = next((one for one in owner.status.conditions if one.type == "ReplicaFailure"), None)
        status = owner.status = copy.copy(owner.status)
        status.replicas, status.fully_labeled_replicas = counts.replicas, counts.fully_labeled or None
        status.ready_replicas, status.available_replicas = counts.ready or None, counts.available or None
        status.observed_generation = owner.metadata.generation
        status.conditions = [one for one in status.conditions if one.type != "ReplicaFailure"]
        if failure is not None:
            reason, message = failure
            now = self.clock.wall().replace(microsecond=0)
            made = ReplicationControllerCondition(
                type="ReplicaFailure", status="True", reason=reason, message=message, last_transition_time=now
            )
            status.conditions.append(before or made)
