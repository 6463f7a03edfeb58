"""Protection of volumes: a claim that a pod uses, and a volume that is bound, outlive their deletion until neither is so.

The server's admission adds the finalizers; these controllers remove them. Source: Kubernetes pkg/controller/volume/pvcprotection and
pvprotection.
"""

from __future__ import annotations

from collections.abc import Iterable

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.cache import Head
from kubeloop.controller import Controller, Watch, add_finalizer, remove_finalizer
from kubeloop.meta import ObjectKey

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
_CLAIMS = "spec.volumes"


def claims_of(pod: Head) -> list[ObjectKey]:
    """Return the keys of the claims that a pod names in its volumes or has made for its ephemeral volumes."""
    found = []
    for volume in pod.value(_CLAIMS) or ():
        if claim := volume.get("persistentVolumeClaim"):
            found.append(ObjectKey("", pod.namespace, claim["claimName"]))
        elif volume.get("ephemeral") is not None:
            found.append(ObjectKey("", pod.namespace, f"{pod.name}-{volume['name']}"))
    return found


class ClaimProtectionController(
    Controller[PersistentVolumeClaim],
    watches=[Watch(Pod, to=claims_of, paths=(_CLAIMS,))],
    workers=5,
    name="pvc-protection-controller",
):
    """Removes the protection of a claim that is being deleted as soon as no scheduled pod uses it; adds it to a claim that lacks it.

    Guarantees:
        A claim loses its protection only after a list of the pods from the server itself, not from the cache, shows no user.
    """

    async def reconcile(self, claim: PersistentVolumeClaim) -> None:
        if claim.metadata.deletion_timestamp is None:
            await add_finalizer(self.client, claim, CLAIM_FINALIZER)
        elif CLAIM_FINALIZER in claim.metadata.finalizers and not await self._is_used(claim):
            await remove_finalizer(self.client, claim, CLAIM_FINALIZER)

    async def _is_used(self, claim: PersistentVolumeClaim) -> bool:
        namespace = claim.metadata.namespace
        if any_uses(self.lister(Pod).each(namespace), claim):
            return True
        # The cache may lag: a pod that it does not show yet would lose its volume.
        return any_uses(await self.client.list(Pod, namespace=namespace), claim)


def any_uses(pods: Iterable[Pod], claim: PersistentVolumeClaim) -> bool:
    """Return whether a pod that has a node uses the claim. A pod without a node will not start with a claim that is being deleted."""
    return any(pod.spec.node_name and _uses(pod, claim) for pod in pods)


def _uses(pod: Pod, claim: PersistentVolumeClaim) -> bool:
    for volume in pod.spec.volumes:
        if volume.persistent_volume_claim is not None and volume.persistent_volume_claim.claim_name == claim.metadata.name:
            return True
        if volume.ephemeral is None or f"{pod.metadata.name}-{volume.name}" != claim.metadata.name or _is_shut_down(pod):
            continue
        if any(owner.controller and owner.uid == pod.metadata.uid for owner in claim.metadata.owner_references):
            return True
    return False


def _is_shut_down(pod: Pod) -> bool:
    """Return whether the kubelet has finished with the pod. Its own claims must not wait for it then: it may wait for them to go."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds == 0


class VolumeProtectionController(Controller[PersistentVolume], workers=1, name="pv-protection-controller"):
    """Removes the protection of a volume that is being deleted unless it is bound; adds it to a volume that lacks it."""

    async def reconcile(self, volume: PersistentVolume) -> None:
        if volume.metadata.deletion_timestamp is None:
            await add_finalizer(self.client, volume, VOLUME_FINALIZER)
        elif volume.status.phase != "Bound":
            await remove_finalizer(self.client, volume, VOLUME_FINALIZER)
