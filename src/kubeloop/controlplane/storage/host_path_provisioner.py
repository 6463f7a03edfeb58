"""Host-path provisioner: creates and deletes the volumes of classes whose provisioner is ``kubeloop.dev/host-path``.

It follows the protocol of external provisioners, so that the binder, the scheduler and users see what they see of any other.
Source: sigs.k8s.io/sig-storage-lib-external-provisioner (controller.go); Kubernetes, "Dynamic Volume Provisioning".
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Sequence
from pathlib import Path

from kubeloop.api.core.v1 import (
    HostPathVolumeSource,
    Node,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ObjectReference,
    PersistentVolume,
    PersistentVolumeClaim,
    PersistentVolumeSpec,
    VolumeNodeAffinity,
)
from kubeloop.api.storage.v1 import StorageClass
from kubeloop.client import DeleteOptions
from kubeloop.controller import Controller, KeyController, Watch, remove_finalizer, resource_version_changed
from kubeloop.controller.events import EventSink
from kubeloop.controlplane.controller_utils import ComponentEvents
from kubeloop.controlplane.scheduling.facts import SELECTED_NODE
from kubeloop.meta import AlreadyExists, ApiError, KubeloopError, NotFound, ObjectKey, ObjectMeta

PROVISIONER = "kubeloop.dev/host-path"
#: Added to volumes that the provisioner deletes, so that a volume which a person deletes first is cleaned up as well.
FINALIZER = "external-provisioner.volume.kubernetes.io/finalizer"
PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
#: The parameter of a class that names the directory in which its volumes lie, and its default.
DIRECTORY_PARAMETER, DIRECTORY = "directory", "/tmp/kubeloop-volumes"  # noqa: S108  # a path on nodes
#: The class that ``StandardClassCreator`` creates: the name that kind and minikube use.
STANDARD_CLASS = "standard"
_REQUESTED_OF = ("volume.kubernetes.io/storage-provisioner", "volume.beta.kubernetes.io/storage-provisioner")
_CLASS_ANNOTATION = "volume.beta.kubernetes.io/storage-class"
_HOSTNAME = "kubernetes.io/hostname"


class ProvisioningFailed(KubeloopError):
    """A volume cannot be made; the message goes into an event."""


class HostPathProvisioner(
    KeyController[PersistentVolumeClaim],
    watches=[
        Watch(PersistentVolume, to=lambda volume: [ObjectKey("", "", volume.name)], predicates=(resource_version_changed,)),
    ],
    reads=[StorageClass, Node],
    workers=4,
    name="host-path-provisioner",
):
    """Provisions hostPath volumes for claims, and deletes those whose claims are gone. Keys with a namespace are claims, others volumes.

    Guarantees:
        A claim gets one volume, whose name follows from the claim's uid: a kill after its creation, or a second replica, makes no other.
        A volume of a class that waits for the first consumer can be used only on the node that the scheduler chose.
        A volume is deleted only if it names this provisioner, its policy is Delete and its claim is gone.

    Args:
        root: Local folder under which the directories of deleted volumes are removed, if nodes share this machine's files. None: files
            are never touched.
    """

    def __init__(self, root: Path | None = None) -> None:
        self._root = root

    def event_sinks(self) -> Sequence[EventSink]:
        return [ComponentEvents(component=PROVISIONER)]

    async def reconcile(self, key: ObjectKey) -> None:
        if key.namespace:
            claim = self.lister(PersistentVolumeClaim).by_key(key)
            if claim is not None and _is_requested(claim):
                await self._provision(claim)
        elif (volume := self.lister(PersistentVolume).get(key.name)) is not None and _is_expendable(volume):
            await self._delete(volume)

    # --------------------------------------------------------------------------------------------------------------- provisioning

    async def _provision(self, claim: PersistentVolumeClaim) -> None:
        """Create the volume of a claim.

        Raises:
            ProvisioningFailed: The claim, its class or its node does not do; an event says so, and the claim is tried again.
        """
        name = f"pvc-{claim.metadata.uid}"
        if self.lister(PersistentVolume).get(name) is not None:
            return
        storage_class = self.lister(StorageClass).get(_class_name(claim))
        if storage_class is None or storage_class.provisioner != PROVISIONER:
            return
        delayed = storage_class.volume_binding_mode == "WaitForFirstConsumer"
        if delayed and not claim.metadata.annotations.get(SELECTED_NODE):
            return
        text = f'External provisioner is provisioning volume for claim "{claim.metadata.namespace}/{claim.metadata.name}"'
        self.events.normal(claim, "Provisioning", text)
        try:
            _check(claim)
            node = await self._selected_node(claim) if delayed else None
            await self.client.create(_volume(name, claim, storage_class, node))
        except AlreadyExists:
            return
        except KubeloopError as error:
            reason = error.status.message if isinstance(error, ApiError) else str(error)
            text = f'failed to provision volume with StorageClass "{storage_class.metadata.name}": {reason}'
            self.events.warning(claim, "ProvisioningFailed", text)
            raise
        self.events.normal(claim, "ProvisioningSucceeded", f"Successfully provisioned volume {name}")

    async def _selected_node(self, claim: PersistentVolumeClaim) -> Node:
        """Return the node that the scheduler chose. If it is gone, let the scheduler choose another.

        Raises:
            ProvisioningFailed: The node is gone.
        """
        name = claim.metadata.annotations[SELECTED_NODE]
        node = self.lister(Node).get(name)
        if node is not None:
            return node
        try:
            return await self.client.get(Node, name)
        except NotFound as error:
            del claim.metadata.annotations[SELECTED_NODE]
            await self.client.update(claim)
            raise ProvisioningFailed(f"failed to get target node: {error.status.message}") from error

    # ------------------------------------------------------------------------------------------------------------------- deletion

    async def _delete(self, volume: PersistentVolume) -> None:
        try:
            await self._remove_directory(volume)
        except OSError as error:
            self.events.warning(volume, "VolumeFailedDelete", str(error.strerror or error))
            raise
        if volume.metadata.deletion_timestamp is None:
            await self.client.delete(volume, options=DeleteOptions(uid=volume.metadata.uid))
        await remove_finalizer(self.client, volume, FINALIZER)

    async def _remove_directory(self, volume: PersistentVolume) -> None:
        """Remove a volume's directory if it lies where this provisioner puts it. Its author may have written any other path there."""
        source = volume.spec.host_path
        if self._root is None or source is None:
            return
        directory = self._root / volume.metadata.name
        if Path(source.path) == directory and directory.resolve() == self._root.resolve() / volume.metadata.name:
            await asyncio.to_thread(shutil.rmtree, directory, ignore_errors=False, onerror=_unless_missing)


class StandardClassCreator(Controller[StorageClass], name="standard-storage-class"):
    """Creates the default class ``standard`` of the host-path provisioner when it starts, as kind and minikube do.

    A cluster that has a default class gets no other.
    """

    async def start(self) -> None:
        classes = await self.client.list(StorageClass)
        if any(one.metadata.name == STANDARD_CLASS or _is_default(one) for one in classes):
            return
        metadata = ObjectMeta(name=STANDARD_CLASS, annotations={"storageclass.kubernetes.io/is-default-class": "true"})
        made = StorageClass(
            metadata=metadata,
            provisioner=PROVISIONER,
            reclaim_policy="Delete",
            volume_binding_mode="WaitForFirstConsumer",
            allow_volume_expansion=True,
        )
        try:
            await self.client.create(made)
        except AlreadyExists:
            return

    async def reconcile(self, storage_class: StorageClass) -> None:
        """Do nothing: the class belongs to its users."""


def _is_default(storage_class: StorageClass) -> bool:
    return storage_class.metadata.annotations.get("storageclass.kubernetes.io/is-default-class") == "true"


def _is_requested(claim: PersistentVolumeClaim) -> bool:
    """Return whether the binder has asked this provisioner for a volume."""
    asked = next((claim.metadata.annotations[key] for key in _REQUESTED_OF if key in claim.metadata.annotations), "")
    return asked == PROVISIONER and not claim.spec.volume_name and claim.metadata.deletion_timestamp is None


def _is_expendable(volume: PersistentVolume) -> bool:
    return (
        volume.metadata.annotations.get(PROVISIONED_BY) == PROVISIONER
        and volume.spec.persistent_volume_reclaim_policy == "Delete"
        and volume.status.phase in ("Released", "Failed")
        and (volume.metadata.deletion_timestamp is None or FINALIZER in volume.metadata.finalizers)
    )


def _class_name(claim: PersistentVolumeClaim) -> str:
    return claim.metadata.annotations.get(_CLASS_ANNOTATION, claim.spec.storage_class_name or "")


def _check(claim: PersistentVolumeClaim) -> None:
    """Refuse claims that a directory cannot satisfy.

    Raises:
        ProvisioningFailed: With the reason.
    """
    if claim.spec.selector is not None:
        raise ProvisioningFailed("claim.Spec.Selector is not supported")
    if claim.spec.volume_mode == "Block":
        raise ProvisioningFailed(f"{PROVISIONER} does not support block volume provisioning")
    if claim.spec.data_source is not None or claim.spec.data_source_ref is not None:
        raise ProvisioningFailed(f"{PROVISIONER} cannot provision a claim with a data source")


def _volume(name: str, claim: PersistentVolumeClaim, storage_class: StorageClass, node: Node | None) -> PersistentVolume:
    policy = storage_class.reclaim_policy or "Delete"
    directory = storage_class.parameters.get(DIRECTORY_PARAMETER, DIRECTORY)
    affinity = None
    if node is not None:
        hostname = node.metadata.labels.get(_HOSTNAME, node.metadata.name)
        expression = NodeSelectorRequirement(key=_HOSTNAME, operator="In", values=[hostname])
        term = NodeSelectorTerm(match_expressions=[expression])
        affinity = VolumeNodeAffinity(required=NodeSelector(node_selector_terms=[term]))
    reference = ObjectReference(
        api_version="v1",
        kind="PersistentVolumeClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
        resource_version=claim.metadata.resource_version,
    )
    return PersistentVolume(
        metadata=ObjectMeta(name=name, annotations={PROVISIONED_BY: PROVISIONER}, finalizers=[FINALIZER] if policy == "Delete" else []),
        spec=PersistentVolumeSpec(
            access_modes=claim.spec.access_modes,
            capacity={"storage": claim.spec.resources.requests["storage"]},
            claim_ref=reference,
            host_path=HostPathVolumeSource(path=str(Path(directory) / name), type="DirectoryOrCreate"),
            mount_options=storage_class.mount_options,
            node_affinity=affinity,
            persistent_volume_reclaim_policy=policy,
            storage_class_name=storage_class.metadata.name,
            volume_mode=claim.spec.volume_mode,
        ),
    )


def _unless_missing(_: object, __: str, failure: tuple[type[BaseException], BaseException, object]) -> None:
    if not isinstance(failure[1], FileNotFoundError):
        raise failure[1]
