"""Node lifecycle controller: detects lost nodes, taints nodes according to their conditions, and marks pods of lost nodes as not ready.

Source: Kubernetes pkg/controller/nodelifecycle/node_lifecycle_controller.go; pkg/controller/util/node/controller_utils.go.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from kubeloop.api.coordination.v1 import Lease
from kubeloop.api.core.v1 import Node, Pod, Taint
from kubeloop.cache import EventType, Head
from kubeloop.codec import to_dict
from kubeloop.controller import KeyController, Predicate, Result
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents, is_ready
from kubeloop.controlplane.nodes.node_health import (
    EVICTING,
    EXCLUDE_DISRUPTION,
    NO_EXECUTE,
    EvictionQueue,
    EvictionRates,
    HealthRecord,
    Heartbeats,
    Zones,
    beta_labels,
    eviction_taints,
    lost_conditions,
    ready_condition,
    record_heartbeats,
    scheduling_taints,
    zone_of,
)
from kubeloop.meta import Conflict, Invalid, KubeloopError, NotFound, ObjectKey, ObjectMeta, format_time
from kubeloop.meta.strconv import decimal

#: Seconds between two passes over all nodes (--node-monitor-period).
MONITOR_PERIOD = 5.0
#: Seconds without a heartbeat after which a node is lost (--node-monitor-grace-period).
MONITOR_GRACE_PERIOD = 50.0
#: Seconds after which a node that has never reported its status is lost (--node-startup-grace-period).
STARTUP_GRACE_PERIOD = 60.0
LEASES = "kube-node-lease"
#: Index of pods by node.
POD_NODE = "spec.nodeName"
#: Seconds until a write is retried after a conflict.
_RETRY = 0.1
#: The key of the passes over all nodes; keys of nodes have no namespace.
_MONITOR = ObjectKey("", "monitor", "")

_present = Predicate(lambda event: event.type is not EventType.DELETED)


@dataclass(frozen=True, slots=True)
class _NodeView:
    """The properties of one version of a node that a pass over all nodes needs."""

    name: str
    uid: str
    version: str
    created: datetime | None
    ready: str | None
    heartbeat: str | None
    zone: str
    excluded: bool
    evicting: frozenset[str]


class NodeLifecycleController(
    KeyController[Node],
    predicates=[_present],
    reads=[Lease, Pod],
    indexes={Pod: {POD_NODE: "spec.nodeName"}},
    workers=8,
    name="node-lifecycle-controller",
):
    """Sets the conditions of lost nodes to Unknown, and the taints that conditions and ``spec.unschedulable`` require.

    Guarantees:
        If the Lease of a node is not renewed and its status does not change for the grace period, its condition Ready becomes Unknown and
        its pods not ready.
        A node that is not ready gets a NoSchedule taint at once, and a NoExecute taint at the rate of its zone, unless all nodes of the
        cluster are lost. Both taints are removed when the node is ready.
        Taints with other keys or effects are never touched.

    Not guaranteed:
        Detection across a restart: the start of the controller counts as a heartbeat of each node, and time in which the controller does
        not run does not count.

    Args:
        period: Seconds between two passes over all nodes.
        grace_period: Seconds without a heartbeat after which a node is lost.
        startup_grace_period: Seconds after which a node that has never reported its status is lost.
        rates: How fast nodes get NoExecute taints; None: the defaults.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="node-controller")]

    def __init__(
        self,
        *,
        period: float = MONITOR_PERIOD,
        grace_period: float = MONITOR_GRACE_PERIOD,
        startup_grace_period: float = STARTUP_GRACE_PERIOD,
        rates: EvictionRates | None = None,
    ) -> None:
        self._period = period
        self._grace_period = grace_period
        self._startup_grace_period = startup_grace_period
        self._rates = rates
        self._forget()

    async def start(self) -> None:
        self._forget()
        self.enqueue(_MONITOR)

    def _forget(self) -> None:
        self._views: dict[str, _NodeView] = {}
        self._records: dict[str, HealthRecord] = {}
        self._marked: dict[str, frozenset[str]] = {}
        self._zones = Zones(self._rates)
        self._passed: float | None = None

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if key.namespace == _MONITOR.namespace:
            await self._monitor()
            return Result(requeue_after=self._period)
        node = self.lister(Node).get(key.name)
        if node is not None:
            await self._write_taints(node, scheduling_taints(node, self.clock.wall().replace(microsecond=0)))
            if labels := beta_labels(node.metadata.labels):
                await self._patch(node, {"metadata": {"labels": labels}})
        return None

    # ------------------------------------------------------------------------------------------------------- passes over all nodes

    async def _monitor(self) -> None:
        self._extend_after_stall()
        heads = {head.name: head for head in self.lister(Node).heads()}
        for name in self._views.keys() - heads.keys():
            self._remove(name)
        for name, head in heads.items():
            self._observe(name, head)
        lost = [view for view in self._views.values() if self._is_silent(view)]
        await asyncio.gather(*(self._lose(view) for view in lost))
        views = list(self._views.values())
        await asyncio.gather(*(self._follow(view) for view in views if view.ready is not None))
        statuses: dict[str, list[str]] = {}
        for view in views:
            if not view.excluded:
                statuses.setdefault(view.zone, []).append(view.ready or "")
        now = self.clock.now()
        change = self._zones.update(statuses, now)
        if change == "entered":
            self.log.warning("all nodes are lost; none is tainted until one of them is ready")
            await asyncio.gather(*(self._set_eviction(view, "") for view in views if view.evicting))
        elif change == "left":
            self._records = {name: HealthRecord(one.heartbeats, now) for name, one in self._records.items()}
        await asyncio.gather(*(self._taint_next(queue) for queue in self._zones.queues()))

    def _extend_after_stall(self) -> None:
        """Exclude time in which this program was stopped, such as by a debugger: kubelets in the same program were stopped, too."""
        now = self.clock.now()
        stalled = now - self._passed - 2 * self._period if self._passed is not None else 0.0
        self._passed = now
        if stalled > 0:
            self._records = {name: HealthRecord(one.heartbeats, one.seen + stalled) for name, one in self._records.items()}

    def _observe(self, name: str, head: Head) -> None:
        before = self._views.get(name)
        if before is None or before.uid != head.uid:
            self._records.pop(name, None)
            self._report(name, head.uid, "RegisteredNode", f"Registered Node {name} in Controller")
        if before is None or before.uid != head.uid or before.version != head.resource_version:
            node = self.lister(Node).decoded(head)
            self._views[name] = _view_of(node)
            if before is not None and before.zone != self._views[name].zone:
                self._zones.queue(before.zone).remove(name)

    def _remove(self, name: str) -> None:
        view = self._views.pop(name)
        self._records.pop(name, None)
        self._marked.pop(name, None)
        self._zones.queue(view.zone).remove(name)
        self._report(name, view.uid, "RemovingNode", f"Removing Node {name} from Controller")

    def _is_silent(self, view: _NodeView) -> bool:
        """Record the heartbeats of a node; return whether none came for the grace period and the node is not yet Unknown."""
        lease = self.lister(Lease).head(view.name, LEASES)
        heartbeats = Heartbeats(view.heartbeat, lease.resource_version if lease is not None else "")
        now = self.clock.now()
        age = (self.clock.wall() - view.created).total_seconds() if view.created is not None else 0.0
        record = self._records[view.name] = record_heartbeats(self._records.get(view.name), heartbeats, now, age)
        grace_period = self._startup_grace_period if view.ready is None else self._grace_period
        return now - record.seen > grace_period and view.ready != "Unknown"

    async def _lose(self, view: _NodeView) -> None:
        """Set the conditions of a lost node to Unknown. After a conflict the next pass retries."""
        try:
            node = await self.client.get(Node, view.name)
            conditions = lost_conditions(node, self.clock.wall().replace(microsecond=0))
            if conditions is None or node.metadata.uid != view.uid:
                return
            node.status.conditions = conditions
            written = await self.client.update_status(node)
        except (NotFound, Conflict):
            return
        self._views[view.name] = _view_of(written)
        if view.ready == "True":
            self.events.normal(_reference(view.name, view.uid), "NodeNotReady", f"Node {view.name} status is now: NodeNotReady")

    async def _follow(self, view: _NodeView) -> None:
        """Queue a node for its NoExecute taint, or replace or remove the taint, and mark the pods of a lost node as not ready."""
        queue, desired = self._zones.queue(view.zone), EVICTING.get(view.ready or "", "")
        if not desired:
            queue.remove(view.name)
            self._marked.pop(view.name, None)
        if desired and not view.evicting:
            queue.add(view.name)
        elif view.evicting - {desired}:
            await self._set_eviction(view, desired)
        if view.ready == "Unknown":
            await self._mark_pods(view)

    async def _taint_next(self, queue: EvictionQueue) -> None:
        while (name := queue.take(self.clock.now())) is not None:
            view = self._views.get(name)
            key = EVICTING.get(view.ready or "", "") if view is not None else ""
            if view is not None and key and not await self._set_eviction(view, key):
                queue.add(name)

    async def _set_eviction(self, view: _NodeView, key: str) -> bool:
        """Set the key of a node's NoExecute taint, or remove the taint for ""; return True unless that must be retried."""
        node = self.lister(Node).get(view.name)
        if node is None or node.metadata.uid != view.uid:
            return True
        return await self._write_taints(node, eviction_taints(node.spec.taints, key, self.clock.wall().replace(microsecond=0)))

    async def _mark_pods(self, view: _NodeView) -> None:
        """Set the condition Ready of the pods of a lost node to False, once for each pod. Failures are retried in the next pass."""
        marked = self._marked.get(view.name, frozenset())
        heads = self.lister(Pod).heads_by_index(POD_NODE, view.name)
        pods = [self.lister(Pod).decoded(head) for head in heads if head.uid not in marked]
        outcomes = await asyncio.gather(*(self._mark_pod(pod) for pod in pods))
        failed = {pod.metadata.uid for pod, done in zip(pods, outcomes, strict=True) if not done}
        self._marked[view.name] = frozenset(head.uid for head in heads) - failed

    async def _mark_pod(self, pod: Pod) -> bool:
        """Set the condition Ready of a pod to False; return False if that has to be retried."""
        if not is_ready(pod):
            return True
        moment = format_time(self.clock.wall().replace(microsecond=0))
        condition = {"type": "Ready", "status": "False", "lastTransitionTime": moment}
        change = {"metadata": {"uid": pod.metadata.uid}, "status": {"conditions": [condition]}}
        metadata = pod.metadata
        try:
            await self.client.patch(Pod, metadata.name, change, type="strategic", namespace=metadata.namespace, subresource="status")
        except (NotFound, Invalid):
            return True  # The pod is deleted or replaced: the uid is a precondition.
        except KubeloopError as error:
            self.log.warning("cannot mark the pod %s/%s as not ready: %s", metadata.namespace, metadata.name, error)
            return False
        self.events.warning(pod, "NodeNotReady", "Node is not ready")
        return True

    # ---------------------------------------------------------------------------------------------------------------------- writes

    async def _write_taints(self, node: Node, taints: Sequence[Taint] | None) -> bool:
        """Write the taints of a node, if not None; return False if the node has changed meanwhile."""
        if taints is None:
            return True
        node.spec.taints = list(taints)
        # The resource version is a precondition, so that concurrent changes of the taints are not overwritten.
        return await self._patch(node, {"spec": {"taints": to_dict(node).get("spec", {}).get("taints")}}, versioned=True)

    async def _patch(self, node: Node, change: dict[str, Any], *, versioned: bool = False) -> bool:
        metadata = {"resourceVersion": node.metadata.resource_version} if versioned else {"uid": node.metadata.uid}
        change["metadata"] = change.get("metadata", {}) | metadata
        try:
            await self.client.patch(Node, node.metadata.name, change, type="merge")
        except NotFound:
            return True
        except (Conflict, Invalid):
            self.enqueue(ObjectKey("", "", node.metadata.name), _RETRY)
            return False
        return True

    def _report(self, name: str, uid: str, reason: str, text: str) -> None:
        self.events.normal(_reference(name, uid), reason, f"Node {name} event: {text}")


def _reference(name: str, uid: str) -> Node:
    return Node(metadata=ObjectMeta(name=name, uid=uid))


def _view_of(node: Node) -> _NodeView:
    ready = ready_condition(node)
    heartbeat = ready.last_heartbeat_time if ready is not None else None
    return _NodeView(
        node.metadata.name,
        node.metadata.uid,
        node.metadata.resource_version or "",
        node.metadata.creation_timestamp,
        None if ready is None else ready.status,
        None if ready is None else (format_time(heartbeat) if heartbeat is not None else ""),
        zone_of(node.metadata.labels),
        EXCLUDE_DISRUPTION in node.metadata.labels,
        frozenset(one.key for one in node.spec.taints if one.effect == NO_EXECUTE and one.key in EVICTING.values()),
    )


# The annotation of nodes that says for how many seconds kubelets may use cached Secrets and ConfigMaps.
# Source: Kubernetes pkg/controller/ttl/ttl_controller.go.


TTL = "node.alpha.kubernetes.io/ttl"
_PATH = f'metadata.annotations["{TTL}"]'
#: For each step the lowest and highest number of nodes, and the TTL in seconds. Steps overlap, so that small changes do not change the TTL.
_STEPS = ((0, 100, 0), (90, 500, 15), (450, 1000, 30), (900, 2000, 60), (1800, None, 300))

_with_ttl = Predicate(lambda event: True, (_PATH,))  # noqa: ARG005


def next_step(step: int, nodes: int) -> int:
    """Return the index of the TTL step for a number of nodes, starting from the present step ``step``."""
    while (most := _STEPS[step][1]) is not None and nodes > most:
        step += 1
    while nodes < _STEPS[step][0]:
        step -= 1
    return step


class NodeTTLController(KeyController[Node], predicates=[_with_ttl], workers=5, name="ttl-controller"):
    """Annotates each node with the TTL of cached Secrets and ConfigMaps, which grows with the number of nodes."""

    def __init__(self) -> None:
        self._step = 0

    async def reconcile(self, key: ObjectKey) -> None:
        lister = self.lister(Node)
        step = next_step(self._step, len(lister))
        if step != self._step:
            self._step = step
            for node in lister.heads():
                self.enqueue(ObjectKey("", "", node.name))
        head = lister.head(key.name)
        seconds = str(_STEPS[step][2])
        if head is None or _number(head.value(_PATH)) == seconds:
            return
        change = {"metadata": {"uid": head.uid, "annotations": {TTL: seconds}}}
        try:
            await self.client.patch(Node, head.name, change, type="strategic")
        except (Invalid, NotFound):
            return  # The node is deleted, or another node of the same name has replaced it.


def _number(text: str | None) -> str | None:
    """Return the number in an annotation in the format of Go; None if the annotation is missing or no number."""
    number = None if text is None else decimal(text)
    return None if number is None else str(number)
