"""ReplicaSet controller: maintains the number of pods of a template, and reports how many there are.

Source: Kubernetes pkg/controller/replicaset/replica_set.go.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from kubeloop.api.apps.v1 import ReplicaSet, ReplicaSetCondition, ReplicaSetStatus
from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Informer
from kubeloop.codec import decode, to_dict
from kubeloop.controller import Controller, Result, controller_of, set_controller_reference
from kubeloop.controller.builder.controller import OWNER_INDEX
from kubeloop.controlplane.controller_utils import claim, deletion_order, is_active, is_available, is_ready
from kubeloop.meta import ApiError, KubeloopError, NotFound, ObjectKey, Resource, selector_from
from kubeloop.timing import Clock

# Expectations: a controller that has just created or deleted pods waits until its cache shows it, or it would repeat the writes.
#
# Level-based: nothing is counted from events. Writes are looked up in the cache, by uid and by version. Source: Kubernetes
# pkg/controller/controller_utils.go (ControllerExpectations); KEP-5504 (resource versions can be compared).


#: Seconds after which the cache is trusted in any case, as upstream: a write that was undone at once may never show up.
GIVE_UP = 300.0


@dataclass(slots=True)
class _Expected:
    since: float
    created: dict[str, int] = field(default_factory=dict)
    deleted: dict[str, tuple[str, str]] = field(default_factory=dict)


class Expectations:
    """Writes that ``informer`` does not show yet, by the key of the owner for which they were made."""

    def __init__(self, informer: Informer[Resource], clock: Clock) -> None:
        self._informer = informer
        self._clock = clock
        self._expected: dict[ObjectKey, _Expected] = {}

    def created(self, owner: ObjectKey, obj: Resource) -> None:
        """Record a created object; ``obj`` is the server's response."""
        self._of(owner).created[obj.metadata.uid] = int(obj.metadata.resource_version or 0)

    def deleted(self, owner: ObjectKey, obj: Resource) -> None:
        """Record the accepted deletion of ``obj``."""
        self._of(owner).deleted[obj.metadata.uid] = (obj.metadata.namespace, obj.metadata.name)

    def met(self, owner: ObjectKey) -> bool:
        """Return whether the cache shows all writes for ``owner``, or has not for so long that it is trusted anyway."""
        expected = self._expected.get(owner)
        if expected is None:
            return True
        if self._clock.now() - expected.since <= GIVE_UP:
            version = int(self._informer.resource_version or 0)
            expected.created = {uid: written for uid, written in expected.created.items() if written > version}
            expected.deleted = {uid: name for uid, name in expected.deleted.items() if self._stands(uid, *name)}
            if expected.created or expected.deleted:
                return False
        del self._expected[owner]
        return True

    def _stands(self, uid: str, namespace: str, name: str) -> bool:
        head = self._informer.lister.head(name, namespace)
        return head is not None and head.uid == uid and not head.deleting

    def _of(self, owner: ObjectKey) -> _Expected:
        expected = self._expected.get(owner)
        if expected is None:
            now = self._clock.now()
            # Deleted owners are never checked again.
            self._expected = {key: one for key, one in self._expected.items() if now - one.since <= GIVE_UP}
            expected = self._expected[owner] = _Expected(now)
        return expected


#: Maximum number of pods created or deleted in one reconcile.
BURST = 500
#: Seconds until the next reconcile if the cache does not show the last writes.
_RECHECK = 1.0


class ReplicaSetController(
    Controller[ReplicaSet],
    owns=[Pod],
    indexes={ReplicaSet: {OWNER_INDEX: "metadata.ownerReferences[*].uid"}},
    workers=5,
    name="replicaset-controller",
):
    """Creates and deletes pods; adopts pods that match and have no controller."""

    async def start(self) -> None:
        self._expectations = Expectations(self.informer(Pod), self.clock)

    async def reconcile(self, replica_set: ReplicaSet) -> Result | None:
        key = replica_set.object_key(self.cluster)
        pods = await self._claimed(replica_set)
        active = [pod for pod in pods if is_active(pod)]
        failure: KubeloopError | None = None
        settled = self._expectations.met(key)
        reason = ""
        if settled and replica_set.metadata.deletion_timestamp is None:
            missing = (1 if replica_set.spec.replicas is None else replica_set.spec.replicas) - len(active)
            try:
                if missing > 0:
                    reason = "FailedCreate"
                    await self._create(replica_set, min(missing, BURST))
                elif missing < 0:
                    reason = "FailedDelete"
                    await self._delete(replica_set, active, min(-missing, BURST))
            except KubeloopError as error:
                failure = error
        terminating = sum(pod.metadata.deletion_timestamp is not None for pod in pods if pod.status.phase not in ("Succeeded", "Failed"))
        await self._write_status(replica_set, active, terminating, failure, reason)
        if failure is not None:
            raise failure
        if not settled:
            return Result(requeue_after=_RECHECK)
        return self._when_available(replica_set, active)

    async def _claimed(self, replica_set: ReplicaSet) -> list[Pod]:
        lister = self.lister(Pod)
        metadata = replica_set.metadata
        selector = selector_from(replica_set.spec.selector)
        candidates = {pod.metadata.uid: pod for pod in lister.by_index(OWNER_INDEX, metadata.uid)}
        for head in lister.heads(metadata.namespace, selector):
            if head.uid not in candidates and head.controller is None:
                pod = lister.get(head.name, head.namespace)
                if pod is not None:
                    candidates[head.uid] = pod
        return await claim(self.client, replica_set, candidates.values(), selector)

    async def _create(self, replica_set: ReplicaSet, count: int) -> None:
        template: dict[str, Any] = to_dict(replica_set)["spec"]["template"]
        key = replica_set.object_key(self.cluster)

        async def one() -> None:
            pod = pod_from(template, replica_set.metadata.name, replica_set.metadata.namespace)
            set_controller_reference(replica_set, pod)
            created = await self.client.create(pod)
            self._expectations.created(key, created)
            self.events.normal(replica_set, "SuccessfulCreate", f"Created pod: {created.metadata.name}")

        try:
            await in_growing_batches(one, count)
        except ApiError as error:
            if error.has_cause("NamespaceTerminating"):
                return  # Nothing can be created in this namespace again; trying would only fill logs.
            self.events.warning(replica_set, "FailedCreate", f"Error creating: {error.status.message}")
            raise

    async def _delete(self, replica_set: ReplicaSet, active: Sequence[Pod], count: int) -> None:
        key = replica_set.object_key(self.cluster)
        neighbours = Counter(pod.spec.node_name or "" for pod in [*active, *self._active_of_siblings(replica_set)])
        chosen = deletion_order(active, neighbours, self.clock.wall())[:count]

        async def one(pod: Pod) -> None:
            try:
                await self.client.delete(pod)
            except NotFound:
                pass
            else:
                self.events.normal(replica_set, "SuccessfulDelete", f"Deleted pod: {pod.metadata.name}")
            self._expectations.deleted(key, pod)

        outcomes = await asyncio.gather(*(one(pod) for pod in chosen), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                self.events.warning(replica_set, "FailedDelete", f"Error deleting: {outcome}")
        # As upstream, the first is the error of the reconcile; the Events name the others.
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    def _active_of_siblings(self, replica_set: ReplicaSet) -> list[Pod]:
        """Return the pods of the other ReplicaSets of the same controller: a node that runs the next version may lose an old pod sooner."""
        owner = controller_of(replica_set)
        if owner is None:
            return []
        siblings = [
            one.uid for one in self.lister(ReplicaSet).heads_by_index(OWNER_INDEX, owner.uid) if one.uid != replica_set.metadata.uid
        ]
        pods = (pod for uid in siblings for pod in self.lister(Pod).by_index(OWNER_INDEX, uid))
        return [pod for pod in pods if is_active(pod)]

    async def _write_status(
        self, replica_set: ReplicaSet, active: Sequence[Pod], terminating: int, failure: KubeloopError | None, reason: str
    ) -> None:
        now = self.clock.wall().replace(microsecond=0)
        least = replica_set.spec.min_ready_seconds or 0
        labels = replica_set.spec.template.metadata.labels.items()
        status = ReplicaSetStatus(
            replicas=len(active),
            fully_labeled_replicas=sum(labels <= pod.metadata.labels.items() for pod in active) or None,
            ready_replicas=sum(map(is_ready, active)) or None,
            available_replicas=sum(is_available(pod, least, now) for pod in active) or None,
            terminating_replicas=terminating,
            observed_generation=replica_set.metadata.generation,
            conditions=[condition for condition in replica_set.status.conditions if condition.type != "ReplicaFailure"],
        )
        if failure is not None:
            before = next((one for one in replica_set.status.conditions if one.type == "ReplicaFailure"), None)
            since = before.last_transition_time if before is not None and before.status == "True" else now
            message = failure.status.message if isinstance(failure, ApiError) else str(failure)
            status.conditions.append(
                ReplicaSetCondition(type="ReplicaFailure", status="True", reason=reason, message=message, last_transition_time=since)
            )
        if status != replica_set.status:
            replica_set.status = status
            with contextlib.suppress(NotFound):
                await self.client.update_status(replica_set)

    def _when_available(self, replica_set: ReplicaSet, active: Sequence[Pod]) -> Result | None:
        """Return when a ready pod becomes available, because no event marks that moment."""
        least = replica_set.spec.min_ready_seconds or 0
        now = self.clock.wall()
        if least and any(is_ready(pod) and not is_available(pod, least, now) for pod in active):
            return Result(requeue_after=float(least))
        return None


def pod_from(template: dict[str, Any], owner: str, namespace: str) -> Pod:
    """Return a pod made from the template of ``owner``, with every field of the template, unknown ones included."""
    metadata = template.get("metadata") or {}
    stored = {name: metadata[name] for name in ("labels", "annotations", "finalizers") if metadata.get(name)}
    document = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {**stored, "generateName": f"{owner}-", "namespace": namespace},
        "spec": template.get("spec") or {},
    }
    return decode(Pod, msgspec.json.encode(document))


async def in_growing_batches(action: Callable[[], Awaitable[None]], count: int) -> None:
    """Call ``action`` ``count`` times, 1, 2, 4 ... at once. After a batch with a failure no more batches follow, so that a quota or
    a webhook refuses once and not five hundred times (slowStartBatch upstream).

    Raises:
        Exception: The first failure.
    """
    size = 1
    while count > 0:
        size = min(size, count)
        # All calls do the same: the first error represents those of its batch, which failed for the same reason.
        outcomes = await asyncio.gather(*(action() for _ in range(size)), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        count -= size
        size *= 2
