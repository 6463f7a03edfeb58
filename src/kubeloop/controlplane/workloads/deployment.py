"""Deployment controller: one ReplicaSet per template, and the rollout from old ReplicaSets to the new one.

It executes the decisions of ``rollout`` and ``deployment_status``. Source: Kubernetes pkg/controller/deployment.
"""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from kubeloop.api.apps.v1 import Deployment, DeploymentStatus, ReplicaSet
from kubeloop.api.core.v1 import Pod
from kubeloop.controller import Controller, Result, is_controlled_by
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents, claim
from kubeloop.controlplane.workloads import deployment_status as conditions
from kubeloop.controlplane.workloads import rollout
from kubeloop.controlplane.workloads.rollout import Bounds
from kubeloop.controlplane.workloads.template import same_template
from kubeloop.meta import AlreadyExists, KubeloopError, NotFound, selector_from

#: Number of old ReplicaSets that are kept if the Deployment has no limit (the server's default).
_HISTORY = 10


@dataclass(slots=True)
class _Rollout:
    """A snapshot of a Deployment and its ReplicaSets, which the controller updates when it changes them."""

    deployment: Deployment
    bounds: Bounds
    new: ReplicaSet | None
    old: list[ReplicaSet]

    @property
    def all(self) -> list[ReplicaSet]:
        return [*self.old, self.new] if self.new is not None else list(self.old)

    @property
    def rolling(self) -> bool:
        return self.deployment.spec.strategy.type != "Recreate"


class DeploymentController(
    Controller[Deployment],
    owns=[ReplicaSet],
    reads=[Pod],
    indexes={Pod: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}},
    workers=5,
    name="deployment-controller",
):
    """The controller of Deployments: creates and scales their ReplicaSets, and writes status and revision.

    A stale cache does no harm: every write has the resource version on which the decision is based as a precondition, and the name of a
    ReplicaSet is derived from its template.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents()]

    async def reconcile(self, deployment: Deployment) -> Result | None:
        view = await self._look(deployment)
        if deployment.metadata.deletion_timestamp is None:
            if deployment.spec.paused or self._scaled_since(view):
                await self._number(view)
                await self._rescale(view)
            elif view.rolling:
                await self._roll(view)
            else:
                await self._recreate(view)
            if view.new is not None and conditions.is_complete(deployment, self._status(view)):
                await self._clean_up(view)
        return await self._write_status(view)

    async def _look(self, deployment: Deployment) -> _Rollout:
        lister = self.lister(ReplicaSet)
        metadata = deployment.metadata
        selector = selector_from(deployment.spec.selector)
        candidates = {one.metadata.uid: one for one in lister.by_index(OWNER_INDEX, metadata.uid)}
        for one in lister.list(metadata.namespace, selector):
            candidates.setdefault(one.metadata.uid, one)
        sets = await claim(self.client, deployment, candidates.values(), selector)
        update = deployment.spec.strategy.rolling_update
        desired = 1 if deployment.spec.replicas is None else deployment.spec.replicas
        if deployment.spec.strategy.type == "Recreate":
            bounds = Bounds(desired, 0, 0)
        else:
            bounds = Bounds.resolve(desired, update.max_surge if update else None, update.max_unavailable if update else None)
        new, old = rollout.split(deployment, sets)
        return _Rollout(deployment, bounds, new, old)

    def _scaled_since(self, view: _Rollout) -> bool:
        """Return whether the Deployment's size has changed since its ReplicaSets were scaled. An annotation records the earlier size."""
        sets = [rollout.as_set(one) for one in view.all]
        return any(one.replicas > 0 and one.desired is not None and one.desired != view.bounds.replicas for one in sets)

    # --------------------------------------------------------------------------------------------------------------- strategies

    async def _roll(self, view: _Rollout) -> None:
        new = await self._ensure_new(view)
        sets = [rollout.as_set(one) for one in view.old]
        desired = rollout.new_size(view.bounds, rollout.as_set(new), sets)
        if desired != rollout.size(new):
            await self._scale(view, {new.metadata.name: desired})
            return  # One step at a time: how far old ReplicaSets may shrink depends on the status of the new one.
        await self._scale(view, rollout.shrink_old(view.bounds, rollout.as_set(new), sets))

    async def _recreate(self, view: _Rollout) -> None:
        shrinking = {one.metadata.name: 0 for one in view.old if rollout.size(one) > 0}
        if shrinking:
            await self._scale(view, shrinking)
        elif not self._old_pods_run(view):
            new = await self._ensure_new(view)
            if rollout.size(new) != view.bounds.replicas:
                await self._scale(view, {new.metadata.name: view.bounds.replicas})

    def _old_pods_run(self, view: _Rollout) -> bool:
        """Return whether unfinished old pods still exist, including terminating ones: with Recreate two versions never run together."""
        lister = self.lister(Pod)
        return any(
            is_controlled_by(pod, one) and pod.status.phase not in ("Failed", "Succeeded")
            for one in view.old
            for pod in lister.by_index(OWNER_INDEX, one.metadata.uid)
        )

    async def _rescale(self, view: _Rollout) -> None:
        new = rollout.as_set(view.new) if view.new is not None else None
        old = [rollout.as_set(one) for one in view.old]
        sizes = rollout.rescale(view.bounds, new, old, rolling=view.rolling, status_replicas=view.deployment.status.replicas or 0)
        # ReplicaSets of unchanged size also need the new annotations; otherwise they would always seem to need scaling.
        for one in view.all:
            if rollout.size(one) > 0:
                sizes.setdefault(one.metadata.name, rollout.size(one))
        await self._scale(view, sizes)

    # ------------------------------------------------------------------------------------------------------------- ReplicaSets

    async def _number(self, view: _Rollout) -> None:
        """Update the revision and annotations of the new ReplicaSet, if it exists, and the revision of the Deployment."""
        if view.new is None:
            return
        number = rollout.next_revision(view.old)
        desired = rollout.new_annotations(view.deployment, view.new, number)
        least = view.deployment.spec.min_ready_seconds
        if desired != view.new.metadata.annotations or (view.new.spec.min_ready_seconds or 0) != (least or 0):
            view.new.metadata.annotations = desired
            view.new.spec.min_ready_seconds = least
            view.new = await self.client.update(view.new)
        self._show_revision(view, view.new.metadata.annotations.get(rollout.REVISION, ""))

    def _show_revision(self, view: _Rollout, number: str) -> None:
        """Set the revision annotation of the Deployment in memory; it is written together with the status, without a separate update."""
        if number:
            view.deployment.metadata.annotations[rollout.REVISION] = number

    async def _ensure_new(self, view: _Rollout) -> ReplicaSet:
        if view.new is not None:
            await self._number(view)
            if conditions.find(view.deployment.status.conditions, conditions.PROGRESSING) is None:
                self._announce(view, "FoundNewReplicaSet", f'Found new replica set "{view.new.metadata.name}"')
            return view.new
        deployment, number = view.deployment, rollout.next_revision(view.old)
        desired = rollout.new_size(view.bounds, None, [rollout.as_set(one) for one in view.old])
        new_replica_set = rollout.new_replica_set(deployment, number, desired, view.bounds)
        try:
            created = await self.client.create(new_replica_set)
        except AlreadyExists:
            created = await self._resolve_collision(view, new_replica_set)
        else:
            if desired > 0:
                text = f"Scaled up replica set {created.metadata.name} from 0 to {desired}"
                self.events.normal(deployment, "ScalingReplicaSet", text)
            self._announce(view, "NewReplicaSetCreated", f'Created new replica set "{created.metadata.name}"')
        view.new = created
        self._show_revision(view, str(number))
        return created

    async def _resolve_collision(self, view: _Rollout, new_replica_set: ReplicaSet) -> ReplicaSet:
        """Resolve a name conflict with the existing ReplicaSet of the name.

        If it is the desired ReplicaSet, which a lagging cache does not show, return it. Otherwise increase the collision count and raise a
        KubeloopError, so that the next reconcile uses another name.
        """
        deployment = view.deployment
        result = await self.client.get(ReplicaSet, new_replica_set.metadata.name, namespace=new_replica_set.metadata.namespace)
        if is_controlled_by(result, deployment) and same_template(rollout.template_of(result), rollout.template_of(deployment)):
            return result
        deployment.status.collision_count = (deployment.status.collision_count or 0) + 1
        await self.client.update_status(deployment)
        raise KubeloopError(f'the name "{new_replica_set.metadata.name}" is taken by a ReplicaSet with another template')

    def _announce(self, view: _Rollout, reason: str, message: str) -> None:
        if conditions.has_deadline(view.deployment):
            conditions.put(view.deployment.status, conditions.PROGRESSING, "True", reason, message, self._now())

    async def _scale(self, view: _Rollout, sizes: Mapping[str, int]) -> None:
        size_annotations = rollout.size_annotations(view.bounds)
        for one in view.all:
            name = one.metadata.name
            desired = sizes.get(name)
            annotations = one.metadata.annotations
            if desired is None or (desired == rollout.size(one) and size_annotations.items() <= annotations.items()):
                continue
            before = rollout.size(one)
            one.spec.replicas = desired
            annotations.update(size_annotations)
            written = await self.client.update(one)
            if view.new is one:
                view.new = written
            else:
                view.old[view.old.index(one)] = written
            if desired != before:
                way = "up" if desired > before else "down"
                text = f"Scaled {way} replica set {name} from {before} to {desired}"
                self.events.normal(view.deployment, "ScalingReplicaSet", text)

    async def _clean_up(self, view: _Rollout) -> None:
        limit = view.deployment.spec.revision_history_limit
        for one in rollout.surplus_replica_sets(view.old, _HISTORY if limit is None else limit):
            with contextlib.suppress(NotFound):
                await self.client.delete(one)

    # -------------------------------------------------------------------------------------------------------------------- status

    def _status(self, view: _Rollout) -> DeploymentStatus:
        now = self._now()
        status = conditions.counted(view.deployment, view.new, view.all, view.bounds, now)
        conditions.judge_progress(view.deployment, status, view.new, view.all, now)
        return status

    async def _write_status(self, view: _Rollout) -> Result | None:
        deployment = view.deployment
        status = self._status(view)
        stored = self.lister(Deployment).get(deployment.metadata.name, deployment.metadata.namespace)
        if stored is None or (stored.status, stored.metadata.annotations) != (status, deployment.metadata.annotations):
            changed = copy.copy(deployment)
            changed.status = status
            with contextlib.suppress(NotFound):
                await self.client.update_status(changed)
        progressing = conditions.find(status.conditions, conditions.PROGRESSING)
        if progressing is None or progressing.reason in conditions.AT_REST:
            return None
        # No event marks the end of the deadline, so reconcile again at that time.
        return Result(requeue_after=max(conditions.seconds_left(deployment, progressing, self.clock.wall()), 0.0) + 1.0)

    def _now(self) -> datetime:
        return self.clock.wall().replace(microsecond=0)
