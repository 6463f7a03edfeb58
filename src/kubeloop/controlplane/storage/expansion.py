"""Expansion of volumes: upstream's controller, which leaves expansion to drivers, and a resizer of host-path volumes.

Source: Kubernetes pkg/controller/volume/expand (expand_controller.go), pkg/volume/util/resize_util.go; kubernetes-csi/external-resizer;
KEP-1790 (allocated resources).
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from datetime import datetime

from kubeloop.api.core.v1 import PersistentVolume, PersistentVolumeClaim, PersistentVolumeClaimCondition, Pod
from kubeloop.controller import Controller, WatchedKind, path_changed
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.storage.host_path_provisioner import PROVISIONED_BY, PROVISIONER
from kubeloop.controlplane.storage.volumes import claims_of
from kubeloop.meta import NotFound, Quantity

_PRE_RESIZE = "volume.alpha.kubernetes.io/pre-resize-capacity"
_RESIZER = "volume.kubernetes.io/storage-resizer"
_RESIZING, _PENDING = "Resizing", "FileSystemResizePending"
_WAITING = "Waiting for user to (re-)start a pod to finish file system resize of volume on node."
_CONTROLLER_WORKS, _NODE_WAITS = "ControllerResizeInProgress", "NodeResizePending"
_NOTHING = Quantity(0)
#: Volume sources that were migrated to CSI: names of the in-tree plug-in and of the CSI driver.
_MIGRATED = {
    "aws_elastic_block_store": ("kubernetes.io/aws-ebs", "ebs.csi.aws.com"),
    "azure_disk": ("kubernetes.io/azure-disk", "disk.csi.azure.com"),
    "azure_file": ("kubernetes.io/azure-file", "file.csi.azure.com"),
    "cinder": ("kubernetes.io/cinder", "cinder.csi.openstack.org"),
    "gce_persistent_disk": ("kubernetes.io/gce-pd", "pd.csi.storage.gke.io"),
    "portworx_volume": ("kubernetes.io/portworx-volume", "pxd.portworx.com"),
    "vsphere_volume": ("kubernetes.io/vsphere-volume", "csi.vsphere.vmware.com"),
}


class VolumeExpander(
    Controller[PersistentVolumeClaim],
    predicates=[path_changed("spec.resources.requests") | path_changed("status.capacity")],
    workers=10,
    name="persistentvolume-expander-controller",
):
    """Reports which external resizer must expand the volume of a claim. The control plane no longer expands volumes itself."""

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component="volume_expand")]

    async def reconcile(self, claim: PersistentVolumeClaim) -> None:
        volume = await self._bound_volume(claim)
        if volume is None or (_request(claim) <= _capacity(claim) and _PRE_RESIZE not in volume.metadata.annotations):
            return
        migrated = next((names for field, names in _MIGRATED.items() if getattr(volume.spec, field) is not None), None)
        if migrated is None:
            self.events.normal(claim, "ExternalExpanding", "waiting for an external controller to expand this PVC")
            return
        plugin, driver = migrated
        text = f"CSI migration enabled for {plugin}; waiting for external resizer to expand the pvc"
        self.events.normal(claim, "ExternalExpanding", text)
        if claim.metadata.annotations.get(_RESIZER) != driver:
            claim.metadata.annotations[_RESIZER] = driver
            await self.client.update_status(claim)

    async def _bound_volume(self, claim: PersistentVolumeClaim) -> PersistentVolume | None:
        """Return the volume to which a claim is bound, from the server, or None."""
        if claim.status.phase != "Bound" or not claim.spec.volume_name:
            return None
        try:
            volume = await self.client.get(PersistentVolume, claim.spec.volume_name)
        except NotFound:
            return None
        return volume if _is_bound(claim, volume) else None


class HostPathResizer(
    Controller[PersistentVolumeClaim],
    watches=[WatchedKind(Pod, to=claims_of, predicates=(path_changed("status.phase"),), paths=("spec.volumes",))],
    reads=[PersistentVolume],
    workers=4,
    name="host-path-resizer",
):
    """Expands volumes of the host-path provisioner, in the same steps as a CSI driver with its resizer.

    A directory has no size, so only objects change: first the volume, and then the claim, when a pod runs that uses the claim, as with a
    driver that expands file systems on the node. This controller does the last step too, because no kubelet expands a hostPath volume.

    Guarantees:
        Each step can be repeated: a restart between any two writes, or a second replica, leads to the same final state.
    """

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component=f"external-resizer {PROVISIONER}")]

    async def reconcile(self, claim: PersistentVolumeClaim) -> None:
        volume = self.lister(PersistentVolume).get(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is None or volume.metadata.annotations.get(PROVISIONED_BY) != PROVISIONER or not _is_bound(claim, volume):
            return
        size, before = _request(claim), copy.deepcopy(claim)
        if size <= _capacity(claim):
            await self._clean_up(claim, volume)
            return
        if volume.spec.capacity.get("storage", _NOTHING) < size:
            claim = await self._begin(claim, before, volume, size)
            before = copy.deepcopy(claim)
        if claim.status.allocated_resource_statuses.get("storage") != _NODE_WAITS:
            _set_progress(claim, size, _NODE_WAITS)
            _set_condition(claim, _PENDING, _WAITING, self._now())
            claim = await self.client.update_status(claim)
            self.events.normal(claim, "FileSystemResizeRequired", "Require file system resize of volume on node")
        if (pod := self._user(claim)) is not None:
            await self._finish(claim, volume, pod)

    async def _begin(
        self, claim: PersistentVolumeClaim, before: PersistentVolumeClaim, volume: PersistentVolume, size: Quantity
    ) -> PersistentVolumeClaim:
        """Write the progress into the claim's status, and the new size into the volume; return the updated claim."""
        _set_progress(claim, size, _CONTROLLER_WORKS)
        _set_condition(claim, _RESIZING, None, self._now())
        if claim.status != before.status:
            claim = await self.client.update_status(claim)
            self.events.normal(claim, "Resizing", f"External resizer is resizing volume {volume.metadata.name}")
        volume.metadata.annotations.setdefault(_PRE_RESIZE, str(_capacity(claim)))
        volume.spec.capacity["storage"] = size
        await self.client.update(volume)
        return claim

    async def _finish(self, claim: PersistentVolumeClaim, volume: PersistentVolume, pod: Pod) -> None:
        """Write the new size into the claim's status, as the kubelet does when it has expanded the file system."""
        claim.status.capacity["storage"] = _request(claim)
        claim.status.allocated_resource_statuses.pop("storage", None)
        claim.status.conditions = [one for one in claim.status.conditions if one.type not in (_RESIZING, _PENDING)]
        claim = await self.client.update_status(claim)
        text = f'MountVolume.NodeExpandVolume succeeded for volume "{volume.metadata.name}" {pod.spec.node_name}'
        for obj in (pod, claim):
            self.events.normal(obj, "FileSystemResizeSuccessful", text)

    async def _clean_up(self, claim: PersistentVolumeClaim, volume: PersistentVolume) -> None:
        """Remove the annotation of a resize from a volume whose claim has reached the volume's size."""
        if _PRE_RESIZE in volume.metadata.annotations and volume.spec.capacity.get("storage", _NOTHING) <= _capacity(claim):
            del volume.metadata.annotations[_PRE_RESIZE]
            await self.client.update(volume)

    def _user(self, claim: PersistentVolumeClaim) -> Pod | None:
        """Return a running pod that uses a claim, or None."""
        key = claim.object_key(self.cluster)
        for head in self.lister(Pod).heads(claim.metadata.namespace):
            if any((one.namespace, one.name) == (key.namespace, key.name) for one in claims_of(head)):
                pod = self.lister(Pod).decoded(head)
                if pod.status.phase == "Running" and pod.metadata.deletion_timestamp is None:
                    return pod
        return None

    def _now(self) -> datetime:
        return self.clock.wall().replace(microsecond=0)


def _is_bound(claim: PersistentVolumeClaim, volume: PersistentVolume) -> bool:
    reference = volume.spec.claim_ref
    return claim.status.phase == "Bound" and reference is not None and reference.uid == claim.metadata.uid


def _request(claim: PersistentVolumeClaim) -> Quantity:
    return claim.spec.resources.requests.get("storage", _NOTHING)


def _capacity(claim: PersistentVolumeClaim) -> Quantity:
    return claim.status.capacity.get("storage", _NOTHING)


def _set_progress(claim: PersistentVolumeClaim, size: Quantity, state: str) -> None:
    claim.status.allocated_resources["storage"] = size
    claim.status.allocated_resource_statuses["storage"] = state


def _set_condition(claim: PersistentVolumeClaim, kind: str, message: str | None, now: datetime) -> None:
    if all(one.type != kind for one in claim.status.conditions):
        condition = PersistentVolumeClaimCondition(type=kind, status="True", message=message, last_transition_time=now)
        claim.status.conditions.append(condition)
