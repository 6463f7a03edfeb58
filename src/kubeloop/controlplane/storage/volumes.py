"""Controllers that protect claims, volumes and attributes classes in use, and create claims for ephemeral volumes.

The server's admission adds the finalizers that protect claims and volumes; controllers here remove them.
Source: Kubernetes pkg/controller/volume/pvcprotection, pvprotection, vacprotection and ephemeral.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimTemplate, Pod
from kubeloop.api.storage.v1 import VolumeAttributesClass
from kubeloop.cache import Head
from kubeloop.controller import (
    Controller,
    Predicate,
    WatchedKind,
    add_finalizer,
    is_controlled_by,
    remove_finalizer,
    set_controller_reference,
)
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.meta import AlreadyExists, ApiError, KubeloopError, ObjectKey, ObjectMeta

CLAIM_FINALIZER = "kubernetes.io/pvc-protection"
VOLUME_FINALIZER = "kubernetes.io/pv-protection"
CLASS_FINALIZER = "kubernetes.io/vac-protection"
_CLAIMS = "spec.volumes"


def claims_of(pod: Head) -> list[ObjectKey]:
    """Return the keys of the claims that a pod uses: those in its volumes, and those created for its ephemeral volumes."""
    result = []
    for volume in pod.value(_CLAIMS) or ():
        if claim := volume.get("persistentVolumeClaim"):
            result.append(ObjectKey("", pod.namespace, claim["claimName"]))
        elif volume.get("ephemeral") is not None:
            result.append(ObjectKey("", pod.namespace, f"{pod.name}-{volume['name']}"))
    return result


class ClaimProtectionController(
    Controller[PersistentVolumeClaim],
    watches=[WatchedKind(Pod, to=claims_of, paths=(_CLAIMS,))],
    workers=5,
    name="pvc-protection-controller",
):
    """Adds the protection finalizer to claims, and removes it from a deleted claim when no scheduled pod uses the claim.

    Guarantees:
        The finalizer is removed only after a list of pods from the server, not only from the cache, shows no pod that uses the claim.
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
    """Return whether a pod with a node uses a claim. A pod without a node cannot start with a claim that is being deleted."""
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
    """Return whether the kubelet has shut a pod down. Its ephemeral claims must not wait for its deletion, which may wait for theirs."""
    return pod.metadata.deletion_timestamp is not None and pod.metadata.deletion_grace_period_seconds == 0


class VolumeProtectionController(Controller[PersistentVolume], workers=1, name="pv-protection-controller"):
    """Adds the protection finalizer to volumes, and removes it from a deleted volume that is not bound."""

    async def reconcile(self, volume: PersistentVolume) -> None:
        if volume.metadata.deletion_timestamp is None:
            await add_finalizer(self.client, volume, VOLUME_FINALIZER)
        elif volume.status.phase != "Bound":
            await remove_finalizer(self.client, volume, VOLUME_FINALIZER)


_CLASS = "spec.volumeAttributesClassName"
_CURRENT_CLASS, _TARGET_CLASS = "status.currentVolumeAttributesClassName", "status.modifyVolumeStatus.targetVolumeAttributesClassName"


def _classes_of_claim(claim: Head) -> list[ObjectKey]:
    """Return the keys of the attributes classes in the spec and status of a claim."""
    names = {claim.value(path) for path in (_CLASS, _CURRENT_CLASS, _TARGET_CLASS)}
    return [ObjectKey("", "", name) for name in names if name]


def _class_of_volume(volume: Head) -> list[ObjectKey]:
    """Return the key of the attributes class of a volume, if it has one."""
    name = volume.value(_CLASS)
    return [ObjectKey("", "", name)] if name else []


class AttributesClassProtectionController(
    Controller[VolumeAttributesClass],
    watches=[
        WatchedKind(PersistentVolumeClaim, to=_classes_of_claim, paths=(_CLASS, _CURRENT_CLASS, _TARGET_CLASS)),
        WatchedKind(PersistentVolume, to=_class_of_volume, paths=(_CLASS,)),
    ],
    workers=1,
    name="volumeattributesclass-protection-controller",
):
    """Adds the protection finalizer to attributes classes, and removes it from a deleted class that no claim or volume uses.

    As upstream, the controller reads only caches, so it may miss a claim that is created at the moment of the deletion.
    Source: Kubernetes pkg/controller/volume/vacprotection.
    """

    async def reconcile(self, attributes_class: VolumeAttributesClass) -> None:
        if attributes_class.metadata.deletion_timestamp is None:
            await add_finalizer(self.client, attributes_class, CLASS_FINALIZER)
        elif CLASS_FINALIZER in attributes_class.metadata.finalizers and not self._is_used(attributes_class.metadata.name):
            await remove_finalizer(self.client, attributes_class, CLASS_FINALIZER)

    def _is_used(self, name: str) -> bool:
        key = ObjectKey("", "", name)
        return any(key in _classes_of_claim(head) for head in self.lister(PersistentVolumeClaim).heads()) or any(
            key in _class_of_volume(head) for head in self.lister(PersistentVolume).heads()
        )


_with_volumes = Predicate(lambda event: any(one.get("ephemeral") is not None for one in event.head.value(_CLAIMS) or ()), (_CLAIMS,))


class EphemeralVolumeController(
    Controller[Pod], predicates=[_with_volumes], owns=[PersistentVolumeClaim], name="ephemeral-volume-controller"
):
    """Creates the claims of a pod's ephemeral volumes, which are deleted with the pod.

    Source: Kubernetes pkg/controller/volume/ephemeral.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="ephemeral_volume")]

    async def reconcile(self, pod: Pod) -> None:
        if pod.metadata.deletion_timestamp is not None:
            return
        for volume in pod.spec.volumes:
            if volume.ephemeral is not None and volume.ephemeral.volume_claim_template is not None:
                try:
                    await self._create(pod, f"{pod.metadata.name}-{volume.name}", volume.ephemeral.volume_claim_template)
                except KubeloopError as error:
                    reason = error.status.message if isinstance(error, ApiError) else str(error)
                    self.events.warning(pod, "FailedBinding", f"ephemeral volume {volume.name}: {reason}")
                    raise

    async def _create(self, pod: Pod, name: str, template: PersistentVolumeClaimTemplate) -> None:
        """Create a claim for an ephemeral volume unless it exists.

        Raises:
            KubeloopError: A claim of another owner has the name, or the server refuses the claim.
        """
        namespace = pod.metadata.namespace
        result = self.lister(PersistentVolumeClaim).get(name, namespace)
        if result is None:
            labels, annotations = dict(template.metadata.labels), dict(template.metadata.annotations)
            metadata = ObjectMeta(name=name, namespace=namespace, labels=labels, annotations=annotations)
            claim = PersistentVolumeClaim(metadata=metadata, spec=template.spec)
            set_controller_reference(pod, claim)
            try:
                await self.client.create(claim)
            except AlreadyExists:
                result = await self.client.get(PersistentVolumeClaim, name, namespace=namespace)
        if result is not None and not is_controlled_by(result, pod):
            raise KubeloopError(f"PVC {namespace}/{name} was not created for pod {namespace}/{pod.metadata.name} (pod is not owner)")
