"""The scheduler: assigns each pod without a node to the best of the nodes that its profile allows, and preempts pods where none does.

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
from kubeloop.cache import Event, EventType, Registration
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
#: The one key: a reconcile schedules the next pods of the scheduling queue.
_CYCLE = ObjectKey("", "", "")
#: Number of pods that one reconcile schedules at most, so that a stop does not wait for long.
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

    def concern(self, plugins: frozenset[str], event: ClusterEvent) -> bool:
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
    """The nodes on which the volumes of a pod could not be bound, with the number of the last failure on each."""

    count: int = 0
    nodes: dict[str, int] = field(default_factory=dict)

    def add(self, node: str) -> None:
        self.count += 1
        self.nodes[node] = self.count


class Scheduler(KeyController[Pod], predicates=[_never], reads=KINDS, name=SCHEDULER):
    """Binds through ``pods/binding``. The condition PodScheduled of a pod that fits nowhere says why, and the pod is tried again when an
    event may help it, at the latest after five minutes.

    A node counts a pod from the decision on; the writes of its binding run beside the decisions about the next pods. When they fail, the
    node loses the pod again, and the pod is scheduled again after its back-off. A node on which its volumes could not be bound comes last.

    One worker: two at once would count the same free place twice.

    Args:
        configuration: The profiles; None: the default one.
    """

    def __init__(self, configuration: SchedulerConfiguration | None = None) -> None:
        self._configuration = configuration or default_configuration()
        self._handlers: list[Registration[Any]] = []
        self._tasks: Supervisor | None = None

    def event_sinks(self) -> Sequence[EventSink]:
        return [SeriesEvents()]  # as kube-scheduler

    async def start(self) -> None:
        """Read the whole cluster into memory; the first pod is scheduled when that is done."""
        chosen = self._configuration
        self._watch = ClusterWatch(self._apply)
        self._cluster = self._watch.cluster
        self._queue = SchedulingQueue(
            _PluginHints(chosen.profiles, self._cluster),
            self._is_gated,
            initial_backoff=chosen.initial_backoff,
            max_backoff=chosen.max_backoff,
        )
        #: The pods that do not wait in the queue, with the nodes that count them, by uid; and the uid of each pod by its name.
        self._placed: dict[str, tuple[PodFacts, str]] = {}
        self._uids: dict[tuple[str, str], str] = {}
        self._bindings: dict[str, PendingBinding] = {}
        self._failures: dict[str, _BindingFailures] = {}
        self._preempting: set[str] = set()
        self._first_node = 0
        claims, volumes = self.lister(PersistentVolumeClaim), self.lister(PersistentVolume)
        self._binder = PodBinder(self.client, self.clock, self.events, self._watch, claims, volumes)
        self._writer = PodStatusWriter(self.client, self.clock, self.events)
        # Work that outlives a reconcile is started by a task that belongs to none, so that its writes do not count as the reconcile's.
        self._work: asyncio.Queue[Callable[[], Coroutine[Any, Any, None]]] = asyncio.Queue()
        self._writes: dict[str, asyncio.Event] = {}
        self._tasks = Supervisor(self.clock, self.log)
        self._tasks.start(self._start_work, name="scheduler-work")
        handlers: list[tuple[type[Any], Callable[[Event[Any]], None]]] = [*self._watch.handlers(), (Pod, self._pod)]
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
            await asyncio.sleep(0)  # Events and bindings go on.
        self.enqueue(_CYCLE)
        return None

    # ---------------------------------------------------------------------------------------------------------- one decision

    def _try(self, queued: QueuedPod) -> None:
        """Decide about one pod. A pod about which no decision is possible is tried again after its back-off."""
        try:
            self._schedule(queued)
        except Exception as error:
            pod = queued.facts
            self.log.exception("scheduling %s/%s failed", pod.namespace, pod.name)
            self._queue.fail(queued, self.clock.now())
            self._report(pod, "SchedulerError", str(error) or type(error).__name__, "")

    def _schedule(self, queued: QueuedPod) -> None:
        """Decide about one pod."""
        pod = queued.facts
        profile = self._configuration.profiles[pod.scheduler]
        failures = self._failures.get(pod.key)
        total = len(self._cluster.by_name)
        # A pod whose volumes failed on some node looks at all nodes, so that it finds another one.
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
        """Count the pod on its node, and let it be bound."""
        plan = plan_volumes(pod, node, self._cluster) if pod.claims and profile.plugin("VolumeBinding") else VolumePlan()
        binding = PendingBinding(pod, node.name, plan, profile.bind_timeout)
        self._cluster.nominate(pod, "")
        self._place(pod, node.name)
        self._bindings[pod.key] = binding
        self._binder.reserve(binding)
        self._write_in_order(pod, partial(self._bind, binding))

    def _refuse(self, queued: QueuedPod, profile: Profile, diagnosis: Diagnosis) -> None:
        """Let a pod wait that fits nowhere, and make room for it where that is possible."""
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
        """Return whether a pod must not be scheduled yet."""
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
        """Take the pod from its node, and schedule it again after its back-off; other pods may get the room."""
        pod = binding.pod
        if self._bindings.get(pod.key) is not binding:
            return  # The pod is gone, or bound after all.
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
            self._report(queued.facts, "SchedulerError", str(error), "")
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

    def _report(self, pod: PodFacts, reason: str, message: str, nominated: str | None) -> None:
        self._write_in_order(pod, partial(self._write_report, pod, reason, message, nominated))

    def _write_in_order(self, pod: PodFacts, write: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Let a write begin when earlier ones for the pod have ended: a binding must not be followed by an earlier refusal."""
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

    async def _write_report(self, pod: PodFacts, reason: str, message: str, nominated: str | None) -> None:
        try:
            await self._writer.report_failure(pod, reason, message, nominated)
        except KubeloopError as error:
            self.log.warning("the status of pod %s/%s was not written: %s", pod.namespace, pod.name, error)

    # ------------------------------------------------------------------------------------------------------------- events

    def _apply(self, event: ClusterEvent) -> None:
        """Let an event help the pods that it can help."""
        if event.kind in ("PersistentVolume", "PersistentVolumeClaim"):
            self._binder.volume_changes.notify()
        if self._queue.move(event, self.clock.now()):
            self.enqueue(_CYCLE)

    def _pod(self, event: Event[Pod]) -> None:
        head = event.head
        name, uid = (head.namespace, head.name), head.uid
        before = self._uids.get(name)
        if before is not None and before != uid:
            self._forget_pod(before)  # The name has a new owner.
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
        """Handle the state of a pod that has a node."""
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
        """Handle the state of a pod that has no node."""
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
            if pod.nominated_node or old.nominated_node:
                self._cluster.nominate(pod, pod.nominated_node)
            self._queue.update(pod, list(pod_events(old, pod)), now)
        self.enqueue(_CYCLE)

    def _forget_pod(self, uid: str) -> None:
        """Handle the end of a pod."""
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


def _is_unchanged(known: PodFacts, event: Event[Pod]) -> bool:
    """Return whether a pod with a node is as it was, as far as other pods are concerned.

    The generation of a pod that was changed since its creation is above 1; such a pod may be resized, which only its status shows.
    """
    head = event.head
    return known.labels == head.labels and known.terminating == head.deleting and known.generation == head.generation <= 1


def _with_node(pod: PodFacts, node: str) -> dict[str, Any]:
    """Return the document of a pod as if it had the node."""
    return {**pod.document, "spec": {**pod.spec, "nodeName": node}}
