"""Matching of claims, volumes and nodes: it selects the volume for a claim, and the volumes that a pod needs on a node. No I/O.

The scheduler and the persistent volume binder use the same functions, so that neither undoes the other's decisions.
Source: Kubernetes component-helpers storage/volume/pv_helpers.go, pkg/controller/volume/persistentvolume/index.go,
pkg/scheduler/framework/plugins/volumebinding/binder.go and volumezone.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from kubeloop.api.core.v1 import ObjectReference, PersistentVolume, PersistentVolumeClaim
from kubeloop.controlplane.scheduling.cluster_facts import ClusterFacts
from kubeloop.controlplane.scheduling.facts import ClaimFacts, NodeFacts, PodFacts, VolumeFacts

#: The annotation of a claim or volume that a controller has bound, not its author. The value does not matter.
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
#: The provisioner of storage classes whose volumes are created manually.
NO_PROVISIONER = "kubernetes.io/no-provisioner"

UNBOUND_CLAIMS = "pod has unbound immediate PersistentVolumeClaims"
_OTHER_NODE = "node(s) didn't match PersistentVolume's node affinity"
_NO_VOLUME = "node(s) didn't find available persistent volumes to bind"
_GONE_VOLUME = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
_REGION, _ZONE = "topology.kubernetes.io/region", "topology.kubernetes.io/zone"
_ZONE_LABELS = {
    "failure-domain.beta.kubernetes.io/zone": _ZONE,
    "failure-domain.beta.kubernetes.io/region": _REGION,
    _ZONE: _ZONE,
    _REGION: _REGION,
}


def is_reserved_for(volume: VolumeFacts, claim: ClaimFacts) -> bool:
    """Return whether a volume refers to a claim by namespace and name and, if the reference has a uid, by uid."""
    result = volume.claim
    return result is not None and result[:2] == (claim.namespace, claim.name) and result.uid in ("", claim.uid)


def find_volume(claim: ClaimFacts, volumes: Iterable[VolumeFacts], *, delayed: bool) -> VolumeFacts | None:
    """Return the volume to which to bind a claim independently of nodes, or None if no volume matches.

    Volumes with the fewest access modes are preferred, then the volume that is reserved for the claim, then the smallest. For a delayed
    claim (WaitForFirstConsumer) only a volume that is reserved for it counts, because the scheduler chooses among the other volumes.
    """
    by_modes: dict[frozenset[str], list[VolumeFacts]] = {}
    for volume in volumes:
        if claim.access_modes <= volume.access_modes:
            by_modes.setdefault(volume.access_modes, []).append(volume)
    for modes in sorted(by_modes, key=lambda access_modes: (len(access_modes), sorted(access_modes))):
        result = _find_among(claim, by_modes[modes], reserved_only=delayed)
        if result is not None:
            return result
    return None


def find_volume_on(claim: ClaimFacts, volumes: Iterable[VolumeFacts], node: NodeFacts, taken: Collection[str] = ()) -> VolumeFacts | None:
    """Return the volume to which to bind a delayed claim if its pod runs on a node, or None if no volume matches.

    Args:
        claim: The claim.
        volumes: All volumes.
        node: The node.
        taken: Names of volumes that are already chosen for other claims.
    """
    left = [one for one in volumes if one.name not in taken and one.class_name == claim.class_name]
    reserved = next((one for one in left if is_reserved_for(one, claim) and _suits(one, claim)), None)
    if reserved is not None:
        return reserved if reserved.reaches(node.labels) else None
    return _find_among(claim, [one for one in left if claim.access_modes <= one.access_modes and one.reaches(node.labels)])


def _find_among(claim: ClaimFacts, volumes: list[VolumeFacts], *, reserved_only: bool = False) -> VolumeFacts | None:
    suitable = [one for one in volumes if _suits(one, claim)]
    reserved = next((one for one in suitable if is_reserved_for(one, claim)), None)
    if reserved is not None or reserved_only:
        return reserved
    free = [
        one
        for one in suitable
        if one.claim is None
        and one.phase == "Available"
        and one.class_name == claim.class_name
        and (claim.selector is None or claim.selector.matches(one.labels))
    ]
    return min(free, key=lambda volume: (volume.size, volume.name), default=None)


def _suits(volume: VolumeFacts, claim: ClaimFacts) -> bool:
    """Return whether a volume meets the requirements that hold even for the claim for which it is reserved: size, mode and class of
    attributes."""
    return (
        volume.size >= claim.size
        and volume.volume_mode == claim.volume_mode
        and volume.attributes_class == claim.attributes_class
        and not volume.deleting
    )


def find_mismatch(volume: VolumeFacts, claim: ClaimFacts) -> str:
    """Return why a claim that names a volume in ``spec.volumeName`` cannot be bound to it, or "" if it can be bound."""
    if volume.deleting:
        return f'the volume is marked for deletion "{volume.name}"'
    if volume.size.value() < claim.size.value():
        return "requested PV is too small"
    if volume.class_name != claim.class_name:
        return "storageClassName does not match"
    if volume.attributes_class != claim.attributes_class:
        return "volumeAttributesClassName does not match"
    if volume.volume_mode != claim.volume_mode:
        return "incompatible volumeMode"
    return "" if claim.access_modes <= volume.access_modes else "incompatible accessMode"


def reserve_volume(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Set the claim reference of a volume to a claim, including its uid; return whether that changed the volume.

    If the volume did not refer to the claim by name before, the annotation ``BOUND_BY_CONTROLLER`` allows a controller to undo the binding.
    """
    result, metadata = volume.spec.claim_ref, claim.metadata
    same_name = result is not None and (result.namespace, result.name) == (metadata.namespace, metadata.name)
    if result is not None and same_name and result.uid == metadata.uid:
        return False
    if result is None or not same_name or result.uid:
        volume.metadata.annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
    volume.spec.claim_ref = ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=metadata.namespace,
        name=metadata.name,
        uid=metadata.uid,
        resource_version=metadata.resource_version,
    )
    return True


# ---------------------------------------------------------------------------------------------------------- the claims of a pod


@dataclass
class VolumePlan:
    """The volume operations that are necessary before a pod can run on a node.

    ``bindings`` has unbound claims with the volumes chosen for them. ``provisions`` has claims for which a provisioner must create a
    volume. ``reasons`` has upstream's messages about why the pod cannot run on the node; empty if it can.
    """

    bindings: list[tuple[ClaimFacts, VolumeFacts]] = field(default_factory=list)
    provisions: list[ClaimFacts] = field(default_factory=list)
    reasons: tuple[str, ...] = ()


def find_volume_fault(pod: PodFacts, cluster: ClusterFacts) -> str:
    """Return why a pod's volumes prevent it from running on any node, or "" if they do not. All claims of the pod must exist."""
    claims = claims_of(pod, cluster)
    if any(not claim.bound and (claim.volume_name or not cluster.is_delayed(claim)) for claim in claims):
        return UNBOUND_CLAIMS
    named = [cluster.claims[pod.namespace, name].volume_name for name, ephemeral in pod.claims if not ephemeral]
    return next((f'persistentvolume "{name}" not found' for name in named if name and name not in cluster.volumes), "")


def plan_volumes(pod: PodFacts, node: NodeFacts, cluster: ClusterFacts, volumes: Iterable[VolumeFacts] | None = None) -> VolumePlan:
    """Return the volume operations that the claims of a pod need on a node. All claims must exist, and immediate claims must be bound.

    Args:
        pod: The pod.
        node: The node.
        cluster: The cluster.
        volumes: The volumes that unbound claims may get on this node; None: all volumes of the cluster.
    """
    claims = claims_of(pod, cluster)
    error = _find_bound_fault([one for one in claims if one.bound], node, cluster)
    offered = cluster.volumes.values() if volumes is None else volumes
    plan = _plan_unbound([one for one in claims if not one.bound], node, cluster, list(offered))
    if error:
        plan.reasons = (error, *plan.reasons) if error == _OTHER_NODE else (*plan.reasons, error)
    return plan


def claims_of(pod: PodFacts, cluster: ClusterFacts) -> list[ClaimFacts]:
    """Return the claims that a pod uses, all of which must exist in ``cluster``."""
    return [cluster.claims[pod.namespace, name] for name, _ in pod.claims]


def _find_bound_fault(bound: list[ClaimFacts], node: NodeFacts, cluster: ClusterFacts) -> str:
    for claim in bound:
        volume = cluster.volumes.get(claim.volume_name)
        if volume is None:
            return _GONE_VOLUME
        if not volume.reaches(node.labels):
            return _OTHER_NODE
    return ""


def _plan_unbound(unbound: list[ClaimFacts], node: NodeFacts, cluster: ClusterFacts, volumes: list[VolumeFacts]) -> VolumePlan:
    refused = VolumePlan(reasons=(_NO_VOLUME,))
    if any(one.selected_node not in (None, node.name) for one in unbound):
        return refused
    plan = VolumePlan(provisions=[one for one in unbound if one.selected_node is not None])
    # The smallest claim chooses first, so that it does not take the volume that a larger one needs.
    for claim in sorted((one for one in unbound if one.selected_node is None), key=lambda pending_claim: pending_claim.size):
        volume = find_volume_on(claim, volumes, node, [one.name for _, one in plan.bindings])
        if volume is not None:
            plan.bindings.append((claim, volume))
        else:
            plan.provisions.append(claim)
    for claim in plan.provisions:
        result = cluster.classes.get(claim.class_name)
        if result is None or result.provisioner in ("", NO_PROVISIONER) or not result.reaches(node.labels):
            return refused
    return plan


def is_in_zone(claims: list[ClaimFacts], node: NodeFacts, cluster: ClusterFacts) -> bool:
    """Return whether a node is in the zones and regions in the labels of the claims' bound volumes. A node without zone labels matches."""
    if not any(label in node.labels for label in _ZONE_LABELS):
        return True
    volumes = [cluster.volumes[one.volume_name] for one in claims if one.volume_name in cluster.volumes]
    return all(_has_zone(node.labels, key, value) for volume in volumes for key, value in volume.labels.items() if key in _ZONE_LABELS)


def _has_zone(labels: Mapping[str, str], key: str, zones: str) -> bool:
    named = [one.strip() for one in zones.split("__")]
    return "" in named or labels.get(key, labels.get(_ZONE_LABELS[key])) in named  # A list with an empty zone is malformed and ignored.
