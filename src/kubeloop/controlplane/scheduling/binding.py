"""Writes of the scheduler: volumes of a pod are bound, then the pod itself; victims are preempted; the status says why a pod waits.

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

#: Number of bindings that are sent at the same time.
_CONCURRENT_BINDINGS = 32


class BindingFailed(KubeloopError):
    """A pod could not be bound to its node; the text says why, in upstream's words.

    ``expected`` says that the pod is gone or has a node already, which its next event shows, so there is nothing to report.
    """

    def __init__(self, message: str, *, expected: bool = False) -> None:
        super().__init__(message)
        self.expected = expected


@dataclass(eq=False)
class PendingBinding:
    """A pod with a node that is not bound yet; the node counts it already.

    ``reserved`` and ``annotated``: names of the volumes and claims that carry its reservation, with the version from which on they do.
    """

    pod: PodFacts
    node: str
    plan: VolumePlan
    timeout: float
    cancelled: bool = False
    reserved: dict[str, int] = field(default_factory=dict)
    annotated: dict[str, int] = field(default_factory=dict)


class VolumeChanges:
    """Wakes the bindings that wait for volumes or claims."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Event] = set()

    def notify(self) -> None:
        """Wake everything that waits."""
        for one in self._waiting:
            one.set()

    async def wait(self, clock: Clock, seconds: float) -> None:
        """Return after the next change, or after ``seconds``."""
        changed = asyncio.Event()
        timer = clock.call_later(seconds, changed.set)
        self._waiting.add(changed)
        try:
            await changed.wait()
        finally:
            self._waiting.discard(changed)
            timer.cancel()


def reference_to(pod: PodFacts) -> Pod:
    """Return the pod as the subject of an event."""
    version = pod.document["metadata"].get("resourceVersion") or ""
    return Pod(metadata=ObjectMeta(name=pod.name, namespace=pod.namespace, uid=pod.uid, resource_version=version))


class PodBinder:
    """Binds pods to nodes and their claims to volumes.

    Args:
        client: The client.
        clock: Measures the time for volumes.
        events: Records that a pod was scheduled.
        watch: The facts of the cluster.
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
        """Show the volumes that a pod gets as reserved, so that the next pod does not get them as well."""
        for needed, chosen in binding.plan.bindings:
            claim, volume = self._claims.get(needed.name, needed.namespace), self._volumes.get(chosen.name)
            if claim is not None and volume is not None and reserve_volume(volume, claim):
                self._watch.reserve(volume_facts(volume))

    def unreserve(self, binding: PendingBinding) -> None:
        """Show the volumes of a pod as the cache has them."""
        for _, chosen in binding.plan.bindings:
            volume = self._volumes.get(chosen.name)
            self._watch.restore(chosen.name, volume_facts(volume) if volume is not None else None)

    async def bind(self, binding: PendingBinding) -> None:
        """Bind the volumes of a pod, and then the pod. It does nothing more when the binding is cancelled meanwhile.

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
        """Reserve volumes for their claims, and request the volumes to provision. What carries its reservation already is not written."""
        # All changes are made before the first write: the versions that the plan was made of protect what others write meanwhile.
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
        """Return why the volumes of a pod are not bound on its node, in upstream's words; "" while they may be.

        An external provisioner removes its node from a claim for which it can make no volume there. A cache that does not show yet what
        the scheduler wrote is no such removal.
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
    """Writes conditions and nominations of pods, and ends the victims of preemption.

    Args:
        client: The client.
        clock: Its time of day stands in conditions.
        events: Records why a pod waits, and preemptions.
    """

    def __init__(self, client: Client, clock: Clock, events: EventRecorder) -> None:
        self._client = client
        self._clock = clock
        self._events = events

    async def report_failure(self, pod: PodFacts, reason: str, message: str, nominated: str | None) -> None:
        """Record why a pod was not scheduled, as an Event and in its condition PodScheduled.

        Args:
            pod: The pod.
            reason: Unschedulable or SchedulerError.
            message: Why.
            nominated: The node on which room is made for the pod; "" for none; None: the nomination stays as it is.
        """
        self._events.warning(reference_to(pod), "FailedScheduling", message, action="Scheduling")
        status: JSONObject = {}
        before = pod.condition("PodScheduled")
        wanted = ("False", reason, message)
        if before is None or (before.get("status"), before.get("reason"), before.get("message")) != wanted:
            status["conditions"] = [self._condition(pod, "PodScheduled", *wanted)]
        if nominated is not None and nominated != pod.nominated_node:
            status["nominatedNodeName"] = nominated or None
        if status:
            await self._patch(pod, status)

    async def clear_nomination(self, pod: PodFacts) -> None:
        """Take back the node that a pod is nominated to."""
        if pod.nominated_node:
            await self._patch(pod, {"nominatedNodeName": None})

    async def preempt(self, pod: PodFacts, candidate: Candidate, is_gone: Callable[[str], bool]) -> None:
        """Delete the victims of a preemption; each gets the condition DisruptionTarget first.

        Args:
            pod: The pod that needs room.
            candidate: The node and its victims.
            is_gone: Whether the pod of a uid is gone or being deleted already.

        Raises:
            KubeloopError: A victim could not be deleted.
        """
        message = f"{pod.scheduler}: preempting to accommodate a higher priority pod"
        for victim in candidate.victims:
            if victim.terminating or is_gone(victim.key):
                continue
            condition = self._condition(victim, "DisruptionTarget", "True", "PreemptionByScheduler", message)
            try:
                if victim.condition("DisruptionTarget") is None:
                    await self._patch(victim, {"conditions": [condition]})
                await self._client.delete(Pod, victim.name, namespace=victim.namespace, options=DeleteOptions(uid=victim.uid))
            except (NotFound, Conflict):
                continue  # Deleted, perhaps followed by a namesake.
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
        """Change the status of a pod; a pod that is gone needs no change."""
        change: Any = {"metadata": {"uid": pod.uid}, "status": status}
        try:
            await self._client.patch(Pod, pod.name, change, type="strategic", namespace=pod.namespace, subresource="status")
        except (NotFound, Conflict):
            return


def nominated_below(cluster: ClusterFacts, node: str, priority: int) -> Iterable[PodFacts]:
    """Return the pods of lower priority that are nominated to a node."""
    return [one for one in cluster.nominated.get(node, {}).values() if one.priority < priority]
