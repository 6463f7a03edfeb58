"""The scheduler: binds each pod without a node to the best node that its profile allows, and preempts pods if no node fits.

Source: Kubernetes documentation, "Kubernetes Scheduler"; pkg/scheduler/schedule_one.go, eventhandlers.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import msgspec

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.cache import EventType, InformerEvent, Registration
from kubeloop.controller import KeyController, Predicate, Result
from kubeloop.controller.events import EventSink, SeriesEvents
from kubeloop.controlplane.scheduling.binding import (
    BindingFailed,
    PendingBinding,
    PodBinder,
    PodStatusWriter,
    nominated_below,
)
from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, pod_events
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.cluster_watch import KINDS, ClusterWatch
from kubeloop.controlplane.scheduling.configuration import DEFAULT_SCHEDULER, SchedulerConfiguration, default_configuration
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.scheduling.framework import Diagnosis, Profile, SchedulerPlugin, best_node, enough_nodes, find_nodes
from kubeloop.controlplane.scheduling.preemption import PreemptionResult, preempt
from kubeloop.controlplane.scheduling.queue import Place, QueuedPod, SchedulingQueue
from kubeloop.controlplane.scheduling.volume_matching import VolumePlan, plan_volumes
from kubeloop.meta import ObjectKey
from kubeloop.meta.errors import KubeloopError
from kubeloop.tasks import Supervisor

SCHEDULER = DEFAULT_SCHEDULER
#: The only key: a reconcile schedules the next pods of the scheduling queue.
_CYCLE = ObjectKey("", "", "")
#: Maximum number of pods that one reconcile schedules, so that a stop does not wait for long.
_PODS_PER_RECONCILE = 100

_never = Predicate(lambda event: False, ("spec.nodeName", "status.phase"))  # noqa: ARG005  # pods come from the scheduling queue


class _PluginHints:
    """Decides which refused pods an event may help, by the plugins of their profiles."""

    def __init__(self, profiles: dict[str, Profile], cluster: ClusterFacts) -> None:
        self._plugins: dict[str, dict[str, SchedulerPlugin]] = {
            name: {one.name: one for one in profile.filters} for name, profile in profiles.items()
        }
        self._cluster = cluster
        self._interests = {one.name: one.interests for profile in profiles.values() for one in profile.filters}

    def is_interested(self, plugins: frozenset[str], event: ClusterEvent) -> bool:
        if not plugins:  # There was no node at all.
            return event.kind == "Node" and event.action is Action.ADD
        return any(event.concerns(self._interests.get(name, {})) for name in plugins)

    def may_help(self, queued: QueuedPod, event: ClusterEvent) -> bool:
        if not queued.plugins:
            return True
        pod = queued.facts
        known = self._plugins.get(pod.scheduler, {})
        for name in queued.plugins:
            plugin = known.get(name)
            if plugin is not None and event.concerns(plugin.interests) and plugin.may_help(pod, event, self._cluster):
                return True
        return False


@dataclass
class _BindingFailures:
    """The nodes on which the volumes of a pod could not be bound, each with the ordinal of its last failure: later ones are higher."""

    count: int = 0
    nodes: dict[str, int] = field(default_factory=dict)

    def add(self, node: str) -> None:
        self.count += 1
        self.nodes[node] = self.count


class Scheduler(KeyController[Pod], predicates=[_never], reads=KINDS, name=SCHEDULER):
    """Binds pods to nodes through the subresource ``pods/binding``.

    The condition PodScheduled of a pod that fits on no node gives the reason. Such a pod is retried when an event may help it, after five
    minutes at the latest.

    A node counts a pod as soon as it is chosen, while the binding is written concurrently with decisions about the next pods. If the
    binding fails, the node no longer counts the pod, which is scheduled again after its back-off; a node on which the pod's volumes could
    not be bound is then the last choice.

    The controller has one worker, because concurrent decisions could use the same free resources twice.

    Not guaranteed:
        Room for the pods of two schedulers that are active at the same time: the server refuses a second binding of a pod, but does not
        compare pods with the resources of nodes. ``ElectedRunnable`` runs one scheduler at a time.

    Args:
        configuration: The profiles and back-offs; None: the default configuration.
    """

    def __init__(self, configuration: SchedulerConfiguration | None = None) -> None:
        self._configuration = configuration or default_configuration()
        self._handlers: list[Registration[Any]] = []
        self._tasks: Supervisor | None = None

    def event_sinks(self) -> Sequence[EventSink]:
        return [SeriesEvents()]  # as in kube-scheduler

    async def start(self) -> None:
        """Read the whole cluster into memory, and then begin to schedule."""
        chosen = self._configuration
        self._watch = ClusterWatch(self._apply)
        self._cluster = self._watch.cluster
        self._queue = SchedulingQueue(
            _PluginHints(chosen.profiles, self._cluster),
            self._is_gated,
            initial_backoff=chosen.initial_backoff,
            max_backoff=chosen.max_backoff,
        )
        #: The pods with a node, bound or only chosen, and this node, by uid; and the uid of each pod by namespace and name.
        self._placed: dict[str, tuple[PodFacts, str]] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._bindings: dict[str, PendingBinding] = {}
        self._failures: dict[str, _BindingFailures] = {}
        self._preempting: set[str] = set()
        self._first_node = 0
        claims, volumes = self.lister(PersistentVolumeClaim), self.lister(PersistentVolume)
        self._binder = PodBinder(self.client, self.clock, self.events, self._watch, claims, volumes)
        self._writer = PodStatusWriter(self.client, self.clock, self.events)
        # A separate task starts work that outlives a reconcile, so that its writes are not attributed to the reconcile.
        self._work: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]]] = asyncio.Queue()
        self._writes: dict[str, asyncio.Event] = {}
        self._tasks = Supervisor(self.clock, self.log)
        self._tasks.start(self._start_work, name="scheduler-work")
        handlers: list[tuple[type[Any], Callable[[InformerEvent[Any]], None]]] = [*self._watch.handlers(), (Pod, self._pod)]
        for kind, handle in handlers:
            informer = self.informer(kind)
            self._handlers.append(informer.on_event(added=handle, updated=handle, deleted=handle, resync=0, name=self.name))
        for one in self._handlers:
            await one.wait_synced()
        self.enqueue(_CYCLE)

    async def stop(self) -> None:
        for one in self._handlers:
            one.remove()
        self._handlers.clear()
        if self._tasks is not None:
            await self._tasks.stop()

    async def reconcile(self, key: ObjectKey) -> Result | None:  # noqa: ARG002  # there is one key
        for _ in range(_PODS_PER_RECONCILE):
            queued = self._queue.pop(self.clock.now())
            if queued is None:
                wake = self._queue.next_wake()
                return None if wake is None else Result(requeue_after=max(wake - self.clock.now(), 0.001))
            self._try(queued)
            await asyncio.sleep(0)  # Let events and bindings proceed.
        self.enqueue(_CYCLE)
        return None

    # ---------------------------------------------------------------------------------------------------------- one decision

    def _try(self, queued: QueuedPod) -> None:
        """Schedule one pod. An unexpected error is logged and reported, and the pod is retried after its back-off."""
        try:
            self._schedule(queued)
        except Exception as error:
            pod = queued.facts
            self.log.exception("scheduling %s/%s failed", pod.namespace, pod.name)
            self._queue.fail(queued, self.clock.now())
            self._report(pod, "SchedulerError", str(error) or type(error).__name__, "")

    def _schedule(self, queued: QueuedPod) -> None:
        """Choose a node for one pod and start its binding, or let it wait if no node fits."""
        pod = queued.facts
        profile = self._configuration.profiles[pod.scheduler]
        failures = self._failures.get(pod.key)
        total = len(self._cluster.by_name)
        # If the volumes of a pod could not be bound on some node, all nodes are checked, so that another one can be chosen.
        limit = enough_nodes(total, profile.node_percentage) if failures is None else None
        diagnosis = find_nodes(profile, pod, self._cluster, first=self._first_node, limit=limit)
        if total:
            self._first_node = (self._first_node + diagnosis.evaluated) % total
        if not diagnosis.fitting:
            self._refuse(queued, profile, diagnosis)
            return
        nodes = diagnosis.fitting
        if failures is not None:
            least = min(failures.nodes.get(node.name, 0) for node in nodes)
            nodes = [node for node in nodes if failures.nodes.get(node.name, 0) == least]
        node = best_node(profile, pod, self._cluster, nodes)
        self._assume(pod, node, profile)

    def _assume(self, pod: PodFacts, node: NodeFacts, profile: Profile) -> None:
        """Count a pod on its chosen node, and start its binding."""
        plan = plan_volumes(pod, node, self._cluster) if pod.claims and profile.plugin("VolumeBinding") else VolumePlan()
        binding = PendingBinding(pod, node.name, plan, profile.bind_timeout)
        self._cluster.nominate(pod, "")
        self._place(pod, node.name)
        self._bindings[pod.key] = binding
        self._binder.reserve(binding)
        self._write_in_order(pod, partial(self._bind, binding))

    def _refuse(self, queued: QueuedPod, profile: Profile, diagnosis: Diagnosis) -> None:
        """Put a pod that fits on no node back into the queue, start preemption if that can help, and report the reason."""
        pod = queued.facts
        result = preempt(profile, pod, self._cluster, diagnosis, offset=self._first_node)
        self._queue.refuse(queued, diagnosis.plugins, self.clock.now())
        nominated: str | None = "" if not result.keeps_nomination else None
        if result.candidate is not None:
            nominated = result.candidate.node
            self._cluster.nominate(pod, nominated)
            self._start_preemption(pod, result)
        elif not result.keeps_nomination:
            self._cluster.nominate(pod, "")
        self._report(pod, "Unschedulable", diagnosis.message(result.message), nominated)

    def _start_preemption(self, pod: PodFacts, result: PreemptionResult) -> None:
        self._preempting.add(pod.key)
        self._work.put_nowait(partial(self._preempt, pod, result))

    def _is_gated(self, pod: PodFacts) -> bool:
        """Return whether a pod must not be scheduled yet, because of scheduling gates or because its preemption is in progress."""
        if pod.key in self._preempting:
            return True
        return bool(pod.gates) and self._configuration.profiles[pod.scheduler].respects_gates

    # ------------------------------------------------------------------------------------------------- writes beside the decisions

    async def _start_work(self) -> None:
        assert self._tasks is not None
        while True:
            self._tasks.start(await self._work.get(), name="scheduler-writes")

    async def _bind(self, binding: PendingBinding) -> None:
        pod = binding.pod
        if binding.plan.bindings or binding.plan.provisions:
            try:
                await self._writer.nominate(binding)
            except KubeloopError as error:
                self.log.warning("the nominated node of pod %s/%s was not written: %s", pod.namespace, pod.name, error)
        try:
            await self._binder.bind(binding)
        except BindingFailed as error:
            self._fail_binding(binding, error)
        except Exception as error:
            self._fail_binding(binding, BindingFailed(str(error) or type(error).__name__))
            self.log.exception("binding %s/%s failed", pod.namespace, pod.name)
        else:
            if self._bindings.get(pod.key) is binding:
                del self._bindings[pod.key]
            self._failures.pop(pod.key, None)

    def _fail_binding(self, binding: PendingBinding, error: BindingFailed) -> None:
        """Remove a pod whose binding failed from its node, and schedule it again after its back-off; other pods may use the room."""
        pod = binding.pod
        if self._bindings.get(pod.key) is not binding:
            return  # The pod is deleted, or was bound nevertheless.
        del self._bindings[pod.key]
        self._binder.unreserve(binding)
        self._unplace(pod.key)
        if binding.plan.bindings or binding.plan.provisions:
            self._failures.setdefault(pod.key, _BindingFailures()).add(binding.node)
        self._apply(ClusterEvent("Pod", Action.DELETE, PodFacts(_with_node(pod, binding.node)), None))
        queued = self._queue.get(pod.key)
        if queued is not None:
            self._queue.fail(queued, self.clock.now())
        if queued is not None and not error.expected:
            self._report(queued.facts, "SchedulerError", str(error), "", was_nominated=binding.nominated)
        self.enqueue(_CYCLE)

    async def _preempt(self, pod: PodFacts, result: PreemptionResult) -> None:
        candidate = result.candidate
        assert candidate is not None
        error = False
        try:
            for other in nominated_below(self._cluster, candidate.node, pod.priority):
                self._cluster.nominate(other, "")
                await self._writer.clear_nomination(other)
            await self._writer.preempt(pod, candidate, lambda uid: uid not in self._placed or self._placed[uid][0].terminating)
        except KubeloopError as failure:
            error = True
            self.log.warning("preemption for %s/%s failed: %s", pod.namespace, pod.name, failure)
        finally:
            self._preempting.discard(pod.key)
        queued = self._queue.get(pod.key)
        if queued is not None and queued.gated:
            self._queue.activate(pod.key)
        elif queued is not None and error and queued.place is Place.UNSCHEDULABLE:
            self._queue.retry(queued, self.clock.now())
        self.enqueue(_CYCLE)

    def _report(self, pod: PodFacts, reason: str, message: str, nominated: str | None, *, was_nominated: bool = False) -> None:
        self._write_in_order(pod, partial(self._write_report, pod, reason, message, nominated, was_nominated=was_nominated))

    def _write_in_order(self, pod: PodFacts, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Start a write when earlier writes for the same pod have ended: an old refusal must not be written after a binding."""
        earlier, ended = self._writes.get(pod.key), asyncio.Event()
        self._writes[pod.key] = ended

        async def in_order() -> None:
            try:
                if earlier is not None:
                    await earlier.wait()
                await write()
            finally:
                ended.set()
                if self._writes.get(pod.key) is ended:
                    del self._writes[pod.key]

        self._work.put_nowait(in_order)

    async def _write_report(self, pod: PodFacts, reason: str, message: str, nominated: str | None, *, was_nominated: bool) -> None:
        try:
            await self._writer.report_failure(pod, reason, message, nominated, was_nominated=was_nominated)
        except KubeloopError as error:
            self.log.warning("the status of pod %s/%s was not written: %s", pod.namespace, pod.name, error)

    # ------------------------------------------------------------------------------------------------------------- events

    def _apply(self, event: ClusterEvent) -> None:
        """Make the unschedulable pods that a change may help active, and wake bindings that wait for volumes."""
        if event.kind in ("PersistentVolume", "PersistentVolumeClaim"):
            self._binder.volume_changes.notify()
        if self._queue.move(event, self.clock.now()):
            self.enqueue(_CYCLE)

    def _pod(self, event: InformerEvent[Pod]) -> None:
        head = event.head
        name, uid = (head.namespace, head.name), head.uid
        before = self._uids.get(name)
        if before is not None and before != uid:
            self._forget_pod(before)  # Another pod of the same name has replaced this pod.
        if event.type is EventType.DELETED or head.value("status.phase") in ("Succeeded", "Failed"):
            self._uids.pop(name, None)
            self._forget_pod(uid)
            return
        self._uids[name] = uid
        known = self._placed.get(uid)
        node = head.value("spec.nodeName") or ""
        if known is not None and known[0].node == node and _is_unchanged(known[0], event):
            return
        pod = PodFacts(msgspec.json.decode(head.document()))
        if node:
            self._assigned(pod, node)
        else:
            self._unassigned(pod)

    def _assigned(self, pod: PodFacts, node: str) -> None:
        """Handle the new state of a pod that has a node."""
        pod.compact()
        known = self._placed.get(pod.key)
        if known is not None:
            self._unplace(pod.key)
        self._place(pod, node)
        if known is not None and known[0].node:
            for event in pod_events(known[0], pod):
                self._apply(event)
            return
        self._leave_queue(pod.key)
        self._failures.pop(pod.key, None)
        self._apply(ClusterEvent("Pod", Action.ADD, None, pod))

    def _unassigned(self, pod: PodFacts) -> None:
        """Handle the new state of a pod that has no node."""
        if pod.terminating or pod.scheduler not in self._configuration.profiles:
            self._forget_pod(pod.key)
            return
        now = self.clock.now()
        queued = self._queue.get(pod.key)
        if queued is None:
            if pod.nominated_node:
                self._cluster.nominate(pod, pod.nominated_node)
            self._queue.add(pod, now)
        else:
            old = queued.facts
            # A node counts the pod already while its binding is under way.
            if pod.key not in self._bindings and (pod.nominated_node or old.nominated_node):
                self._cluster.nominate(pod, pod.nominated_node)
            self._queue.update(pod, list(pod_events(old, pod)), now)
        self.enqueue(_CYCLE)

    def _forget_pod(self, uid: str) -> None:
        """Remove a pod that was deleted, has finished, or is not to be scheduled, from all data of the scheduler."""
        queued = self._queue.get(uid)
        known = self._placed.get(uid)
        self._leave_queue(uid)
        self._failures.pop(uid, None)
        if known is not None:
            pod, node = known
            self._unplace(uid)
            self._apply(ClusterEvent("Pod", Action.DELETE, pod if pod.node else PodFacts(_with_node(pod, node)), None))
        elif queued is not None and queued.facts.nominated_node:
            self._apply(ClusterEvent("UnscheduledPod", Action.DELETE, queued.facts, None))

    def _leave_queue(self, uid: str) -> None:
        queued = self._queue.remove(uid)
        if queued is not None:
            self._cluster.nominate(queued.facts, "")
        binding = self._bindings.pop(uid, None)
        if binding is not None:
            binding.cancelled = True
            self._binder.volume_changes.notify()

    def _place(self, pod: PodFacts, node: str) -> None:
        self._placed[pod.key] = (pod, node)
        self._cluster.add_pod(pod, node)

    def _unplace(self, uid: str) -> None:
        pod, node = self._placed.pop(uid)
        self._cluster.remove_pod(pod, node)


def _is_unchanged(known: PodFacts, event: InformerEvent[Pod]) -> bool:
    """Return whether a pod with a node has not changed in a way that matters to other pods.

    A pod with a generation above 1 was changed after its creation and always counts as changed: a resize of it shows only in its status.
    """
    head = event.head
    return known.labels == head.labels and known.terminating == head.deleting and known.generation == head.generation <= 1


def _with_node(pod: PodFacts, node: str) -> dict[str, Any]:
    """Return a copy of the document of a pod with a node in ``spec.nodeName``."""
    return {**pod.document, "spec": {**pod.spec, "nodeName": node}}
