"""DaemonSet controller: one pod on each node that matches the template, and rolling updates.

It executes the decisions of ``daemon_plan``. Source: Kubernetes pkg/controller/daemon.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Sequence
from typing import Any

from kubeloop.api.apps.v1 import ControllerRevision, DaemonSet
from kubeloop.api.core.v1 import Node, Pod
from kubeloop.cache import EventType, Head
from kubeloop.client import DeleteOptions
from kubeloop.codec import to_dict
from kubeloop.controller import Controller, Owns, Predicate, Result, WatchedKind, labels_changed, path_changed, set_controller_reference
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents, OrphanNames, ReconcilePacer, adoptable, claim_heads
from kubeloop.controlplane.pod_control import Expectations, in_growing_batches, pod_from
from kubeloop.controlplane.scheduling.facts import NodeFacts
from kubeloop.controlplane.workloads.daemon_history import DaemonHistory
from kubeloop.controlplane.workloads.daemon_plan import (
    DaemonPlacement,
    DaemonPlan,
    DaemonView,
    FailedPodBackoff,
    NodeDemand,
    daemon_template,
    make_status,
    plan_placement,
    plan_update,
    template_for_node,
    template_generation,
)
from kubeloop.controlplane.workloads.history import REVISION_LABEL, failure_text
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot, PodSnapshotCache
from kubeloop.meta import ApiError, Conflict, KubeloopError, NotFound, ObjectKey, ObjectMeta, selector_from

#: Maximum number of pods that one reconcile creates, and maximum number that it deletes.
BURST = 250
#: Seconds until the next reconcile if the cache does not show the last writes yet.
_RECHECK = 1.0


class DaemonSetController(
    Controller[DaemonSet],
    # As upstream, a new revision does not reconcile its owner: a client that made it may go on before duplicates are removed.
    owns=[Pod, Owns(ControllerRevision, predicates=(Predicate(lambda event: event.type is not EventType.ADDED),))],
    watches=[
        WatchedKind(Pod, to="find_adopters", predicates=(adoptable,)),
        WatchedKind(Node, to="find_all", predicates=(labels_changed | path_changed("spec.taints"),)),
    ],
    indexes={Pod: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}, ControllerRevision: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}},
    workers=2,
    name="daemonset-controller",
):
    """Creates a pod for each node that needs one, which the scheduler binds; deletes misplaced, finished and outdated pods.

    Cost: A reconcile reads each node and each pod of the DaemonSet once, and decodes only changed pods.
    """

    def __init__(self) -> None:
        self._orphans = OrphanNames()
        self._backoff = FailedPodBackoff()
        self._demands: dict[str, tuple[int, dict[str, tuple[str, NodeDemand]]]] = {}

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents()]

    async def start(self) -> None:
        self._expectations = Expectations(self.informer(Pod), self.clock)
        self._pacer = ReconcilePacer(self.clock)
        self._snapshots = PodSnapshotCache(self.lister(Pod), self.lister(DaemonSet))

    def find_adopters(self, head: Head) -> list[ObjectKey]:
        """Return the keys of the DaemonSets that may adopt a pod without a controller."""
        if not self._orphans.note(head):
            return []
        sets = self.lister(DaemonSet).each(head.namespace)
        return [one.object_key(self.cluster) for one in sets if selector_from(one.spec.selector).matches(head.labels)]

    def find_all(self, head: Head) -> list[ObjectKey]:  # noqa: ARG002  # a node may matter to each of them
        """Return the keys of all DaemonSets, because each may have to create or delete a pod on a changed node."""
        return [ObjectKey(self.cluster, one.namespace, one.name) for one in self.lister(DaemonSet).heads()]

    async def reconcile(self, daemon_set: DaemonSet) -> Result | None:
        key, metadata = daemon_set.object_key(self.cluster), daemon_set.metadata
        selector = selector_from(daemon_set.spec.selector)
        if selector.everything:
            text = "This daemon set is selecting all pods. A non-empty selector is required."
            self.events.warning(daemon_set, "SelectingAll", text)
            return None
        if metadata.deletion_timestamp is not None:
            # The history may be deleted before the pods, so that their revisions cannot be determined any more.
            return None
        if left := self._pacer.seconds_left(key, len(self.lister(Node))):
            return Result(requeue_after=left)
        revisions = self.lister(ControllerRevision)
        owned = await claim_heads(self.client, daemon_set, revisions, revisions.heads(metadata.namespace, selector), selector)
        orphans = self._orphans.heads(self.lister(Pod), metadata.namespace)
        pods = self._snapshots.read(metadata.uid, await claim_heads(self.client, daemon_set, self.lister(Pod), orphans, selector))
        history = DaemonHistory(self.client, daemon_set, map(revisions.decoded, owned), pods)
        revision_hash = (await history.find_current()).metadata.labels[REVISION_LABEL]
        view = DaemonView.from_objects(daemon_set, self._judge_nodes(daemon_set), pods, revision_hash, self.clock.wall())
        if not self._expectations.met(key):
            await self._write_status(daemon_set, view, None)
            return Result(requeue_after=_RECHECK)
        failure: KubeloopError | None = None
        plan = plan_placement(view, self._backoff, (metadata.uid, daemon_set.status.observed_generation or 0), self.clock.now())
        self._report_ended(daemon_set, plan)
        try:
            if not plan.empty:
                await self._execute(daemon_set, plan, revision_hash)
            elif daemon_set.spec.update_strategy.type != "OnDelete":
                await self._execute(daemon_set, plan_update(view), revision_hash)
            await history.truncate()
        except KubeloopError as error:
            failure = error
        await self._write_status(daemon_set, view, metadata.generation)
        if failure is not None:
            raise failure
        return self._next(view, plan)

    def _judge_nodes(self, daemon_set: DaemonSet) -> dict[str, NodeDemand]:
        """Return the demand of each node by name. Demands are cached until the node or the DaemonSet changes."""
        uid, generation = daemon_set.metadata.uid, daemon_set.metadata.generation
        known_generation, before = self._demands.get(uid, (0, {}))
        if known_generation != generation:
            before = {}
        placement: DaemonPlacement | None = None
        present: dict[str, tuple[str, NodeDemand]] = {}
        for head in self.lister(Node).heads():
            known = before.get(head.name)
            if known is None or known[0] != head.resource_version:
                placement = placement or DaemonPlacement(to_dict(daemon_set)["spec"]["template"].get("spec") or {})
                taints = head.value("spec.taints") or []
                known = head.resource_version, placement.judge(NodeFacts(head.name, dict(head.labels), taints, False, {}))
            present[head.name] = known
        if uid not in self._demands and len(self._demands) >= 2 * len(self.lister(DaemonSet)):
            live = {head.uid for head in self.lister(DaemonSet).heads()}
            self._demands = {other: one for other, one in self._demands.items() if other in live}
        self._demands[uid] = generation, present
        return {name: demand for name, (_, demand) in present.items()}

    def _report_ended(self, daemon_set: DaemonSet, plan: DaemonPlan) -> None:
        namespace = daemon_set.metadata.namespace
        for pod in plan.failed:
            text = f"Found failed daemon pod {namespace}/{pod.name} on node {pod.target_node}, will try to kill it"
            self.events.warning(daemon_set, "FailedDaemonPod", text)
        for pod in plan.succeeded:
            text = f"Found succeeded daemon pod {namespace}/{pod.name} on node {pod.target_node}, will try to delete it"
            self.events.normal(daemon_set, "SucceededDaemonPod", text)

    # ----------------------------------------------------------------------------------------------------------------- execution

    async def _execute(self, daemon_set: DaemonSet, plan: DaemonPlan, revision_hash: str) -> None:
        """Create and delete pods concurrently, at most ``BURST`` of each; raise the first error after all deletions."""
        failure: Exception | None = None
        try:
            await self._create(daemon_set, plan.create[:BURST], revision_hash)
        except KubeloopError as error:
            failure = error
        outcomes = await asyncio.gather(*(self._delete(daemon_set, pod) for pod in plan.delete[:BURST]), return_exceptions=True)
        for outcome in outcomes:
            if outcome is not None:
                raise failure or outcome
        if failure is not None:
            raise failure

    async def _create(self, daemon_set: DaemonSet, nodes: Sequence[str], revision_hash: str) -> None:
        if not nodes:
            return
        own: dict[str, Any] = to_dict(daemon_set)["spec"]["template"]
        template, key = daemon_template(own, template_generation(daemon_set), revision_hash), daemon_set.object_key(self.cluster)
        remaining = iter(nodes)

        async def create_next() -> None:
            pod = pod_from(template_for_node(template, next(remaining)), daemon_set.metadata.name, daemon_set.metadata.namespace)
            set_controller_reference(daemon_set, pod)
            created = await self.client.create(pod)
            self._expectations.created(key, created)
            self.events.normal(daemon_set, "SuccessfulCreate", f"Created pod: {created.metadata.name}")

        try:
            await in_growing_batches(create_next, len(nodes))
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):
                return  # Nothing can be created in this namespace again.
            self.events.warning(daemon_set, "FailedCreate", f"Error creating: {error.status.message}")
            raise

    async def _delete(self, daemon_set: DaemonSet, pod: PodSnapshot) -> None:
        try:
            options = DeleteOptions(uid=pod.uid)
            await self.client.delete(Pod, pod.name, namespace=daemon_set.metadata.namespace, options=options)
        except (NotFound, Conflict):
            return  # The pod is deleted; another pod of the same name has another uid, which conflicts.
        except KubeloopError as error:
            self.events.warning(daemon_set, "FailedDelete", f"Error deleting: {failure_text(error)}")
            raise
        gone = Pod(metadata=ObjectMeta(name=pod.name, namespace=daemon_set.metadata.namespace, uid=pod.uid))
        self._expectations.deleted(daemon_set.object_key(self.cluster), gone)
        self.events.normal(daemon_set, "SuccessfulDelete", f"Deleted pod: {pod.name}")

    # -------------------------------------------------------------------------------------------------------------------- status

    async def _write_status(self, daemon_set: DaemonSet, view: DaemonView, generation: int | None) -> None:
        status = make_status(view, daemon_set.status, generation)
        if status == daemon_set.status:
            return
        changed = copy.copy(daemon_set)
        changed.status = status
        with contextlib.suppress(NotFound):
            await self.client.update_status(changed)

    def _next(self, view: DaemonView, plan: DaemonPlan) -> Result | None:
        """Return when to reconcile because failed pods may be deleted or ready pods become available, for which no event comes."""
        delays = [plan.retry_after] if plan.retry_after else []
        if view.min_ready_seconds:
            pods = [pods[0] for pods in view.pods.values()]
            if any(pod.ready and not view.is_available(pod) for pod in pods):
                delays.append(float(view.min_ready_seconds))
        return Result(requeue_after=min(delays)) if delays else None
