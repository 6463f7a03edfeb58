"""Decisions of the node lifecycle controller: conditions of lost nodes, taints and labels, and how fast the nodes of a zone are tainted.

No I/O and no clock. Source: Kubernetes pkg/controller/nodelifecycle (node_lifecycle_controller.go, scheduler/rate_limited_queue.go);
component-helpers node/topology (GetZoneKey).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Literal

from kubeloop.api.core.v1 import Node, NodeCondition, Taint

NOT_READY: Final = "node.kubernetes.io/not-ready"
UNREACHABLE: Final = "node.kubernetes.io/unreachable"
UNSCHEDULABLE: Final = "node.kubernetes.io/unschedulable"
NO_SCHEDULE: Final = "NoSchedule"
NO_EXECUTE: Final = "NoExecute"
Effect = Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]

#: The key of the taint that a condition causes, by the type and status of the condition.
_TAINTS = {
    ("Ready", "False"): NOT_READY,
    ("Ready", "Unknown"): UNREACHABLE,
    ("MemoryPressure", "True"): "node.kubernetes.io/memory-pressure",
    ("DiskPressure", "True"): "node.kubernetes.io/disk-pressure",
    ("NetworkUnavailable", "True"): "node.kubernetes.io/network-unavailable",
    ("PIDPressure", "True"): "node.kubernetes.io/pid-pressure",
}
#: The key of the NoExecute taint that the condition Ready causes, by its status.
EVICTING: Final[Mapping[str, str]] = {"False": NOT_READY, "Unknown": UNREACHABLE}
#: Keys of the NoSchedule taints that the controller adds and removes; it does not touch taints with other keys.
_MANAGED = frozenset({*_TAINTS.values(), UNSCHEDULABLE})
#: Conditions that become Unknown when a node is lost. The kubelet does not write NetworkUnavailable.
_HEARTBEAT_CONDITIONS = ("Ready", "MemoryPressure", "DiskPressure", "PIDPressure")
#: Pairs of a stable and a beta label. The beta label gets the value of the stable label.
_LABELS = (("kubernetes.io/os", "beta.kubernetes.io/os"), ("kubernetes.io/arch", "beta.kubernetes.io/arch"))
#: Label of nodes that do not count for the state of their zone.
EXCLUDE_DISRUPTION = "node.kubernetes.io/exclude-disruption"


def ready_condition(node: Node) -> NodeCondition | None:
    """Return the condition Ready of a node, or None if its kubelet has not reported one."""
    return next((one for one in node.status.conditions if one.type == "Ready"), None)


def scheduling_taints(node: Node, now: datetime) -> Sequence[Taint] | None:
    """Return the taints of a node with exactly the NoSchedule taints that its conditions and ``spec.unschedulable`` require.

    Args:
        node: The node.
        now: The ``timeAdded`` of new taints.

    Returns:
        All taints of the node; None if nothing changes.
    """
    keys = [_TAINTS[mark] for one in node.status.conditions if (mark := (one.type, one.status)) in _TAINTS]
    if node.spec.unschedulable:
        keys.append(UNSCHEDULABLE)
    remaining = [one for one in node.spec.taints if one.effect != NO_SCHEDULE or one.key not in _MANAGED or one.key in keys]
    present = {one.key for one in remaining if one.effect == NO_SCHEDULE}
    added = [Taint(key=key, effect=NO_SCHEDULE, time_added=now) for key in keys if key not in present]
    return [*remaining, *added] if added or len(remaining) != len(node.spec.taints) else None


def eviction_taints(taints: Sequence[Taint], key: str, now: datetime) -> list[Taint] | None:
    """Return the taints of a node with one of the NoExecute taints in ``EVICTING``, or none, and without the other ones.

    Args:
        taints: The node's taints.
        key: The key of the NoExecute taint that the node needs; "" for none.
        now: The ``timeAdded`` of a new taint.

    Returns:
        All taints of the node; None if nothing changes.
    """
    remaining = [one for one in taints if one.effect != NO_EXECUTE or one.key not in EVICTING.values() or one.key == key]
    if key and not any(one.key == key and one.effect == NO_EXECUTE for one in remaining):
        return [*remaining, Taint(key=key, effect=NO_EXECUTE, time_added=now)]
    return remaining if len(remaining) != len(taints) else None


def beta_labels(labels: Mapping[str, str]) -> dict[str, str]:
    """Return the beta labels that a node lacks or whose values differ from the stable labels, with the values of the stable labels."""
    return {beta: labels[stable] for stable, beta in _LABELS if stable in labels and labels.get(beta) != labels[stable]}


def zone_of(labels: Mapping[str, str]) -> str:
    """Return a key for the zone of a node that is unique across regions; "" for a node without zone and region."""
    zone = labels.get("failure-domain.beta.kubernetes.io/zone", labels.get("topology.kubernetes.io/zone", ""))
    region = labels.get("failure-domain.beta.kubernetes.io/region", labels.get("topology.kubernetes.io/region", ""))
    return f"{region}:\0:{zone}" if region or zone else ""


# ------------------------------------------------------------------------------------------------------------------- heartbeats


@dataclass(frozen=True, slots=True)
class Heartbeats:
    """The last heartbeats of a node.

    ``heartbeat`` is the heartbeat time of its condition Ready; None without such a condition. ``renewal`` is the resource version of its
    Lease, which each renewal changes; "" without a Lease.
    """

    heartbeat: str | None
    renewal: str


@dataclass(frozen=True, slots=True)
class HealthRecord:
    """The last heartbeats of a node, and the time of the controller's clock at which it saw a new one."""

    heartbeats: Heartbeats
    seen: float


def record_heartbeats(before: HealthRecord | None, heartbeats: Heartbeats, now: float, age: float) -> HealthRecord:
    """Return the new record of a node; ``seen`` is ``now`` if a heartbeat has changed since the last record.

    Args:
        before: The last record. None: the node is new to the controller.
        signals: The present heartbeats.
        now: The present time.
        age: Seconds since the node was created. For a new node without any heartbeat, ``seen`` is its creation.
    """
    if before is None:
        return HealthRecord(heartbeats, now - age if heartbeats.heartbeat is None and not heartbeats.renewal else now)
    renewed = heartbeats.renewal not in ("", before.heartbeats.renewal)
    changed = renewed or heartbeats.heartbeat != before.heartbeats.heartbeat
    return HealthRecord(heartbeats, now if changed else before.seen)


def lost_conditions(node: Node, now: datetime) -> list[NodeCondition] | None:
    """Return the conditions of a lost node, whose heartbeats have stopped: the conditions that a kubelet reports are Unknown.

    Args:
        node: The node.
        now: The ``lastTransitionTime`` of the changes.

    Returns:
        All conditions of the node; None if Ready is Unknown already.
    """
    ready = ready_condition(node)
    if ready is not None and ready.status == "Unknown":
        return None
    result = {one.type: one for one in node.status.conditions}
    for kind in _HEARTBEAT_CONDITIONS:
        before = result.get(kind)
        if before is None:
            result[kind] = NodeCondition(
                type=kind,
                status="Unknown",
                reason="NodeStatusNeverUpdated",
                message="Kubelet never posted node status.",
                last_heartbeat_time=node.metadata.creation_timestamp,
                last_transition_time=now,
            )
        elif before.status != "Unknown":
            result[kind] = NodeCondition(
                type=kind,
                status="Unknown",
                reason="NodeStatusUnknown",
                message="Kubelet stopped posting node status.",
                last_heartbeat_time=before.last_heartbeat_time,
                last_transition_time=now,
            )
    return list(result.values())


# ------------------------------------------------------------------------------------------------------------------------ zones

ZoneState = Literal["Initial", "Normal", "FullDisruption", "PartialDisruption"]


@dataclass(frozen=True, slots=True)
class EvictionRates:
    """How many nodes of a zone get a NoExecute taint per second; the defaults of kube-controller-manager's flags.

    ``normal`` applies to healthy zones, ``secondary`` to large zones in which at least the fraction ``unhealthy`` of the nodes is not
    ready. A large zone has more than ``large`` nodes. A smaller zone in this state gets no taints.
    """

    normal: float = 0.1
    secondary: float = 0.01
    large: int = 50
    unhealthy: float = 0.55

    def zone_state(self, statuses: Sequence[str]) -> ZoneState:
        """Return the state of a zone from the statuses of the condition Ready of its nodes."""
        failed = sum(one != "True" for one in statuses)
        if failed and failed == len(statuses):
            return "FullDisruption"
        return "PartialDisruption" if failed > 2 and failed / len(statuses) >= self.unhealthy else "Normal"

    def of_zone(self, state: ZoneState, size: int) -> float:
        if state == "PartialDisruption":
            return self.secondary if size > self.large else 0.0
        return self.normal


class EvictionQueue:
    """A queue of the nodes of a zone that wait for a NoExecute taint, in order of arrival, with a limited rate in nodes per second."""

    def __init__(self, rate: float) -> None:
        self.rate = rate
        self._next = 0.0
        self._names: dict[str, None] = {}

    def add(self, name: str) -> None:
        self._names.setdefault(name)

    def remove(self, name: str) -> None:
        self._names.pop(name, None)

    def set_rate(self, rate: float, now: float) -> None:
        """Change the rate. If the queue is waiting, the wait starts again with the new rate."""
        if rate != self.rate:
            self.rate = rate
            if rate > 0 and now < self._next:
                self._next = now + 1 / rate

    def take(self, now: float) -> str | None:
        """Remove and return the name of the next node to taint; None if there is none, or its time has not come."""
        if not self._names or self.rate <= 0 or now < self._next:
            return None
        name = next(iter(self._names))
        del self._names[name]
        self._next = now + 1 / self.rate
        return name

    def seconds(self, now: float) -> float | None:
        """Return the seconds until ``take`` returns a node; None if the queue is empty or its rate is zero."""
        return max(self._next - now, 0.0) if self._names and self.rate > 0 else None


class Zones:
    """The states of all zones, and the queue of each zone.

    If all zones are fully disrupted, the control plane itself may be disconnected, so no node is tainted.

    Args:
        rates: The rates of the queues.
    """

    def __init__(self, rates: EvictionRates | None = None) -> None:
        self.rates = rates or EvictionRates()
        self.states: dict[str, ZoneState] = {}
        self._queues: dict[str, EvictionQueue] = {}

    def queue(self, zone: str) -> EvictionQueue:
        """Return the queue of a zone, and create it for a new zone."""
        if zone not in self._queues:
            self.states[zone] = "Initial"
            self._queues[zone] = EvictionQueue(self.rates.normal)
        return self._queues[zone]

    def queues(self) -> Iterable[EvictionQueue]:
        return self._queues.values()

    def update(self, statuses: Mapping[str, Sequence[str]], now: float) -> Literal["entered", "left", ""]:
        """Set the states and rates of all zones.

        Args:
            statuses: The status of the condition Ready of each node, by zone.
            now: The present time.

        Returns:
            Whether the cluster has entered or left the state in which all zones are fully disrupted.
        """
        states = {zone: self.rates.zone_state(nodes) for zone, nodes in statuses.items()}
        for zone in states:
            self.queue(zone)
        for zone in self.states.keys() - states.keys():
            del self.states[zone]
            del self._queues[zone]
        was_disrupted = all(one == "FullDisruption" for one in self.states.values())
        disrupted = all(one == "FullDisruption" for one in states.values())
        if was_disrupted and disrupted:
            return ""
        self.states = states
        for zone, state in states.items():
            rate = 0.0 if disrupted else self.rates.of_zone(state, len(statuses[zone]))
            self._queues[zone].set_rate(rate, now)
        return "entered" if disrupted else "left" if was_disrupted else ""
