"""How many pods a disruption budget expects, and how many of them must be healthy: from its spec and the scale of the pods' controllers.

Source: Kubernetes pkg/controller/disruption (getExpectedPodCount, finders).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kubeloop.api.apps.v1 import ReplicaSet
from kubeloop.api.core.v1 import Pod
from kubeloop.api.policy.v1 import PodDisruptionBudget
from kubeloop.client import Client
from kubeloop.controller import controller_of
from kubeloop.controlplane.rollout import scaled
from kubeloop.meta import KubeloopError, NotFound, OwnerReference, Unstructured


class SizeUnknown(KubeloopError):
    """Nobody says how many pods there should be."""


@dataclass(frozen=True, slots=True)
class Expected:
    """``pods`` that there should be, ``healthy`` ones among them; ``unmanaged``: some have no controller, and were not counted."""

    pods: int
    healthy: int
    unmanaged: bool = False


async def expected_pods(client: Client, budget: PodDisruptionBudget, pods: Sequence[Pod]) -> Expected:
    """Raises SizeUnknown: a percentage or ``maxUnavailable`` of a number that no controller says."""
    least, most = budget.spec.min_available, budget.spec.max_unavailable
    if most is not None:
        total, unmanaged = await _scale(client, pods)
        return Expected(total, max(total - scaled(most, total, up=True), 0), unmanaged)
    if isinstance(least, str):
        total, unmanaged = await _scale(client, pods)
        return Expected(total, scaled(least, total, up=True), unmanaged)
    return Expected(len(pods), least, False) if least is not None else Expected(0, 0)


async def _scale(client: Client, pods: Sequence[Pod]) -> tuple[int, bool]:
    """The sum of the scales of all controllers of the pods, and whether a pod has none."""
    known: dict[str, int] = {}
    tops: dict[str, tuple[str, int]] = {}
    unmanaged = False
    for pod in pods:
        owner = controller_of(pod)
        if owner is None:
            unmanaged = True
            continue
        if owner.uid not in tops:
            found = await _scale_of(client, owner, pod.metadata.namespace)
            if found is None:
                raise SizeUnknown(f'found no controllers for pod "{pod.metadata.name}"')
            tops[owner.uid] = found
        uid, replicas = tops[owner.uid]
        known[uid] = replicas
    return sum(known.values()), unmanaged


async def _scale_of(client: Client, owner: OwnerReference, namespace: str) -> tuple[str, int] | None:
    """uid and scale of whoever is in charge: of a ReplicaSet that belongs to a Deployment, the Deployment. None: it is gone."""
    if owner.kind == "ReplicaSet" and owner.api_version.startswith("apps/"):
        try:
            replica_set = await client.get_metadata(ReplicaSet, owner.name, namespace=namespace)
        except NotFound:
            return None
        above = next((one for one in replica_set.metadata.owner_references if one.controller), None)
        if replica_set.metadata.uid == owner.uid and above is not None:
            owner = above
    kind = Unstructured.of(owner.api_version, owner.kind)
    try:
        scale = await client.get_scale(kind, owner.name, namespace=namespace)
    except NotFound:
        gvr = (await client.mapping(kind)).gvr
        if any(one.gvr == gvr and "scale" in one.subresources for one in await client.mapper.resources()):
            return None
        raise SizeUnknown(f"{gvr.group_resource} does not implement the scale subresource") from None
    return (owner.uid, scale.spec.replicas or 0) if scale.metadata.uid == owner.uid else None
