"""Writes of the scheduler: it binds the volumes of a pod and the pod, deletes the victims of preemption, and records why a pod waits.

Source: Kubernetes pkg/scheduler/schedule_one.go (bindingCycle, updatePod), plugins/volumebinding/binder.go,
framework/preemption/executor.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.cache import Lister
from kubeloop.client import Client, DeleteOptions
from kubeloop.controller import EventRecorder
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.cluster_watch import ClusterWatch, version_of
from kubeloop.controlplane.scheduling.facts import SELECTED_NODE, PodFacts, volume_facts
from kubeloop.controlplane.scheduling.preemption import Candidate
from kubeloop.controlplane.scheduling.volume_matching import VolumePlan, reserve_volume
from kubeloop.meta import Conflict, NotFound, ObjectMeta, format_time, parse_time
from kubeloop.meta.errors import KubeloopError
from kubeloop.timing import Clock
from kubeloop.types import JSONObject

#: Maximum number of concurrent requests that bind pods.
_CONCURRENT_BINDINGS = 32


class BindingFailed(KubeloopError):
    """A pod could not be bound to its node; the text is upstream's.

    ``expected`` says that the pod was deleted or already has a node, which a watch event will show, so that there is nothing to report.
    """

    def __init__(self, message: str, *, expected: bool = False) -> None:
        super().__init__(message)
        self.expected = expected


@dataclass(eq=False)
class PendingBinding:
    """A pod for which the scheduler has chosen a node, but which is not bound yet. The node already counts the pod.

    ``plan`` has the volumes to bind first, within ``timeout`` seconds. ``reserved`` has the volumes that are reserved for the pod's claims,
    and ``annotated`` the claims with the node as their selected node: resource versions of these writes by name. ``nominated`` says that
    the node was written to the pod's status.nominatedNodeName.
    """

    pod: PodFacts
    node: str
    plan: VolumePlan
    timeout: float
    cancelled: bool = False
    nominated: bool = False
    reserved: dict[str, int] = field(default_factory=dict)
    annotated: dict[str, int] = field(default_factory=dict)


class VolumeChanges:
    """Wakes bindings that wait for a change of a volume or claim."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Wake all waiting bindings."""
        for one in self._waiting:
            one.set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Wait for the next change, at most ``seconds``."""
        changed = asyncio.Event()
        timer = clock.call_later(seconds, changed.set)
        self._waiting.add(changed)
        try:
            await changed.wait()
        finally:
            self._waiting.discard(changed)
            timer.cancel()


def reference_to(pod: PodFacts) -> Pod:
    """Return a Pod with the name, uid and resource version of ``pod``, to be the subject of an Event."""
    version = pod.document["metadata"].get("resourceVersion") or ""
    return Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid, resource_version=version))


class PodBinder:
    """Binds pods to nodes and their claims to volumes.

    Args:
        client: The client.
        clock: The clock of the time limit for binding volumes.
        events: Records that a pod was scheduled.
        watch: The facts of the cluster, in which volumes are reserved.
        claims: The cached claims.
        volumes: The cached volumes.
    """

    def __init__(
        self,
        client: Client,
        clock: Clock,
        events: EventRecorder,
        watch: ClusterWatch,
        claims: Lister[PersistentVolumeClaim],
        volumes: Lister[PersistentVolume],
    ) -> None:
        self._client = client
        self._clock = clock
        self._events = events
        self._watch = watch
        self._claims = claims
        self._volumes = volumes
        self._slots = asyncio.Semaphore(_CONCURRENT_BINDINGS)
        self.volume_changes = VolumeChanges()

    def reserve(self, binding: PendingBinding) -> None:
        """Reserve the volumes of a binding in the facts of the cluster, so that the next pod does not get them as well."""
        for needed, chosen in binding.plan.bindings:
            claim, volume = self._claims.get(needed.name, needed.namespace), self._volumes.get(chosen.name)
            if claim is not None and volume is not None and reserve_volume(volume, claim):
                self._watch.reserve(volume_facts(volume))

    def unreserve(self, binding: PendingBinding) -> None:
        """Undo ``reserve``: set the facts of the volumes of a binding to their cached state."""
        for _, chosen in binding.plan.bindings:
            volume = self._volumes.get(chosen.name)
            self._watch.restore(chosen.name, volume_facts(volume) if volume is not None else None)

    async def bind(self, binding: PendingBinding) -> None:
        """Bind the volumes of a pod, and then the pod; stop between the two if the binding is cancelled.

        Raises:
            BindingFailed: The pod must be scheduled again.
        """
        pod, node = binding.pod, binding.node
        if binding.plan.bindings or binding.plan.provisions:
            try:
                await self._bind_volumes(binding)
            except (KubeloopError, TimeoutError) as error:
                raise BindingFailed(f'running PreBind plugin "VolumeBinding": binding volumes: {error}') from error
        if binding.cancelled:
            return
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": pod.name, "namespace": pod.namespace, "uid": pod.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        path = (await self._client.mapping(Pod)).path(pod.namespace, pod.name, "binding")
        try:
            async with self._slots:
                await self._client.transport.request("POST", path, body=msgspec.json.encode(body))
        except KubeloopError as error:
            message = f'binding rejected: running Bind plugin "DefaultBinder": {error}'
            raise BindingFailed(message, expected=isinstance(error, NotFound | Conflict)) from error
        message = f"Successfully assigned {pod.namespace}/{pod.name} to {node}"
        self._events.normal(reference_to(pod), "Scheduled", message, action="Binding")

    async def _bind_volumes(self, binding: PendingBinding) -> None:
        await self._write_reservations(binding)
        deadline = self._clock.now() + binding.timeout
        while not binding.cancelled:
            if self._are_bound(binding):
                return
            if fault := self._find_fault(binding):
                raise BindingFailed(fault)
            left = deadline - self._clock.now()
            if left <= 0:
                raise BindingFailed("context deadline exceeded")
            await self.volume_changes.wait(self._clock, left)

    async def _write_reservations(self, binding: PendingBinding) -> None:
        """Reserve volumes for their claims, and request the volumes to provision, as far as that is not written yet."""
        # All objects are read before the first write, so that their resource versions protect concurrent writes of other clients.
        changed: list[tuple[PersistentVolume | PersistentVolumeClaim, dict[str, int]]] = []
        for needed, chosen in binding.plan.bindings:
            claim, volume = self._claims.get(needed.name, needed.namespace), self._volumes.get(chosen.name)
            if claim is None or volume is None:
                continue
            if reserve_volume(volume, claim):
                changed.append((volume, binding.reserved))
            else:
                binding.reserved[chosen.name] = int(volume.metadata.resource_version or 0)
        for needed in binding.plan.provisions:
            claim = self._claims.get(needed.name, needed.namespace)
            if claim is None:
                continue
            if claim.metadata.annotations.get(SELECTED_NODE) != binding.node:
                claim.metadata.annotations[SELECTED_NODE] = binding.node
                changed.append((claim, binding.annotated))
            else:
                binding.annotated[needed.name] = int(claim.metadata.resource_version or 0)
        for one, versions in changed:
            try:
                versions[one.metadata.name] = int((await self._client.update(one)).metadata.resource_version or 0)
            except NotFound as error:
                raise BindingFailed(str(error)) from error

    def _are_bound(self, binding: PendingBinding) -> bool:
        claims, pod = self._watch.cluster.claims, binding.pod
        known = [claims.get((pod.namespace, name)) for name, _ in pod.claims]
        return all(one is not None and one.bound for one in known)

    def _find_fault(self, binding: PendingBinding) -> str:
        """Return why the volumes of a pod cannot be bound on its node, with upstream's text; "" while they may still be bound.

        An external provisioner removes the selected node from a claim for which it cannot create a volume there. A cache that does not show
        the scheduler's write yet must not be mistaken for such a removal.
        """
        for name, version in binding.reserved.items():
            volume = self._volumes.get(name)
            if volume is None or version_of(self._volumes.head(name)) < version:
                continue
            if not (volume.spec.claim_ref and volume.spec.claim_ref.uid):
                return f'ClaimRef got reset for pv "{name}"'
        namespace = binding.pod.namespace
        for name, version in binding.annotated.items():
            claim = self._claims.get(name, namespace)
            if claim is None or version_of(self._claims.head(name, namespace)) < version:
                continue
            if not claim.metadata.annotations:
                return f'selectedNode annotation reset for PVC "{name}"'
            if claim.metadata.annotations.get(SELECTED_NODE) not in (binding.node, None) or (
                SELECTED_NODE not in claim.metadata.annotations and not claim.spec.volume_name
            ):
                return f'provisioning failed for PVC "{name}"'
        return ""


class PodStatusWriter:
    """Writes conditions and nominations of pods, and deletes the victims of preemption.

    Args:
        client: The client.
        clock: The clock of the times in conditions.
        events: Records why a pod waits, and preemptions.
    """

    def __init__(self, client: Client, clock: Clock, events: EventRecorder) -> None:
        self._client = client
        self._clock = clock
        self._events = events

    async def nominate(self, binding: PendingBinding) -> None:
        """Write the node of a binding to the pod's status.nominatedNodeName, for other programs such as an autoscaler.

        Raises:
            KubeloopError: The status could not be written.
        """
        # Only if plugins have work before the binding, which takes time (schedule_one.go, bindingCycle; NominatedNodeNameForExpectation).
        if binding.pod.nominated_node != binding.node:
            binding.nominated = True  # Also if the response is lost.
            await self._patch(binding.pod, {"nominatedNodeName": binding.node})

    async def report_failure(self, pod: PodFacts, reason: str, message: str, nominated: str | None, *, was_nominated: bool = False) -> None:
        """Record why a pod was not scheduled, as an Event and in its condition PodScheduled.

        Args:
            pod: The pod.
            reason: Unschedulable or SchedulerError.
            message: The message of the Event and the condition.
            nominated: The node on which preemption makes room for the pod; "" removes the nomination; None leaves it unchanged.
            was_nominated: Whether the pod may have a nomination that ``pod`` does not show yet.
        """
        self._events.warning(reference_to(pod), "FailedScheduling", message, action="Scheduling")
        status: JSONObject = {}
        before = pod.condition("PodScheduled")
        wanted = ("False", reason, message)
        if before is None or (before.get("status"), before.get("reason"), before.get("message")) != wanted:
            status["conditions"] = [self._condition(pod, "PodScheduled", *wanted)]
        if nominated is not None and (was_nominated or nominated != pod.nominated_node):
            status["nominatedNodeName"] = nominated or None
        if status:
            await self._patch(pod, status)

    async def clear_nomination(self, pod: PodFacts) -> None:
        """Remove ``nominatedNodeName`` from a pod's status, if it has one."""
        if pod.nominated_node:
            await self._patch(pod, {"nominatedNodeName": None})

    async def preempt(self, pod: PodFacts, candidate: Candidate, is_gone: Callable[[str], bool]) -> None:
        """Delete the victims of a preemption, after setting their condition DisruptionTarget.

        Args:
            pod: The pod that needs room.
            candidate: The node and its victims.
            is_gone: Returns whether the pod with a uid is deleted or already being deleted.

        Raises:
            KubeloopError: A victim could not be deleted.
        """
        message = f"{pod.scheduler}: preempting to accommodate a higher priority pod"
        for victim in candidate.victims:
            if victim.terminating or is_gone(victim.key):
                continue
            condition = self._condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", message)
            try:
                if not _is_same(victim.condition("DisruptionTarget"), condition):
                    await self._patch(victim, {"conditions": [condition]})
                await self._client.delete(Pod, victim.name, namespace=victim.namespace, options=DeleteOptions(uid=victim.uid))
            except (NotFound, Conflict):
                continue  # The victim is deleted, and perhaps replaced by another pod of the same name.
            text = f"Preempted by pod {pod.uid} on node {candidate.node}"
            self._events.normal(reference_to(victim), "Preempted", text, action="Preempting", related=reference_to(pod))

    def _condition(self, pod: PodFacts, kind: str, status: str, reason: str, message: str) -> JSONObject:
        before = pod.condition(kind)
        same = before is not None and before.get("status") == status
        since = before.get("lastTransitionTime") if before is not None and same else None
        return {
            "type": kind,
            "status": status,
            "reason": reason,
            "message": message,
            "lastTransitionTime": format_time(parse_time(since) if since else self._clock.wall()),
            "observedGeneration": pod.generation or None,
        }

    async def _patch(self, pod: PodFacts, status: JSONObject) -> None:
        """Change the status of a pod; do nothing if the pod was deleted or replaced."""
        change: Any = {"metadata": {"uid": pod.uid}, "status": status}
        try:
            await self._client.patch(Pod, pod.name, change, type="strategic", namespace=pod.namespace, subresource="status")
        except (NotFound, Conflict):
            return


def _is_same(before: JSONObject | None, condition: JSONObject) -> bool:
    return before is not None and all(before.get(name) == condition[name] for name in ("status", "reason", "message"))


def nominated_below(cluster: ClusterFacts, node: str, priority: int) -> Iterable[PodFacts]:
    """Return the pods that are nominated to a node and have a lower priority than ``priority``."""
    return [one for one in cluster.nominated.get(node, {}).values() if one.priority < priority]
