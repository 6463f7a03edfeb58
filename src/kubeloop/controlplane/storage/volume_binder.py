"""Volume binder: binds claims to suitable persistent volumes, and releases the volumes of deleted claims.

It does not create volumes: a claim without a suitable volume stays Pending, and an Event says why the claim waits.
Source: Kubernetes pkg/controller/volume/persistentvolume (pv_controller.go).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Literal

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, Pod
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.cache import Head
from kubeloop.client import DeleteOptions
from kubeloop.controller import KeyController, Result, WatchedKind, path_changed, resource_version_changed
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.scheduling.facts import (
    BIND_COMPLETED,
    ClaimFacts,
    FactsCache,
    VolumeFacts,
    claim_facts,
    class_facts,
    volume_facts,
)
from kubeloop.controlplane.scheduling.volume_matching import (
    BOUND_BY_CONTROLLER,
    find_mismatch,
    find_volume,
    is_reserved_for,
    reserve_volume,
)
from kubeloop.controlplane.storage.volumes import claims_of
from kubeloop.meta import KubeloopError, NotFound, ObjectKey, Quantity

_ClaimPhase = Literal["Bound", "Lost", "Pending"]
_VolumePhase = Literal["Available", "Bound", "Failed", "Released"]

_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_MIGRATED_TO = "pv.kubernetes.io/migrated-to"
_BEFORE_RESIZE = "volume.alpha.kubernetes.io/pre-resize-capacity"
_PROVISIONERS = ("volume.beta.kubernetes.io/storage-provisioner", "volume.kubernetes.io/storage-provisioner")
_DEFAULT_CLASS = ("storageclass.kubernetes.io/is-default-class", "storageclass.beta.kubernetes.io/is-default-class")

#: CSI drivers that replaced in-tree plug-ins, by the name of the plug-in.
_MIGRATED = {
    "kubernetes.io/aws-ebs": "ebs.csi.aws.com",
    "kubernetes.io/azure-disk": "disk.csi.azure.com",
    "kubernetes.io/azure-file": "file.csi.azure.com",
    "kubernetes.io/cinder": "cinder.csi.openstack.org",
    "kubernetes.io/gce-pd": "pd.csi.storage.gke.io",
    "kubernetes.io/portworx-volume": "pxd.portworx.com",
    "kubernetes.io/vsphere-volume": "csi.vsphere.vmware.com",
}
_IN_TREE = "kubernetes.io/"
#: Upstream deletes only hostPath volumes whose path matches. As upstream, the pattern is not anchored.
_DELETABLE_PATH = re.compile("/tmp/.+")  # noqa: S108  # compared, never opened

_CLAIM, _CLAIM_NAME, _PHASE, _VOLUME, _COMPLETED = "claim", "claim-name", "phase", "volume", "completed"
#: The prefix of a key that stands for all unbound claims of a storage class, so that many claims and volumes cause few reconciles. No
#: volume can have such a name.
_CLASS_KEY = "class/"
_CLASS = ("spec.storageClassName", 'metadata.annotations["volume.beta.kubernetes.io/storage-class"]')
_FREE = ("status.phase", "spec.claimRef.namespace", "spec.claimRef.name", "spec.claimRef.uid")


class PersistentVolumeBinder(
    KeyController[PersistentVolumeClaim],
    watches=[
        WatchedKind(PersistentVolumeClaim, to="volumes_of_claim", paths=_CLASS),
        WatchedKind(PersistentVolume, to="keys_of_volume", paths=(*_CLASS, *_FREE)),
        WatchedKind(StorageClass, to="unbound_claims", predicates=(resource_version_changed,)),
        WatchedKind(Pod, to=claims_of, predicates=(path_changed("spec.nodeName"),), paths=("spec.volumes",)),
    ],
    indexes={
        PersistentVolumeClaim: {_VOLUME: "spec.volumeName", _COMPLETED: f'metadata.annotations["{BIND_COMPLETED}"]'},
        PersistentVolume: {_CLAIM: "spec.claimRef.uid", _CLAIM_NAME: "spec.claimRef.name", _PHASE: "status.phase"},
    },
    name="persistentvolume-binder",
):
    """Binds claims and volumes to each other. Keys with a namespace are claims; other keys are volumes, or classes of unbound claims.

    Guarantees:
        A binding consists of four writes: volume, its status, claim, its status. If a crash, a conflict or another replica interrupts them,
        the next reconcile of either object finishes the binding, or makes the volume available again if the claim got another one.
        The controller writes only changes, and records an Event only when its text changes.

    Not guaranteed:
        The smallest possible volume: a claim gets the smallest volume that the cache shows as Available during its reconcile.

    The controller has one worker, because two workers could choose the same volume for two claims, and the second write would conflict.
    """

    async def start(self) -> None:
        self._reported: dict[ObjectKey, tuple[str, str, str]] = {}
        self._facts = FactsCache[VolumeFacts](lambda head: volume_facts(self.lister(PersistentVolume).decoded(head)))

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="persistentvolume-controller")]

    # ----------------------------------------------------------------------------------------------------- triggers of reconciles

    def volumes_of_claim(self, claim: Head) -> list[ObjectKey]:
        """Return the keys of the volumes to which a claim refers, or which refer to the claim."""
        result = [ObjectKey("", "", head.name) for head in self.lister(PersistentVolume).heads_by_index(_CLAIM, claim.uid)]
        named = claim.value("spec.volumeName")
        return [*result, ObjectKey("", "", named)] if named else result

    def keys_of_volume(self, volume: Head) -> list[ObjectKey]:
        """Return the keys of a volume and of the claims that refer to it, and of the claim to which it refers.

        For an Available volume without such a claim, the last key is that of the unbound claims of its class.
        """
        claims = self.lister(PersistentVolumeClaim).heads_by_index(_VOLUME, volume.name)
        result = [ObjectKey("", "", volume.name), *(ObjectKey("", head.namespace, head.name) for head in claims)]
        if name := volume.value("spec.claimRef.name"):
            result.append(ObjectKey("", volume.value("spec.claimRef.namespace") or "", name))
        elif volume.value("status.phase") == "Available":
            result.append(ObjectKey("", "", _CLASS_KEY + _class_of(volume)))
        return result

    def unbound_claims(self, storage_class: Head) -> list[ObjectKey]:  # noqa: ARG002  # a new default class matters to claims without one
        """Return the keys of all claims that are not bound."""
        heads = self.lister(PersistentVolumeClaim).heads_by_index(_COMPLETED, "")
        return [ObjectKey("", head.namespace, head.name) for head in heads]

    async def reconcile(self, key: ObjectKey) -> Result | None:
        if key.name.startswith(_CLASS_KEY):
            self._enqueue_claims(key.name.removeprefix(_CLASS_KEY))
            return None
        try:
            if key.namespace and (claim := self.lister(PersistentVolumeClaim).by_key(key)) is not None:
                await self._sync_claim(claim)
            elif not key.namespace and (volume := self.lister(PersistentVolume).by_key(key)) is not None:
                await self._sync_volume(volume)
            else:
                self._reported.pop(ObjectKey("", key.namespace, key.name), None)
                self._facts.forget(key.name, key.namespace)
        except NotFound:
            return Result(requeue=True)  # The claim or the volume was deleted, which the cache will show.
        return None

    def _enqueue_claims(self, class_name: str) -> None:
        """Enqueue the unbound claims of a storage class if a volume of the class is available."""
        available = self.lister(PersistentVolume).heads_by_index(_PHASE, "Available")
        if any(_class_of(head) == class_name for head in available):
            for head in self.lister(PersistentVolumeClaim).heads_by_index(_COMPLETED, ""):
                if _class_of(head) == class_name:
                    self.enqueue(ObjectKey("", head.namespace, head.name))

    # ------------------------------------------------------------------------------------------------------------------- claims

    async def _sync_claim(self, claim: PersistentVolumeClaim) -> None:
        if BIND_COMPLETED in claim.metadata.annotations:
            await self._sync_bound_claim(claim)
        elif claim.spec.volume_name:
            await self._bind_named_volume(claim, claim.spec.volume_name)
        else:
            await self._bind_any_volume(claim)

    async def _bind_any_volume(self, claim: PersistentVolumeClaim) -> None:
        facts = claim_facts(claim)
        delayed = self._is_delayed(facts)
        chosen = find_volume(facts, self._candidates(facts), delayed=delayed)
        volume = None if chosen is None else self.lister(PersistentVolume).get(chosen.name)
        if volume is not None:
            await self._bind(volume, claim)
        elif not facts.has_class and (default := self._default_class()):
            claim.spec.storage_class_name = default
            await self.client.update(claim)
        elif delayed and facts.selected_node is None:
            self._report(claim, "Normal", *self._describe_delay(claim))
            await self._write_claim_status(claim, "Pending", None)
        elif facts.class_name:
            await self._request_volume(claim, facts.class_name)
        else:
            text = "no persistent volumes available for this claim and no storage class is set"
            self._report(claim, "Normal", "FailedBinding", text)
            await self._write_claim_status(claim, "Pending", None)

    async def _bind_named_volume(self, claim: PersistentVolumeClaim, name: str) -> None:
        """Bind a claim to the volume in its ``spec.volumeName``, which its author or an interrupted binding has set."""
        volume = self.lister(PersistentVolume).get(name)
        if volume is None:
            await self._write_claim_status(claim, "Pending", None)
            return
        facts, desired = volume_facts(volume), claim_facts(claim)
        if is_reserved_for(facts, desired):
            await self._bind(volume, claim)
        elif facts.claim is not None:
            self._report(claim, "Warning", "FailedBinding", f'volume "{name}" already bound to a different claim.')
            if BOUND_BY_CONTROLLER in claim.metadata.annotations:
                taker = f"{facts.claim.namespace}/{facts.claim.name}"
                raise KubeloopError(
                    f'the binding of claim "{desired.namespace}/{desired.name}" to volume "{name}" is invalid: {taker} has it'
                )
            await self._write_claim_status(claim, "Pending", None)
        elif mismatch := find_mismatch(facts, desired):
            self._report(claim, "Warning", "VolumeMismatch", f'Cannot bind to requested volume "{name}": {mismatch}')
            await self._write_claim_status(claim, "Pending", None)
        else:
            await self._bind(volume, claim)

    async def _sync_bound_claim(self, claim: PersistentVolumeClaim) -> None:
        """Finish the binding of a claim, or set its phase to Lost if its volume does not exist or is bound to another claim."""
        if not claim.spec.volume_name:
            await self._lose(claim, "ClaimLost", "Bound claim has lost reference to PersistentVolume. Data on the volume is lost!")
            return
        volume = await self._find_volume(claim.spec.volume_name)
        if volume is None:
            await self._lose(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
        elif volume.spec.claim_ref is None or volume.spec.claim_ref.uid == claim.metadata.uid:
            await self._bind(volume, claim)
        else:
            await self._lose(claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")

    async def _lose(self, claim: PersistentVolumeClaim, reason: str, message: str) -> None:
        if claim.status.phase != "Lost":
            await self._write_claim_status(claim, "Lost", None)
            self.events.warning(claim, reason, message)

    def _describe_delay(self, claim: PersistentVolumeClaim) -> tuple[str, str]:
        """Return reason and message of the Event for a claim that waits until a pod is scheduled."""
        key = ObjectKey("", claim.metadata.namespace, claim.metadata.name)
        users = [one for one in self.lister(Pod).heads(claim.metadata.namespace) if key in claims_of(one)]
        pods = (self.lister(Pod).decoded(one) for one in users)
        waiting = sorted(one.metadata.name for one in pods if not one.spec.node_name and one.status.phase not in ("Succeeded", "Failed"))
        if not waiting:
            return "WaitForFirstConsumer", "waiting for first consumer to be created before binding"
        return "WaitForPodScheduled", f"waiting for {'pod' if len(waiting) == 1 else 'pods'} {','.join(waiting)} to be scheduled"

    async def _request_volume(self, claim: PersistentVolumeClaim, class_name: str) -> None:
        """Write the provisioner of the class into the claim's annotations, which request a volume from an external provisioner."""
        result = self.lister(StorageClass).get(class_name)
        error = _find_provisioner_fault(result.provisioner) if result else f'storageclass.storage.k8s.io "{class_name}" not found'
        if result is None or error:
            self._report(claim, "Warning", "ProvisioningFailed", error)
            return
        driver = _MIGRATED.get(result.provisioner, result.provisioner)
        annotations = dict.fromkeys(_PROVISIONERS, driver)
        if claim.metadata.annotations.get(_PROVISIONERS[-1]) != driver:
            claim.metadata.annotations.update(annotations)
            claim = await self.client.update(claim)
        text = (
            f"Waiting for a volume to be created either by the external provisioner '{driver}' or manually by the system administrator. "
            "If volume creation is delayed, please verify that the provisioner is running and correctly registered."
        )
        self._report(claim, "Normal", "ExternalProvisioning", text)

    def _is_delayed(self, claim: ClaimFacts) -> bool:
        result = self.lister(StorageClass).get(claim.class_name) if claim.class_name else None
        return result is not None and class_facts(result).delayed

    def _default_class(self) -> str:
        """Return the name of the newest default class, or "" if there is none."""
        marked = [
            one for one in self.lister(StorageClass).each() if any(one.metadata.annotations.get(key) == "true" for key in _DEFAULT_CLASS)
        ]
        newest = max((one.metadata.creation_timestamp for one in marked if one.metadata.creation_timestamp), default=None)
        return min((one.metadata.name for one in marked if one.metadata.creation_timestamp == newest), default="")

    def _candidates(self, claim: ClaimFacts) -> list[VolumeFacts]:
        """Return the facts of the volumes that are Available or refer to a claim by name."""
        lister = self.lister(PersistentVolume)
        heads = {one.name: one for one in lister.heads_by_index(_PHASE, "Available") + lister.heads_by_index(_CLAIM_NAME, claim.name)}
        return [self._facts.of(head) for head in heads.values()]

    # ------------------------------------------------------------------------------------------------------------------ volumes

    async def _sync_volume(self, volume: PersistentVolume) -> None:
        result = volume.spec.claim_ref
        if result is None or not result.uid:
            await self._write_volume_phase(volume, "Available")
            return
        claim = await self._find_claim(volume, result.namespace or "", result.name or "", result.uid)
        if claim is None:
            await self._release(volume)
        elif not claim.spec.volume_name:
            self._report_mode_mismatch(volume, claim)  # If the modes match, the reconcile of the claim finishes the binding.
        elif claim.spec.volume_name == volume.metadata.name:
            await self._write_volume_phase(volume, "Bound")
        elif _PROVISIONED_BY in volume.metadata.annotations and volume.spec.persistent_volume_reclaim_policy == "Delete":
            await self._release(volume)
        else:
            await self._unbind(volume)

    def _report_mode_mismatch(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        if volume_facts(volume).volume_mode != claim_facts(claim).volume_mode:
            name, claim_name = volume.metadata.name, claim.metadata.name
            text = f'Cannot bind PersistentVolume to requested PersistentVolumeClaim "{claim_name}" due to incompatible volumeMode.'
            self._report(volume, "Warning", "VolumeMismatch", text)
            text = f'Cannot bind PersistentVolume "{name}" to requested PersistentVolumeClaim due to incompatible volumeMode.'
            self._report(claim, "Warning", "VolumeMismatch", text)

    async def _release(self, volume: PersistentVolume) -> None:
        """Release a volume whose claim was deleted, and reclaim it by its policy. If that fails, the volume's phase is Failed."""
        if volume.status.phase not in ("Released", "Failed"):
            volume = await self._write_volume_phase(volume, "Released")
        policy = volume.spec.persistent_volume_reclaim_policy
        if _MIGRATED_TO in volume.metadata.annotations or policy == "Retain":
            return
        if policy == "Recycle":
            await self._fail(volume, "VolumeFailedRecycle", "No recycler plugin found for the volume!")
        elif policy == "Delete" and not _is_deleted_elsewhere(volume):
            error = _find_deleter_fault(volume)
            if error:
                await self._fail(volume, "VolumeFailedDelete", error)
            elif volume.metadata.deletion_timestamp is None:
                await self.client.delete(volume, options=DeleteOptions(uid=volume.metadata.uid))

    async def _fail(self, volume: PersistentVolume, reason: str, message: str) -> None:
        if volume.status.phase != "Failed":
            await self._write_volume_phase(volume, "Failed", message)
            self.events.warning(volume, reason, message)

    async def _find_volume(self, name: str) -> PersistentVolume | None:
        """Return a volume or None. If the cache lacks it, read it from the server, so that no claim becomes Lost by mistake."""
        result = self.lister(PersistentVolume).get(name)
        if result is not None:
            return result
        try:
            return await self.client.get(PersistentVolume, name)
        except NotFound:
            return None

    async def _find_claim(self, volume: PersistentVolume, namespace: str, name: str, uid: str) -> PersistentVolumeClaim | None:
        """Return the claim to which a volume is bound, or None if the claim was deleted.

        A claim that the cache lacks is read from the server before its volume is released.
        """
        result = self.lister(PersistentVolumeClaim).get(name, namespace)
        if result is not None and result.metadata.uid == uid:
            return result
        if result is None and volume.status.phase in ("Released", "Failed"):
            return None
        try:
            result = await self.client.get(PersistentVolumeClaim, name, namespace=namespace)
        except NotFound:
            return None
        return result if result.metadata.uid == uid else None

    # ------------------------------------------------------------------------------------------------------------------- writes

    async def _bind(self, volume: PersistentVolume, claim: PersistentVolumeClaim) -> None:
        """Bind a claim and a volume to each other. The volume is written first, so that a claim never refers to a volume without it."""
        if reserve_volume(volume, claim):
            volume = await self.client.update(volume)
        volume = await self._write_volume_phase(volume, "Bound")
        annotations, begun = claim.metadata.annotations, claim.spec.volume_name == volume.metadata.name
        if not begun:
            claim.spec.volume_name = volume.metadata.name
            annotations.setdefault(BOUND_BY_CONTROLLER, "yes")
        if not begun or BIND_COMPLETED not in annotations:
            annotations[BIND_COMPLETED] = "yes"
            claim = await self.client.update(claim)
        await self._write_claim_status(claim, "Bound", volume)
        self._reported.pop(_key_of(claim), None)

    async def _unbind(self, volume: PersistentVolume) -> None:
        """Make a volume available again whose claim is bound to another one. A claimRef that a user wrote stays, without its uid."""
        annotations = volume.metadata.annotations
        if BOUND_BY_CONTROLLER in annotations:
            volume.spec.claim_ref = None
            del annotations[BOUND_BY_CONTROLLER]
        elif volume.spec.claim_ref is not None:
            volume.spec.claim_ref.uid = None
        await self._write_volume_phase(await self.client.update(volume), "Available")

    async def _write_volume_phase(self, volume: PersistentVolume, phase: _VolumePhase, message: str | None = None) -> PersistentVolume:
        if volume.status.phase == phase:
            return volume
        volume.status.phase, volume.status.message = phase, message
        return await self.client.update_status(volume)

    async def _write_claim_status(self, claim: PersistentVolumeClaim, phase: _ClaimPhase, volume: PersistentVolume | None) -> None:
        """Write phase, access modes, capacity and attributes class of a claim's status if they differ.

        ``volume`` is the bound volume; None clears all but the phase. The capacity of a bound claim is left to the resizer.
        """
        status = claim.status
        before = (status.phase, status.access_modes, status.capacity, status.current_volume_attributes_class_name)
        if volume is None:
            status.access_modes, status.capacity, status.current_volume_attributes_class_name = [], {}, None
        else:
            status.access_modes = volume.spec.access_modes
            if status.phase != phase:
                status.capacity = _capacity_of(volume)
            if status.phase == "Pending":
                status.current_volume_attributes_class_name = volume.spec.volume_attributes_class_name
        status.phase = phase
        if before != (status.phase, status.access_modes, status.capacity, status.current_volume_attributes_class_name):
            await self.client.update_status(claim)

    def _report(self, obj: PersistentVolume | PersistentVolumeClaim, kind: str, reason: str, message: str) -> None:
        """Record an Event about an object, unless the last Event recorded here about the object was equal."""
        key, reported = _key_of(obj), (obj.metadata.uid, reason, message)
        if self._reported.get(key) != reported:
            self._reported[key] = reported
            (self.events.warning if kind == "Warning" else self.events.normal)(obj, reason, message)


def _key_of(obj: PersistentVolume | PersistentVolumeClaim) -> ObjectKey:
    return ObjectKey("", obj.metadata.namespace, obj.metadata.name)


def _class_of(head: Head) -> str:
    name, beta = (head.value(path) for path in _CLASS)
    return name or "" if beta is None else str(beta)


def _capacity_of(volume: PersistentVolume) -> dict[str, Quantity]:
    """Return the capacity of a volume for its claim: the one before a resize, until the file system is resized."""
    try:
        return volume.spec.capacity | {"storage": Quantity(volume.metadata.annotations[_BEFORE_RESIZE])}
    except (KeyError, ValueError):
        return volume.spec.capacity


def _find_provisioner_fault(provisioner: str) -> str:
    """Return why no volumes can be provisioned for a class with this provisioner, or "" if an external provisioner may create them."""
    if not provisioner.startswith(_IN_TREE) or provisioner in _MIGRATED:
        return ""
    if provisioner == "kubernetes.io/host-path":
        return f'Failed to create provisioner: provisioning in volume plugin "{provisioner}" is disabled'
    return (
        "no provisionable volume plugin matched" if provisioner == "kubernetes.io/nfs" else f"no volume plugin matched name: {provisioner}"
    )


def _is_deleted_elsewhere(volume: PersistentVolume) -> bool:
    """Return whether an external provisioner, which created the volume, also deletes it."""
    provisioner = volume.metadata.annotations.get(_PROVISIONED_BY, "")
    in_tree = provisioner.startswith(_IN_TREE) and provisioner not in _MIGRATED
    return not in_tree if provisioner else volume.spec.csi is not None


def _find_deleter_fault(volume: PersistentVolume) -> str:
    """Return why a released volume cannot be deleted, or "" if it can be."""
    if volume.spec.host_path is None:
        error = "no deletable volume plugin matched" if volume.spec.nfs is not None else "no volume plugin matched"
        return f'error getting deleter volume plugin for volume "{volume.metadata.name}": {error}'
    # A simulated node writes nothing to the path, so only the object has to be deleted.
    path = volume.spec.host_path.path
    return "" if _DELETABLE_PATH.search(path) else f"host_path deleter only supports {_DELETABLE_PATH.pattern} but received provided {path}"
