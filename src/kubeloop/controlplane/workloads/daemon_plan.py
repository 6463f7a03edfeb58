"""The decisions of the DaemonSet controller: which nodes need a pod, which pods to delete, updates, and the status. No I/O.

Source: Kubernetes pkg/controller/daemon (daemon_controller.go, update.go) and daemon/util; KEP-1591 (maxSurge).
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

from kubeloop.api.apps.v1 import DaemonSet, DaemonSetStatus
from kubeloop.controlplane.controller_utils import scaled_value
from kubeloop.controlplane.scheduling.facts import NodeFacts, PodFacts
from kubeloop.controlplane.workloads.history import REVISION_LABEL
from kubeloop.controlplane.workloads.pod_snapshots import PodSnapshot
from kubeloop.types import JSONObject

#: The annotation of DaemonSets, and the label of their pods, with the generation of the template: the number of its changes.
GENERATION_ANNOTATION = "deprecated.daemonset.template.generation"
GENERATION_LABEL = "pod-template-generation"
_TAINTS = [
    ("node.kubernetes.io/not-ready", "NoExecute"),
    ("node.kubernetes.io/unreachable", "NoExecute"),
    ("node.kubernetes.io/disk-pressure", "NoSchedule"),
    ("node.kubernetes.io/memory-pressure", "NoSchedule"),
    ("node.kubernetes.io/pid-pressure", "NoSchedule"),
    ("node.kubernetes.io/unschedulable", "NoSchedule"),
]
_NETWORK_TAINT = ("node.kubernetes.io/network-unavailable", "NoSchedule")


# ------------------------------------------------------------------------------------------------------------------------- pods


def tolerating_spec(spec: JSONObject) -> JSONObject:
    """Return a copy of a pod spec with the tolerations that every pod of a DaemonSet has."""
    result = copy.deepcopy(spec)
    tolerations = list(result.get("tolerations") or ())
    for key, effect in [*_TAINTS, *([_NETWORK_TAINT] if spec.get("hostNetwork") else [])]:
        added = {"key": key, "operator": "Exists", "effect": effect}
        # A toleration with tolerationSeconds would end the pod after this time.
        known = [index for index, one in enumerate(tolerations) if {**one, "tolerationSeconds": 0} == {**added, "tolerationSeconds": 0}]
        for index in known:
            tolerations[index] = added
        if not known:
            tolerations.append(added)
    result["tolerations"] = tolerations
    return result


def template_generation(daemon_set: DaemonSet) -> str:
    """Return the number in the annotation ``GENERATION_ANNOTATION`` of a DaemonSet as text, or "" if it has none."""
    text = daemon_set.metadata.annotations.get(GENERATION_ANNOTATION, "")
    return text if text.removeprefix("-").isdecimal() and text.isascii() else ""


def daemon_template(template: JSONObject, generation: str, revision_hash: str) -> JSONObject:
    """Return the template for the pods of a DaemonSet: with tolerations, and with labels for generation and revision hash."""
    metadata = dict(template.get("metadata") or {})
    added = {GENERATION_LABEL: generation} if generation else {}
    metadata["labels"] = {**(metadata.get("labels") or {}), **added, REVISION_LABEL: revision_hash}
    return {**template, "metadata": metadata, "spec": tolerating_spec(template.get("spec") or {})}


def template_for_node(template: JSONObject, node: str) -> JSONObject:
    """Return a template whose pods the scheduler binds to one node: its required node affinity names the node and nothing else."""
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
    spec: dict[str, Any] = template["spec"]
    affinity: dict[str, Any] = spec.get("affinity") or {}
    node_affinity: dict[str, Any] = affinity.get("nodeAffinity") or {}
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {**template, "spec": {**spec, "affinity": {**affinity, "nodeAffinity": {**node_affinity, **required}}}}


# ------------------------------------------------------------------------------------------------------------------------- nodes


class NodeDemand(NamedTuple):
    """Whether a node without a pod of the DaemonSet gets one (``runs``), and whether an existing pod may stay (``continues``)."""

    runs: bool
    continues: bool


class DaemonPlacement:
    """Decides on which nodes the pods of a DaemonSet run, by node name, node affinity and taints, without regard to resources.

    Args:
        spec: The pod spec of the DaemonSet's template.
    """

    def __init__(self, spec: JSONObject) -> None:
        self._node_name = spec.get("nodeName") or ""
        self._pod = PodFacts({"metadata": {"name": ""}, "spec": tolerating_spec(spec)})

    def judge(self, node: NodeFacts) -> NodeDemand:
        if self._node_name not in ("", node.name) or not self._pod.matches_node(node):
            return NodeDemand(runs=False, continues=False)
        effects = {taint.get("effect") for taint in node.taints if not self._pod.tolerates(taint)}
        return NodeDemand(runs=effects.isdisjoint(("NoSchedule", "NoExecute")), continues="NoExecute" not in effects)


class FailedPodBackoff:
    """Delays between deletions of failed pods on one node: one second, doubled with each failure, at most 15 minutes."""

    FIRST, LONGEST = 1.0, 900.0

    def __init__(self) -> None:
        self._delays: dict[tuple[str, int, str], tuple[float, float]] = {}

    def seconds_left(self, key: tuple[str, int, str], now: float) -> float:
        """Return the present delay if less than it has passed since the last deletion, otherwise 0.

        ``key`` consists of the uid and generation of the DaemonSet and the name of the node.
        """
        delay, since = self._delays.get(key, (0.0, 0.0))
        return delay if now - since < delay else 0.0

    def record(self, key: tuple[str, int, str], now: float) -> None:
        """Record a deletion, which doubles the delay for the next one."""
        if len(self._delays) > 1000:
            self._delays = {known: one for known, one in self._delays.items() if now - one[1] <= 2 * self.LONGEST}
        delay, since = self._delays.get(key, (0.0, now))
        expired = now - since > 2 * self.LONGEST
        self._delays[key] = (self.FIRST if not delay or expired else min(2 * delay, self.LONGEST), now)


@dataclass(frozen=True, slots=True)
class DaemonView:
    """A snapshot of a DaemonSet, the nodes, and its pods by the node for which they were created.

    ``demands`` has all nodes by name. ``pods`` leaves out finished pods that are being deleted. ``max_surge`` and ``max_unavailable`` are
    resolved for the number of nodes that should run a pod. ``surges`` says whether updates create new pods before they delete old ones.
    """

    demands: Mapping[str, NodeDemand]
    pods: Mapping[str, Sequence[PodSnapshot]]
    revision_hash: str
    generation: str
    max_surge: int
    max_unavailable: int
    surges: bool
    min_ready_seconds: int
    now: datetime

    @classmethod
    def from_objects(
        cls, daemon_set: DaemonSet, demands: Mapping[str, NodeDemand], pods: Iterable[PodSnapshot], revision_hash: str, now: datetime
    ) -> DaemonView:
        """Return the view of a DaemonSet.

        Args:
            daemon_set: The DaemonSet.
            demands: The demands of all nodes by name.
            pods: The pods of the DaemonSet.
            revision_hash: The value of the label ``REVISION_LABEL`` of pods of the present template.
            now: The present time.
        """
        by_node: dict[str, list[PodSnapshot]] = {}
        for pod in pods:
            if pod.target_node and not (pod.ended and pod.terminating):
                by_node.setdefault(pod.target_node, []).append(pod)
        for found in by_node.values():
            found.sort(key=lambda pod: (not pod.node, pod.created, pod.name))
        desired = sum(one.runs for one in demands.values())
        strategy = daemon_set.spec.update_strategy
        update = strategy.rolling_update if strategy.type == "RollingUpdate" else None
        surge = scaled_value(update.max_surge, desired, up=True) if update is not None else 0
        unavailable = scaled_value(update.max_unavailable, desired, up=True) if update is not None else 0
        return cls(
            demands=demands,
            pods=by_node,
            revision_hash=revision_hash,
            generation=template_generation(daemon_set),
            max_surge=surge,
            max_unavailable=1 if desired > 0 and not surge and not unavailable else unavailable,
            surges=update is not None and scaled_value(update.max_surge, 1, up=True) > 0,
            min_ready_seconds=daemon_set.spec.min_ready_seconds or 0,
            now=now,
        )

    def is_available(self, pod: PodSnapshot) -> bool:
        return pod.is_available(self.min_ready_seconds, self.now)

    def is_updated(self, pod: PodSnapshot) -> bool:
        """Return whether a pod was created from the present template."""
        by_generation = bool(self.generation) and pod.labels.get(GENERATION_LABEL) == self.generation
        return by_generation or pod.labels.get(REVISION_LABEL) == self.revision_hash


@dataclass
class DaemonPlan:
    """The nodes for which to create a pod, and the pods to delete, of which ``failed`` and ``succeeded`` have finished.

    ``retry_after`` is the number of seconds until failed pods may be deleted; 0 if none waits.
    """

    create: list[str] = field(default_factory=list)
    delete: list[PodSnapshot] = field(default_factory=list)
    failed: list[PodSnapshot] = field(default_factory=list)
    succeeded: list[PodSnapshot] = field(default_factory=list)
    retry_after: float = 0.0

    @property
    def empty(self) -> bool:
        return not (self.create or self.delete)


def plan_placement(view: DaemonView, backoff: FailedPodBackoff, owner: tuple[str, int], now: float) -> DaemonPlan:
    """Decide for which nodes to create missing pods, and which pods to delete: finished ones, surplus ones, and those on wrong nodes.

    Args:
        view: The snapshot of the DaemonSet.
        backoff: Delays the deletion of failed pods; the deletions in the plan are recorded in it.
        owner: Uid and observed generation of the DaemonSet.
        now: The present time of the clock of ``backoff``.

    Returns:
        The nodes and the pods.
    """
    plan = DaemonPlan()
    for node, demand in view.demands.items():
        pods = view.pods.get(node, ())
        if demand.runs and not pods:
            plan.create.append(node)
        elif demand.continues:
            running = _without_ended(pods, plan, backoff, (*owner, node), now)
            if view.surges:
                if demand.runs and not running:
                    plan.create.append(node)
                plan.delete += _surplus_in_surge(view, running)
            else:
                plan.delete += running[1:]
        else:
            plan.delete += [pod for pod in pods if not pod.terminating]
    # A pod for a missing node is never scheduled, and the pod garbage collector deletes only scheduled pods.
    plan.delete += [pod for node, pods in view.pods.items() if node not in view.demands for pod in pods if not pod.node]
    return plan


def _without_ended(
    pods: Sequence[PodSnapshot], plan: DaemonPlan, backoff: FailedPodBackoff, key: tuple[str, int, str], now: float
) -> list[PodSnapshot]:
    """Return the pods of a node that have not finished, and add the finished ones to the plan."""
    running = []
    for pod in pods:
        if pod.terminating:
            continue
        if pod.phase == "Failed":
            if left := backoff.seconds_left(key, now):
                plan.retry_after = min(plan.retry_after or left, left)
                continue
            backoff.record(key, now)
            plan.failed.append(pod)
            plan.delete.append(pod)
        elif pod.phase == "Succeeded":
            plan.succeeded.append(pod)
            plan.delete.append(pod)
        else:
            running.append(pod)
    return running


def _surplus_in_surge(view: DaemonView, running: Sequence[PodSnapshot]) -> list[PodSnapshot]:
    """Return the surplus pods of one node while an old and a new pod may run: the old one stays until the new one is available."""
    if len(running) <= 1:
        return []
    new = next((one for one in running if one.labels.get(REVISION_LABEL) == view.revision_hash), None)
    old = next((one for one in running if one.labels.get(REVISION_LABEL) != view.revision_hash), None)
    surplus = [one for one in running if one is not new and one is not old]
    if new is not None and old is not None and (not old.ready or view.is_available(new)):
        surplus.append(old)
    return surplus


# ------------------------------------------------------------------------------------------------------------------------ updates


def plan_update(view: DaemonView) -> DaemonPlan:
    """Decide the next step of a rolling update: delete old pods or, with ``maxSurge``, create new pods beside them first."""
    nodes = {node: () for node, demand in view.demands.items() if demand.runs} | dict(view.pods)
    found = {node: _pair(view, pods) for node, pods in nodes.items()}
    return _plan_surge(view, found) if view.max_surge else _plan_replacement(view, found)


class _Pair(NamedTuple):
    """The new and the old pod of a node. ``known`` is False if there are several new or old pods, which ``plan_placement`` deletes."""

    new: PodSnapshot | None
    old: PodSnapshot | None
    known: bool


def _pair(view: DaemonView, pods: Sequence[PodSnapshot]) -> _Pair:
    live = [one for one in pods if not one.terminating]
    new = [one for one in live if view.is_updated(one)]
    old = [one for one in live if not view.is_updated(one)]
    if len(new) > 1 or len(old) > 1:
        return _Pair(None, None, known=False)
    return _Pair(new[0] if new else None, old[0] if old else None, known=True)


def _plan_replacement(view: DaemonView, pairs: Mapping[str, _Pair]) -> DaemonPlan:
    unavailable = 0
    broken: list[PodSnapshot] = []
    candidates: list[PodSnapshot] = []
    for new, old, known in pairs.values():
        if not known or (new is None) == (old is None):
            unavailable += 1
        elif new is not None:
            unavailable += not view.is_available(new)
        elif old is not None and view.is_available(old):
            candidates.append(old)
        elif old is not None:
            # Deleting an old pod that is not available does not reduce availability, so the limit does not apply.
            broken.append(old)
            unavailable += 1
    return DaemonPlan(delete=broken + candidates[: max(view.max_unavailable - unavailable, 0)])


def _plan_surge(view: DaemonView, pairs: Mapping[str, _Pair]) -> DaemonPlan:
    surging = available = 0
    replaced: list[PodSnapshot] = []
    misplaced: list[PodSnapshot] = []
    broken: list[str] = []
    candidates: list[str] = []
    for node, (new, old, known) in pairs.items():
        if not known:
            surging += 1
            continue
        available += any(view.is_available(one) for one in (old or new,) if one is not None)
        if old is None:
            continue
        if new is not None:
            if view.is_available(new):
                replaced.append(old)
            else:
                surging += 1
            continue
        if node in view.demands and view.demands[node].runs:
            (candidates if view.is_available(old) else broken).append(node)
        else:
            (misplaced if view.is_available(old) else replaced).append(old)
    # A pod on a wrong node is deleted when enough other pods are available.
    desired = sum(one.runs for one in view.demands.values())
    return DaemonPlan(
        create=broken + candidates[: max(view.max_surge - surging, 0)], delete=replaced + misplaced[: max(available - desired, 0)]
    )


# ------------------------------------------------------------------------------------------------------------------------- status


def make_status(view: DaemonView, before: DaemonSetStatus, generation: int | None) -> DaemonSetStatus:
    """Return the new status of a DaemonSet.

    Args:
        view: The snapshot of the DaemonSet.
        before: The present status, whose conditions and collision count stay.
        generation: The observed generation to set; None: the one in ``before``.
    """
    desired = current = misscheduled = ready = updated = available = 0
    for node, demand in view.demands.items():
        pods = view.pods.get(node)
        if not demand.runs:
            misscheduled += bool(pods)
            continue
        desired += 1
        if pods:
            current += 1
            ready += pods[0].ready
            available += view.is_available(pods[0])
            updated += view.is_updated(pods[0])
    status = copy.copy(before)
    status.desired_number_scheduled, status.current_number_scheduled, status.number_misscheduled = desired, current, misscheduled
    status.number_ready, status.updated_number_scheduled, status.number_available = ready, updated or None, available or None
    status.number_unavailable = desired - available or None
    if generation is not None:
        status.observed_generation = generation
    return status
