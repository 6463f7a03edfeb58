"""Snapshots of pods for the controllers of ReplicaSets, StatefulSets and DaemonSets, cached by resource version.

A controller of a thousand pods reconciles after changes of each pod; without a cache the cost of decoding would be quadratic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from kubeloop.api.core.v1 import Pod
from kubeloop.cache import Head, Lister
from kubeloop.controlplane.controller_utils import is_ready, ready_since
from kubeloop.meta import Resource

_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class PodSnapshot:
    """The properties of one version of a pod that workload controllers need.

    ``target_node`` is the node on which the pod runs, or else the node that its node affinity names; "" without either. ``claims`` maps
    names of volumes to names of their claims.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    phase: str
    terminating: bool
    created: datetime
    node: str
    target_node: str
    ready: bool
    ready_since: datetime | None
    claims: Mapping[str, str]

    @property
    def ended(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Return whether the pod has been ready for at least ``min_ready_seconds``."""
        if not self.ready:
            return False
        return min_ready_seconds == 0 or (self.ready_since is not None and self.ready_since + timedelta(seconds=min_ready_seconds) <= now)


def snapshot(pod: Pod) -> PodSnapshot:
    """Return the snapshot of a pod."""
    metadata = pod.metadata
    volumes = ((one.name, one.persistent_volume_claim) for one in pod.spec.volumes)
    return PodSnapshot(
        name=metadata.name,
        uid=metadata.uid,
        labels=metadata.labels,
        phase=pod.status.phase or "",
        terminating=metadata.deletion_timestamp is not None,
        created=metadata.creation_timestamp or _BEGINNING,
        node=pod.spec.node_name or "",
        target_node=pod.spec.node_name or _named_node(pod),
        ready=is_ready(pod),
        ready_since=ready_since(pod),
        claims={name: claim.claim_name for name, claim in volumes if claim is not None},
    )


def _named_node(pod: Pod) -> str:
    """Return the node that a pod's required node affinity names, or "". Source: pkg/controller/daemon/util (GetTargetNodeName)."""
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    required = affinity.required_during_scheduling_ignored_during_execution if affinity is not None else None
    for term in required.node_selector_terms if required is not None else ():
        for field in term.match_fields:
            if field.key == "metadata.name" and field.operator == "In":
                return field.values[0] if len(field.values) == 1 else ""
    return ""


class PodSnapshotCache:
    """A cache of the snapshots of pods, by owner. A snapshot is renewed when the resource version of the pod changes.

    Args:
        pods: The cached pods.
        owners: The cached owners; the snapshots of deleted owners are removed.
    """

    def __init__(self, pods: Lister[Pod], owners: Lister[Resource]) -> None:
        self._pods = pods
        self._owners = owners
        self._known: dict[str, dict[str, tuple[str, PodSnapshot]]] = {}

    def read(self, owner_uid: str, heads: Iterable[Head]) -> list[PodSnapshot]:
        """Return the snapshots of all pods of one owner."""
        before = self._known.get(owner_uid, {})
        present: dict[str, tuple[str, PodSnapshot]] = {}
        for head in heads:
            known = before.get(head.uid)
            if known is None or known[0] != head.resource_version:
                known = head.resource_version, snapshot(self._pods.decoded(head))
            present[head.uid] = known
        if owner_uid not in self._known and len(self._known) >= 2 * len(self._owners):
            live = {head.uid for head in self._owners.heads()}
            self._known = {uid: pods for uid, pods in self._known.items() if uid in live}
        self._known[owner_uid] = present
        return [one for _, one in present.values()]
