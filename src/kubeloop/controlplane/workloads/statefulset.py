"""StatefulSet controller: ordered pods with stable names and storage, and a history of their templates.

It executes the decisions of ``stateful_plan``. Source: Kubernetes pkg/controller/statefulset.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Sequence
from dataclasses import dataclass

from kubeloop.api.apps.v1 import ControllerRevision, StatefulSet
from kubeloop.api.core.v1 import PersistentVolumeClaim, Pod
from kubeloop.cache import Head
from kubeloop.controller import Controller, Result, WatchedKind
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents, OrphanNames, ReconcilePacer, adoptable, claim_heads
from kubeloop.controlplane.pod_control import in_growing_batches
from kubeloop.controlplane.workloads import history
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot, PodSnapshotCache
from kubeloop.controlplane.workloads.stateful_plan import (
    ClaimState,
    SetFacts,
    StatefulPlan,
    StatefulView,
    differs,
    make_plan,
    make_status,
    parse_name,
    seconds_until_available,
    sort_pods,
)
from kubeloop.controlplane.workloads.stateful_pods import StatefulPodControl, StatefulPodSource
from kubeloop.meta import KubeloopError, NotFound, ObjectKey, Selector, selector_from

#: Seconds until the next reconcile while a claim of a deleted pod exists: no event of a pod reports the deletion of the claim.
_RECHECK = 1.0


@dataclass(frozen=True, slots=True)
class _Revisions:
    """The revisions of a StatefulSet: ``current``, from which an update began, ``update`` of the present template, and all in order."""

    current: ControllerRevision
    update: ControllerRevision
    collision_count: int
    all: Sequence[ControllerRevision]


class StatefulSetController(
    Controller[StatefulSet],
    owns=[Pod, ControllerRevision],
    watches=[WatchedKind(Pod, to="find_adopters", predicates=(adoptable,))],
    reads=[PersistentVolumeClaim],
    writes=[PersistentVolumeClaim],
    indexes={Pod: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}, ControllerRevision: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}},
    workers=5,
    name="statefulset-controller",
):
    """Creates, replaces and deletes the pods of StatefulSets and creates their volume claims.

    A stale cache does no harm: names of pods, claims and revisions are derived from the StatefulSet, and deletions have the pod's uid as a
    precondition.
    """

    def __init__(self) -> None:
        self._orphans = OrphanNames()

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents()]

    async def start(self) -> None:
        self._pacer = ReconcilePacer(self.clock)
        self._snapshots = PodSnapshotCache(self.lister(Pod), self.lister(StatefulSet))

    def find_adopters(self, head: Head) -> list[ObjectKey]:
        """Return the key of the StatefulSet that may adopt a pod without a controller, according to the pod's name."""
        owner, ordinal = parse_name(head.name)
        return [ObjectKey(self.cluster, head.namespace, owner)] if ordinal >= 0 and self._orphans.note(head) else []

    async def reconcile(self, stateful_set: StatefulSet) -> Result | None:
        size = max(stateful_set.spec.replicas or 0, stateful_set.status.replicas)
        if left := self._pacer.seconds_left(stateful_set.object_key(self.cluster), size):
            return Result(requeue_after=left)
        selector = selector_from(stateful_set.spec.selector)
        name = stateful_set.metadata.name
        revisions = await self._find_revisions(stateful_set, selector)
        orphans = self._orphans.heads(self.lister(Pod), stateful_set.metadata.namespace)
        heads = await claim_heads(
            self.client, stateful_set, self.lister(Pod), orphans, selector, lambda head: parse_name(head.name)[0] == name
        )
        pods = self._snapshots.read(stateful_set.metadata.uid, heads)
        if revisions is None:
            return None
        view = self._view(stateful_set, pods, revisions.update.metadata.name)
        plan = make_plan(view)
        failure: KubeloopError | None = None
        try:
            await self._execute(plan, StatefulPodSource(stateful_set, view.facts, revisions.current, revisions.update))
        except KubeloopError as error:
            failure = error
        try:
            await self._write_status(stateful_set, view, plan, revisions)
            await self._truncate_history(stateful_set, pods, revisions)
        except KubeloopError as error:
            failure = failure or error
        if failure is not None:
            raise failure
        if plan.waits_for_claim:
            return Result(requeue_after=_RECHECK)
        delay = seconds_until_available(view.facts, pods, view.now)
        return None if delay is None else Result(requeue_after=delay)

    def _view(self, stateful_set: StatefulSet, pods: Sequence[PodSnapshot], update_revision: str) -> StatefulView:
        facts = SetFacts.from_stateful_set(stateful_set)
        replicas, condemned = sort_pods(facts, pods)
        ordinals = [*range(facts.start, facts.start + facts.replicas), *(parse_name(pod.name)[1] for pod in condemned)]
        lister, namespace = self.lister(PersistentVolumeClaim), stateful_set.metadata.namespace
        claims: dict[str, ClaimState] = {}
        for name in (name for ordinal in ordinals for name in facts.claim_names(ordinal)):
            head = lister.head(name, namespace)
            if head is not None:
                claims[name] = ClaimState(head.deleting, head.owner_references)
        return StatefulView(facts, replicas, condemned, claims, update_revision, self.clock.wall())

    async def _execute(self, plan: StatefulPlan, source: StatefulPodSource) -> None:
        control = StatefulPodControl(self.client, self.events, self.lister(Pod), self.lister(PersistentVolumeClaim), source)
        for steps in plan.phases:
            if source.facts.parallel:
                remaining = iter(steps)
                await in_growing_batches(lambda: control.execute(next(remaining)), len(steps))  # noqa: B023  # called in this turn
            else:
                for step in steps:
                    await control.execute(step)

    # ---------------------------------------------------------------------------------------------------------------- revisions

    async def _find_revisions(self, stateful_set: StatefulSet, selector: Selector) -> _Revisions | None:
        """Return the revisions of a StatefulSet, and create that of the present template if it does not exist.

        Return None if the StatefulSet is being deleted and has no revision of the present template.
        """
        lister = self.lister(ControllerRevision)
        orphans = lister.heads(stateful_set.metadata.namespace, selector)
        heads = await claim_heads(self.client, stateful_set, lister, orphans, selector)
        revisions = history.in_order(map(lister.decoded, heads))
        data = history.template_patch(stateful_set)
        match, collision_count = history.find_match(revisions, data), stateful_set.status.collision_count or 0
        update = match.revision
        if stateful_set.metadata.deletion_timestamp is not None:
            if update is None:
                return None
        elif update is None:
            made = history.new_revision(stateful_set, data, history.next_number(revisions), collision_count)
            update, collision_count = await history.create_revision(self.client, made, stateful_set.metadata.name, collision_count)
        elif match.rollback:
            update.revision = history.next_number(revisions)
            update = await self.client.update(update)
        current = next((one for one in revisions if one.metadata.name == stateful_set.status.current_revision), update)
        return _Revisions(current, update, collision_count, revisions)

    async def _truncate_history(self, stateful_set: StatefulSet, pods: Sequence[PodSnapshot], revisions: _Revisions) -> None:
        if stateful_set.metadata.deletion_timestamp is not None:
            return
        live = {pod.labels.get(history.REVISION_LABEL, "") for pod in pods}
        live |= {revisions.current.metadata.name, revisions.update.metadata.name}
        for one in history.surplus_revisions(revisions.all, live, stateful_set.spec.revision_history_limit):
            await history.delete_revision(self.client, one)

    # ------------------------------------------------------------------------------------------------------------------- status

    async def _write_status(self, stateful_set: StatefulSet, view: StatefulView, plan: StatefulPlan, revisions: _Revisions) -> None:
        status = make_status(view, plan, stateful_set, revisions.current.metadata.name)
        status.collision_count = revisions.collision_count
        if not differs(stateful_set.status, status):
            return
        changed = copy.copy(stateful_set)
        changed.status = status
        with contextlib.suppress(NotFound):
            await self.client.update_status(changed)
