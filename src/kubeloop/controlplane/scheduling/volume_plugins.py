"""Plugins for volumes: exclusive use, limits of nodes, binding of claims, zones; and a plugin that refuses resource claims. No I/O.

Source: Kubernetes pkg/scheduler/framework/plugins: volumerestrictions, nodevolumelimits, volumebinding, volumezone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import ClassVar

from kubeloop.controlplane.scheduling.cluster_events import Action, ClusterEvent, Interests
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import ClaimFacts, NodeFacts, PodFacts, VolumeFacts
from kubeloop.controlplane.scheduling.framework import NodeFilter, NodeRefusal, PodRefusal, SchedulerPlugin
from kubeloop.controlplane.scheduling.volume_matching import claims_of, find_volume_fault, is_in_zone, plan_volumes
from kubeloop.types import JSONObject

_HOSTNAME = "kubernetes.io/hostname"


def _uses_claim(pod: PodFacts, claim: ClaimFacts) -> bool:
    return claim.namespace == pod.namespace and any(name == claim.name for name, _ in pod.claims)


class VolumeRestrictions(SchedulerPlugin):
    """Refuses nodes on which another pod uses the same disk, and all nodes while another pod uses a ReadWriteOncePod claim of the pod."""

    name = "VolumeRestrictions"
    interests: ClassVar[Interests] = {"Node": Action.ADD, "Pod": Action.DELETE, "PersistentVolumeClaim": Action.ADD}

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | PodRefusal | None:
        in_use = False
        for name, ephemeral in pod.claims:
            claim = cluster.claims.get((pod.namespace, name))
            if ephemeral:
                continue
            if claim is None:
                return PodRefusal(f'persistentvolumeclaim "{name}" not found')
            in_use = in_use or ("ReadWriteOncePod" in claim.access_modes and cluster.claim_users[pod.namespace, name] > 0)
        disks = _disks(pod)
        if not disks and not in_use:
            return None
        conflict = NodeRefusal(("node(s) had no available disk",), True, self.name)
        message = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
        exclusive = NodeRefusal((message,), True, self.name)

        def check(node: NodeFacts) -> NodeRefusal | None:
            if disks and any(_conflicts(disks, _disks(other)) for other in node.pods):
                return conflict
            return exclusive if in_use else None

        return check

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind == "PersistentVolumeClaim":
            return _uses_claim(pod, event.new)
        if event.kind == "Node":
            return True
        gone = event.old
        if gone.namespace != pod.namespace:
            return False
        return _conflicts(_disks(pod), _disks(gone)) or not {name for name, _ in pod.claims}.isdisjoint(name for name, _ in gone.claims)


def _disks(pod: PodFacts) -> list[tuple[str, JSONObject]]:
    """Return type and source of the volumes of a pod that two pods of a node must not share."""
    kinds = ("gcePersistentDisk", "awsElasticBlockStore", "iscsi", "rbd")
    return [(kind, volume[kind]) for volume in pod.spec.get("volumes") or () for kind in kinds if volume.get(kind)]


def _conflicts(first: Sequence[tuple[str, JSONObject]], second: Sequence[tuple[str, JSONObject]]) -> bool:
    return any(kind == other and _is_same_disk(kind, one, two) for kind, one in first for other, two in second)


def _is_same_disk(kind: str, disk: JSONObject, other: JSONObject) -> bool:
    if kind == "awsElasticBlockStore":
        return bool(disk.get("volumeID") == other.get("volumeID"))
    if disk.get("readOnly") and other.get("readOnly"):
        return False
    if kind == "gcePersistentDisk":
        return bool(disk.get("pdName") == other.get("pdName"))
    if kind == "iscsi":
        return bool(disk.get("iqn") == other.get("iqn"))
    same = (disk.get("pool") or "rbd", disk.get("image")) == (other.get("pool") or "rbd", other.get("image"))
    return same and not set(disk.get("monitors") or ()).isdisjoint(other.get("monitors") or ())


class NodeVolumeLimits(SchedulerPlugin):
    """Refuses nodes to which no more volumes of a CSI driver can be attached. Volumes without a CSI driver do not count."""

    name = "NodeVolumeLimits"
    interests: ClassVar[Interests] = {
        "CSINode": Action.ADD | Action.UPDATE,
        "Pod": Action.DELETE,
        "PersistentVolumeClaim": Action.ADD,
        "VolumeAttachment": Action.DELETE,
    }

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:
        if not pod.claims or not cluster.limits:
            return None
        added = _attached(pod, cluster)
        if not added:
            return None
        refusal = NodeRefusal(("node(s) exceed max volume count",), True, self.name)

        def check(node: NodeFacts) -> NodeRefusal | None:
            limits = cluster.limits.get(node.name)
            if not limits:
                return None
            present = {volume for other in node.pods for volume in _attached(other, cluster)}
            for attacher, name in cluster.attachments.get(node.name, {}).values():
                volume = cluster.volumes.get(name)
                if volume is not None and volume.driver:
                    present.add((attacher, volume.handle))
            used, more = Counter(driver for driver, _ in present), Counter(driver for driver, _ in added - present)
            return refusal if any(used[driver] + count > limits[driver] for driver, count in more.items() if driver in limits) else None

        return check

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind == "PersistentVolumeClaim":
            return _uses_claim(pod, event.new)
        if event.kind == "CSINode":
            return event.old is None or any(limit > event.old.get(driver, 0) for driver, limit in event.new.items())
        if event.kind == "Pod":
            return bool(event.old.claims) and bool(event.old.node or event.old.nominated_node)
        return bool(pod.claims)


def _attached(pod: PodFacts, cluster: ClusterFacts) -> set[tuple[str, str]]:
    """Return driver and handle of each CSI volume that a pod uses. A volume that does not exist yet is identified by its claim."""
    result = set()
    for name, _ in pod.claims:
        claim = cluster.claims.get((pod.namespace, name))
        if claim is None:
            continue
        volume = cluster.volumes.get(claim.volume_name)
        if volume is not None:
            if volume.driver:
                result.add((volume.driver, volume.handle))
            continue
        storage_class = cluster.classes.get(claim.class_name)
        if storage_class is not None and storage_class.provisioner:
            result.add((storage_class.provisioner, f"{pod.namespace}/{name}"))
    return result


class VolumeBinding(SchedulerPlugin):
    """Refuses nodes that cannot use the bound volumes of a pod, or on which its unbound claims cannot be bound or provisioned."""

    name = "VolumeBinding"
    interests: ClassVar[Interests] = {
        "StorageClass": Action.ADD | Action.UPDATE,
        "PersistentVolumeClaim": Action.ADD | Action.UPDATE,
        "PersistentVolume": Action.ADD | Action.UPDATE,
        "Node": Action.ADD | Action.NODE_LABEL,
    }

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | PodRefusal | None:
        if not pod.claims:
            return None
        if reason := _find_claim_fault(pod, cluster):
            return PodRefusal(reason)
        if reason := find_volume_fault(pod, cluster):
            return PodRefusal(reason)
        unbound = [one for one in claims_of(pod, cluster) if not one.bound]
        choice = _VolumeChoice(unbound, cluster.volumes.values()) if unbound else None

        def check(node: NodeFacts) -> NodeRefusal | None:
            reasons = plan_volumes(pod, node, cluster, choice.volumes(node) if choice is not None else ()).reasons
            return NodeRefusal(reasons, False, self.name) if reasons else None

        return check

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        return event.kind != "PersistentVolumeClaim" or _uses_claim(pod, event.new)


class _VolumeChoice:
    """The volumes to which claims may be bound, indexed by the only host that can use them.

    For a node only its local volumes and the volumes that several hosts can use are checked.
    """

    def __init__(self, claims: Sequence[ClaimFacts], volumes: Iterable[VolumeFacts]) -> None:
        self._local: dict[str, list[VolumeFacts]] = {}
        self._shared: list[VolumeFacts] = []
        classes = {claim.class_name for claim in claims}
        for volume in volumes:
            if volume.class_name not in classes:
                continue
            # A reserved volume must be checked on every node, because its claim can get no other one.
            host = _only_host(volume) if volume.claim is None else None
            (self._shared if host is None else self._local.setdefault(host, [])).append(volume)

    def volumes(self, node: NodeFacts) -> list[VolumeFacts]:
        return [*self._local.get(node.labels.get(_HOSTNAME, ""), ()), *self._shared]


def _only_host(volume: VolumeFacts) -> str | None:
    """Return the host name label of the only host that can use a volume, or None if its node affinity has another form."""
    terms: list[JSONObject] = volume.node_terms or []
    if len(terms) != 1 or terms[0].get("matchFields"):
        return None
    expressions: list[JSONObject] = terms[0].get("matchExpressions") or []
    if len(expressions) != 1 or (expressions[0]["key"], expressions[0]["operator"]) != (_HOSTNAME, "In"):
        return None
    values: list[str] = expressions[0].get("values") or []
    return values[0] if len(values) == 1 else None


def _find_claim_fault(pod: PodFacts, cluster: ClusterFacts) -> str:
    """Return why a claim of the pod cannot be used on any node, or "" if all claims can be used."""
    for name, ephemeral in pod.claims:
        claim = cluster.claims.get((pod.namespace, name))
        if claim is None:
            waiting = f'waiting for ephemeral volume controller to create the persistentvolumeclaim "{name}"'
            return waiting if ephemeral else f'persistentvolumeclaim "{name}" not found'
        if claim.phase == "Lost":
            return f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume "{claim.volume_name}"'
        if claim.deleting:
            return f'persistentvolumeclaim "{name}" is being deleted'
        if ephemeral and claim.owner != pod.uid:
            return f"PVC {pod.namespace}/{name} was not created for pod {pod.namespace}/{pod.name} (pod is not owner)"
    return ""


class VolumeZone(SchedulerPlugin):
    """Refuses nodes outside the zones and regions of the pod's bound volumes."""

    name = "VolumeZone"
    interests: ClassVar[Interests] = {
        "StorageClass": Action.ADD,
        "Node": Action.ADD | Action.NODE_LABEL,
        "PersistentVolumeClaim": Action.ADD | Action.UPDATE,
        "PersistentVolume": Action.ADD | Action.UPDATE,
    }

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> NodeFilter | None:
        claims = [one for name, _ in pod.claims if (one := cluster.claims.get((pod.namespace, name))) is not None]
        if not any(one.volume_name for one in claims):
            return None
        refusal = NodeRefusal(("node(s) had no available volume zone",), False, self.name)
        return lambda node: None if is_in_zone(claims, node, cluster) else refusal

    def may_help(self, pod: PodFacts, event: ClusterEvent, cluster: ClusterFacts) -> bool:  # noqa: ARG002
        if event.kind == "PersistentVolumeClaim":
            return _uses_claim(pod, event.new)
        return event.kind != "StorageClass" or event.new.delayed


class DynamicResources(SchedulerPlugin):
    """Refuses pods with resource claims, which this scheduler does not allocate."""

    name = "DynamicResources"

    def make_filter(self, pod: PodFacts, cluster: ClusterFacts) -> PodRefusal | None:  # noqa: ARG002
        return PodRefusal("kubeloop's scheduler does not allocate resource claims") if pod.spec.get("resourceClaims") else None
